package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
)

// checkBolt reads the pages of a bolt file that a transaction could reach and
// checks that they are consistent. It must run before bolt maps the file.
//
// bolt trusts its pages. A damaged page may make it panic, or read outside of
// the mapping, and no caller can turn that into an error. A damaged count of
// keys may make it lose keys without an error. If the newer of its two meta
// pages is damaged, bolt uses the older one, and the last transaction, which
// may contain a vote, is lost. So checkBolt requires both meta pages to be
// valid. Every file that a crash can leave fulfills this requirement: the 80
// bytes of a meta page that matter lie within one sector, which a disk writes
// completely or not at all.
//
// Our own checksums protect the values (kv.go, trailer.go).
func checkBolt(path string, bad corrupter) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return bad.file(path, "it is missing")
	}
	if err != nil {
		return err
	}
	c := boltFile{f: f, seen: map[uint64]bool{0: true, 1: true}}
	err = c.check()
	if cerr := f.Close(); err == nil && cerr != nil {
		return fmt.Errorf("close %s: %w", path, cerr)
	}
	var damage boltDamage
	if errors.As(err, &damage) {
		return bad.file(path, "%s", string(damage))
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	return nil
}

// boltDamage describes the damage of a bolt file.
type boltDamage string

func (d boltDamage) Error() string { return string(d) }

func damagef(format string, args ...any) error { return boltDamage(fmt.Sprintf(format, args...)) }

// Layout of bolt's file format, version 2 (bbolt internal/common).
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltNoFreelist = ^uint64(0)

	boltHeader = 16 // id u64, flags u16, count u16, overflow u32
	boltElem   = 16 // branch: pos, ksize u32, pgid u64; leaf: flags, pos, ksize, vsize u32

	boltBranchPage   = 0x01
	boltLeafPage     = 0x02
	boltMetaPage     = 0x04
	boltFreelistPage = 0x10

	boltBucketEntry = 0x01
)

type boltMeta struct {
	pageSize, root, freelist, pages, txid uint64
}

type boltFile struct {
	f    *os.File
	meta boltMeta
	seen map[uint64]bool // pages in use

	buckets []string // names in the root tree
}

func (c *boltFile) check() error {
	info, err := c.f.Stat()
	if err != nil {
		return err
	}
	m0, err := c.readMeta(0, 0)
	if err != nil {
		return err
	}
	m1, err := c.readMeta(1, m0.pageSize)
	if err != nil {
		return err
	}
	c.meta = m0
	if m1.txid > m0.txid {
		c.meta = m1
	}
	if m0.pageSize != m1.pageSize || m0.txid != m1.txid+1 && m1.txid != m0.txid+1 {
		return damagef("its meta pages belong to transactions %d and %d, which are not consecutive", m0.txid, m1.txid)
	}
	if uint64(info.Size()) < c.meta.pages*c.meta.pageSize {
		return damagef("it has %d bytes, but %d pages of %d bytes are in use",
			info.Size(), c.meta.pages, c.meta.pageSize)
	}
	if c.meta.freelist != boltNoFreelist {
		p, err := c.readPage(c.meta.freelist)
		if err != nil {
			return err
		}
		if p.flags != boltFreelistPage {
			return damagef("page %d should be the free list", p.id)
		}
	}
	root, err := c.readPage(c.meta.root)
	if err != nil {
		return err
	}
	if err := c.checkPage(root, nil, nil, true); err != nil {
		return err
	}
	// raft-boltdb creates a missing bucket, so an empty bucket would replace a
	// bucket whose name is damaged.
	if got := strings.Join(c.buckets, " "); got != "conf logs" {
		return damagef("it holds the buckets %q instead of conf and logs", got)
	}
	return nil
}

// readMeta reads one of the two meta pages.
func (c *boltFile) readMeta(id, pageSize uint64) (m boltMeta, err error) {
	b := make([]byte, boltHeader+64)
	if _, err := c.f.ReadAt(b, int64(id*pageSize)); errors.Is(err, io.EOF) {
		return m, damagef("meta page %d is missing", id)
	} else if err != nil {
		return m, err
	}
	if binary.LittleEndian.Uint64(b) != id || binary.LittleEndian.Uint16(b[8:]) != boltMetaPage {
		return m, damagef("page %d is not a meta page", id)
	}
	b = b[boltHeader:]
	h := fnv.New64a()
	h.Write(b[:56])
	if h.Sum64() != binary.LittleEndian.Uint64(b[56:]) {
		return m, damagef("the checksum of meta page %d does not match", id)
	}
	if binary.LittleEndian.Uint32(b) != boltMagic || binary.LittleEndian.Uint32(b[4:]) != boltVersion {
		return m, damagef("meta page %d has another format", id)
	}
	m.pageSize = uint64(binary.LittleEndian.Uint32(b[8:]))
	m.root = binary.LittleEndian.Uint64(b[16:])
	m.freelist = binary.LittleEndian.Uint64(b[32:])
	m.pages = binary.LittleEndian.Uint64(b[40:])
	m.txid = binary.LittleEndian.Uint64(b[48:])
	if m.pageSize < 512 || m.pageSize > 1<<24 || m.pages < 4 || m.pages > 1<<40 {
		return m, damagef("meta page %d holds impossible sizes", id)
	}
	return m, nil
}

// boltPage is a page with its overflow pages.
type boltPage struct {
	id    uint64
	flags uint16
	count int
	buf   []byte // starts with the header
}

func parseBoltPage(id uint64, b []byte) boltPage {
	return boltPage{
		id:    id,
		flags: binary.LittleEndian.Uint16(b[8:]),
		count: int(binary.LittleEndian.Uint16(b[10:])),
		buf:   b,
	}
}

// readPage reads a page and marks it as used. A page can be used only once.
func (c *boltFile) readPage(id uint64) (p boltPage, err error) {
	if id < 2 || id >= c.meta.pages {
		return p, damagef("it refers to page %d of %d", id, c.meta.pages)
	}
	var h [boltHeader]byte
	if _, err := c.f.ReadAt(h[:], int64(id*c.meta.pageSize)); err != nil {
		return p, err
	}
	over := uint64(binary.LittleEndian.Uint32(h[12:]))
	if binary.LittleEndian.Uint64(h[:]) != id || id+over >= c.meta.pages {
		return p, damagef("page %d has a damaged header", id)
	}
	for i := id; i <= id+over; i++ {
		if c.seen[i] {
			return p, damagef("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	b := make([]byte, (over+1)*c.meta.pageSize)
	if _, err := c.f.ReadAt(b, int64(id*c.meta.pageSize)); err != nil {
		return p, err
	}
	return parseBoltPage(id, b), nil
}

// boltEntry is an element of a leaf or branch page.
type boltEntry struct {
	key, val []byte
	flags    uint32
	child    uint64
}

// entries returns the elements of a page. bolt writes the headers of the
// elements, and then the keys and values in the same order without gaps. So a
// change of any count, position or size is detected.
func (p boltPage) entries(pageSize int) ([]boltEntry, error) {
	leaf := p.flags == boltLeafPage
	if !leaf && p.flags != boltBranchPage {
		return nil, damagef("page %d is neither leaf nor branch", p.id)
	}
	if !leaf && p.count == 0 {
		return nil, damagef("page %d is a branch without children", p.id)
	}
	at := boltHeader + boltElem*p.count
	if at > len(p.buf) {
		return nil, damagef("page %d claims %d elements", p.id, p.count)
	}
	out := make([]boltEntry, p.count)
	for i := range out {
		off := boltHeader + boltElem*i
		h := p.buf[off : off+boltElem]
		var e boltEntry
		var pos, ksize, vsize uint64
		if leaf {
			e.flags = binary.LittleEndian.Uint32(h)
			pos = uint64(binary.LittleEndian.Uint32(h[4:]))
			ksize = uint64(binary.LittleEndian.Uint32(h[8:]))
			vsize = uint64(binary.LittleEndian.Uint32(h[12:]))
		} else {
			pos = uint64(binary.LittleEndian.Uint32(h))
			ksize = uint64(binary.LittleEndian.Uint32(h[4:]))
			e.child = binary.LittleEndian.Uint64(h[8:])
		}
		if uint64(off)+pos != uint64(at) || ksize == 0 || uint64(at)+ksize+vsize > uint64(len(p.buf)) {
			return nil, damagef("element %d of page %d is damaged", i, p.id)
		}
		e.key = p.buf[at : at+int(ksize)]
		e.val = p.buf[at+int(ksize) : at+int(ksize+vsize)]
		at += int(ksize + vsize)
		out[i] = e
	}
	// bolt allocates exactly the pages that the elements need. A damaged
	// overflow count would add pages that are in use to the free list.
	if pageSize > 0 && (at+pageSize-1)/pageSize*pageSize != len(p.buf) {
		return nil, damagef("page %d does not fill its %d bytes", p.id, len(p.buf))
	}
	return out, nil
}

// checkPage checks a leaf or branch and everything below it. All keys must lie
// in [lo, hi); nil means no bound. The elements of the root tree, and only
// those, must be buckets.
func (c *boltFile) checkPage(p boltPage, lo, hi []byte, root bool) error {
	pageSize := int(c.meta.pageSize)
	if p.id == 0 {
		pageSize = 0 // an inline page lies within a value
	}
	es, err := p.entries(pageSize)
	if err != nil {
		return err
	}
	for i, e := range es {
		if i > 0 {
			lo = es[i-1].key
		}
		order := bytes.Compare(lo, e.key)
		if lo != nil && (order > 0 || i > 0 && order == 0) || hi != nil && bytes.Compare(e.key, hi) >= 0 {
			return damagef("the keys of page %d are out of order", p.id)
		}
		switch {
		case p.flags == boltBranchPage:
			next := hi
			if i+1 < len(es) {
				next = es[i+1].key
			}
			child, err := c.readPage(e.child)
			if err != nil {
				return err
			}
			if err := c.checkPage(child, e.key, next, root); err != nil {
				return err
			}
		case e.flags == boltBucketEntry && root:
			c.buckets = append(c.buckets, string(e.key))
			if err := c.checkBucket(p, e.val); err != nil {
				return err
			}
		case e.flags != 0 || root:
			return damagef("an element of page %d has the wrong flags", p.id)
		}
	}
	return nil
}

// checkBucket checks the tree of a bucket, or the inline page in the value of a
// small bucket.
func (c *boltFile) checkBucket(in boltPage, val []byte) error {
	if len(val) < 16 {
		return damagef("a bucket of page %d is damaged", in.id)
	}
	if id := binary.LittleEndian.Uint64(val); id != 0 {
		p, err := c.readPage(id)
		if err != nil {
			return err
		}
		return c.checkPage(p, nil, nil, false)
	}
	val = val[16:]
	if len(val) < boltHeader {
		return damagef("an inline bucket of page %d is damaged", in.id)
	}
	return c.checkPage(parseBoltPage(0, val), nil, nil, false)
}
