package fsm_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestTable_Rows: the table is sorted, Find finds every row, and every row has the
// properties that checkRow requires.
func TestTable_Rows(t *testing.T) {
	table := command.NewTable()
	rows := table.Rows()
	for i, cmd := range rows {
		checkRow(t, cmd.Name, cmd)
		if i > 0 && rows[i-1].Name >= cmd.Name {
			t.Errorf("row %s comes after row %s", cmd.Name, rows[i-1].Name)
		}
		if table.Find([]byte(strings.ToUpper(cmd.Name))) != cmd || table.Find([]byte(cmd.Name)) != cmd {
			t.Errorf("%s is not found", cmd.Name)
		}
		for i := range cmd.Sub {
			sub := &cmd.Sub[i]
			checkRow(t, cmd.Name+" "+sub.Name, sub)
			if cmd.FindSub([]byte(strings.ToUpper(sub.Name))) == nil {
				t.Errorf("%s %s is not found", cmd.Name, sub.Name)
			}
		}
	}
	for _, name := range []string{"", "nosuch", "GETT", strings.Repeat("x", 100), "get\x00"} {
		if cmd := table.Find([]byte(name)); cmd != nil {
			t.Errorf("Find(%q) = %s, want nil", name, cmd.Name)
		}
	}
	if table.Find([]byte("object")).FindSub([]byte("nosuch")) != nil || table.Find([]byte("get")).FindSub([]byte("x")) != nil {
		t.Error("an unknown subcommand is found")
	}
}

// TestTable_Subcommands: FindSub ignores case, and allocates no memory for a name in
// ASCII. It also finds names with other letters whose lower-case forms are ASCII
// letters, because old logs may contain such names.
func TestTable_Subcommands(t *testing.T) {
	lock := command.NewTable().Find([]byte("lock"))
	args := [][]byte{[]byte("LOCK"), []byte("Release"), []byte("key"), []byte("owner")}
	if n := testing.AllocsPerRun(100, func() { lock.Routed(args) }); n != 0 {
		t.Errorf("%v allocations to find a subcommand", n)
	}
	for name, want := range map[string]string{
		"Release": "release", "BREA\u212a": "break", "L\u0130ST": "list", "": "", "releas": "", "r\xffnew": "", "rel\u00e9ase": "",
	} {
		got := ""
		if sub := lock.FindSub([]byte(name)); sub != nil {
			got = sub.Name
		}
		if got != want {
			t.Errorf("FindSub(%q) = %q, want %q", name, got, want)
		}
	}
}

func checkRow(t *testing.T, name string, cmd *fsm.Command) {
	t.Helper()
	if cmd.Arity == 0 || cmd.Run == nil || cmd.Group == "" || cmd.Since == "" || cmd.Complexity == "" || cmd.Doc == "" {
		t.Errorf("%s: a required field of the row is empty", name)
	}
	if takes := cmd.Arity != 1 && cmd.Arity != 2 || cmd.Keys.First > 0; takes && cmd.Syntax == "" && len(cmd.Sub) == 0 {
		t.Errorf("%s takes arguments, but its Syntax is empty", name)
	}
	if strings.HasSuffix(cmd.Doc, "..") || strings.TrimSpace(cmd.Doc) != cmd.Doc {
		t.Errorf("%s: Doc is %q, want no spaces around it and no double period", name, cmd.Doc)
	}
	if cmd.Flags&fsm.Write != 0 && cmd.Flags&fsm.ReadOnly != 0 {
		t.Errorf("%s is both a write and a read", name)
	}
	if (cmd.Keys.First > 0) && cmd.Access.Mode == "" && cmd.Specs == nil && cmd.Flags&fsm.Internal == 0 {
		t.Errorf("%s has keys, but neither Access nor Specs", name)
	}
	if (cmd.KeysOf != nil) != (cmd.Flags&fsm.MovableKeys != 0) {
		t.Errorf("%s has only one of MovableKeys and KeysOf", name)
	}
}

func TestCommand_KeyPositions(t *testing.T) {
	table := command.NewTable()
	for line, want := range map[string][]int{
		"GET a": {1}, "DEL a b c": {1, 2, 3}, "MSET a 1 b 2": {1, 3}, "MSET a 1 b": {1, 3}, "RENAME a b": {1, 2}, "COPY a b DB 1": {1, 2}, "SCAN 0": nil, "TIME": nil, "FLUSHALL": nil,
		"MSETEX 2 a 1 b 2 NX": {2, 4}, "MSETEX 3 a 1 b 2": nil, "MSETEX x a 1": nil, "MSETEX 0 a 1": nil, "SET a b NX": {1}, "EXPIRE a 1 NX": {1}, "DEL": nil,
		"ZUNIONSTORE d 2 a b WEIGHTS 1 2": {1, 3, 4}, "ZINTERSTORE d 1 a": {1, 3}, "ZUNIONSTORE d 3 a b": nil, "ZUNIONSTORE d x a": nil, "SINTERCARD 2 a b LIMIT 1": {2, 3}, "SINTERCARD 0 a": nil, "SINTERCARD 1": nil, "LMOVE a b LEFT LEFT": {1, 2}, "SINTERSTORE d a b": {1, 2, 3},
		"GEORADIUS g 1 1 1 m STOREDIST a ASC STORE b": {1, 10, 7}, "GEORADIUS g 1 1 1 m STORE a STORE b": {1, 7, 9}, "GEORADIUSBYMEMBER g store 1 m STORE": {1}, "GEORADIUSBYMEMBER g m 1 m store a": {1, 6},
	} {
		var args [][]byte
		for _, w := range strings.Fields(line) {
			args = append(args, []byte(w))
		}
		if got := table.Find(args[0]).KeyPositions(args); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: keys at %v, want %v", line, got, want)
		}
	}
}

func TestTable_Check(t *testing.T) {
	table := command.NewTable()
	var g fsm.Group
	get, set := table.Find([]byte("get")), table.Find([]byte("set"))
	g.Reset(2, 1)
	g.Command(get, 0, [][]byte{[]byte("get"), []byte("k")})
	if err := table.Check(g.Bytes(), true); err != nil {
		t.Errorf("Check of a read: %v", err)
	}
	first := g.Size() // a group may end after any of its operations
	g.Transaction([]fsm.Watch{{DB: 3, Key: "k"}}, []fsm.Queued{{DB: 15, Cmd: get, Args: [][]byte{[]byte("get"), []byte("k")}}})
	if err := table.Check(g.Bytes(), true); err != nil {
		t.Errorf("Check of a transaction of reads: %v", err)
	}
	whole := string(g.Bytes())
	for n := 1; n < len(whole); n++ {
		body := []byte(whole[:n])
		if err := table.Check(body, true); err == nil && n != 2 && n != first {
			t.Errorf("Check accepts the first %d of %d bytes: %q", n, len(whole), body)
		}
	}
	g.Command(set, 0, [][]byte{[]byte("set"), []byte("k"), []byte("v")})
	if err := table.Check(g.Bytes(), true); err == nil {
		t.Error("a write is accepted as a read")
	}
	for what, body := range map[string]string{
		"unknown command": "\x00\x01\x00\x00\x01\x04nope", "wrong arity": "\x00\x01\x00\x00\x01\x03get", "database 16": "\x00\x01\x00\x10\x02\x03get\x01k",
		"no arguments": "\x00\x01\x00\x00\x00", "unknown flags": "\x08\x01", "unknown kind": "\x00\x01\x09", "empty": "", "watch in database 16": "\x00\x01\x01\x01\x10\x01k\x00\x00",
		"a huge count": "\x00\x01\x00\x00\xff\xff\xff\xff\x0f\x03get", "a huge transaction": "\x00\x01\x01\x00\xff\xff\xff\xff\x0f",
	} {
		if err := table.Check([]byte(body), false); err == nil || !documented(err) {
			t.Errorf("%s: Check returned %v, want a documented error", what, err)
		}
	}
}

// TestCommand_AccessAt checks the access to each key of several commands, and that
// finding the access to the last of many keys allocates nothing.
func TestCommand_AccessAt(t *testing.T) {
	table := command.NewTable()
	for line, want := range map[string]string{
		"DEL a b c": "RM RM RM", "MSET a 1 b 2": "OW OW", "ZUNIONSTORE d 2 a b": "OW RO RO", "COPY a b": "RO OW",
		"GEORADIUS g 1 1 1 m STORE d": "RO OW", "SORT a STORE d": "RO OW",
	} {
		var args [][]byte
		for _, w := range strings.Fields(line) {
			args = append(args, []byte(w))
		}
		var got []string
		cmd := table.Find(args[0])
		for _, pos := range cmd.KeyPositions(args) {
			got = append(got, cmd.AccessAt(args, pos).Mode)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: access %v, want %s", line, got, want)
		}
	}
	args := make([][]byte, 10_000)
	for _, name := range []string{"del", "mset"} {
		cmd := table.Find([]byte(name))
		if n := testing.AllocsPerRun(10, func() { cmd.AccessAt(args, len(args)-1) }); n != 0 {
			t.Errorf("%s: the access to the last of %d keys takes %v allocations, want none", name, len(args), n)
		}
	}
}
