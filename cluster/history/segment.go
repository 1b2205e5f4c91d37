package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// segmentMagic is the header of a segment. Its last byte is the version of the
// format.
var segmentMagic = []byte("HFLOCKS\x01")

const segmentSuffix = ".locks"

// keySeed is random, so that clients cannot choose keys with the same hash.
var keySeed = maphash.MakeSeed()

func keyHash(key string) uint32 { return uint32(maphash.String(keySeed, key)) }

// segment is one file of a store, with an index in memory. Only the writing
// goroutine changes a segment, and it holds Store.index while it does so. Other
// goroutines hold Store.index while they read the fields or the file.
type segment struct {
	number uint64
	path   string
	file   *os.File // nil after the segment was removed
	size   int64

	// keys contains an element for each event of a key. The upper half of an
	// element is the hash of the key, and the lower half is the offset of the
	// frame. In a sealed segment, the elements are sorted. In the newest
	// segment, they are in the order of their offsets.
	keys   []uint64
	sealed bool

	first uint64 // log index of the first frame, 0 if there is none
	wall  int64  // wall clock of the first frame, in microseconds
}

// add adds the frame at the given offset to the index. hashes contains the
// hashes of the keys of the frame's events.
func (g *segment) add(index uint64, clock fsm.Clock, hashes []uint32, offset int64) {
	if g.first == 0 {
		g.first, g.wall = index, clock.Wall
	}
	for _, hash := range hashes {
		g.keys = append(g.keys, uint64(hash)<<32|uint64(offset))
	}
}

// addFrame adds a frame to the index. The frame was read from the file.
func (g *segment) addFrame(f *frame, offset int64) {
	g.add(f.index, f.clock, nil, offset)
	for i := range f.events {
		if e := &f.events[i]; e.Kind == fsm.LockGranted || e.Kind == fsm.LockEnded {
			g.keys = append(g.keys, uint64(keyHash(e.Key))<<32|uint64(offset))
		}
	}
}

// seal sorts the index of a segment that gets no further frames.
func (g *segment) seal() {
	slices.Sort(g.keys)
	g.keys = slices.Clip(g.keys)
	g.sealed = true
}

// frames returns the offsets of the frames that may contain events of a key, in
// ascending order.
func (g *segment) frames(hash uint32) (offsets []int64) {
	keys := g.keys
	if g.sealed {
		from, _ := slices.BinarySearch(keys, uint64(hash)<<32)
		to, _ := slices.BinarySearch(keys, (uint64(hash)+1)<<32)
		if hash == 1<<32-1 {
			to = len(keys)
		}
		keys = keys[from:to]
	}
	for _, k := range keys {
		offset := int64(uint32(k))
		if uint32(k>>32) == hash && (len(offsets) == 0 || offsets[len(offsets)-1] != offset) {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// readAhead is how many bytes of a frame are read before its length is known.
const readAhead = 1024

// read reads the frame at an offset. It returns os.ErrClosed if the segment was
// removed.
func (g *segment) read(offset int64) (frame, error) {
	if g.file == nil {
		return frame{}, os.ErrClosed
	}
	b := make([]byte, min(readAhead, g.size-offset))
	if _, err := g.file.ReadAt(b, offset); err != nil {
		return frame{}, fmt.Errorf("read history of locks: %w", err)
	}
	if n := frameHeader + int64(binary.LittleEndian.Uint32(b)); n > int64(len(b)) && n <= g.size-offset {
		b = append(b, make([]byte, n-int64(len(b)))...)
		if _, err := g.file.ReadAt(b[readAhead:], offset+readAhead); err != nil {
			return frame{}, fmt.Errorf("read history of locks: %w", err)
		}
	}
	payload, _, err := cutFrame(b)
	if err != nil {
		return frame{}, fmt.Errorf("history of locks, %s at %d: %w", g.path, offset, err)
	}
	return decodeFrame(payload)
}

// segmentPath returns the path of the segment with a number.
func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", number, segmentSuffix))
}

// createSegment creates an empty segment.
func createSegment(dir string, number uint64) (*segment, error) {
	g := &segment{number: number, path: segmentPath(dir, number), size: int64(len(segmentMagic))}
	f, err := os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(segmentMagic, 0)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(g.path))
	}
	g.file = f
	return g, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// segmentReader opens segments one after another. It reuses its memory for the
// next segment. This makes a start faster, because a node that starts waits
// until all segments have been read.
type segmentReader struct {
	text  bytes.Buffer // content of the file
	frame frame        // frame that was read last
	keys  []uint64     // elements of segment.keys
}

// open opens a segment, and calls f for each frame. The frame, and the texts of
// its events, are valid until f returns. g.size is the end of the last valid
// frame. If the file has more bytes, bad says why they are not a valid frame.
func (r *segmentReader) open(path string, number uint64, f func(f *frame)) (g *segment, bad, err error) {
	g = &segment{number: number, path: path}
	if g.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	r.text.Reset()
	if _, err = r.text.ReadFrom(g.file); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read %s: %w", path, err), g.file.Close())
	}
	b := r.text.Bytes()
	if len(b) < len(segmentMagic) || string(b[:len(segmentMagic)]) != string(segmentMagic) {
		return g, codec.ErrVersion, nil
	}
	g.keys = r.keys[:0]
	at := len(segmentMagic)
	for at < len(b) {
		payload, n, err := cutFrame(b[at:])
		if err == nil {
			err = r.frame.decode(payload)
		}
		if err != nil {
			bad = err
			break
		}
		g.addFrame(&r.frame, int64(at))
		f(&r.frame)
		at += n
	}
	g.size = int64(at)
	r.keys, g.keys = g.keys, slices.Clone(g.keys)
	return g, bad, nil
}

// listSegments returns the numbers of the segments in a directory, in ascending
// order.
func listSegments(dir string) (numbers []uint64, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if n, err := strconv.ParseUint(name, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.SortFunc(numbers, cmp.Compare[uint64])
	return numbers, nil
}

// remove deletes the file of a segment.
func (g *segment) remove() error {
	f := g.file
	g.file = nil
	return errors.Join(f.Close(), os.Remove(g.path))
}
