package migrate

import (
	"encoding/binary"
	"fmt"
)

// These are some of the types of values in an RDB file.
const (
	typeString       = 0
	typeList         = 1
	typeSet          = 2
	typeZSetText     = 3
	typeHash         = 4
	typeZSet         = 5
	typeModuleOld    = 6
	typeModule       = 7
	typeZipmap       = 9
	typeZiplistHash  = 13
	typeZiplists     = 14
	typeStreamOld    = 15
	typeListpackHash = 16
	typeListpackZSet = 17
	typeQuicklist    = 18
	typeStream       = 19
)

// These are the opcodes in the value of a module.
const (
	moduleEnd    = 0
	moduleSigned = 1
	moduleUint   = 2
	moduleFloat  = 3
	moduleDouble = 4
	moduleString = 5
)

const streamIDSize = 16

// value reads past a value of the given type.
func (s *scanner) value(kind byte) error {
	switch kind {
	case typeString, typeZipmap, 10, 11, 12, typeZiplistHash, typeListpackHash, typeListpackZSet:
		return s.skipString()
	case typeList, typeSet, typeZiplists:
		return s.repeat(s.skipString)
	case typeHash:
		return s.repeat(s.skipString, s.skipString)
	case typeZSetText:
		return s.repeat(s.skipString, s.skipScore)
	case typeZSet:
		return s.repeat(s.skipString, func() error { return s.skip(8) })
	case typeQuicklist:
		return s.repeat(s.skipLength, s.skipString)
	case typeStreamOld, typeStream:
		return s.skipStream(kind == typeStream)
	case typeModule:
		_, err := s.skipModule()
		return err
	}
	return s.bad("a value of the unknown type %d: a newer Redis or another program wrote the file", kind)
}

// repeat reads a number n. Then it calls all functions in their order, n times.
func (s *scanner) repeat(parts ...func() error) error {
	n, err := s.length()
	for ; err == nil && n > 0; n-- {
		for _, part := range parts {
			if err := part(); err != nil {
				return err
			}
		}
	}
	return err
}

func (s *scanner) skipLength() error {
	_, err := s.length()
	return err
}

// skipString reads past a string, which may be stored as a number or compressed.
func (s *scanner) skipString() error {
	n, encoding, err := s.head()
	if err != nil {
		return err
	}
	switch encoding {
	case 0:
		return s.skip(n)
	case encodedInt8:
		return s.skip(1)
	case encodedInt16:
		return s.skip(2)
	case encodedInt32:
		return s.skip(4)
	case encodedLZF:
		compressed, err := s.length()
		if err != nil {
			return err
		}
		if err := s.skipLength(); err != nil {
			return err
		}
		return s.skip(compressed)
	}
	return s.bad("a string has the unknown encoding %#x", encoding)
}

// skipScore reads past a score that is stored as text.
func (s *scanner) skipScore() error {
	n, err := s.byte()
	if err != nil || n >= 253 { // NaN and the infinities have no text
		return err
	}
	return s.skip(uint64(n))
}

// skipStream reads past a stream. The parameter fields says whether the stream
// has the fields that Redis 7.0 added.
func (s *scanner) skipStream(fields bool) error {
	if err := s.repeat(s.skipString, s.skipString); err != nil { // the nodes
		return err
	}
	lengths := 3 // number of entries, and the last id
	if fields {
		lengths += 5 // first id, highest deleted id, number of entries ever added
	}
	if err := s.skipLengths(lengths); err != nil {
		return err
	}
	return s.repeat(func() error { return s.skipGroup(fields) })
}

func (s *scanner) skipGroup(fields bool) error {
	if err := s.skipString(); err != nil {
		return err
	}
	lengths := 2 // the two numbers of the last delivered id
	if fields {
		lengths++ // number of entries read
	}
	if err := s.skipLengths(lengths); err != nil {
		return err
	}
	delivery := func() error { return s.skip(streamIDSize + 8) } // id and time
	if err := s.repeat(delivery, s.skipLength); err != nil {
		return err
	}
	return s.repeat(s.skipString, func() error { return s.skip(8) }, func() error {
		return s.repeat(func() error { return s.skip(streamIDSize) })
	})
}

func (s *scanner) skipLengths(n int) error {
	for ; n > 0; n-- {
		if err := s.skipLength(); err != nil {
			return err
		}
	}
	return nil
}

// skipModule reads past the value of a module, and returns the module's name.
func (s *scanner) skipModule() (name string, err error) {
	id, err := s.length()
	if err != nil {
		return "", err
	}
	return moduleName(id), s.skipModuleParts()
}

func (s *scanner) skipModuleParts() error {
	for {
		opcode, err := s.length()
		if err != nil {
			return err
		}
		switch opcode {
		case moduleEnd:
			return nil
		case moduleSigned, moduleUint:
			err = s.skipLength()
		case moduleFloat:
			err = s.skip(4)
		case moduleDouble:
			err = s.skip(8)
		case moduleString:
			err = s.skipString()
		default:
			err = s.bad("the value of a module has the unknown part %d", opcode)
		}
		if err != nil {
			return err
		}
	}
}

// moduleName returns the name of the type of a module: nine characters of six bits
// each, above ten bits for the version.
func moduleName(id uint64) string {
	const set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	name := make([]byte, 9)
	id >>= 10
	for i := len(name) - 1; i >= 0; i-- {
		name[i] = set[id&63]
		id >>= 6
	}
	return string(name)
}

// These are the encodings of a string that is not stored as plain bytes.
const (
	encodedInt8  = 0xc0
	encodedInt16 = 0xc1
	encodedInt32 = 0xc2
	encodedLZF   = 0xc3
)

// head reads a length, or the encoding of a string.
func (s *scanner) head() (n uint64, encoding byte, err error) {
	c, err := s.byte()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case c>>6 == 0:
		return uint64(c), 0, nil
	case c>>6 == 1:
		low, err := s.byte()
		return uint64(c&0x3f)<<8 | uint64(low), 0, err
	case c == 0x80:
		err := s.full(s.small[:4])
		return uint64(binary.BigEndian.Uint32(s.small[:4])), 0, err
	case c == 0x81:
		err := s.full(s.small[:8])
		return binary.BigEndian.Uint64(s.small[:8]), 0, err
	case c>>6 == 3:
		return 0, c, nil
	}
	return 0, 0, s.bad("a length begins with the byte %#x", c)
}

func (s *scanner) length() (uint64, error) {
	n, encoding, err := s.head()
	if err == nil && encoding != 0 {
		err = s.bad("a length is missing")
	}
	return n, err
}

func (s *scanner) bad(format string, args ...any) error {
	return &FileError{s.offset, fmt.Sprintf(format, args...)}
}
