// Package library contains the libraries of functions of a state machine. It
// defines their limits, their names, and their encoding in the log and in
// snapshots. It does not run their code.
//
// Error texts that begin with a code, such as "ERR", are replies to a client.
// The nodes of a cluster compare their replies, so these texts must not change.
package library

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/tidwall/btree"
)

// These limits, in bytes, bound the libraries. Every node keeps the libraries
// in memory, as it keeps cached scripts. The limits are part of the meaning of
// an entry.
const (
	// MaxBytes bounds the code of a library and, separately, the memory of its
	// functions: their names, their descriptions, and functionOverhead for
	// each.
	MaxBytes         = 1 << 20
	maxSetBytes      = 32 << 20 // limit on all libraries
	functionOverhead = 64       // memory of a function, besides its name and description
	libraryOverhead  = 256      // memory of a library, besides its code and its functions
)

// These are error texts for libraries.
const (
	MsgTooLong = "ERR library is longer than 1 MiB"
	MsgFull    = "ERR libraries take more than 32 MiB, use FUNCTION DELETE"
	// MsgName is the error for an invalid name, without a code.
	MsgName = "Library names can only contain letters, numbers, or underscores(_) " +
		"and must be at least one character long"
	msgFunctionTwice  = "Function already exists in the library"
	msgFunctionsBytes = "the names and descriptions of a library's functions are longer than 1 MiB"
)

// Flags are the flags that a function, or the first line of a script,
// declares.
type Flags byte

// These are the flags in the order in which FUNCTION LIST prints them.
const (
	NoWrites Flags = 1 << iota
	AllowOOM
	AllowStale
	NoCluster
	CrossSlots
	allFlags = 1<<iota - 1
)

var flagNames = []string{"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"}

// FlagNamed returns the flag with the given name.
func FlagNamed(name string) (flag Flags, known bool) {
	for i, n := range flagNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// Names returns the names of the flags in the order of FUNCTION LIST.
func (f Flags) Names() (names []string) {
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Function is a function that a library registers.
type Function struct {
	Name        string
	Description string
	Described   bool // the description is present; it may be empty
	Flags       Flags
}

// Library is a library of functions. It is immutable.
type Library struct {
	Name, Code string
	SHA        string // SHA1 of Code, in hexadecimal digits
	Functions  []Function
	bytes      int // memory that the library takes
}

// New returns a library with the functions of r. sha is the SHA1 of the code in
// hexadecimal digits. r must not be used afterward.
func New(name, code, sha string, r *Registry) *Library {
	return &Library{name, code, sha, r.Functions, len(code) + r.bytes + libraryOverhead}
}

// Registry collects the functions of a library that is being loaded. The zero
// value is empty and ready to use.
type Registry struct {
	Functions []Function
	names     map[string]struct{} // in lower case
	bytes     int
}

// Add adds a function. If the function cannot be added, refusal is the error
// text, without a code.
func (r *Registry) Add(f Function) (refusal string) {
	if !ValidName(f.Name) {
		return MsgName
	}
	name := strings.ToLower(f.Name)
	if _, twice := r.names[name]; twice {
		return msgFunctionTwice
	}
	bytes := len(f.Name) + len(f.Description) + functionOverhead
	if r.bytes+bytes > MaxBytes {
		return msgFunctionsBytes
	}
	if r.names == nil {
		r.names = make(map[string]struct{})
	}
	r.names[name] = struct{}{}
	r.bytes += bytes
	r.Functions = append(r.Functions, f)
	return ""
}

// ValidName reports whether s is a valid name of a library or a function.
func ValidName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// Set contains the libraries of a state machine. Like the keys, they are part of
// the state: they are replicated, and snapshots contain them. No two libraries
// of a set have the same name or a function of the same name. A Set is not safe
// for concurrent use, but a Set and its clones are independent.
type Set struct {
	names   *btree.Map[string, *Library]
	members *btree.Map[string, member] // by function name in lower case, because FCALL ignores case
	bytes   int
}

// member identifies a function by its library and its index in the library.
type member struct {
	lib *Library
	i   int
}

// NewSet returns an empty set.
func NewSet() Set {
	return Set{names: new(btree.Map[string, *Library]), members: new(btree.Map[string, member])}
}

// Clone returns an independent copy. It takes O(1).
func (s *Set) Clone() Set { return Set{s.names.Copy(), s.members.Copy(), s.bytes} }

// Len returns the number of libraries, the number of their functions, and the
// bytes that they take.
func (s *Set) Len() (libraries, functions, bytes int) {
	return s.names.Len(), s.members.Len(), s.bytes
}

// Has reports whether a library has the name.
func (s *Set) Has(name string) bool {
	_, known := s.names.Get(name)
	return known
}

// Scan calls f for the libraries in the order of their names until f returns
// false.
func (s *Set) Scan(f func(lib *Library) bool) {
	s.names.Scan(func(_ string, lib *Library) bool { return f(lib) })
}

// Find returns the library that has a function with the given name, and the
// function. Both are nil if there is no such function.
func (s *Set) Find(name []byte) (*Library, *Function) {
	p, ok := s.members.Get(strings.ToLower(string(name)))
	if !ok {
		return nil, nil
	}
	return p.lib, &p.lib.Functions[p.i]
}

// taken returns the name of a function of lib that another library has too, or
// "" if there is none. It ignores libraries for which replaced returns true.
func (s *Set) taken(lib *Library, replaced func(library string) bool) (function string) {
	for i := range lib.Functions {
		name := lib.Functions[i].Name
		if p, ok := s.members.Get(strings.ToLower(name)); ok && !replaced(p.lib.Name) {
			return name
		}
	}
	return ""
}

// Replace adds a library and removes the library of the same name, if there is
// one. If the library cannot be added, refusal is the error text.
func (s *Set) Replace(lib *Library) (refusal string) {
	name := s.taken(lib, func(name string) bool { return name == lib.Name })
	switch {
	case name != "":
		return functionExists(name)
	case !s.Put(lib):
		return MsgFull
	}
	return ""
}

// Collision returns the error text for restored libraries that conflict with
// the libraries in s, or "" if there is no conflict. If replace is set, a
// restored library does not conflict with the library of the same name in s.
func (s *Set) Collision(restored *Set, replace bool) (refusal string) {
	restored.Scan(func(lib *Library) bool {
		if s.Has(lib.Name) && !replace {
			refusal = "ERR Library " + lib.Name + " already exists"
		}
		return refusal == ""
	})
	restored.Scan(func(lib *Library) bool {
		if refusal != "" {
			return false
		}
		if name := s.taken(lib, restored.Has); name != "" {
			refusal = functionExists(name)
		}
		return refusal == ""
	})
	return refusal
}

func functionExists(name string) string { return "ERR Function " + name + " already exists" }

// Put adds a library and removes the library of the same name, if there is one.
// No other library may have a function of the same name. Put returns false if
// the limit on the bytes would be exceeded.
func (s *Set) Put(lib *Library) bool {
	old, _ := s.names.Get(lib.Name)
	was := 0
	if old != nil {
		was = old.bytes
	}
	if s.bytes-was+lib.bytes > maxSetBytes {
		return false
	}
	s.Remove(lib.Name)
	s.names.Set(lib.Name, lib)
	for i := range lib.Functions {
		s.members.Set(strings.ToLower(lib.Functions[i].Name), member{lib, i})
	}
	s.bytes += lib.bytes
	return true
}

// Remove removes a library and reports whether the set contained it.
func (s *Set) Remove(name string) bool {
	lib, known := s.names.Delete(name)
	if !known {
		return false
	}
	s.forget(lib)
	return true
}

func (s *Set) forget(lib *Library) {
	for i := range lib.Functions {
		s.members.Delete(strings.ToLower(lib.Functions[i].Name))
	}
	s.bytes -= lib.bytes
}

// Append appends the encoding of a library in snapshots.
func Append(b []byte, lib *Library) []byte {
	b = codec.AppendString(b, lib.Name)
	b = codec.AppendString(b, lib.Code)
	b = binary.AppendUvarint(b, uint64(len(lib.Functions)))
	for i := range lib.Functions {
		b = AppendFunction(b, &lib.Functions[i])
	}
	return b
}

// Read reads the encoding of Append. sha returns the SHA1 of a library's code in
// hexadecimal digits.
func Read(d *codec.Decoder, sha func(code []byte) string) (*Library, error) {
	name, code := string(d.Bytes()), d.Bytes()
	var r Registry
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		f, err := ReadFunction(d)
		if err != nil {
			return nil, fmt.Errorf("function of library %q: %w", name, err)
		}
		if refusal := r.Add(f); refusal != "" {
			return nil, fmt.Errorf("function of library %q, %s: %w", name, refusal, codec.ErrFormat)
		}
	}
	switch {
	case d.Err != nil:
		return nil, fmt.Errorf("library: %w", d.Err)
	case !ValidName(name) || len(r.Functions) == 0:
		return nil, fmt.Errorf("library %q: %w", name, codec.ErrFormat)
	}
	return New(name, string(code), sha(code), &r), nil
}

// AppendFunction appends the encoding of a function in snapshots and in the log.
func AppendFunction(b []byte, f *Function) []byte {
	b = append(codec.AppendString(b, f.Name), byte(f.Flags))
	if !f.Described {
		return append(b, 0)
	}
	return codec.AppendString(append(b, 1), f.Description)
}

// ReadFunction reads the encoding of AppendFunction.
func ReadFunction(d *codec.Decoder) (f Function, err error) {
	f.Name, f.Flags = string(d.Bytes()), Flags(d.Byte())
	described := d.Byte()
	if f.Described = described == 1; f.Described {
		f.Description = string(d.Bytes())
	}
	if d.Err == nil && (described > 1 || f.Flags&^allFlags != 0) {
		return f, codec.ErrVersion
	}
	return f, d.Err
}
