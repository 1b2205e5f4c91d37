package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// consumers returns commands that create streams with different groups: with
// and without consumers, and with and without pending entries. Some pending
// entries are no longer in their streams.
func consumers() []string {
	lines := []string{"XGROUP CREATE empty g $ MKSTREAM", "XGROUP CREATE s a 0 MKSTREAM",
		"XGROUP CREATE s b 0 ENTRIESREAD 3", `XGROUP CREATE s "" 5-5`, "XADD plain 1-1 f v"}
	for i := range 8 {
		lines = append(lines, fmt.Sprintf("XADD s %d-1 f %d", i+1, i))
	}
	return append(lines, "XREADGROUP GROUP a x COUNT 3 STREAMS s >", "XREADGROUP GROUP a y COUNT 2 STREAMS s >",
		"XREADGROUP GROUP b x STREAMS s >", "XGROUP CREATECONSUMER s a idle", "XDEL s 2-1 4-1",
		"XCLAIM s a z 0 1-1 IDLE 5000", "XCLAIM s a z 0 3-1 TIME 1000 RETRYCOUNT 9", "EXPIRE s 100")
}

var consumerLooks = []string{"XINFO STREAM s FULL COUNT 0", "XINFO GROUPS s", "XINFO CONSUMERS s a", "XPENDING s a",
	"XPENDING s a - + 100", "XPENDING s b - + 100 x", "XINFO STREAM empty FULL", "XINFO GROUPS plain", "TTL s"}

func TestConsumers_Snapshot(t *testing.T) {
	f := newFeed(t)
	f.do(consumers()...)
	f.continues(append(consumerLooks, "XREADGROUP GROUP a x STREAMS s 0",
		"XREADGROUP GROUP a new STREAMS s >", "XAUTOCLAIM s a w 0 0 COUNT 3", "XACK s b 1-1 2-1",
		"XGROUP DELCONSUMER s a y", "XGROUP DESTROY s b", "XINFO STREAM s FULL")...)
}

// TestConsumers_Counters sets the numbers of read and of added entries to
// values that overflow with the next entry. As in Redis, the numbers then
// become negative. Snapshots and DUMP must preserve the negative numbers.
func TestConsumers_Counters(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.do("XGROUP CREATE s g 0 MKSTREAM ENTRIESREAD 9223372036854775807", "XGROUP CREATE s h 0",
		"XSETID s 0-1 ENTRIESADDED 9223372036854775807", "XADD s 1-1 f v", "XREADGROUP GROUP g c STREAMS s >",
		"XREADGROUP GROUP h c STREAMS s >", "XGROUP SETID s h 0", "XINFO GROUPS s")
	snap := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
		t.Error("the restored machine differs from the original")
	}
	payload := f.dump("s")
	if got := f.call("RESTORE", "t", "0", payload); got != "+OK\r\n" || f.dump("t") != payload {
		t.Errorf("RESTORE of a dump: %q, want OK and an equal dump", got)
	}
}

func TestConsumers_Large(t *testing.T) {
	f := newFeed(t)
	longest := strings.Repeat("n", fsm.MaxStringBytes)
	for _, words := range [][]string{{"XGROUP", "CREATE", "s", longest, "0", "MKSTREAM"},
		{"XADD", "s", "1-1", "f", "v"}, {"XREADGROUP", "GROUP", longest, longest, "STREAMS", "s", ">"},
		{"XGROUP", "CREATE", "s", "g", "0"}} {
		f.group.Reset(2, 1)
		f.add(words...)
		if got := f.send(); got[0] == '-' {
			t.Fatalf("%s: %.100q, want no error", words[0], got)
		}
	}
	for i := range 20_000 {
		f.do(fmt.Sprintf("XADD s %d-2 f v", i+1))
	}
	for i := range 20 {
		f.do(fmt.Sprintf("XREADGROUP GROUP g c%d COUNT 1000 STREAMS s >", i))
	}
	whole := snapshotOf(t, f.m)
	m := restore(t, whole)
	if !bytes.Equal(snapshotOf(t, m), whole) {
		t.Error("the restored machine differs from the original")
	}
	f.group.Reset(2, 1)
	f.add("XGROUP", "CREATE", "s", longest+"n", "0")
	if got := f.send(); !strings.HasPrefix(got, "-ERR string exceeds") {
		t.Errorf("a name that is too long: %.100q, want an error", got)
	}
}

func TestConsumers_CorruptSnapshot(t *testing.T) {
	f := newFeed(t)
	f.do(consumers()...)
	whole := snapshotOf(t, f.m)
	readDamaged(t, whole)
	refuse(t, whole, map[string]replacement{
		"groups of a stream without":    {"O\x00\x05\x04\x05empty", "O\x00\x05\x00\x05empty"},
		"groups of a list":              {"O\x00\x05\x04\x05empty", "O\x00\x01\x04\x05empty"},
		"groups in another order":       {"g\x01a", "g\x01c"},
		"consumers in another order":    {"c\x04idle", "c\x04zdle"},
		"a consumer for a group":        {"g\x01b", "c\x01b"},
		"a pending entry early":         {"c\x01x", "p\x01x"},
		"a pending entry without owner": {"p\x01\x01\x03", "p\x01\x01\x09"},
		"entries in another order":      {"p\x02\x01", "p\x01\x01"},
	}, fsm.ErrFormat, fsm.ErrVersion, fsm.ErrShort)
}

// TestConsumers_Golden checks that the format of groups in a snapshot does not
// change.
func TestConsumers_Golden(t *testing.T) {
	f := newFeed(t)
	f.do(consumers()...)
	f.golden("testdata/golden-consumers-v1")
}

// TestConsumers_Clones checks that a clone does not change when the machine or
// another clone changes, even if COPY makes keys share tree nodes.
func TestConsumers_Clones(t *testing.T) {
	f := newFeed(t)
	f.do(consumers()...)
	rng := rand.New(rand.NewPCG(5, 5))
	change := func() string {
		n, who := 1+rng.IntN(300), string(rune('u'+rng.IntN(6)))
		switch rng.IntN(9) {
		case 0:
			return "XACK s a " + fmt.Sprintf("%d-1 %d-2", n, n)
		case 1:
			return fmt.Sprintf("XCLAIM s a %s 0 %d-1 %d-1 FORCE", who, n, n+1)
		case 2:
			return "XAUTOCLAIM s b " + who + " 0 0 COUNT 5"
		case 3:
			return "XGROUP DELCONSUMER s a " + who
		case 4:
			return "COPY s copy REPLACE"
		case 5:
			return "COPY copy s REPLACE"
		case 6:
			return fmt.Sprintf("XDEL s %d-1", n)
		case 7:
			return "XADD s * f v"
		}
		return "XREADGROUP GROUP " + string(rune('a'+rng.IntN(2))) + " " + who + " COUNT 7 STREAMS s >"
	}
	for i := range 300 {
		f.do(fmt.Sprintf("XADD s %d-1 f v", 9+i))
	}
	type kept struct {
		m    *fsm.Machine
		want []byte
	}
	var clones []kept
	for range 40 {
		clone := f.m.Clone()
		clones = append(clones, kept{clone, snapshotOf(t, clone)})
		other := f.m.Clone()
		for range 30 {
			f.do(change())
			if _, err := fsm.RunOn(other, f.group.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, k := range clones {
		if !bytes.Equal(snapshotOf(t, k.m), k.want) {
			t.Fatalf("clone %d changed", i)
		}
	}
	whole := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("the restored machine differs from the original")
	}
}

// TestConsumers_Clock checks that the idle time of an entry is measured by the
// lease clock, both in a read and in the log. In this test, the wall clock stands
// still.
func TestConsumers_Clock(t *testing.T) {
	f := newFeed(t)
	f.stamp = 1_000_000_000
	f.do("XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-1 f v", "XREADGROUP GROUP g a STREAMS s >")
	idle := func(ms int) string {
		return fmt.Sprintf("*1\r\n*4\r\n$3\r\n1-1\r\n$1\r\na\r\n:%d\r\n:1\r\n", ms)
	}
	if got, _ := f.read(3_500_000_000, "XPENDING s g - + 10"); got != idle(2500) {
		t.Errorf("read: %q, want %q", got, idle(2500))
	}
	f.stamp = 3_000_000_000
	if got := f.do("XPENDING s g - + 10"); got != idle(2000) {
		t.Errorf("in the log: %q, want %q", got, idle(2000))
	}
	if got := f.do("XCLAIM s g b 2001 1-1"); got != "*0\r\n" {
		t.Errorf("claimed too early: %q, want an empty array", got)
	}
	if got := f.do("XCLAIM s g b 2000 1-1 JUSTID"); got != "*1\r\n$3\r\n1-1\r\n" {
		t.Errorf("claimed after the idle time: %q, want entry 1-1", got)
	}
	if got, want := f.do("XINFO CONSUMERS s g"),
		"*2\r\n*6\r\n$4\r\nname\r\n$1\r\na\r\n$7\r\npending\r\n:0\r\n$4\r\nidle\r\n:2000\r\n*6\r\n$4\r\nname\r\n$1\r\nb\r\n$7\r\npending\r\n:1\r\n$4\r\nidle\r\n:0\r\n"; got != want {
		t.Errorf("consumers: %q, want %q", got, want)
	}
}

// TestConsumers_TooLarge checks that a command whose reply is too large takes
// nothing from the group.
func TestConsumers_TooLarge(t *testing.T) {
	f := newFeed(t)
	f.do("XGROUP CREATE s g 0 MKSTREAM")
	value := strings.Repeat("v", fsm.MaxStringBytes-64)
	for range 8 {
		f.group.Reset(2, 1)
		f.add("XADD", "s", "*", "f", value)
		if got := f.send(); got[0] != '$' {
			t.Fatalf("XADD: %.100q, want an ID", got)
		}
	}
	if got := f.do("XREADGROUP GROUP g a STREAMS s >"); !strings.HasPrefix(got, "-ERR reply is larger") {
		t.Errorf("XREADGROUP of all entries: %.100q, want an error", got)
	}
	if got := f.do("XPENDING s g"); got != "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n" {
		t.Errorf("pending is %q, want no entry", got)
	}
	if got := f.do("XREADGROUP GROUP g a COUNT 5 STREAMS s >"); got[0] != '*' {
		t.Errorf("XREADGROUP of five entries: %.100q, want an array", got)
	}
	if got := f.do("XREADGROUP GROUP g a STREAMS s >"); got[0] != '*' {
		t.Errorf("XREADGROUP of the remaining entries: %.100q, want an array", got)
	}
	if got := f.do("XCLAIM s g b 0 0 FORCE", "XAUTOCLAIM s g b 0 0"); !strings.Contains(got, "-ERR reply is larger") {
		t.Errorf("XCLAIM and XAUTOCLAIM: %.100q, want an error", got)
	}
	if got := f.do("XREADGROUP GROUP g a STREAMS s 0"); !strings.HasPrefix(got, "-ERR reply is larger") {
		t.Errorf("XREADGROUP of the pending entries: %.100q, want an error", got)
	}
	if got := f.do("XPENDING s g"); !strings.Contains(got, "*1\r\n*2\r\n$1\r\na\r\n$1\r\n8\r\n") {
		t.Errorf("pending is %q, want 8 entries of consumer a", got)
	}
}

// TestConsumers_Suspended checks that no entry is delivered to waiters of a
// group while their session is suspended, and that other groups still read the
// entry. When the session is resumed, its waiters are served from the current
// state of the stream.
func TestConsumers_Suspended(t *testing.T) {
	f := newFeed(t)
	f.do("XGROUP CREATE s g $ MKSTREAM", "XGROUP CREATE s h $")
	wait := func(origin uint64, line string) {
		t.Helper()
		f.origin = origin
		if got := f.do(line); got[0] != '@' {
			t.Fatalf("%s does not wait: %q", line, got)
		}
		f.origin = 1
	}
	wait(2, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
	hold := func(how string) {
		t.Helper()
		if got := f.do(fmt.Sprintf("%s %d n1 1 %s", fsm.SuspendCommand, 1, how)); got != ":1\r\n" {
			t.Fatalf("SuspendCommand %s: %q, want 1", how, got)
		}
	}
	hold(fsm.SuspendOn)
	f.do("XADD s 1-1 f v")
	if got := f.do("XREADGROUP GROUP h x BLOCK 0 STREAMS s >"); got[0] != '*' {
		t.Errorf("read by another group: %q, want an entry at once", got)
	}
	wait(3, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
	served := func(origin uint64) string {
		for _, w := range f.m.WaitersOf(fsm.SessionID{NodeID: "n1", Boot: 1}) {
			if w.Origin == origin {
				_, reply := f.m.Waiter(fsm.SessionID{NodeID: "n1", Boot: 1}, origin, w.Pos)
				return string(reply)
			}
		}
		return "gone"
	}
	if served(2) != "" || served(3) != "" {
		t.Errorf("served while the session is suspended: %q and %q, want no replies", served(2), served(3))
	}
	hold(fsm.SuspendOff)
	if got := served(2); !strings.Contains(got, "1-1") {
		t.Errorf("the first waiter got %q, want entry 1-1", got)
	}
	if got := served(3); got != "" {
		t.Errorf("the second waiter got %q, want no reply", got)
	}
	hold(fsm.SuspendOn)
	f.do("DEL s")
	if got := served(3); got != "" {
		t.Errorf("a waiter of a suspended session got the reply %q, want none", got)
	}
	if !bytes.Equal(snapshotOf(t, restore(t, snapshotOf(t, f.m))), snapshotOf(t, f.m)) {
		t.Error("the restored machine differs from the original")
	}
	hold(fsm.SuspendOff)
	if got, want := served(3), "-UNBLOCKED the stream key no longer exists\r\n"; got != want {
		t.Errorf("the second waiter got %q, want %q", got, want)
	}
}
