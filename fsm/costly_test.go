package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// ranWhileApplying calls do and returns the names of the commands that the
// machine executes while do applies entries.
func (s *stage) ranWhileApplying(do func()) (names []string) {
	s.m.Trace(&fsm.Trace{
		Ran:     func(_ int, args [][]byte, _ fsm.Reply, _ int) { names = append(names, string(args[0])) },
		Served:  func(int, [][]byte, fsm.Reply) {},
		Expired: func(int, string) {},
	})
	do()
	s.m.Trace(nil)
	return names
}

// TestCostly_NotExecutedByNodes: every node executes the commands that change
// the state. If a group writes, only the leader executes its costly reads, and a
// restart does not execute them again.
func TestCostly_NotExecutedByNodes(t *testing.T) {
	s := newStage(t)
	s.group("MSET|a|xabcy|b|1abc2", "RPUSH|l|1|2|3")
	s.commit()
	for _, c := range []struct {
		name string
		add  func()
		want string
		ran  []string
	}{
		{"pipeline", func() { s.group("SET|z|1", "LCS|a|b", "GET|z", "LRANGE|l|0|-1", "INCR|z") },
			"+OK $3 abc $1 1 *3 $1 1 $1 2 $1 3 :2 ", []string{"set", "get", "incr"}},
		{"transaction", func() { s.transaction(nil, "SET|z|1", "LCS|a|b", "GET|z", "LRANGE|l|0|-1", "INCR|z") },
			"*5 +OK $3 abc $1 1 *3 $1 1 $1 2 $1 3 :2 ", []string{"set", "incr"}},
		{"read of what the transaction wrote", func() { s.transaction(nil, "RPUSH|l|4", "LRANGE|l|3|3", "LPOP|l", "LINDEX|l|0") },
			"*4 :4 *1 $1 4 $1 1 $1 2 ", []string{"rpush", "lpop"}},
		{"error of a read", func() { s.transaction(nil, "SET|z|1", "LRANGE|a|0|-1", "INCR|z") },
			"*3 +OK -WRONGTYPE Operation against a key holding the wrong kind of value :2 ", []string{"set", "incr"}},
		{"broken watch", func() {
			s.transaction([]fsm.Watch{{Key: "a", Version: 1}}, "SET|z|5", "LCS|a|b")
		}, "_ ", nil},
		{"reads alone", func() { s.group("LCS|a|b", "GET|z") }, "$3 abc $1 2 ", []string{"lcs", "get"}},
	} {
		var got string
		c.add()
		ran := s.ranWhileApplying(func() { got = s.commit() })
		if got != c.want || !slices.Equal(ran, c.ran) {
			t.Errorf("%s: answered %q and ran %v, want %q and %v", c.name, got, ran, c.want, c.ran)
		}
	}
	// A restart applies the same entries.
	again := fsm.New(s.table)
	ran := 0
	again.Trace(&fsm.Trace{Ran: func(_ int, args [][]byte, _ fsm.Reply, _ int) {
		if name := string(args[0]); name == "lrange" || name == "lindex" {
			ran++
		}
	}})
	s.replay(again)
	if ran != 0 {
		t.Errorf("a restart ran %d costly reads again", ran)
	}
}

// replay applies the entries of the stage to another machine.
func (s *stage) replay(m *fsm.Machine) {
	s.t.Helper()
	log := s.entries
	for index := uint64(1); len(log) > 0; index++ {
		n := int(log[0]) | int(log[1])<<8
		if _, err := m.Apply(index, 1, log[2:2+n]); err != nil {
			s.t.Fatal(err)
		}
		log = log[2+n:]
	}
}

// TestCostly_Tracked: the events of a connection with tracking include the
// costly reads of a group that writes, in order with the changes.
func TestCostly_Tracked(t *testing.T) {
	s := newStage(t)
	s.m.Want(fsm.Kinds(fsm.EventTracked, fsm.EventChanged))
	s.group("RPUSH|l|1|2|3", "SADD|s|a", "SADD|r|a")
	s.commit()
	tracked := func(inMulti bool) string {
		var g fsm.Group
		g.Reset(3, 1)
		g.Track()
		words := []string{"SET|z|1", "LRANGE|l|0|-1", "SINTER|s|r", "GET|z", "DEL|l"}
		var queue []fsm.Queued
		for _, w := range words {
			cmd, args := s.words(w)
			if !inMulti {
				g.Command(cmd, 0, args)
			}
			queue = append(queue, fsm.Queued{Cmd: cmd, Args: args})
		}
		if inMulti {
			g.Transaction(nil, queue)
		}
		s.add(&g)
		ran := s.ranWhileApplying(func() { s.commit() })
		if slices.Contains(ran, "lrange") || slices.Contains(ran, "sinter") {
			t.Errorf("the machine ran %v, want no costly read", ran)
		}
		var b strings.Builder
		for _, e := range s.events {
			fmt.Fprintf(&b, "%v:%s ", e.Kind == fsm.EventTracked, e.Key)
		}
		s.group("RPUSH|l|1|2|3")
		s.commit()
		return b.String()
	}
	for _, inMulti := range []bool{false, true} {
		if got, want := tracked(inMulti), "false:z true:l true:s true:r true:z false:l "; got != want {
			t.Errorf("in a transaction: %v: events %q, want %q", inMulti, got, want)
		}
	}
}

// TestCostly_Mark checks that Table.Mark marks a group with writes and costly
// reads, and no other group. The leader marks the groups that older programs
// send, because these programs do not mark such groups.
func TestCostly_Mark(t *testing.T) {
	table := command.NewTable()
	group := func(names ...string) []byte {
		var g fsm.Group
		g.Reset(2, 1)
		for _, name := range names {
			words := strings.Split(name, "|")
			args := respwire.Args(words...)
			g.Command(table.Find(args[0]), 0, args)
		}
		return slices.Clone(g.Bytes())
	}
	for _, c := range []struct {
		body []byte
		want bool
	}{
		{group("SET|a|b", "GET|a", "INCR|b", "MGET|a|b", "EXPIRE|a|10", "TTL|a", "EXISTS|a"), false},
		{group("LCS|a|b", "KEYS|*"), false},
		{group("SET|a|b", "LCS|a|b"), true},
		{group("KEYS|*", "SET|a|b"), true},
	} {
		unmarked := slices.Clone(c.body)
		unmarked[0] = 0
		marked := table.Mark(unmarked)
		if got := slices.Equal(marked, c.body); !got || (marked[0] != 0) != c.want {
			t.Errorf("%q: flags %v after Mark, flags %v as built, want both equal and marked: %v",
				c.body, marked[0], c.body[0], c.want)
		}
		if unmarked[0] != 0 {
			t.Error("Mark changed its argument")
		}
	}
}

// lengths sets the keys a and b to strings of n bytes, whose LCS takes n*n/8
// steps.
func (s *stage) lengths(n int) {
	s.group("SET|a|"+strings.Repeat("x", n), "SET|b|"+strings.Repeat("y", n))
	s.commit()
}

// TestCostly_Budget: costly reads are executed within a budget. A group that
// exceeds its budget has no effect, and the next groups are executed on the
// state from before that group.
func TestCostly_Budget(t *testing.T) {
	s := newStage(t)
	s.quick = false
	tooLong := "\x00"
	busy := "-BUSY the reads of a transaction that writes exceed their budget and it was rolled back: read less in it, or read before it and WATCH the keys "

	s.lengths(1000) // 125,000 steps: too many for a pipeline
	s.group("SET|z|1", "RPUSH|l|1", "SPOP|none", "LCS|a|b", "INCR|z")
	s.group("GET|z", "INCR|n", "LLEN|l")
	s.want("pipeline", tooLong+"/ $-1 :1 :0 ")
	s.transaction(nil, "SET|z|1", "LCS|a|b|LEN", "INCR|z")
	s.want("transaction", "*3 +OK :0 :2 ")

	s.lengths(1500) // 281,250 steps: a transaction needs a dry run
	s.transaction(nil, "SET|z|8", "LCS|a|b|LEN")
	s.transaction(nil, "GET|z", "INCR|n")
	s.want("slower transaction", tooLong+"/ *2 $1 2 :2 ")
	body := s.transactionOf(nil, []string{"SET|z|8", "LCS|a|b|LEN"}).Bytes()
	h := fsm.Header{Term: 1, Stamp: s.stamp}
	if replies, ops, cut, err := s.m.Clone().Try(h, slices.Clone(body), s.runner, nil); cut || err != nil || ops != 1 {
		t.Errorf("dry run: %q, %d operations, cut: %v, error %v, want 1 operation, not cut", replies, ops, cut, err)
	}
	fsm.SetScriptBudget(body, fsm.DryRunPassed)
	s.addBody(body)
	s.want("after its dry run", "*2 +OK :0 ")

	s.lengths(4000) // 2,000,000 steps: two reads are too many even after a dry run
	body = s.transactionOf(nil, []string{"SET|z|9", "LCS|a|b|LEN", "LCS|a|b|LEN"}).Bytes()
	if replies, ops, cut, err := s.m.Clone().Try(h, slices.Clone(body), s.runner, nil); !cut || err != nil || ops != 1 || strings.ReplaceAll(string(replies), "\r\n", " ") != busy {
		t.Errorf("dry run: %q, %d operations, cut: %v, error %v, want a BUSY error, 1 operation, cut", replies, ops, cut, err)
	}
	fsm.SetScriptBudget(body, fsm.DryRunPassed)
	s.addBody(body)
	s.group("GET|z", "INCR|n")
	s.want("too much even after a dry run", busy+"/ $1 8 :3 ")

	// Replies are logged, so their bytes have a budget, too.
	s.group("RPUSH|big|"+strings.Repeat("x", 200_000), "RPUSH|big|"+strings.Repeat("y", 200_000))
	s.commit()
	s.group("SET|z|7", "LRANGE|big|0|-1")
	s.want("large reply", tooLong)
	var reads []string
	for range 2 {
		reads = append(reads, "LRANGE|big|0|-1")
	}
	s.transaction(nil, append([]string{"SET|z|7"}, reads...)...)
	s.want("large replies of a transaction", tooLong)
	body = s.transactionOf(nil, append([]string{"SET|z|7"}, reads...)).Bytes()
	fsm.SetScriptBudget(body, fsm.DryRunPassed)
	s.addBody(body)
	s.group("GET|z")
	s.want("large replies of a transaction after a dry run", busy+"/ $1 8 ")
}

func (s *stage) addBody(body []byte) {
	s.seq++
	s.batch.Add(stageSession, 0, s.seq, body)
}

// TestCostly_Pieces: Table.Pieces splits a group with writes and costly reads.
// The costly reads are then in pieces that do not have to go through the log.
func TestCostly_Pieces(t *testing.T) {
	table := command.NewTable()
	for _, c := range []struct{ group, want string }{
		{"SET a b;LCS a b;LCS a b;GET a;SET a c;GET a;KEYS *", "write: set, read: lcs lcs get, write: set get, read: keys"},
		{"KEYS *;GET a;SET a b", "read: keys get, write: set"},
		{"SET a b;GET a;INCR c", "write: set get incr"},
		{"LCS a b;KEYS *", "write: lcs keys"}, // one piece, unchanged
		{"SET a b;EVAL x 0;KEYS *;EVAL_RO x 0;KEYS *", "write: set eval, read: keys, write: eval_ro, read: keys"},
	} {
		var g fsm.Group
		g.Reset(2, 1)
		for _, line := range strings.Split(c.group, ";") {
			var args [][]byte
			for _, w := range strings.Fields(line) {
				args = append(args, []byte(w))
			}
			g.Command(table.Find(args[0]), 3, args)
		}
		var got []string
		for _, p := range table.Pieces(g.Bytes()) {
			kind := "write:"
			if p.Read {
				kind = "read:"
				if err := table.Check(p.Body, true); err != nil {
					t.Errorf("%s: %v", c.group, err)
				}
			}
			var b fsm.BatchBuilder
			b.Add(stageSession, 0, 1, p.Body)
			rec, err := fsm.ReadRecord(b.Encode(fsm.Header{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range rec.Groups[0].Ops {
				kind += " " + op.Commands[0].Args[0]
			}
			got = append(got, kind)
		}
		if all := strings.Join(got, ", "); all != c.want {
			t.Errorf("%s: pieces %q, want %q", c.group, all, c.want)
		}
	}
}
