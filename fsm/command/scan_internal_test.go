package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// apply executes f as a command of an entry, on an empty machine.
func apply(t *testing.T, f func(c *fsm.Ctx)) {
	t.Helper()
	ran := false
	row := fsm.Command{Name: "_test", Arity: 1, Flags: fsm.Write, Run: func(c *fsm.Ctx, args [][]byte) fsm.Reply {
		f(c)
		ran = true
		return fsm.OK
	}}
	table := fsm.NewTable([]fsm.Command{row})
	name := []byte(row.Name)
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(table.Find(name), 0, [][]byte{name})
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
	if _, err := fsm.New(table).Apply(1, 1, b.Encode(fsm.Header{Term: 1})); err != nil {
		t.Fatal(err)
	}
	if !ran {
		t.Fatal("the command was not executed")
	}
}

// TestScan_Steps checks that SCAN refuses a pattern that would take too many
// steps. KEYS matches its pattern in the same way. The test does not run KEYS,
// because reaching its limit takes seconds.
func TestScan_Steps(t *testing.T) {
	apply(t, func(c *fsm.Ctx) {
		c.Assign(keyspace.NewObject([]byte(strings.Repeat("a", 30000)), nil))
		pattern := "*" + strings.Repeat("a", 14000) + "b*" + strings.Repeat("[a-z]", 3000)
		args := [][]byte{[]byte("scan"), []byte("0"), []byte("match"), []byte(pattern)}
		if got := scan(c, args).Text(); got != msgSteps {
			t.Errorf("SCAN: %q", got)
		}
	})
}

// TestScan_EqualHashes checks that one call returns all keys with the same
// hash, because the cursor cannot distinguish them.
func TestScan_EqualHashes(t *testing.T) {
	apply(t, func(c *fsm.Ctx) {
		for i := range 30 {
			o := keyspace.NewObject(fmt.Appendf(nil, "k%d", i), nil)
			o.Hash = uint64(1 + i/10)
			c.Assign(o)
		}
		cursor, total := "0", 0
		for range 3 {
			r := scan(c, [][]byte{[]byte("scan"), []byte(cursor), []byte("count"), []byte("1")}).Elems()
			if got, want := len(r[1].Elems()), 10; got != want {
				t.Errorf("cursor %s: got %d keys, want %d", cursor, got, want)
			}
			total += len(r[1].Elems())
			cursor = r[0].Text()
		}
		if cursor != "0" || total != 30 {
			t.Errorf("ended at cursor %s with %d keys, want cursor 0 and 30 keys", cursor, total)
		}
	})
}
