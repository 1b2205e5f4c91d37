package main

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// These are the ways in which an image may differ from the state that the
// processes saw. A run counts its images by these differences; an image may
// have several of them.
const (
	writeMissing  = "write missing"
	writeTorn     = "write torn"
	writeReorder  = "later write there, earlier one not"
	sizeOnly      = "new size without the content"
	resizeMissing = "truncation or allocation missing"
	nameMissing   = "new name missing"
	renameMissing = "rename missing"
	removeMissing = "removal missing"
	allThere      = "all there, though not synced"
	nothingOpen   = "nothing open: only the moment counts"
)

var mutations = []string{writeMissing, writeTorn, writeReorder, sizeOnly, resizeMissing, nameMissing, renameMissing,
	removeMissing, allThere, nothingOpen}

// sampler draws one image.
type sampler struct {
	rng   *rand.Rand
	marks map[string]bool
	open  bool // true if at least one change was not durable
	// data and names select which of the changes that are not durable reach
	// the image: see the constants below.
	data, names int
}

// These are the ways to select changes. For names, each way except none and all
// selects a prefix.
const (
	none    = iota
	all     // every change
	front   // a prefix; if the next change is a write, also some of its sectors
	back    // a suffix
	some    // each change of size, and each sector of a write, or not, at random
	sectors // the same as some
	ways
)

// drawn is a file or directory of an image.
type drawn struct {
	content *content          // for a file
	names   map[string]*drawn // for a directory
}

// image holds the data directories that a loss of power leaves, by node.
type image struct {
	dirs  []*drawn // nil for a directory that does not exist
	marks []string
	sum   uint64
}

// draw makes an image of the disks of all machines.
func draw(rng *rand.Rand, disks []*disk) *image {
	a := &sampler{rng: rng, marks: make(map[string]bool)}
	im := &image{}
	h := fnv.New64a()
	for _, d := range disks {
		a.data, a.names = rng.IntN(ways), rng.IntN(ways)
		top := a.paint(d.top)
		own := top.names[d.own[1:]]
		im.dirs = append(im.dirs, own)
		own.hash(h.Write)
	}
	im.sum = h.Sum64()
	if !a.open {
		a.marks[nothingOpen] = true
	} else if len(a.marks) == 0 {
		a.marks[allThere] = true
	}
	for m := range a.marks {
		im.marks = append(im.marks, m)
	}
	slices.Sort(im.marks)
	return im
}

func (a *sampler) paint(n *node) *drawn {
	a.open = a.open || len(n.pending) > 0
	if !n.dir {
		return &drawn{content: a.file(n)}
	}
	names := make(map[string]*node, len(n.names))
	for name, c := range n.names {
		names[name] = c
	}
	there := 0
	switch a.names {
	case all:
		there = len(n.pending)
	case none:
	default:
		there = a.rng.IntN(len(n.pending) + 1)
	}
	for i, c := range n.pending {
		switch {
		case i < there:
			c.rename(names)
		case c.old != "":
			a.marks[renameMissing] = true
		case c.node == nil:
			a.marks[removeMissing] = true
		default:
			a.marks[nameMissing] = true
		}
	}
	d := &drawn{names: make(map[string]*drawn)}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.names[name] = a.paint(names[name])
	}
	return d
}

// file draws the content of a file.
func (a *sampler) file(n *node) *content {
	c := n.durable.clone()
	pending := n.pending
	cut := a.rng.IntN(len(pending) + 1)
	// last maps each sector to the last write of this sector that has reached
	// the disk. All earlier writes of the sector have reached the disk too.
	last := make(map[int64]int)
	lost := false
	for i, ch := range pending {
		if ch.data == nil {
			if a.keeps(i, cut) {
				continue
			}
			a.marks[resizeMissing] = true
			pending = pending[:i]
			break
		}
		kept, dropped := 0, 0
		for s := ch.off / sectorSize; s*sectorSize < ch.off+int64(len(ch.data)); s++ {
			there := a.keeps(i, cut)
			if a.data == sectors || a.data == front && i == cut {
				there = a.rng.IntN(2) == 0
			}
			if there {
				last[s] = i
				kept++
			} else {
				dropped++
			}
		}
		switch {
		case dropped == 0:
			a.mark(writeReorder, lost)
		case kept == 0:
			lost = true
			a.marks[writeMissing] = true
		default:
			lost = true
			a.marks[writeTorn] = true
		}
	}
	grow := a.rng.IntN(4) == 0
	for i, ch := range pending {
		if ch.data == nil {
			c.resize(ch.size)
			continue
		}
		end := ch.off + int64(len(ch.data))
		for s := ch.off / sectorSize; s*sectorSize < end; s++ {
			if k, ok := last[s]; !ok || i > k {
				continue
			}
			from, to := max(s*sectorSize, ch.off), min((s+1)*sectorSize, end)
			c.size = max(c.size, to)
			c.write(from, ch.data[from-ch.off:to-ch.off])
		}
		if grow && end > c.size {
			c.size = end
			a.marks[sizeOnly] = true
		}
	}
	return c
}

func (a *sampler) mark(what string, is bool) {
	if is {
		a.marks[what] = true
	}
}

// keeps reports whether change i of a file, or a sector of this change, reaches the
// image.
func (a *sampler) keeps(i, cut int) bool {
	switch a.data {
	case none:
		return false
	case front:
		return i < cut
	case back:
		return i >= cut
	case some, sectors:
		return a.rng.IntN(2) == 0
	}
	return true
}

// hash writes a file or directory of the image to a hash function. Images with
// the same hash count as equal.
func (d *drawn) hash(write func([]byte) (int, error)) {
	number := func(n int64) { write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	switch {
	case d == nil:
		number(-1)
	case d.content != nil:
		number(d.content.size)
		var used []int64
		for n, b := range d.content.blocks {
			if string(b) != string(zeros) {
				used = append(used, n)
			}
		}
		slices.Sort(used)
		for _, n := range used {
			number(n)
			write(d.content.blocks[n])
		}
	default:
		number(int64(len(d.names)))
		var names []string
		for name := range d.names {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			write([]byte(name + "\x00"))
			d.names[name].hash(write)
		}
	}
}

// save writes a file or directory of the image to path.
func (d *drawn) save(path string) error {
	if d == nil {
		return nil
	}
	if d.content == nil {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		for name, c := range d.names {
			if err := c.save(filepath.Join(path, name)); err != nil {
				return err
			}
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(d.content.size)
	for n, b := range d.content.blocks {
		off := n * blockSize
		if err == nil && off < d.content.size && string(b) != string(zeros) {
			_, err = f.WriteAt(b[:min(blockSize, d.content.size-off)], off)
		}
	}
	return errors.Join(err, f.Close())
}
