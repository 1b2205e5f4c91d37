package cluster_test

import (
	"strconv"
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
