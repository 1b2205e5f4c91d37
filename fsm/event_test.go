package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// eventWriter feeds entries of one session to a machine.
type eventWriter struct {
	t     *testing.T
	m     *fsm.Machine
	index uint64
	seq   uint64
	stamp int64
}

// apply runs commands as one group of the connection with the number origin,
// and returns the events as text.
func (w *eventWriter) apply(origin uint64, track bool, cmds ...[]string) []string {
	w.t.Helper()
	var out []string
	for _, e := range w.result(origin, track, cmds...).Events {
		out = append(out, fmt.Sprintf("%d db%d %s %s%s session %d origin %d", e.Kind, e.DB, e.Key, e.Name, e.Payload, e.Session, e.Origin))
	}
	return out
}

// result runs commands as one group of the connection with the number origin.
func (w *eventWriter) result(origin uint64, track bool, cmds ...[]string) *fsm.Result {
	w.t.Helper()
	var g fsm.Group
	g.Reset(2, origin)
	if track {
		g.Track()
	}
	for _, words := range cmds {
		args := respwire.Args(words...)
		g.Command(w.m.Table().Find(args[0]), 0, args)
	}
	var b fsm.BatchBuilder
	w.seq++
	w.index++
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, w.seq-1, w.seq, g.Bytes())
	res, err := w.m.Apply(w.index, 1, b.Encode(fsm.Header{Term: 1, Stamp: w.stamp}))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// TestEvents_Cause: an event names the operation of the group that caused it.
// If the machine caused the event by serving a blocking command, the event
// names the waiter.
func TestEvents_Cause(t *testing.T) {
	m := fsm.New(command.NewTable())
	m.Want(fsm.Kinds(fsm.EventChanged))
	w := eventWriter{t: t, m: m, stamp: 1}
	w.apply(7, false, []string{"get", "k"})
	res := w.result(8, false, []string{"blmove", "in", "out", "left", "right", "0"})
	pos, _, ok := fsm.Waiting(res.Groups[0].Reply)
	if !ok {
		t.Fatalf("BLMOVE returned %q, want a wait", res.Groups[0].Reply)
	}
	res = w.result(9, false, []string{"get", "k"}, []string{"set", "k", "v"}, []string{"get", "k"}, []string{"rpush", "in", "a", "b"}, []string{"incr", "n"})
	var got []string
	for _, e := range res.Events {
		text := fmt.Sprintf("%s origin %d group %d op %d", e.Key, e.Origin, e.Group, e.Op)
		if e.Waiter != nil {
			if e.Waiter.Pos != pos || e.Waiter.Session.NodeID != "n1" {
				t.Errorf("waiter %v, want one at %d", e.Waiter, pos)
			}
			text += fmt.Sprintf(" waiter %d", e.Waiter.Origin)
		}
		got = append(got, text)
	}
	want := []string{"k origin 9 group 0 op 1", "in origin 9 group 0 op 3", "out origin 0 group 0 op 3 waiter 8", "in origin 0 group 0 op 3 waiter 8", "n origin 9 group 0 op 4"}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%q, want\n%q", got, want)
	}
}

func TestEvents(t *testing.T) {
	all := fsm.Kinds(fsm.EventPublish, fsm.EventKeyspace, fsm.EventChanged, fsm.EventFlushed, fsm.EventTracked)
	m, deaf := fsm.New(command.NewTable()), fsm.New(command.NewTable())
	m.Want(all)
	w, d := eventWriter{t: t, m: m, stamp: 1}, eventWriter{t: t, m: deaf, stamp: 1}
	check := func(stamp int64, want []string, origin uint64, track bool, cmds ...[]string) {
		t.Helper()
		w.stamp, d.stamp = stamp, stamp
		if got := w.apply(origin, track, cmds...); !slices.Equal(got, want) {
			t.Errorf("%v gave\n%q, want\n%q", cmds, got, want)
		}
		if got := d.apply(origin, track, cmds...); got != nil {
			t.Errorf("%v emitted %q although the machine wants no events", cmds, got)
		}
		_, a := m.Hash()
		if _, b := deaf.Hash(); a != b {
			t.Errorf("%v: the hash chain depends on the events", cmds)
		}
	}
	check(1, []string{"2 db0 k  session 0 origin 7"}, 7, false, []string{"set", "k", "v", "px", "1000"})
	check(1, []string{"4 db0 k  session 0 origin 7", "2 db0 k  session 0 origin 7", "4 db0 k  session 0 origin 7", "4 db0 l  session 0 origin 7"}, 7, true,
		[]string{"get", "k"}, []string{"append", "k", "w"}, []string{"mget", "k", "l"})
	check(1, nil, 7, false, []string{"get", "k"})
	check(2e9, []string{"2 db0 k  session -1 origin 0", "2 db0 l  session 0 origin 8"}, 8, false, []string{"incr", "l"})
	check(2e9, []string{"3 db0   session 0 origin 8"}, 8, false, []string{"flushdb"})
	check(2e9, []string{"0 db0 news hello session 0 origin 9", "0 db0 news again session 0 origin 9"}, 9, false, []string{"publish", "news", "hello"}, []string{"spublish", "news", "again"})
}
