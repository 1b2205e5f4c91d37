package migrate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// FileError says that an RDB file cannot be imported.
type FileError struct {
	Offset int64 // offset in the file at which the error was found
	Reason string
}

func (e *FileError) Error() string { return fmt.Sprintf("at byte %d: %s", e.Offset, e.Reason) }

const (
	rdbMagic = "REDIS"
	// maxRDBVersion is the version of Redis 7.0.
	maxRDBVersion = 10
)

// These are the opcodes of an RDB file. Any other byte in place of an opcode
// begins a key: it is the type of the key's value.
const (
	opModuleAux   = 247
	opFunctionOld = 246
	opFunction    = 245
	opIdle        = 248
	opFreq        = 249
	opAux         = 250
	opResizeDB    = 251
	opExpireMs    = 252
	opExpire      = 253
	opSelectDB    = 254
	opEnd         = 255
)

// maxName is the maximum length in bytes of a key, a name or a library of
// functions that a scanner accepts.
const maxName = 16 << 20

// scanner reads an RDB file. It keeps only one key with its value in memory at
// a time, and at most keepLimit bytes of the value.
type scanner struct {
	r       *bufio.Reader
	offset  int64
	sum     uint64 // checksum of the bytes that were read
	version int
	small   [8]byte
	// While keeping is true, kept contains the prefix that keep was called with,
	// and the bytes that were read since then, up to keepLimit bytes in all.
	kept      []byte
	keeping   bool
	keepLimit int
	size      int // length of the prefix and of all bytes that were read since keep was called
}

// newScanner reads the head of an RDB file.
func newScanner(r io.Reader, keepLimit int) (*scanner, error) {
	s := &scanner{r: bufio.NewReaderSize(r, 256<<10), keepLimit: keepLimit}
	head := make([]byte, len(rdbMagic)+4)
	if err := s.full(head); err != nil || string(head[:len(rdbMagic)]) != rdbMagic {
		return nil, &FileError{0, "it is not an RDB file of Redis"}
	}
	v, err := strconv.Atoi(string(head[len(rdbMagic):]))
	switch {
	case err != nil || v < 1:
		return nil, &FileError{0, "it is not an RDB file of Redis"}
	case v > maxRDBVersion:
		return nil, &FileError{int64(len(rdbMagic)), fmt.Sprintf("RDB version %d is newer than %d, the version of "+
			"Redis 7.0: import from the running server (holdfast import redis://HOST:PORT)", v, maxRDBVersion)}
	}
	s.version = v
	return s, nil
}

// full reads exactly len(b) bytes.
func (s *scanner) full(b []byte) error {
	n, err := io.ReadFull(s.r, b)
	s.took(b[:n])
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.bad("the file is cut off")
	}
	return err
}

// took counts bytes that were read, adds them to the checksum, and keeps them
// if keeping is set and keepLimit permits it.
func (s *scanner) took(b []byte) {
	s.offset += int64(len(b))
	s.sum = rdb.Checksum(s.sum, b)
	if !s.keeping {
		return
	}
	s.size += len(b)
	if len(s.kept)+len(b) <= s.keepLimit {
		s.kept = append(s.kept, b...)
	}
}

func (s *scanner) byte() (byte, error) {
	err := s.full(s.small[:1])
	return s.small[0], err
}

// skip reads past n bytes.
func (s *scanner) skip(n uint64) error {
	for n > 0 {
		b, err := s.r.Peek(int(min(n, 64<<10)))
		s.took(b)
		if _, derr := s.r.Discard(len(b)); derr != nil {
			return derr
		}
		n -= uint64(len(b))
		if n > 0 && err == io.EOF {
			return s.bad("the file is cut off")
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// keep returns prefix followed by the bytes that f reads. If the result is
// longer than keepLimit, b is incomplete and whole is false.
func (s *scanner) keep(prefix []byte, f func() error) (b []byte, whole bool, err error) {
	s.kept, s.keeping, s.size = append([]byte(nil), prefix...), true, len(prefix)
	err = f()
	b, whole = s.kept, s.size == len(s.kept)
	s.kept, s.keeping = nil, false
	return b, whole, err
}

// text reads a string and returns it.
func (s *scanner) text(limit int) (string, error) {
	was := s.keepLimit
	s.keepLimit = limit
	b, whole, err := s.keep(nil, s.skipString)
	s.keepLimit = was
	if err != nil {
		return "", err
	}
	if !whole {
		return "", s.bad("a string is longer than %d bytes", limit)
	}
	r := rdb.NewReader(b, rdb.Limits{String: limit, Unfolded: limit})
	text := r.Text()
	if r.Err() != nil || r.Len() > 0 {
		return "", s.bad("a string cannot be read")
	}
	return string(text), nil
}

// visitor contains the functions that scan calls for the parts of an RDB file.
// If one of them returns an error, the scan ends.
type visitor struct {
	key      func(item) error
	function func(code string) error
}

// scan reads the rest of the file, and compares its checksum. aux contains the
// names and values with which the file describes itself.
func (s *scanner) scan(v visitor) (aux map[string]string, err error) {
	aux = make(map[string]string)
	var it item
	for {
		op, err := s.byte()
		if err != nil {
			return aux, err
		}
		switch op {
		case opEnd:
			return aux, s.end()
		case opSelectDB:
			n, err := s.length()
			if err != nil {
				return aux, err
			}
			it.db = int(min(n, 1<<31-1))
		case opExpire, opExpireMs:
			if it.life, err = s.expiry(op); err != nil {
				return aux, err
			}
		case opAux:
			if err := s.aux(aux); err != nil {
				return aux, err
			}
		case opFunction:
			code, err := s.text(maxName)
			if err != nil {
				return aux, err
			}
			if err := v.function(code); err != nil {
				return aux, err
			}
		case opResizeDB, opFreq, opIdle, opModuleAux, opFunctionOld:
			if err := s.passOver(op); err != nil {
				return aux, err
			}
		default:
			if err := s.item(op, &it); err != nil {
				return aux, err
			}
			if err := v.key(it); err != nil {
				return aux, err
			}
			it = item{db: it.db}
		}
	}
}

// aux reads a name and a value that describe the file, and adds them to all.
func (s *scanner) aux(all map[string]string) error {
	name, err := s.text(maxName)
	if err != nil {
		return err
	}
	value, err := s.text(maxName)
	all[name] = value
	return err
}

func (s *scanner) expiry(op byte) (lifetime, error) {
	if op == opExpire {
		err := s.full(s.small[:4])
		return lifetime{volatile: true, unixMs: 1000 * int64(int32(binary.LittleEndian.Uint32(s.small[:4])))}, err
	}
	err := s.full(s.small[:8])
	return lifetime{volatile: true, unixMs: int64(binary.LittleEndian.Uint64(s.small[:8]))}, err
}

// passOver reads past the data after an opcode that an import does not need.
func (s *scanner) passOver(op byte) error {
	switch op {
	case opResizeDB:
		return s.skipLengths(2)
	case opFreq:
		return s.skip(1)
	case opIdle:
		return s.skipLength()
	case opFunctionOld:
		return s.bad("it contains functions in the format of a release candidate of Redis 7.0: load and save it " +
			"with Redis 7.0 first")
	}
	// This is the data of a module that belongs to no key. It consists of an
	// id, an opcode, a time, and parts.
	if err := s.skipLengths(3); err != nil {
		return err
	}
	return s.skipModuleParts()
}

// item reads a key and its value.
func (s *scanner) item(kind byte, it *item) (err error) {
	if it.key, err = s.text(maxName); err != nil {
		return err
	}
	if it.reason = unsupported(kind); kind == typeModule {
		name, err := s.skipModule()
		it.reason += " (" + name + ")"
		return err
	}
	payload, whole, err := s.keep([]byte{kind}, func() error { return s.value(kind) })
	switch {
	case err != nil:
		return err
	case !whole:
		it.reason = tooLarge(s.size, "an import", s.keepLimit)
	case it.reason == "":
		it.payload = rdb.Seal(payload)
	}
	return nil
}

// largestValue is the size in bytes up to which the scanner of an import keeps a
// value, unless the cluster accepts larger arguments. A collection may be larger
// than the largest argument of a command: see divided.
const largestValue = 512 << 20

// tooLarge returns the reason why a value is not imported. by is the part that
// does not accept values of more than limit bytes.
func tooLarge(size int, by string, limit int) string {
	return fmt.Sprintf("the value takes %d bytes in the format of DUMP, and %s accepts %d", size, by, limit)
}

// end compares the checksum and checks that nothing follows.
func (s *scanner) end() error {
	if s.version >= 5 {
		sum := s.sum
		if err := s.full(s.small[:8]); err != nil {
			return err
		}
		// 0 means that Redis was configured to write no checksum.
		if want := binary.LittleEndian.Uint64(s.small[:8]); want != 0 && want != sum {
			return s.bad("the checksum does not match: the file is damaged, use another copy")
		}
	}
	if _, err := s.r.ReadByte(); err != io.EOF {
		return s.bad("there are bytes after the end")
	}
	return nil
}
