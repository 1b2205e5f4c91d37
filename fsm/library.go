package fsm

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/btree"
)

// These limits bound the libraries, which every node keeps in memory, like
// cached scripts.
const (
	maxLibraryBytes  = 1 << 20  // of a library's code, and of the names and descriptions of its functions
	maxLibraries     = 32 << 20 // bytes of all libraries
	functionOverhead = 64       // of a function, besides its name and description
	msgLibraryLength = "ERR library is longer than 1 MiB"
	msgLibrariesFull = "ERR libraries take more than 32 MiB, use FUNCTION DELETE"
	msgFunctionTwice = "Function already exists in the library"
	msgLibraryName   = "Library names can only contain letters, numbers, or underscores(_) " +
		"and must be at least one character long"
	msgFunctionsBytes = "the names and descriptions of a library's functions are longer than 1 MiB"
)

// FunctionFlags are the flags that a function, or the first line of a script,
// declares.
type FunctionFlags byte

// These are the flags in the order in which FUNCTION LIST prints them.
const (
	FunctionNoWrites FunctionFlags = 1 << iota
	FunctionAllowOOM
	FunctionAllowStale
	FunctionNoCluster
	FunctionCrossSlots
	allFunctionFlags = 1<<iota - 1
)

var functionFlagNames = []string{"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"}

// FunctionFlag returns the flag of a name.
func FunctionFlag(name string) (flag FunctionFlags, known bool) {
	for i, n := range functionFlagNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// Function is a function that a library registers.
type Function struct {
	Name        string
	Description string
	Described   bool // the description is present; it may be empty
	Flags       FunctionFlags
}

// library is a library of functions. It is immutable.
type library struct {
	name, code string
	sha        string // SHA1 of code
	functions  []Function
	bytes      int
}

// newLibrary returns a library with the functions of r.
func newLibrary(name, code string, r *registry) *library {
	return &library{name, code, SHA1([]byte(code)), r.functions, len(code) + r.bytes + scriptOverhead}
}

// registry collects the functions of a library that is being loaded.
type registry struct {
	functions []Function
	names     map[string]struct{} // in lower case
	bytes     int
}

// add adds a function. refusal is the error text if it cannot be added.
func (r *registry) add(f Function) (refusal string) {
	if !validLibraryName(f.Name) {
		return msgLibraryName
	}
	name := strings.ToLower(f.Name)
	if _, twice := r.names[name]; twice {
		return msgFunctionTwice
	}
	bytes := len(f.Name) + len(f.Description) + functionOverhead
	if r.bytes+bytes > maxLibraryBytes {
		return msgFunctionsBytes
	}
	if r.names == nil {
		r.names = make(map[string]struct{})
	}
	r.names[name] = struct{}{}
	r.bytes += bytes
	r.functions = append(r.functions, f)
	return ""
}

// validLibraryName reports whether s is a valid name of a library or a
// function.
func validLibraryName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// libraries are the libraries of functions. Like the keys, they are part of the
// state: they are replicated, and snapshots contain them.
type libraries struct {
	names   *btree.Map[string, *library]
	members *btree.Map[string, member] // by function name in lower case, because FCALL ignores case
	bytes   int
}

// member identifies a function: its library, and the index in the library.
type member struct {
	lib *library
	i   int
}

func newLibraries() libraries {
	return libraries{names: new(btree.Map[string, *library]), members: new(btree.Map[string, member])}
}

// clone returns an independent copy. It takes O(1).
func (s *libraries) clone() libraries { return libraries{s.names.Copy(), s.members.Copy(), s.bytes} }

// Libraries returns the number of libraries, the number of their functions, and
// the bytes that they take.
func (m *Machine) Libraries() (libraries, functions, bytes int) {
	return m.libraries.names.Len(), m.libraries.members.Len(), m.libraries.bytes
}

// find returns a function and its library, nil if no function has the name.
func (s *libraries) find(name []byte) (*library, *Function) {
	p, ok := s.members.Get(strings.ToLower(string(name)))
	if !ok {
		return nil, nil
	}
	return p.lib, &p.lib.functions[p.i]
}

// taken returns the name of a function of lib that another library has too, ""
// if there is none. It ignores libraries for which replaced returns true.
func (s *libraries) taken(lib *library, replaced func(library string) bool) (function string) {
	for i := range lib.functions {
		name := lib.functions[i].Name
		if p, ok := s.members.Get(strings.ToLower(name)); ok && !replaced(p.lib.name) {
			return name
		}
	}
	return ""
}

// replace adds a library in place of the one with its name. refusal is the
// error text if it cannot be added.
func (s *libraries) replace(lib *library) (refusal string) {
	name := s.taken(lib, func(name string) bool { return name == lib.name })
	switch {
	case name != "":
		return functionExists(name)
	case !s.put(lib):
		return msgLibrariesFull
	}
	return ""
}

// put adds a library, in place of the one with its name. No other library may
// have a function of it. put returns false if the limit on the bytes is
// exceeded.
func (s *libraries) put(lib *library) bool {
	old, _ := s.names.Get(lib.name)
	was := 0
	if old != nil {
		was = old.bytes
	}
	if s.bytes-was+lib.bytes > maxLibraries {
		return false
	}
	s.remove(lib.name)
	s.names.Set(lib.name, lib)
	for i := range lib.functions {
		s.members.Set(strings.ToLower(lib.functions[i].Name), member{lib, i})
	}
	s.bytes += lib.bytes
	return true
}

func (s *libraries) remove(name string) bool {
	lib, known := s.names.Delete(name)
	if !known {
		return false
	}
	s.forget(lib)
	return true
}

func (s *libraries) forget(lib *library) {
	for i := range lib.functions {
		s.members.Delete(strings.ToLower(lib.functions[i].Name))
	}
	s.bytes -= lib.bytes
}

// appendLibrary writes a library into a snapshot.
func appendLibrary(b []byte, lib *library) []byte {
	b = appendString(append(b, recordLibrary), lib.name)
	b = appendString(b, lib.code)
	b = binary.AppendUvarint(b, uint64(len(lib.functions)))
	for i := range lib.functions {
		b = appendFunction(b, &lib.functions[i])
	}
	return b
}

// library reads the record that appendLibrary wrote.
func (l *snapshotLoader) library(d *decoder) error {
	name, code := string(d.bytes()), string(d.bytes())
	var r registry
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		f, err := d.function()
		if err != nil {
			return fmt.Errorf("function of library %q: %w", name, err)
		}
		if refusal := r.add(f); refusal != "" {
			return fmt.Errorf("function of library %q, %s: %w", name, refusal, ErrFormat)
		}
	}
	if d.err != nil {
		return fmt.Errorf("library: %w", d.err)
	}
	lib, all := newLibrary(name, code, &r), &l.m.libraries
	_, twice := all.names.Get(name)
	if twice || !validLibraryName(name) || len(r.functions) == 0 || all.replace(lib) != "" {
		return fmt.Errorf("library %q: %w", name, ErrFormat)
	}
	l.objects++ // the count at the end includes libraries
	return nil
}

// appendFunction appends the encoding of a function.
func appendFunction(b []byte, f *Function) []byte {
	b = append(appendString(b, f.Name), byte(f.Flags))
	if !f.Described {
		return append(b, 0)
	}
	return appendString(append(b, 1), f.Description)
}

// function reads the encoding of appendFunction.
func (d *decoder) function() (f Function, err error) {
	f.Name, f.Flags = string(d.bytes()), FunctionFlags(d.byte())
	described := d.byte()
	if f.Described = described == 1; f.Described {
		f.Description = string(d.bytes())
	}
	if d.err == nil && (described > 1 || f.Flags&^allFunctionFlags != 0) {
		return f, ErrVersion
	}
	return f, d.err
}

// These are the errors of a library's first line, Redis' own to the letter.
const (
	msgNoMetadata  = "ERR Missing library metadata"
	msgBadMetadata = "ERR Invalid library metadata"
	msgNameTwice   = "ERR Invalid metadata value, name argument was given multiple times"
	msgNoName      = "ERR Library name was not given"
)

// engineLua is the name of the only engine, as FUNCTION LIST prints it.
const engineLua = "LUA"

// libraryName returns the name in the first line of a library's code, "#!lua
// name=mylib".
func libraryName(code []byte) (name, refusal string) {
	text := string(code)
	if !strings.HasPrefix(text, "#!") {
		return "", msgNoMetadata
	}
	line, _, found := strings.Cut(text, "\n")
	words, ok := splitWords(line)
	if !found || !ok {
		return "", msgBadMetadata
	}
	named := false
	for _, w := range words[1:] {
		const key = "name="
		switch {
		case len(w) < len(key) || !strings.EqualFold(w[:len(key)], key):
			return "", "ERR Invalid metadata value given: " + w
		case named:
			return "", msgNameTwice
		}
		name, named = w[len(key):], true
	}
	engine := words[0][len("#!"):]
	switch {
	case !named:
		return "", msgNoName
	case !validLibraryName(name):
		return "", "ERR " + msgLibraryName
	case !strings.EqualFold(engine, engineLua):
		return "", "ERR Engine '" + engine + "' not found"
	}
	return name, ""
}

// splitWords splits a line into words as Redis splits its inline commands, and
// a shell its arguments. Words are separated by spaces; a word in quotes may
// contain any byte. ok is false if a quote is not closed, or is followed by
// something other than a space.
func splitWords(line string) (words []string, ok bool) {
	line, _, cut := strings.Cut(line, "\x00") // a C string ends there
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, !cut
		}
		var w []byte
		for i < len(line) && !isSpace(line[i]) {
			if q := line[i]; q == '"' || q == '\'' {
				n := 0
				if w, n, ok = quoted(w, line[i:]); !ok {
					return nil, false
				}
				if i += n; i < len(line) && !isSpace(line[i]) {
					return nil, false
				}
				break
			}
			w = append(w, line[i])
			i++
		}
		words = append(words, string(w))
	}
}

// quoted appends the text in the quotes at the beginning of s. n is the length
// of the quoted text in s, including the quotes.
func quoted(w []byte, s string) (_ []byte, n int, ok bool) {
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == q:
			return w, i + 1, true
		case s[i] != '\\' || i+1 == len(s):
			w = append(w, s[i])
		case q == '\'':
			if s[i+1] == '\'' {
				i++
			}
			w = append(w, s[i])
		default:
			b, n := escaped(s[i+1:])
			w = append(w, b)
			i += n
		}
	}
	return nil, 0, false
}

// escaped returns the byte that a backslash followed by s stands for in double
// quotes, and how many bytes of s belong to it.
func escaped(s string) (b byte, n int) {
	if s[0] == 'x' && len(s) >= 3 {
		if v, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
			return byte(v), 3
		}
	}
	if i := strings.IndexByte("nrtba", s[0]); i >= 0 {
		return "\n\r\t\b\a"[i], 1
	}
	return s[0], 1
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }
