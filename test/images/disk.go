package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// content is the content of a file. A missing block stands for zeros. Blocks
// are never changed in place, so copies of a content can share them.
type content struct {
	size   int64
	blocks map[int64][]byte
}

const (
	blockSize  = 4096
	sectorSize = 512
)

func (c *content) clone() *content { return &content{c.size, maps.Clone(c.blocks)} }

// write puts b at offset off. It does not change the size of the file.
func (c *content) write(off int64, b []byte) {
	for len(b) > 0 {
		n := off / blockSize
		in := off % blockSize
		block := make([]byte, blockSize)
		copy(block, c.blocks[n])
		k := copy(block[in:], b)
		if c.blocks == nil {
			c.blocks = make(map[int64][]byte)
		}
		c.blocks[n] = block
		off, b = off+int64(k), b[k:]
	}
}

// resize sets the size of the file. It cuts the file or adds zeros.
func (c *content) resize(size int64) {
	if size < c.size {
		for n := range c.blocks {
			if n*blockSize >= size {
				delete(c.blocks, n)
			}
		}
		if rest := size % blockSize; rest > 0 && c.blocks[size/blockSize] != nil {
			c.write(size, make([]byte, blockSize-rest))
		}
	}
	c.size = size
}

// change is a modification that is not durable yet, of a file or of the names
// in a directory.
type change struct {
	ended bool // the call has returned
	life  int  // which process of the node made the change, counted from 0

	// For a file: data at offset off. If data is nil, the change sets the size
	// of the file to size.
	off  int64
	data []byte
	size int64

	// For a directory: name refers to node from now on. If node is nil, the
	// name is removed.
	name, old string // old: the name that a rename removes, "" if none
	node      *node
}

// node is a file or a directory.
type node struct {
	dir     bool
	durable content          // for a file
	names   map[string]*node // for a directory: the names that are durable
	pending []*change        // changes that are not durable yet, in order

	live   map[string]*node // for a directory: the names as the processes see them
	parent *node
	grown  int64 // size of a file as the processes see it
}

func newDir(parent *node) *node {
	return &node{dir: true, names: make(map[string]*node), live: make(map[string]*node), parent: parent}
}

// disk models the file system of one machine. It contains only the data
// directory and its parent directory.
type disk struct {
	root string // the parent of the data directory
	own  string // "/" followed by the name of the data directory
	top  *node
	at   map[string]int64 // offsets in open files, by descriptor
	// forgets, if set, reports for which files fsync has no effect.
	// Controls set it.
	forgets func(path string) bool
	syncing map[*call][]func()
	writing map[*call]*change
	// touched describes the last step, by the kind of file and the call, if the
	// step changed a file or a directory, or began an fsync. Otherwise it is
	// "".
	touched string
	life    int // which process of the node runs now or runs next, counted from 0
}

func newDisk(dataDir string) *disk {
	root, name := path.Split(dataDir)
	return &disk{root: path.Clean(root), own: "/" + name, top: newDir(nil),
		at: make(map[string]int64), syncing: make(map[*call][]func()), writing: make(map[*call]*change)}
}

// inside returns the path below root. ok reports whether the path belongs to
// this node.
func (d *disk) inside(p string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(path.Clean(p), d.root)
	return rel, ok && (rel == "" || rel == d.own || strings.HasPrefix(rel, d.own+"/"))
}

// find returns the file or directory that a process sees at a path, or nil if
// there is none.
func (d *disk) find(rel string) *node {
	n := d.top
	for _, name := range strings.Split(strings.Trim(rel, "/"), "/") {
		if name != "" && n != nil {
			n = n.live[name]
		}
	}
	return n
}

// parent returns the directory of a path and the last name of the path.
func (d *disk) parent(rel string) (dir *node, name string, err error) {
	if dir = d.find(path.Dir(rel)); dir == nil || !dir.dir {
		return nil, "", fmt.Errorf("%s: no such directory in the recording", rel)
	}
	return dir, path.Base(rel), nil
}

// play applies one step of a process.
func (d *disk) play(s step) error {
	d.touched = ""
	if s.call.failed() {
		delete(d.syncing, s.call)
		if d.writing[s.call] != nil {
			return fmt.Errorf("a write failed: %s", s.call.ret)
		}
		return nil
	}
	if !s.end {
		return d.begin(s.call)
	}
	return d.finish(s.call)
}

// begin handles the beginning of a call. The effect of the call may happen at
// any time after that.
func (d *disk) begin(c *call) error {
	switch c.name {
	case "write", "pwrite64":
		num, p := fd(c.arg(0))
		rel, ok := d.inside(p)
		if !ok {
			return nil
		}
		n := d.find(rel)
		if n == nil {
			return fmt.Errorf("write to %s, which is not in the recording", rel)
		}
		data, err := c.text(1)
		if err != nil {
			return err
		}
		off := d.at[num]
		if c.name == "pwrite64" {
			if off, err = c.number(3); err != nil {
				return err
			}
		} else {
			d.at[num] += int64(len(data))
		}
		w := &change{life: d.life, off: off, data: data}
		n.pending = append(n.pending, w)
		n.grown = max(n.grown, off+int64(len(data)))
		d.writing[c] = w
		d.touched = kindOf(rel) + " " + c.name
		d.several(n)
	case "fsync", "fdatasync":
		_, p := fd(c.arg(0))
		rel, ok := d.inside(p)
		if !ok || d.forgets != nil && d.forgets(rel) {
			return nil
		}
		n := d.find(rel)
		if n == nil {
			return nil // the file has no name, so no later process can find its content
		}
		d.touched = kindOf(rel) + " begin of " + c.name
		d.several(n)
		d.syncing[c] = []func(){n.syncs()}
		if c.name == "fsync" && !n.dir {
			d.syncing[c] = append(d.syncing[c], n.syncsName()...)
		}
	}
	return nil
}

const severalOpen = ", several writes open"

// several extends the text in d.touched if more than one write of a file is not
// durable.
func (d *disk) several(n *node) {
	writes := 0
	for _, c := range n.pending {
		if c.data != nil {
			writes++
		}
	}
	if writes > 1 {
		d.touched += severalOpen
	}
}

// syncs remembers the changes whose calls have returned by now. It returns a
// function that makes them durable.
func (n *node) syncs() func() {
	var done []*change
	for _, c := range n.pending {
		if c.ended {
			done = append(done, c)
		}
	}
	return func() {
		for _, c := range done {
			n.settle(c)
		}
	}
}

// syncsName returns functions that make the path to n durable.
func (n *node) syncsName() (all []func()) {
	for ; n.parent != nil; n = n.parent {
		up, last := n.parent, -1
		for i, c := range up.pending {
			if c.node == n {
				last = i
			}
		}
		done := slices.Clone(up.pending[:last+1])
		all = append(all, func() {
			for _, c := range done {
				up.settle(c)
			}
		})
	}
	return all
}

// settle makes a change durable, unless another fsync has done so already.
func (n *node) settle(c *change) {
	i := slices.Index(n.pending, c)
	if i < 0 {
		return
	}
	n.pending = slices.Delete(n.pending, i, i+1)
	if n.dir {
		c.rename(n.names)
		return
	}
	if c.data == nil {
		n.durable.resize(c.size)
		return
	}
	n.durable.size = max(n.durable.size, c.off+int64(len(c.data)))
	n.durable.write(c.off, c.data)
}

// rename applies a change of names.
func (c *change) rename(names map[string]*node) {
	if c.old != "" {
		delete(names, c.old)
	}
	if c.node == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.node
	}
}

// finish handles the end of a call. By that time the call has had its effect.
func (d *disk) finish(c *call) error {
	switch c.name {
	case "write", "pwrite64":
		w := d.writing[c]
		if w == nil {
			return nil
		}
		delete(d.writing, c)
		if c.ret != strconv.Itoa(len(w.data)) {
			return fmt.Errorf("%s of %d bytes returned %s", c.name, len(w.data), c.ret)
		}
		w.ended = true
		_, p := fd(c.arg(0))
		rel, _ := d.inside(p)
		d.touched = kindOf(rel) + " " + c.name
		return nil
	case "fsync", "fdatasync":
		for _, f := range d.syncing[c] {
			f()
		}
		delete(d.syncing, c)
		return nil
	case "openat":
		return d.opened(c)
	case "lseek":
		num, p := fd(c.arg(0))
		if _, ok := d.inside(p); ok {
			at, err := strconv.ParseInt(c.ret, 10, 64)
			d.at[num] = at
			return err
		}
		return nil
	case "ftruncate", "fallocate":
		return d.resized(c)
	case "mkdirat":
		return d.named(c, c.arg(0), c.arg(1), func(dir *node, name string) *node { return newDir(dir) })
	case "unlinkat":
		return d.named(c, c.arg(0), c.arg(1), func(*node, string) *node { return nil })
	case "renameat", "renameat2":
		return d.renamed(c)
	case "mmap":
		_, p := fd(c.arg(4))
		if _, ok := d.inside(p); ok && strings.Contains(c.arg(2), "PROT_WRITE") &&
			strings.Contains(c.arg(3), "MAP_SHARED") {
			return fmt.Errorf("%s is mapped for writing, but writes to mapped memory are not recorded", p)
		}
		return nil
	case "close", "sync_file_range":
		return nil // sync_file_range promises no durability
	}
	// Any other call that touches the disk is not supported: the recording
	// would be incomplete.
	for _, a := range c.args {
		_, p := fd(a)
		if strings.HasPrefix(a, `"`) {
			p = string(unhex(strings.Trim(a, `"`)))
		}
		if _, ok := d.inside(p); ok {
			return fmt.Errorf("system call %s on %s is not supported", c.name, p)
		}
	}
	return nil
}

// join returns the path that a call such as openat names.
func join(dirfd, arg string) string {
	p := string(unhex(strings.Trim(arg, `"`)))
	if filepath.IsAbs(p) {
		return p
	}
	_, dir := fd(dirfd)
	return path.Join(dir, p)
}

func (d *disk) opened(c *call) error {
	rel, ok := d.inside(join(c.arg(0), c.arg(1)))
	if !ok {
		return nil
	}
	num, _ := fd(c.ret)
	d.at[num] = 0
	n := d.find(rel)
	if n == nil && strings.Contains(c.arg(2), "O_CREAT") {
		return d.named(c, c.arg(0), c.arg(1), func(dir *node, name string) *node { return &node{parent: dir} })
	}
	if n == nil {
		return fmt.Errorf("open of %s, which is not in the recording", rel)
	}
	if strings.Contains(c.arg(2), "O_APPEND") {
		return fmt.Errorf("%s is opened with O_APPEND, which is not supported", rel)
	}
	if strings.Contains(c.arg(2), "O_TRUNC") && n.grown > 0 {
		n.pending = append(n.pending, &change{ended: true, life: d.life, size: 0})
		n.grown = 0
		d.touched = kindOf(rel) + " truncation"
	}
	return nil
}

func (d *disk) resized(c *call) error {
	_, p := fd(c.arg(0))
	rel, ok := d.inside(p)
	if !ok {
		return nil
	}
	n := d.find(rel)
	if n == nil {
		return fmt.Errorf("system call %s on %s, which is not in the recording", c.name, rel)
	}
	size, err := c.number(1)
	if c.name == "fallocate" {
		if c.arg(1) != "0" {
			return fmt.Errorf("fallocate of mode %s is not supported", c.arg(1))
		}
		from, err1 := c.number(2)
		length, err2 := c.number(3)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("fallocate(%v) is not supported", c.args)
		}
		size, err = max(n.grown, from+length), nil
	}
	if err != nil {
		return err
	}
	n.pending = append(n.pending, &change{ended: true, life: d.life, size: size})
	n.grown = size
	d.touched = kindOf(rel) + " " + c.name
	return nil
}

// named records a call that changes the meaning of a name in a directory. The
// function made returns the node to which the name refers from now on, or nil
// if the call removes the name.
func (d *disk) named(c *call, dirfd, arg string, made func(dir *node, name string) *node) error {
	rel, ok := d.inside(join(dirfd, arg))
	if !ok {
		return nil
	}
	dir, name, err := d.parent(rel)
	if err != nil {
		return err
	}
	ch := &change{ended: true, life: d.life, name: name, node: made(dir, name)}
	ch.rename(dir.live)
	dir.pending = append(dir.pending, ch)
	d.touched = kindOf(rel) + " " + c.name
	return nil
}

func (d *disk) renamed(c *call) error {
	from, ok := d.inside(join(c.arg(0), c.arg(1)))
	to, ok2 := d.inside(join(c.arg(2), c.arg(3)))
	if !ok && !ok2 {
		return nil
	}
	dir, name, err := d.parent(to)
	if err != nil {
		return err
	}
	n := d.find(from)
	if n == nil || path.Dir(from) != path.Dir(to) {
		return fmt.Errorf("rename of %s to %s is not supported", from, to)
	}
	ch := &change{ended: true, life: d.life, name: name, old: path.Base(from), node: n}
	ch.rename(dir.live)
	dir.pending = append(dir.pending, ch)
	d.touched = kindOf(to) + " rename"
	return nil
}

// kindOf returns the kind of the file at a path. pick draws moments by kind, so
// that rare kinds are covered too.
func kindOf(rel string) string {
	for _, k := range []string{".wal", "stable.db", "log.db", "acked", "node.json", "LOCK", "seal.json", "meta.json",
		"state.bin", "snapshots", "wal"} {
		if strings.Contains(rel, k) {
			return k
		}
	}
	return "directory"
}

// died records that the process has ended. left is a copy of its directory. The
// copy shows whether a call that had begun and not ended has had its effect.
// Everything else in the copy must be as the recording says.
func (d *disk) died(unfinished []*call, left string) error {
	defer func() { d.life++ }()
	for _, c := range unfinished {
		delete(d.syncing, c)
		w := d.writing[c]
		if w == nil {
			continue
		}
		delete(d.writing, c)
		_, p := fd(c.arg(0))
		rel, _ := d.inside(p)
		n := d.find(rel)
		w.ended = true
		if d.compare(filepath.Join(left, strings.TrimPrefix(rel, d.own)), n) != nil {
			n.pending = slices.DeleteFunc(n.pending, func(c *change) bool { return c == w })
			n.grown = n.liveContent().size
		}
	}
	for _, c := range unfinished {
		if d.check(left) == nil {
			return nil
		}
		if strings.HasPrefix(c.name, "rename") || c.name == "unlinkat" || c.name == "mkdirat" ||
			c.name == "ftruncate" || c.name == "fallocate" {
			c.ret = "0"
			if err := d.finish(c); err != nil {
				return err
			}
		}
	}
	return d.check(left)
}

// inherited returns the name of a file or directory with a change that an earlier
// process made and that no process has made durable since. It returns "" if there
// is none.
func (d *disk) inherited() string {
	own := d.find(d.own)
	if own == nil {
		return ""
	}
	return own.inherited(d.own[1:], d.life)
}

func (n *node) inherited(name string, life int) string {
	for _, c := range n.pending {
		if c.life < life {
			return name
		}
	}
	for _, below := range slices.Sorted(maps.Keys(n.live)) {
		if found := n.live[below].inherited(path.Join(name, below), life); found != "" {
			return found
		}
	}
	return ""
}

// liveContent returns the content of a file as the processes see it.
func (n *node) liveContent() *content {
	c := n.durable.clone()
	for _, ch := range n.pending {
		if ch.data == nil {
			c.resize(ch.size)
			continue
		}
		c.size = max(c.size, ch.off+int64(len(ch.data)))
		c.write(ch.off, ch.data)
	}
	return c
}

// check compares the state that the processes see with a copy of the directory.
// A difference means that the recording is incomplete and would prove nothing.
func (d *disk) check(left string) error {
	own := d.find(d.own)
	if own == nil {
		return fmt.Errorf("%s is not in the recording", d.own)
	}
	return d.compare(left, own)
}

func (d *disk) compare(real string, n *node) error {
	if !n.dir {
		b, err := os.ReadFile(real)
		if err != nil {
			return err
		}
		c := n.liveContent()
		if c.size != int64(len(b)) {
			return fmt.Errorf("%s has %d bytes, but the recording gives %d", real, len(b), c.size)
		}
		for off := 0; off < len(b); off += blockSize {
			there, want := b[off:min(off+blockSize, len(b))], c.blocks[int64(off/blockSize)]
			if want == nil {
				want = zeros
			}
			if string(there) != string(want[:len(there)]) {
				return fmt.Errorf("%s differs from the recording at offset %d", real, off)
			}
		}
		return nil
	}
	names, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	if len(names) != len(n.live) {
		return fmt.Errorf("directory %s contains %d names, but the recording gives %d", real, len(names), len(n.live))
	}
	for _, name := range slices.Sorted(maps.Keys(n.live)) {
		if err := d.compare(filepath.Join(real, name), n.live[name]); err != nil {
			return err
		}
	}
	return nil
}

var zeros = make([]byte, blockSize)
