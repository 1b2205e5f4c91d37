package checker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// at sets the call and return times of a command, in milliseconds.
func at(o Op, call, ret int) Op {
	o.Call, o.Return = time.Duration(call)*ms, time.Duration(ret)*ms
	return o
}

func text(s string) Reply { return Reply{Text: s} }

// healthy returns the health of a cluster that was never unhealthy. Its leases
// may end up to 100 ms late.
func healthy() *Health { return &Health{Known: true, Slack: 100 * ms} }

func TestLinear(t *testing.T) {
	set := func(v string) Op { return Op{Kind: Set, Key: "k", Arg: v, Reply: text("OK")} }
	get := func(v string) Op { return Op{Kind: Get, Key: "k", Reply: text(v)} }
	null := Op{Kind: Get, Key: "k", Reply: Reply{Null: true}}
	unknown := func(o Op) Op { o.Outcome = Unknown; return o }
	refused := func(o Op) Op { o.Outcome = Refused; return o }
	volatile := func(v string, ttl time.Duration) Op { o := set(v); o.TTL = ttl; return o }
	nx := func(v string, got Reply) Op { return Op{Kind: Set, Key: "k", Arg: v, NX: true, Reply: got} }
	ok, none := text("OK"), Reply{Null: true}
	for _, tc := range []struct {
		what string
		ops  []Op
		good bool
	}{
		{"write, then read", []Op{at(set("a"), 0, 1), at(get("a"), 2, 3)}, true},
		{"stale read", []Op{at(set("a"), 0, 1), at(set("b"), 2, 3), at(get("a"), 4, 5)}, false},
		{"lost write", []Op{at(set("a"), 0, 1), at(null, 2, 3)}, false},
		{"unknown write is seen", []Op{at(unknown(set("a")), 0, 0), at(get("a"), 9, 10)}, true},
		{"unknown write is not seen", []Op{at(unknown(set("a")), 0, 0), at(null, 9, 10)}, true},
		{"unknown write seen and gone", []Op{at(unknown(set("a")), 0, 0), at(get("a"), 2, 3), at(null, 4, 5)}, false},
		{"refused write is seen", []Op{at(refused(set("a")), 0, 1), at(get("a"), 2, 3)}, false},
		{"NX on a free key", []Op{at(nx("a", ok), 0, 1), at(nx("b", none), 2, 3), at(get("a"), 4, 5)}, true},
		{"NX granted twice", []Op{at(nx("a", ok), 0, 1), at(nx("b", ok), 2, 3)}, false},
		{"SETNX granted twice", []Op{at(Op{Kind: SetNX, Key: "k", Arg: "a", Reply: Reply{Int: 1}}, 0, 1), at(Op{Kind: SetNX, Key: "k", Arg: "b", Reply: Reply{Int: 1}}, 2, 3)}, false},
		{"XX on a free key", []Op{at(Op{Kind: Set, Key: "k", Arg: "a", XX: true, Reply: ok}, 0, 1)}, false},
		{"SET GET", []Op{at(set("a"), 0, 1), at(Op{Kind: Set, Key: "k", Arg: "b", Get: true, Reply: text("a")}, 2, 3), at(get("b"), 4, 5)}, true},
		{"SET IFEQ", []Op{at(set("a"), 0, 1), at(Op{Kind: Set, Key: "k", Arg: "b", Cmp: "x", Reply: ok}, 2, 3)}, false},
		{"GETSET", []Op{at(set("a"), 0, 1), at(Op{Kind: GetSet, Key: "k", Arg: "b", Reply: text("x")}, 2, 3)}, false},
		{"GETDEL", []Op{at(set("a"), 0, 1), at(Op{Kind: GetDel, Key: "k", Reply: text("a")}, 2, 3), at(get("a"), 4, 5)}, false},
		{"DEL of nothing", []Op{at(Op{Kind: Del, Key: "k", Reply: Reply{Int: 1}}, 0, 1)}, false},
		{"compare and delete by its owner", []Op{at(set("a"), 0, 1), at(Op{Kind: DelIfEq, Key: "k", Cmp: "a", Reply: Reply{Int: 1}}, 2, 3), at(null, 4, 5)}, true},
		{"compare and delete by another", []Op{at(set("a"), 0, 1), at(Op{Kind: DelIfEq, Key: "k", Cmp: "b", Reply: Reply{Int: 1}}, 2, 3)}, false},
		{"INCR twice", []Op{at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 1}}, 0, 5), at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 2}}, 0, 5)}, true},
		{"INCR lost", []Op{at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 1}}, 0, 5), at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 1}}, 0, 5)}, false},
		{"INCR executed twice", []Op{at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 1}}, 0, 1), at(Op{Kind: Incr, Key: "k", Reply: Reply{Int: 3}}, 2, 3)}, false},
		{"gone before its time", []Op{at(volatile("a", 100*ms), 0, 5), at(null, 50, 60)}, false},
		{"gone at its time", []Op{at(volatile("a", 100*ms), 0, 5), at(null, 98, 101)}, true},
		{"still there in the slack", []Op{at(volatile("a", 100*ms), 0, 5), at(get("a"), 190, 195)}, true},
		{"there long after its time", []Op{at(volatile("a", 100*ms), 0, 5), at(get("a"), 300, 305)}, false},
		{"there long after its time, unknown when written", []Op{at(unknown(volatile("a", 100*ms)), 0, 0), at(get("a"), 300, 305)}, true},
		{"plain SET removes the TTL", []Op{at(volatile("a", 100*ms), 0, 5), at(set("b"), 6, 7), at(get("b"), 400, 405)}, true},
		{"KEEPTTL keeps the time", []Op{at(volatile("a", 100*ms), 0, 5), at(Op{Kind: Set, Key: "k", Arg: "b", KeepTTL: true, Reply: ok}, 6, 7), at(get("b"), 400, 405)}, false},
		{"PEXPIRE prolongs", []Op{at(volatile("a", 100*ms), 0, 5), at(Op{Kind: PExpire, Key: "k", TTL: second, Reply: Reply{Int: 1}}, 50, 55), at(get("a"), 400, 405)}, true},
		{"PERSIST keeps", []Op{at(volatile("a", 100*ms), 0, 5), at(Op{Kind: Persist, Key: "k", Reply: Reply{Int: 1}}, 50, 55), at(get("a"), 400, 405)}, true},
		{"PTTL shows less than remains", []Op{at(volatile("a", second), 0, 5), at(Op{Kind: PTTL, Key: "k", Reply: Reply{Int: 700}}, 100, 105)}, false},
		{"PTTL shows the remaining time", []Op{at(volatile("a", second), 0, 5), at(Op{Kind: PTTL, Key: "k", Reply: Reply{Int: 897}}, 100, 105)}, true},
		{"PTTL of a key without a time to live", []Op{at(set("a"), 0, 5), at(Op{Kind: PTTL, Key: "k", Reply: Reply{Int: 5}}, 100, 105)}, false},
	} {
		res := Linear(tc.ops, healthy(), 10*second)
		if good := len(res.Violations) == 0; good != tc.good {
			t.Errorf("%s: violations %v, want none: %v", tc.what, res.Violations, tc.good)
		}
		for _, history := range res.Bad {
			var page strings.Builder
			if err := Draw(&page, history, healthy(), second); err != nil || !strings.Contains(page.String(), "<html") {
				t.Errorf("%s: page of %d bytes, %v", tc.what, page.Len(), err)
			}
		}
	}
}

// TestLinear_UndecidedIsBad checks that Linear reports a violation for a history
// that is too long, and for one that it cannot decide in time.
func TestLinear_UndecidedIsBad(t *testing.T) {
	var ops []Op
	for i := range MaxOpsPerKey + 1 {
		ops = append(ops, at(Op{Kind: Set, Key: "k", Arg: fmt.Sprint(i), Reply: text("OK")}, i, i+1))
	}
	if res := Linear(ops, nil, second); len(res.Violations) != 1 {
		t.Errorf("a history that is too long: violations %v, want 1", res.Violations)
	}
	// These writes all overlap each other, and none of them wrote the value
	// that is read.
	rng := rand.New(rand.NewPCG(1, 2))
	ops = nil
	for i := range 60 {
		ops = append(ops, at(Op{Kind: Set, Key: "k", Arg: fmt.Sprint(i), Reply: text("OK")}, rng.IntN(50), 1000))
	}
	ops = append(ops, at(Op{Kind: Get, Key: "k", Reply: text("x")}, 500, 2000))
	if res := Linear(ops, nil, 50*ms); len(res.Violations) != 1 || !strings.Contains(res.Violations[0].Text, "not decided") {
		t.Errorf("a history that is not decided in time: violations %v, want 1", res.Violations)
	}
}

func TestHealth_Gone(t *testing.T) {
	h := &Health{Known: true}
	h.Add(10*second, 20*second)
	h.Add(15*second, 22*second)
	h.Add(30*second, Forever)
	for _, tc := range []struct{ ret, ttl, want time.Duration }{
		{0, 5 * second, 5*second + 5*ms},
		{8 * second, 5 * second, 25*second + 5*ms},
		{12 * second, second, 23*second + ms},
		{25 * second, 10 * second, Forever},
	} {
		if got := h.Gone(tc.ret, tc.ttl); got != tc.want {
			t.Errorf("given %v at %v: gone at %v, want %v", tc.ttl, tc.ret, got, tc.want)
		}
	}
	if got := (*Health)(nil).Gone(0, second); got != Forever {
		t.Errorf("Gone of a health that is not known is %v, want Forever", got)
	}
}

func TestLocks(t *testing.T) {
	hold := func(token string, call, granted, ttl time.Duration) Hold {
		return Hold{Lock: "l", Token: token, Call: call, Granted: granted, TTL: ttl}
	}
	released := func(h Hold, at time.Duration, mine bool) Hold {
		h.Release = &Step{Call: at, Return: at + 100*ms, Mine: mine}
		return h
	}
	renewed := func(h Hold, at time.Duration, mine bool) Hold {
		h.Renewals = append(h.Renewals, Step{Call: at, Return: at + 100*ms, Mine: mine})
		return h
	}
	fenced := func(h Hold, n int64) Hold { h.Fence = n; return h }
	s := second
	for _, tc := range []struct {
		what    string
		holds   []Hold
		refused []Refusal
		want    string // names of the checks that fail
	}{
		{"one after the other", []Hold{released(hold("a", 1*s, 2*s, 10*s), 3*s, true), hold("b", 1*s, 4*s, 10*s)}, nil, ""},
		{"after its time", []Hold{hold("a", 1*s, 2*s, 3*s), hold("b", 2*s, 4*s, 10*s)}, nil, ""},
		{"before its time", []Hold{hold("a", 1*s, 2*s, 3*s), hold("b", 2*s, 3900*ms, 10*s)}, nil, "mutual exclusion"},
		{"over before its reply arrived", []Hold{hold("a", 1*s, 9*s, 3*s), hold("b", 2*s, 5*s, 10*s)}, nil, ""},
		{"renewed", []Hold{renewed(hold("a", 1*s, 2*s, 3*s), 3*s, true), hold("b", 2*s, 5*s, 10*s)}, nil, "mutual exclusion"},
		{"long one with two others", []Hold{hold("a", 0, 1*s, 9*s), hold("b", 2*s, 3*s, 2*s), hold("c", 5*s, 6*s, 2*s)}, nil, "mutual exclusion,mutual exclusion"},
		{"lost while held, seen by the release", []Hold{released(hold("a", 0, 1*s, 9*s), 4*s, false)}, nil, "lock not lost"},
		{"lost while held, seen by a renewal", []Hold{renewed(hold("a", 0, 1*s, 9*s), 4*s, false)}, nil, "lock not lost"},
		{"run out, seen by the release", []Hold{released(hold("a", 0, 1*s, 4*s), 4*s, false)}, nil, ""},
		{"tokens grow", []Hold{fenced(released(hold("a", 0, 1*s, 9*s), 2*s, true), 4), fenced(hold("b", 3*s, 4*s, s), 5)}, nil, ""},
		{"token goes back", []Hold{fenced(released(hold("a", 0, 1*s, 9*s), 2*s, true), 4), fenced(hold("b", 3*s, 4*s, s), 3)}, nil, "fencing"},
		{"token twice", []Hold{fenced(hold("a", 0, 6*s, s), 4), fenced(hold("b", 1*s, 7*s, s), 4)}, nil, "fencing"},
		{"refused while held", []Hold{hold("a", 0, 1*s, 4*s)}, []Refusal{{Lock: "l", Call: 4 * s, Return: 4050 * ms}}, ""},
		{"refused after it ran out", []Hold{hold("a", 0, 1*s, 4*s)}, []Refusal{{Lock: "l", Call: 6 * s, Return: 7 * s}}, "late expiry"},
		{"refused after its release", []Hold{released(hold("a", 0, 1*s, 99*s), 2*s, true)}, []Refusal{{Lock: "l", Call: 3 * s, Return: 4 * s}}, "late expiry"},
		{"refused for an unknown owner", []Hold{hold("a", 0, Forever, s)}, []Refusal{{Lock: "l", Call: 6 * s, Return: 7 * s}}, ""},
		{"refused, and no client ever took it", nil, []Refusal{{Lock: "l", Call: 6 * s, Return: 7 * s}}, "late expiry"},
	} {
		var got []string
		for _, v := range Locks(tc.holds, tc.refused, healthy()).Violations {
			got = append(got, v.Check)
		}
		if strings.Join(got, ",") != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}

func TestOnce(t *testing.T) {
	add := func(id string, call, ret int, out Outcome) Append {
		return Append{List: "l", ID: id, Call: time.Duration(call), Return: time.Duration(ret), Outcome: out}
	}
	for _, tc := range []struct {
		what    string
		appends []Append
		list    string
		bad     int
	}{
		{"as it should be", []Append{add("a", 0, 1, Done), add("b", 2, 3, Unknown), add("c", 4, 5, Unknown), add("d", 6, 7, Refused)}, "a c", 0},
		{"lost", []Append{add("a", 0, 1, Done)}, "", 1},
		{"twice", []Append{add("a", 0, 1, Done)}, "a a", 1},
		{"unknown, twice", []Append{add("a", 0, 1, Unknown)}, "a a", 1},
		{"refused, but done", []Append{add("a", 0, 1, Refused)}, "a", 1},
		{"from nowhere", []Append{add("a", 0, 1, Done)}, "a x", 1},
		{"overlapping, in any order", []Append{add("a", 0, 5, Done), add("b", 1, 6, Done)}, "b a", 0},
		{"against time", []Append{add("a", 0, 1, Done), add("b", 2, 3, Done)}, "b a", 1},
	} {
		if got := Once(tc.appends, map[string][]string{"l": strings.Fields(tc.list)}); len(got) != tc.bad {
			t.Errorf("%s: %v, want %d", tc.what, got, tc.bad)
		}
	}
}

func TestReplies(t *testing.T) {
	own, other := ValueFor("k", 1, 1), ValueFor("kk", 1, 1)
	for value, want := range map[string]int{own: 0, other: 1, "7": 0} {
		if _, got := Replies([]Op{{Kind: Get, Key: "k", Reply: text(value)}}); len(got) != want {
			t.Errorf("%s: %v, want %d", value, got, want)
		}
	}
	for _, tc := range []struct {
		what    string
		batches []Batch
		bad     int
	}{
		{"in order", []Batch{{Sent: 3, Numbers: []int64{1, 2, 3}}, {Sent: 2, Numbers: []int64{4, 5}}}, 0},
		{"crossed", []Batch{{Sent: 3, Numbers: []int64{1, 3, 2}}}, 2},
		{"cut off, all executed", []Batch{{Sent: 3, Numbers: []int64{1}}, {Sent: 1, Numbers: []int64{4}}}, 0},
		{"cut off, none executed", []Batch{{Sent: 3, Numbers: []int64{1}}, {Sent: 1, Numbers: []int64{2}}}, 0},
		{"executed twice", []Batch{{Sent: 3, Numbers: []int64{1, 2, 3}}, {Sent: 1, Numbers: []int64{7}}}, 1},
		{"unexpected error", []Batch{{Sent: 2, Numbers: []int64{1}, Errors: []string{"ERR odd"}}, {Sent: 1, Numbers: []int64{2}}}, 1},
		{"unknown at the beginning, all executed", []Batch{{Sent: 1, Numbers: []int64{1}},
			{Sent: 5, Numbers: []int64{5, 6}, Unknown: []int{3}}, {Sent: 1, Numbers: []int64{7}}}, 0},
		{"unknown at the beginning, executed twice", []Batch{{Sent: 1, Numbers: []int64{1}},
			{Sent: 5, Numbers: []int64{6, 7}, Unknown: []int{3}}}, 1},
		{"unknown in the middle", []Batch{{Sent: 4, Numbers: []int64{1, 3, 4}, Unknown: []int{0, 1}}}, 0},
		{"known in the middle", []Batch{{Sent: 4, Numbers: []int64{1, 3, 4}, Unknown: []int{1}}}, 1},
		{"lost", []Batch{{Sent: 3, Numbers: []int64{1, 2, 3}}, {Sent: 1, Numbers: []int64{3}}}, 1},
	} {
		if got := Batches(tc.batches); len(got) != tc.bad {
			t.Errorf("%s: %v, want %d", tc.what, got, tc.bad)
		}
	}
}

func TestChains(t *testing.T) {
	points := []Chain{{Node: "a", Index: 1, Hash: "x"}, {Node: "b", Index: 1, Hash: "x"}, {Node: "b", Index: 2, Hash: "y"}}
	if compared, bad := Chains(points); compared != 1 || len(bad) != 0 {
		t.Errorf("equal replicas: %d compared, violations %v; want 1 and none", compared, bad)
	}
	if _, bad := Chains(append(points, Chain{Node: "a", Index: 2, Hash: "z"})); len(bad) != 1 {
		t.Errorf("different replicas: %v", bad)
	}
}

func TestRecoveries(t *testing.T) {
	got := Recoveries([]Recovery{{"a", 1 * second, 2 * second}, {"b", 1 * second, 20 * second}, {"c", 1 * second, Forever}}, 10*second)
	if len(got) != 2 {
		t.Errorf("violations %v, want those of nodes b and c", got)
	}
}
