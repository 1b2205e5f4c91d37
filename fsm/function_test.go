package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

const counting = "#!lua name=counting\nregister up\nINCR $K\nregister look no-writes\nGET $K\nregister bad no-writes\nSET k x\nregister half\nSET $K half\nfail"

func TestFunction_Called(t *testing.T) {
	s := newStage(t)
	s.group("FUNCTION|LOAD|"+counting, "FCALL|UP|1|k", "FCALL|look|1|k", "FCALL|bad|0", "FCALL|half|1|k", "GET|k", "FCALL|nope|x", "FCALL|up|x")
	s.want("functions", "$8 counting :1 $1 1 -ERR Write commands are not allowed from read-only scripts. -ERR failed script: "+fsm.SHA1([]byte(counting))+
		" $1 1 -ERR Function not found -ERR Bad number of keys provided ")
	// The log contains the functions that the library registers, and the
	// effects of each call.
	ops := s.record.Groups[0].Ops
	if got := commandsOf(ops[0]); len(got) != 1 || got[0][1] != "_library" || got[0][2] != "counting" || got[0][3] != counting || len(got[0]) != 8 {
		t.Errorf("FUNCTION LOAD is logged as %q", got)
	}
	if got := fmt.Sprint(commandsOf(ops[1])); got != "[[0 incr k]]" || !ops[1].Effects {
		t.Errorf("FCALL is logged as %s", got)
	}
	if runs := s.lines.runs; runs != 5 {
		t.Errorf("%d runs, want 5", runs)
	}
	if s.lines.last.Function != "half" || s.lines.last.Register != nil {
		t.Errorf("the last call was of %q, want a call of half", s.lines.last.Function)
	}
	// FUNCTION LIST and FUNCTION STATS describe the logged libraries, also on a
	// node without an interpreter.
	s.group("FUNCTION|LIST|LIBRARYNAME|COUNT*", "FUNCTION|STATS")
	s.want("list", "*1 *6 $12 library_name $8 counting $6 engine $3 LUA $9 functions *4 *6 $4 name $3 bad $11 description $0  $5 flags *1 +no-writes "+
		"*6 $4 name $4 half $11 description $-1 $5 flags *0 *6 $4 name $4 look $11 description $0  $5 flags *1 +no-writes *6 $4 name $2 up $11 description $-1 $5 flags *0 "+
		"*4 $14 running_script $-1 $7 engines *2 $3 LUA *4 $15 libraries_count :1 $15 functions_count :4 ")
}

func TestFunction_Replaced(t *testing.T) {
	s := newStage(t)
	a, b := "#!lua name=a\nregister f\nregister g", "#!lua name=b\nregister h"
	s.group("FUNCTION|LOAD|"+a, "FUNCTION|LOAD|"+b, "FUNCTION|LOAD|"+b)
	s.want("two libraries", "$1 a $1 b -ERR Library 'b' already exists ")
	s.group("FUNCTION|LOAD|REPLACE|#!lua name=b\nregister G", "FUNCTION|LOAD|REPLACE|#!lua name=b\n", "FUNCTION|LOAD|REPLACE|#!lua name=b\nregister i\nregister I", "FCALL|h|0")
	s.want("what b may not be", "-ERR Function G already exists -ERR No functions registered -ERR Function already exists in the library $-1 ")
	s.group("FUNCTION|LOAD|REPLACE|#!lua name=a\nregister f", "FUNCTION|LOAD|REPLACE|#!lua name=b\nregister g", "FCALL|h|0", "FCALL|g|0", "FUNCTION|DELETE|a", "FUNCTION|DELETE|a", "FCALL|f|0")
	s.want("a function has moved", "$1 a $1 b -ERR Function not found $-1 +OK -ERR Library not found -ERR Function not found ")
	s.transaction(nil, "FUNCTION|LOAD|"+a, "FUNCTION|FLUSH", "FUNCTION|LOAD|"+a, "FCALL|g|0")
	s.want("in a transaction", "*4 -ERR Function g already exists +OK $1 a _ ")
	if libraries, functions, _ := s.m.Libraries(); libraries != 1 || functions != 2 {
		t.Errorf("%d libraries with %d functions, want 1 and 2", libraries, functions)
	}
	s.group("FUNCTION|FLUSH")
	s.want("flush", "+OK ")
	if _, _, bytes := s.m.Libraries(); bytes != 0 {
		t.Errorf("%d bytes of libraries, want 0 because there is no library", bytes)
	}
}

// dump returns the payload that FUNCTION DUMP returns.
func (s *stage) dump() string {
	s.t.Helper()
	var g fsm.Group
	g.Reset(2, 1)
	cmd, args := s.words("FUNCTION|DUMP")
	g.Command(cmd, 0, args)
	out, _, err := s.m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
	if err != nil {
		s.t.Fatal(err)
	}
	_, payload, _ := strings.Cut(string(out), "\r\n")
	return strings.TrimSuffix(payload, "\r\n")
}

// restored executes FUNCTION RESTORE and returns its reply. The payload may
// contain bars.
func (s *stage) restored(payload string, policy ...string) string {
	s.t.Helper()
	args := [][]byte{[]byte("FUNCTION"), []byte("RESTORE"), []byte(payload)}
	for _, p := range policy {
		args = append(args, []byte(p))
	}
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(s.table.Find(args[0]), 0, args)
	s.add(&g)
	return s.commit()
}

func TestFunction_Restored(t *testing.T) {
	s := newStage(t)
	a, b, c := "#!lua name=a\nregister f", "#!lua name=b\nregister g", "#!lua name=c\nregister F"
	s.group("FUNCTION|LOAD|"+a, "FUNCTION|LOAD|"+b)
	s.commit()
	both := s.dump()
	check := func(what, got, want string, libraries int) {
		t.Helper()
		if n, _, _ := s.m.Libraries(); got != want || n != libraries {
			t.Errorf("%s: %q and %d libraries, want %q and %d", what, got, n, want, libraries)
		}
	}
	check("what is there", s.restored(both), "-ERR Library a already exists ", 2)
	check("replaced", s.restored(both, "REPLACE"), "+OK ", 2)
	if got := fmt.Sprint(len(s.record.Groups[0].Ops[0].Commands)); got != "4" {
		t.Errorf("%s effects of a restore that replaces two libraries, want 4", got)
	}
	s.group("FUNCTION|FLUSH", "FUNCTION|LOAD|"+c)
	s.commit()
	check("a function of another library", s.restored(both, "replace"), "-ERR Function f already exists ", 1)
	check("all new", s.restored(both, "flush"), "+OK ", 2)
	check("damaged", s.restored(both[:len(both)-1]), "-ERR DUMP payload version or checksum are wrong ", 2)
	if got := s.dump(); got != both {
		t.Errorf("dump is %q, was %q", got, both)
	}
}

// TestFunction_RestoreIsBounded: if the libraries of a FUNCTION RESTORE are
// together too large for one command, it adds none and removes none.
func TestFunction_RestoreIsBounded(t *testing.T) {
	s := newStage(t)
	s.quick = true
	filler := strings.Repeat("-- compressible\n", 60_000)
	for i := range 20 {
		s.group(fmt.Sprintf("FUNCTION|LOAD|#!lua name=l%02d\nregister f%d\n%s", i, i, filler))
		s.commit()
	}
	whole := s.dump()
	s.group("FUNCTION|FLUSH", "FUNCTION|LOAD|#!lua name=one\nregister one")
	s.commit()
	if got := s.restored(whole); !strings.HasPrefix(got, "-ERR libraries of more than 16 MiB in one command") {
		t.Errorf("FUNCTION RESTORE: %.80q, want an error", got)
	}
	if got := s.restored(whole, "FLUSH"); !strings.HasPrefix(got, "-ERR libraries of more than 16 MiB in one command") {
		t.Errorf("FUNCTION RESTORE with FLUSH: %.80q, want an error", got)
	}
	if libraries, functions, _ := s.m.Libraries(); libraries != 1 || functions != 1 {
		t.Errorf("%d libraries with %d functions are left, want 1 and 1", libraries, functions)
	}
}

func TestFunction_Limits(t *testing.T) {
	s := newStage(t)
	s.quick = true
	s.group("FUNCTION|LOAD|#!lua name=long\nregister f\n" + strings.Repeat("-", 1<<20))
	s.want("a long library", "-ERR library is longer than 1 MiB ")
	s.group("FUNCTION|LOAD|#!lua name=long\nregister f " + strings.Repeat("x", 600<<10) + "\nregister g ")
	s.want("a long description", "$4 long ")
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "\nregister f%d", i)
	}
	s.group("FUNCTION|LOAD|#!lua name=many" + many.String())
	s.want("many functions", "-ERR the names and descriptions of a library's functions are longer than 1 MiB ")
	filler := strings.Repeat("-- x\n", 200_000)
	full := false
	for i := 0; i < 40 && !full; i++ {
		s.group(fmt.Sprintf("FUNCTION|LOAD|#!lua name=l%d\nregister l%d\n%s", i, i, filler))
		full = s.commit() == "-ERR libraries take more than 32 MiB, use FUNCTION DELETE "
	}
	if _, _, bytes := s.m.Libraries(); !full || bytes > 32<<20 {
		t.Errorf("the libraries take %d bytes, full is %v, want at most 32 MiB and true", bytes, full)
	}
}

// TestFunction_Snapshot: snapshots contain libraries. A node without an
// interpreter can read them from a snapshot and delete them, but it cannot load
// libraries or call their functions.
func TestFunction_Snapshot(t *testing.T) {
	s := newStage(t)
	s.group("FUNCTION|LOAD|"+counting, "FUNCTION|LOAD|#!lua name=other\nregister words a description no-cluster", "FCALL|up|1|k")
	s.commit()
	written := snapshotOf(t, s.m)
	m := restore(t, written)
	if again := snapshotOf(t, m); !bytes.Equal(written, again) {
		t.Error("a snapshot that was read and written again has other bytes")
	}
	libraries, functions, size := m.Libraries()
	if l, f, n := s.m.Libraries(); libraries != l || functions != f || size != n || f != 5 {
		t.Errorf("%d libraries, %d functions, %d bytes, want %d, %d, %d, and 5 functions",
			libraries, functions, size, l, f, n)
	}
	s.m = m
	s.group("FCALL|up|1|k", "FUNCTION|LIST|LIBRARYNAME|other")
	s.want("restored", ":2 *1 *6 $12 library_name $5 other $6 engine $3 LUA $9 functions *1 *6 $4 name $5 words $11 description $12 adescription $5 flags *1 +no-cluster ")
	s.runner = nil
	s.group("FCALL|up|1|k", "FUNCTION|LOAD|"+counting, "FUNCTION|DELETE|other")
	const no = "-ERR this program has no interpreter for scripts, it only knows some by their SHA1 "
	s.want("no interpreter", no+no+"+OK ")
}

// TestFunction_LoadTakesLong: if the code of a library exceeds the script
// budget, the leader aborts the execution. The group then needs a dry run, as
// with a script.
func TestFunction_LoadTakesLong(t *testing.T) {
	s := newStage(t)
	s.group("FUNCTION|LOAD|#!lua name=slow\nregister f\nlong")
	s.want("in a function", "$4 slow ") // loading the library does not call f
	s.group("FCALL|f|0")
	s.want("called", "\x00")
	s.group("FUNCTION|LOAD|#!lua name=slower\nlong\nregister g")
	if got := s.commit(); got != "\x00" {
		t.Errorf("the reply to a slow library is %q, want TooLong", got)
	}
	if libraries, _, _ := s.m.Libraries(); libraries != 1 {
		t.Errorf("%d libraries, want 1", libraries)
	}
}
