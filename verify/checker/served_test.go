package checker

import (
	"testing"
	"time"
)

func millis(n int) time.Duration { return time.Duration(n) * ms }

func push(id string, call, ret int) Push {
	return Push{Queue: "q", ID: id, Call: millis(call), Return: millis(ret)}
}

func take(id string, call, ret int) Take {
	return Take{Queue: "q", ID: id, Call: millis(call), Return: millis(ret), Blocks: true}
}

func TestQueues(t *testing.T) {
	refusedPush := push("a", 0, 1)
	refusedPush.Outcome = Refused
	openPush := push("a", 0, 1)
	openPush.Outcome = Unknown
	open := func(call int) Take { k := take("", call, 0); k.Outcome = Unknown; return k }
	refused := func(call, ret int) Take { k := take("", call, ret); k.Outcome = Refused; return k }
	move := func(k Take) Take { k.To = "m"; return k }
	waits := func(k Take, at int) Take { k.Waiting = millis(at); return k }
	lists := func(q, m []string) map[string][]string { return map[string][]string{"q": q, "m": m} }
	ill := func(from, to int) *Health {
		h := healthy()
		h.Add(millis(from), millis(to))
		return h
	}
	for _, tc := range []struct {
		what   string
		pushes []Push
		takes  []Take
		left   map[string][]string
		health *Health
		good   bool
	}{
		{"taken", []Push{push("a", 0, 1)}, []Take{take("a", 2, 3)}, lists(nil, nil), healthy(), true},
		{"left", []Push{push("a", 0, 1)}, nil, lists([]string{"a"}, nil), healthy(), true},
		{"taken by a waiter", []Push{push("a", 5, 6)}, []Take{take("a", 2, 7)}, lists(nil, nil), healthy(), true},
		{"missing", []Push{push("a", 0, 1)}, nil, lists(nil, nil), healthy(), false},
		{"missing, a client does not know", []Push{push("a", 0, 1)}, []Take{open(2)}, lists(nil, nil), healthy(), true},
		{"missing, a client was refused", []Push{push("a", 0, 1)}, []Take{refused(2, 3)}, lists(nil, nil), healthy(), false},
		{"two missing, one client does not know", []Push{push("a", 0, 1), push("b", 2, 3)}, []Take{open(2)}, lists(nil, nil), healthy(), false},
		{"missing, the client that does not know came too late", []Push{push("a", 0, 1), push("b", 2, 3)}, []Take{take("b", 4, 5), open(6)}, lists(nil, nil), healthy(), false},
		{"two missing, one client came too late", []Push{push("a", 0, 1), push("b", 2, 3), push("c", 4, 5)}, []Take{open(0), take("b", 6, 7), open(8)}, lists(nil, nil), healthy(), true},
		{"taken twice", []Push{push("a", 0, 1)}, []Take{take("a", 2, 3), take("a", 4, 5)}, lists(nil, nil), healthy(), false},
		{"taken and left", []Push{push("a", 0, 1)}, []Take{take("a", 2, 3)}, lists([]string{"a"}, nil), healthy(), false},
		{"pushed twice", []Push{push("a", 0, 1)}, nil, lists([]string{"a", "a"}, nil), healthy(), false},
		{"pushed by no client", nil, []Take{take("a", 2, 3)}, lists(nil, nil), healthy(), false},
		{"refused and taken", []Push{refusedPush}, []Take{take("a", 2, 3)}, lists(nil, nil), healthy(), false},
		{"unknown and taken", []Push{openPush}, []Take{take("a", 2, 3)}, lists(nil, nil), healthy(), true},
		{"unknown and missing", []Push{openPush}, nil, lists(nil, nil), healthy(), true},
		{"moved", []Push{push("a", 0, 1)}, []Take{move(take("a", 2, 3))}, lists(nil, []string{"a"}), healthy(), true},
		{"moved, and not there", []Push{push("a", 0, 1)}, []Take{move(take("a", 2, 3))}, lists(nil, nil), healthy(), false},
		{"moved twice", []Push{push("a", 0, 1)}, []Take{move(take("a", 2, 3))}, lists(nil, []string{"a", "a"}), healthy(), false},
		{"moved by a client that does not know", []Push{push("a", 0, 1)}, []Take{move(open(2))}, lists(nil, []string{"a"}), healthy(), true},
		{"moved by a client that was refused", []Push{push("a", 0, 1)}, []Take{move(refused(2, 3))}, lists(nil, []string{"a"}), healthy(), false},
		{"a move of unknown outcome loses nothing", []Push{push("a", 0, 1)}, []Take{move(open(2))}, lists(nil, nil), healthy(), false},
		{"out of order", []Push{push("a", 0, 1), push("b", 2, 3)}, []Take{take("b", 4, 5), take("a", 6, 7)}, lists(nil, nil), healthy(), false},
		{"perhaps in order", []Push{push("a", 0, 1), push("b", 2, 3)}, []Take{take("b", 4, 5), take("a", 4, 7)}, lists(nil, nil), healthy(), true},
		{"waited in vain", []Push{push("a", 0, 1)}, []Take{take("", 2, 50)}, lists([]string{"a"}, nil), healthy(), false},
		{"waited in vain during a fault", []Push{push("a", 0, 1)}, []Take{take("", 2, 50)}, lists([]string{"a"}, nil), ill(40, 45), true},
		{"waited in vain, the element came later", []Push{push("a", 5, 6)}, []Take{take("", 2, 50)}, lists([]string{"a"}, nil), healthy(), true},
		{"first come, first served", []Push{push("a", 20, 21), push("b", 22, 23)}, []Take{waits(take("a", 0, 22), 5), take("b", 10, 24)}, lists(nil, nil), healthy(), true},
		{"last come, first served", []Push{push("a", 20, 21), push("b", 22, 23)}, []Take{waits(take("b", 0, 24), 5), take("a", 10, 22)}, lists(nil, nil), healthy(), false},
		{"last come, first served, during a fault", []Push{push("a", 20, 21), push("b", 22, 23)}, []Take{waits(take("b", 0, 24), 5), take("a", 10, 22)}, lists(nil, nil), ill(15, 16), true},
		{"perhaps the first", []Push{push("a", 20, 21), push("b", 22, 23)}, []Take{waits(take("b", 0, 24), 15), take("a", 10, 22)}, lists(nil, nil), healthy(), true},
	} {
		if _, bad := Queues(tc.pushes, tc.takes, tc.left, tc.health); (len(bad) == 0) != tc.good {
			t.Errorf("%s: %v, want good %v", tc.what, bad, tc.good)
		}
	}
}

func TestMessages(t *testing.T) {
	publish := func(id string, call, ret int) Publish {
		return Publish{Channel: "c", ID: id, Call: millis(call), Return: millis(ret)}
	}
	with := func(p Publish, o Outcome) Publish { p.Outcome = o; return p }
	// listen returns a subscription that was confirmed at 10 and ended at 100:
	// by UNSUBSCRIBE if left is true, otherwise because the connection was
	// lost.
	listen := func(left bool, ids ...string) Subscription {
		l := Subscription{Channel: "c", Node: "n1", Call: millis(8), Since: millis(10), Left: Forever, Ended: millis(100)}
		if left {
			l.Left = millis(99)
		}
		for i, id := range ids {
			l.Received = append(l.Received, Received{id, millis(50 + i)})
		}
		return l
	}
	log := func(ids ...string) map[string][]string { return map[string][]string{"c": ids} }
	a, b, c := publish("a", 20, 21), publish("b", 22, 23), publish("c", 24, 25)
	for _, tc := range []struct {
		what      string
		publishes []Publish
		l         Subscription
		order     map[string][]string
		good      bool
	}{
		{"all", []Publish{a, b}, listen(true, "a", "b"), log("a", "b"), true},
		{"all, without the log", []Publish{a, b}, listen(true, "a", "b"), nil, true},
		{"the last is missing", []Publish{a, b}, listen(true, "a"), log("a", "b"), false},
		{"the last is missing, without the log", []Publish{a, b}, listen(true, "a"), nil, false},
		{"the last is missing, and the connection is lost", []Publish{a, b}, listen(false, "a"), log("a", "b"), true},
		{"one in between is missing", []Publish{a, b, c}, listen(false, "a", "c"), log("a", "b", "c"), false},
		{"one in between is missing, without the log", []Publish{a, b, c}, listen(false, "a", "c"), nil, false},
		{"one of unknown outcome is missing", []Publish{a, with(b, Unknown), c}, listen(true, "a", "c"), log("a", "c"), true},
		{"one of unknown outcome is in the log and missing", []Publish{a, with(b, Unknown), c}, listen(true, "a", "c"), log("a", "b", "c"), false},
		{"one of unknown outcome came", []Publish{a, with(b, Unknown), c}, listen(true, "a", "b", "c"), log("a", "b", "c"), true},
		{"a refused one came", []Publish{with(a, Refused)}, listen(true, "a"), log("a"), false},
		{"out of order", []Publish{a, b}, listen(true, "b", "a"), log("a", "b"), false},
		{"out of order, without the log", []Publish{a, b}, listen(true, "b", "a"), nil, false},
		{"twice", []Publish{a}, listen(true, "a", "a"), log("a"), false},
		{"twice in the log", []Publish{a}, listen(true, "a"), log("a", "a"), false},
		{"twice in the log, of other clients", []Publish{a}, listen(true, "a"),
			map[string][]string{"c": {"a"}, "other": {"m", "m"}}, true},
		{"published by no client", []Publish{a}, listen(true, "a", "x"), log("a"), false},
		{"from before the subscription", []Publish{publish("a", 1, 2)}, listen(true, "a"), log("a"), false},
		{"from during the subscription, missing", []Publish{publish("a", 7, 9)}, listen(true), log("a"), true},
		{"from during the subscription", []Publish{publish("a", 7, 9)}, listen(true, "a"), log("a"), true},
		{"after it was left", []Publish{publish("a", 99, 101)}, listen(true), log("a"), true},
	} {
		if _, bad := Messages(tc.publishes, []Subscription{tc.l}, tc.order); (len(bad) == 0) != tc.good {
			t.Errorf("%s: %v, want good %v", tc.what, bad, tc.good)
		}
	}
}

func TestCaches(t *testing.T) {
	event := func(kind CacheKind, client int, value string) CacheEvent {
		return CacheEvent{Kind: kind, Client: client, Key: "k", Value: value}
	}
	for _, tc := range []struct {
		what   string
		events []CacheEvent
		good   bool
	}{
		{"fill and use", []CacheEvent{event(CacheFill, 1, "a"), event(CacheUse, 1, "a")}, true},
		{"old, but as far as the client knows the newest", []CacheEvent{event(CacheFill, 1, "a"), event(CacheFill, 2, "b"), event(CacheUse, 1, "a")}, true},
		{"older than its own write", []CacheEvent{event(CacheFill, 1, "a"), event(CacheWrite, 1, "b"), event(CacheUse, 1, "a")}, false},
		{"filled from before its own write", []CacheEvent{event(CacheWrite, 1, "b"), event(CacheFill, 1, "a")}, false},
		{"absent after its own write", []CacheEvent{event(CacheWrite, 1, "b"), event(CacheFill, 1, "")}, false},
		{"older than what it has read", []CacheEvent{event(CacheFill, 1, "b"), event(CacheFill, 1, "a")}, false},
		{"newer than its own write", []CacheEvent{event(CacheWrite, 1, "a"), event(CacheFill, 1, "b")}, true},
		{"from nowhere", []CacheEvent{event(CacheFill, 1, "x")}, false},
		{"held at the end", []CacheEvent{event(CacheFill, 1, "b"), event(CacheFinal, 1, "b")}, true},
		{"old at the end", []CacheEvent{event(CacheFill, 1, "a"), event(CacheFinal, 1, "a")}, false},
	} {
		if _, bad := Caches(tc.events, map[string][]string{"k": {"a", "b"}}); (len(bad) == 0) != tc.good {
			t.Errorf("%s: %v, want good %v", tc.what, bad, tc.good)
		}
	}
}

func TestGroups(t *testing.T) {
	add := func(value, id string, call, ret int) Added {
		return Added{Stream: "s", Value: value, ID: id, Call: millis(call), Return: millis(ret)}
	}
	read := func(client int, claim bool, ids ...string) GroupRead {
		r := GroupRead{Stream: "s", Client: client, Claim: claim, Values: make(map[string]string), Call: millis(50), Return: millis(51)}
		for _, id := range ids {
			r.Values[id] = map[string]string{"1-0": "a", "2-0": "b"}[id]
		}
		return r
	}
	ack := func(outcome Outcome, n int64, ids ...string) GroupAck {
		return GroupAck{Stream: "s", IDs: ids, Acked: n, Outcome: outcome}
	}
	end := func(last string, pending ...string) GroupEnd {
		e := GroupEnd{Stream: "s", Entries: []GroupEntry{{"1-0", "a"}, {"2-0", "b"}}, Last: last, Pending: make(map[string]bool)}
		for _, id := range pending {
			e.Pending[id] = true
		}
		return e
	}
	both := []Added{add("a", "1-0", 0, 1), add("b", "2-0", 2, 3)}
	refused := add("b", "", 2, 3)
	refused.Outcome = Refused
	for _, tc := range []struct {
		what  string
		added []Added
		reads []GroupRead
		acks  []GroupAck
		end   GroupEnd
		good  bool
	}{
		{"not delivered", both, nil, nil, end("0-0"), true},
		{"pending", both, []GroupRead{read(1, false, "1-0")}, nil, end("1-0", "1-0"), true},
		{"pending, and the read is lost", both, nil, nil, end("2-0", "1-0", "2-0"), true},
		{"acknowledged", both, []GroupRead{read(1, false, "1-0", "2-0")}, []GroupAck{ack(Done, 2, "1-0", "2-0")}, end("2-0"), true},
		{"perhaps acknowledged", both, []GroupRead{read(1, false, "1-0", "2-0")}, []GroupAck{ack(Unknown, 0, "1-0", "2-0")}, end("2-0"), true},
		{"neither", both, []GroupRead{read(1, false, "1-0", "2-0")}, []GroupAck{ack(Done, 1, "1-0")}, end("2-0"), false},
		{"gone, and the acknowledgement was refused", both, []GroupRead{read(1, false, "1-0")}, []GroupAck{ack(Refused, 0, "1-0")}, end("1-0"), false},
		{"acknowledged and pending", both, []GroupRead{read(1, false, "1-0")}, []GroupAck{ack(Done, 1, "1-0")}, end("1-0", "1-0"), false},
		{"acknowledged twice", both, []GroupRead{read(1, false, "1-0")}, []GroupAck{ack(Done, 1, "1-0"), ack(Done, 1, "1-0")}, end("1-0"), false},
		{"acknowledged by reader and claimer", both, []GroupRead{read(1, false, "1-0"), read(2, true, "1-0")}, []GroupAck{ack(Done, 1, "1-0"), ack(Done, 0, "1-0")}, end("1-0"), true},
		{"delivered twice", both, []GroupRead{read(1, false, "1-0"), read(2, false, "1-0")}, nil, end("1-0", "1-0"), false},
		{"delivered, and the group does not know", both, []GroupRead{read(1, false, "2-0")}, nil, end("1-0", "1-0"), false},
		{"an entry is missing", append([]Added{add("x", "0-1", 0, 1)}, both...), nil, nil, end("0-0"), false},
		{"an entry has another id", []Added{add("a", "1-1", 0, 1), both[1]}, nil, nil, end("0-0"), false},
		{"refused and there", []Added{both[0], refused}, nil, nil, end("0-0"), false},
		{"added by no client", both[:1], nil, nil, end("0-0"), false},
		{"out of order", []Added{add("a", "1-0", 4, 5), both[1]}, nil, nil, end("0-0"), false},
	} {
		if _, bad := Groups(tc.added, tc.reads, tc.acks, []GroupEnd{tc.end}); (len(bad) == 0) != tc.good {
			t.Errorf("%s: %v, want good %v", tc.what, bad, tc.good)
		}
	}
}
