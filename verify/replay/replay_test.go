package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// recorder runs commands on the nodes' state machine, one every 10 ms. It
// records the log and the history that one client would have seen.
type recorder struct {
	t       *testing.T
	table   *fsm.Table
	machine *fsm.Machine
	log     Log
	ops     []checker.Op
	seq     uint64
	stamp   int64
	now     time.Duration
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{t: t, table: command.NewTable()}
	r.machine = fsm.New(r.table)
	r.append(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Instance: "i", Boot: 1, ClusterID: "c"}))
	return r
}

func (r *recorder) append(data []byte) *fsm.Result {
	r.t.Helper()
	index := uint64(len(r.log.Entries) + 1)
	r.log.Entries = append(r.log.Entries, Entry{index, 1, true, data})
	res, err := r.machine.Apply(index, 1, data)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// commandOf returns the command of an Op as a client sends it.
func commandOf(o *checker.Op) []string {
	args := []string{strings.ToLower(string(o.Kind)), o.Key}
	switch o.Kind {
	case checker.Set:
		args = append(args, o.Arg)
		for _, w := range []struct {
			on   bool
			args []string
		}{
			{o.NX, []string{"NX"}}, {o.XX, []string{"XX"}}, {o.Cmp != "", []string{"IFEQ", o.Cmp}}, {o.Get, []string{"GET"}},
			{o.KeepTTL, []string{"KEEPTTL"}}, {o.TTL != 0, []string{"PX", strconv.FormatInt(o.TTL.Milliseconds(), 10)}},
		} {
			if w.on {
				args = append(args, w.args...)
			}
		}
	case checker.SetNX, checker.GetSet, rpush:
		args = append(args, o.Arg)
	case checker.DelIfEq:
		args = append(args, o.Cmp)
	case checker.PExpire:
		args = append(args, strconv.FormatInt(o.TTL.Milliseconds(), 10))
	}
	return args
}

// do runs one command and adds it to the history, with its times and its reply.
func (r *recorder) do(o checker.Op) checker.Op {
	r.t.Helper()
	args := commandOf(&o)
	cmd := r.table.Find([]byte(args[0]))
	if cmd == nil {
		r.t.Fatalf("no command %q", args[0])
	}
	raw := respwire.Args(args...)
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(cmd, 0, raw)
	r.seq++
	r.now += 10 * time.Millisecond
	r.stamp += int64(10 * time.Millisecond)
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1@i", Boot: 1}, 0, r.seq, g.Bytes())
	res := r.append(b.Encode(fsm.Header{Term: 1, Stamp: r.stamp}))
	reply, _, err := respwire.Parse(res.Groups[0].Reply)
	if err != nil {
		r.t.Fatal(err)
	}
	o.Call, o.Return, o.Reply = r.now-5*time.Millisecond, r.now, checker.ReplyOf(reply)
	r.ops = append(r.ops, o)
	return o
}

// random returns a history of n commands of all kinds on a few keys.
func random(t *testing.T, seed uint64, n int) *recorder {
	t.Helper()
	r := newRecorder(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	values := []string{"none"}
	for i := range n {
		o := checker.Op{Key: fmt.Sprintf("k%d", rng.IntN(3))}
		value := fmt.Sprintf("v%d", i)
		some := values[max(len(values)-1-rng.IntN(3), 0)]
		ttl := time.Duration(10+rng.IntN(80)) * time.Millisecond
		switch rng.IntN(14) {
		case 0, 1:
			o.Kind, o.Arg = checker.Set, value
			if rng.IntN(2) == 0 {
				o.TTL = ttl
			}
		case 2:
			o.Kind, o.Arg, o.NX, o.TTL = checker.Set, value, true, ttl
		case 3:
			o.Kind, o.Arg, o.XX, o.KeepTTL = checker.Set, value, true, true
		case 4:
			o.Kind, o.Arg, o.Cmp, o.Get = checker.Set, value, some, true
		case 5:
			o.Kind, o.Arg = checker.SetNX, value
		case 6:
			o.Kind, o.Arg = checker.GetSet, value
		case 7:
			o.Kind = checker.GetDel
		case 8:
			o.Kind = checker.Del
		case 9:
			o.Kind, o.Cmp = checker.DelIfEq, some
		case 10:
			o.Kind, o.Key = checker.Incr, "n"
		case 11:
			o.Kind, o.TTL = checker.PExpire, ttl
		case 12:
			o.Kind = []checker.Kind{checker.Persist, checker.PTTL}[rng.IntN(2)]
		case 13:
			o.Kind = checker.Get
		}
		if o.Arg != "" {
			values = append(values, o.Arg)
		}
		r.do(o)
	}
	return r
}

// TestCheck_AgreesWithTheMachine checks that models that were written
// independently agree on random histories: the model of this package with the
// nodes' state machine, and both with the model of package checker.
func TestCheck_AgreesWithTheMachine(t *testing.T) {
	for seed := range uint64(20) {
		r := random(t, seed, 400)
		res := Check(r.log, r.ops, nil)
		if len(res.Violations) != 0 || res.Unmodeled != 0 || res.Executed != len(r.ops) {
			t.Fatalf("seed %d: %+v", seed, res)
		}
		if res.Matched < 300 || res.Reads < 10 {
			t.Errorf("seed %d: only %d writes and %d reads compared", seed, res.Matched, res.Reads)
		}
		health := &checker.Health{Known: true, Slack: 20 * time.Millisecond}
		if bad := checker.Linear(r.ops, health, 10*time.Second).Violations; len(bad) != 0 {
			t.Fatalf("seed %d: porcupine: %v", seed, bad)
		}
	}
}

// TestCheck_CompactedLog checks that Check finds no violation if the beginning of
// the log is gone.
func TestCheck_CompactedLog(t *testing.T) {
	r := random(t, 7, 400)
	r.log.Entries = r.log.Entries[200:]
	if res := Check(r.log, r.ops[220:], nil); len(res.Violations) != 0 || res.Entries != 201 {
		t.Errorf("%+v", res)
	}
}

func TestCheck_Finds(t *testing.T) {
	set := func(key, v string) checker.Op { return checker.Op{Kind: checker.Set, Key: key, Arg: v} }
	get := func(key string) checker.Op { return checker.Op{Kind: checker.Get, Key: key} }
	push := func(id string) checker.Op { return checker.Op{Kind: rpush, Key: "l", Arg: id} }
	for _, tc := range []struct {
		what  string
		spoil func(r *recorder)
		want  string // part of the only violation, "" for none
	}{
		{"nothing", func(r *recorder) {}, ""},
		{"acknowledged, not in the log", func(r *recorder) {
			o := set("k", "ghost")
			o.Reply = checker.Reply{Text: "OK"}
			r.ops = append(r.ops, o)
		}, "is 0 times in the log"},
		{"refused, in the log", func(r *recorder) { r.ops[0].Outcome = checker.Refused }, "1 refused"},
		{"unknown, in the log", func(r *recorder) { r.ops[0].Outcome = checker.Unknown }, ""},
		{"executed twice", func(r *recorder) { again(r, set("k", "a")) }, "ran 2 times"},
		{"appended again, not executed", func(r *recorder) {
			e := r.log.Entries[1]
			e.Index = uint64(len(r.log.Entries) + 1)
			r.log.Entries = append(r.log.Entries, e)
		}, ""},
		{"another reply", func(r *recorder) { r.ops[2].Reply = checker.Reply{Int: 9} }, "the log gives 1"},
		{"against time", func(r *recorder) {
			r.ops[0].Call, r.ops[0].Return = time.Hour, time.Hour+1
		}, "comes in the log after"},
		{"stale read", func(r *recorder) { r.ops[4].Reply = checker.Reply{Text: "a"} }, "did not have this value"},
		{"read that lost a write", func(r *recorder) { r.ops[4].Reply = checker.Reply{Null: true} }, "did not have this value"},
	} {
		r := newRecorder(t)
		r.do(set("k", "a"))
		r.do(push("x"))
		r.do(checker.Op{Kind: checker.SetNX, Key: "n", Arg: "1"})
		r.do(set("k", "b"))
		r.do(get("k"))
		tc.spoil(r)
		res := Check(r.log, r.ops, nil)
		switch {
		case tc.want == "" && len(res.Violations) > 0:
			t.Errorf("%s: %v", tc.what, res.Violations)
		case tc.want != "" && !slices.ContainsFunc(res.Violations, func(v checker.Violation) bool { return strings.Contains(v.Text, tc.want) }):
			t.Errorf("%s: %v, want one that says %q", tc.what, res.Violations, tc.want)
		}
	}
}

// again puts a command into the log a second time. The client's history contains
// it once.
func again(r *recorder, o checker.Op) {
	n := len(r.ops)
	r.do(o)
	r.ops = r.ops[:n]
}

func TestCompare(t *testing.T) {
	a := random(t, 1, 20).log
	a.Node = "a"
	last := uint64(len(a.Entries))
	clone := func(node string) Log { return Log{Node: node, Entries: slices.Clone(a.Entries)} }
	for _, tc := range []struct {
		what string
		b    func() Log
		bad  int
	}{
		{"equal", func() Log { return clone("b") }, 0},
		{"behind", func() Log { b := clone("b"); b.Entries = b.Entries[:5]; return b }, 0},
		{"another entry of the same term", func() Log { b := clone("b"); b.Entries[7].Data = b.Entries[6].Data; return b }, 1},
		{"a committed entry of another term", func() Log { b := clone("b"); b.Entries[7].Term = 2; return b }, 1},
	} {
		longest, compared, bad := Compare([]Log{a, tc.b()}, last)
		if len(bad) != tc.bad || compared == 0 || len(longest.Entries) != int(last) {
			t.Errorf("%s: %d compared, %v", tc.what, compared, bad)
		}
	}
	back := clone("a")
	back.Entries[9], back.Entries[8] = Entry{10, 1, true, back.Entries[8].Data}, Entry{9, 1, true, back.Entries[9].Data}
	if _, _, bad := Compare([]Log{back}, last); len(bad) != 1 || bad[0].Check != "one leader a term" {
		t.Errorf("clock that goes back: %v", bad)
	}
}

// TestCheck_EqualCommands checks a history that contains two equal commands, of
// which the replay knows only the reply of the second one. The replay must
// explain both, in whichever order the history lists them.
func TestCheck_EqualCommands(t *testing.T) {
	r := newRecorder(t)
	r.do(checker.Op{Kind: checker.Set, Key: "k", Arg: "v"})
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(r.table.Find([]byte("delex")), 0, [][]byte{[]byte("delex"), []byte("k"), []byte("ifeq"), []byte("other")}) // the model does not know DELEX
	r.seq++
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1@i", Boot: 1}, 0, r.seq, g.Bytes())
	r.append(b.Encode(fsm.Header{Term: 1, Stamp: r.stamp}))
	one, two := r.do(checker.Op{Kind: checker.GetDel, Key: "k"}), r.do(checker.Op{Kind: checker.GetDel, Key: "k"})
	if one.Reply.Text != "v" || !two.Reply.Null {
		t.Fatalf("replies %v and %v", one.Reply, two.Reply)
	}
	for _, ops := range [][]checker.Op{{one, two}, {two, one}} {
		if bad := Check(r.log, ops, nil).Violations; len(bad) > 0 {
			t.Error(bad)
		}
	}
}

// TestCommands_Superseded replays an entry in which the groups of an earlier
// start of a node come after the groups of a later start. Below FeatureMend,
// the state machine executes the groups of the earlier start, and from
// FeatureMend on it does not. The replay must do the same.
func TestCommands_Superseded(t *testing.T) {
	for _, features := range []int{0, fsm.FeatureMend} {
		r := &recorder{t: t, table: command.NewTable()}
		r.machine = fsm.New(r.table)
		r.append(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Instance: "i", Boot: 1, ClusterID: "c", Features: features}))
		var b fsm.BatchBuilder
		push := func(boot, seq uint64, what string) {
			var g fsm.Group
			g.Reset(2, 1)
			g.Command(r.table.Find([]byte("rpush")), 0, [][]byte{[]byte("rpush"), []byte("l"), []byte(what)})
			b.Add(fsm.SessionID{NodeID: "n2", Boot: boot}, 0, seq, g.Bytes())
		}
		push(1, 1, "old")
		push(2, 1, "new")
		push(1, 2, "late")
		r.append(b.Encode(fsm.Header{Term: 1, Stamp: 1}))
		b.Reset(0)
		push(1, 3, "stale")
		push(2, 2, "newer")
		r.append(b.Encode(fsm.Header{Term: 1, Stamp: 2}))
		var ran []string
		Commands(r.log, func(c fsm.RecordCommand) { ran = append(ran, c.Args[2]) })
		var g fsm.Group
		g.Reset(2, 1)
		g.Command(r.table.Find([]byte("lrange")), 0, [][]byte{[]byte("lrange"), []byte("l"), []byte("0"), []byte("-1")})
		out, _, err := r.machine.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		if want := fsm.Strings(ran...).Append(nil, 2); !bytes.Equal(out, want) {
			t.Errorf("feature version %d: the machine has %q, the replay %q", features, out, want)
		}
	}
}
