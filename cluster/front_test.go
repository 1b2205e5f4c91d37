package cluster_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// A group with a read-only script that is not cached goes through the log. Then
// the whole group is executed, and not only its front: see fsm.Front.
func TestRead_UnloggedFront(t *testing.T) {
	l := newLines()
	c := scripted(t, l, patient)
	leader := c.leader()
	c.client(leader).must(t, "SETRANGE", "big", strconv.Itoa(1<<20), "x")
	for _, id := range c.ids() {
		s := c.node(id).NewSession()
		var g fsm.Group
		g.Reset(2, 1)
		table := c.node(id).Table()
		for _, words := range [][]string{{"EVAL_RO", "return '" + id + "'", "0"}, {"GET", "big"}} {
			args := respwire.Args(words...)
			g.Command(table.Find(args[0]), 0, args)
		}
		p := fsm.Front{Most: 256 << 10}
		g.Front = &p
		out, err := s.Do(&g, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.Cut() || len(out) <= 1<<20 {
			t.Errorf("%s answers %d bytes and a front of %d operations, want all replies and no front", id, len(out), p.Ops)
		}
	}
}

// The large reply of a script that only reads is in the front, so it refers to the
// state of the client's node. A script that writes returns its whole reply, even if
// an earlier script of the connection was executed as a read.
func TestRead_ScriptFront(t *testing.T) {
	c := scripted(t, newLines())
	leader := c.leader()
	const size = 300_000
	c.client(leader).must(t, "SET", "big", strings.Repeat("x", size))
	c.client(leader).must(t, "SET", "n", "0")
	whole := bulk(strings.Repeat("x", size))
	writes := 0
	for _, id := range c.ids() {
		s := c.node(id).NewSession()
		for i, text := range []string{"GET big", "GET big", "GET n", "GET big", "INCR n\nGET big", "GET n"} {
			var g fsm.Group
			g.Reset(2, 1)
			args := respwire.Args("EVAL", text, "2", "big", "n")
			g.Command(c.node(id).Table().Find(args[0]), 0, args)
			p := fsm.Front{Most: 256 << 10}
			g.Front = &p
			out, err := s.Do(&g, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			switch text {
			case "GET big":
				if !p.Cut() || p.Left || p.Large == nil || len(out) > 0 || string(p.Large.Append(nil, 2)) != whole {
					t.Errorf("%s, script %d: %d bytes, front %+v, want no bytes and the reply in the front", id, i, len(out), p)
				}
			case "GET n":
				if p.Cut() || string(out) != bulk(strconv.Itoa(writes)) {
					t.Errorf("%s: GET n: %q, front %+v, want %d without a front", id, clip(string(out)), p, writes)
				}
			default:
				writes++
				if p.Cut() || p.Large != nil || string(out) != whole {
					t.Errorf("%s, script %d: %d bytes, front %+v, want the whole reply and no front", id, i, len(out), p)
				}
			}
		}
	}
}
