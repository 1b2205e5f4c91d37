package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestExpiry_Mass: if more keys expire than one entry may remove, all become
// invisible at the same time, and several entries remove them.
func TestExpiry_Mass(t *testing.T) {
	f := newFeed(t)
	const keys = 2*fsm.ExpiryPerEntry + 10
	for i := 0; i < keys; {
		f.group.Reset(2, 1)
		for n := 0; n < 1000 && i < keys; n++ {
			f.add("SET", fmt.Sprintf("k%d", i), "v", "PX", "1000")
			i++
		}
		f.send()
	}
	f.do("SET stays 1")
	if _, expiryPending := f.read(0, "GET k5"); expiryPending {
		t.Fatal("a key expires before its deadline")
	}
	f.stamp += 1_000_000_000
	if _, expiryPending := f.read(f.stamp, "DBSIZE"); !expiryPending {
		t.Error("a read by the leader's clock does not say that expiries are pending")
	}

	// The first entry after the deadline removes some keys; none is visible.
	got := f.do("DBSIZE", "KEYS *", "EXISTS k0 k1 k2 k40009", "RANDOMKEY", "SET k7 again NX", "TTL k7", "EXPIRE k8 10", "PERSIST k9", "DEL k10", "RENAME k11 x", "SCAN 0 COUNT 5", "DBSIZE")
	head, rest, _ := strings.Cut(got, ":0\r\n:0\r\n:0\r\n-ERR no such key\r\n")
	if want := ":1\r\n*1\r\n$5\r\nstays\r\n:0\r\n$5\r\nstays\r\n+OK\r\n:-1\r\n"; head != want {
		t.Errorf("got %q, want %q", head, want)
	}
	if strings.Contains(rest, "$1\r\nk") && !strings.Contains(rest, "k7") || !strings.HasSuffix(rest, ":2\r\n") {
		t.Errorf("SCAN and DBSIZE answer %q", rest)
	}
	left := f.m.Len()
	if expired := f.m.Stats().Expired; expired < fsm.ExpiryPerEntry || expired > fsm.ExpiryPerEntry+10 {
		t.Errorf("one entry expired %d keys, want about %d", expired, fsm.ExpiryPerEntry)
	}
	if _, expiryPending := f.read(f.stamp, "DBSIZE"); expiryPending {
		t.Error("an expiry is pending although the log's clock has passed the deadlines")
	}
	if f.m.NextDeadline() == 0 {
		t.Error("nothing is due, with keys left to expire")
	}
	f.do("GET k0")
	if f.m.Len() >= left {
		t.Error("the second entry expired nothing")
	}
	f.do("GET k0")
	if got, want := f.m.Len(), 2; got != want {
		t.Errorf("%d keys are left, want %d", got, want)
	}
	if got, want := f.m.Stats().Expired, uint64(keys); got != want {
		t.Errorf("%d keys expired, want %d: each once", got, want)
	}
	if got, want := f.m.Volatile(), 0; got != want {
		t.Errorf("%d volatile keys, want %d", got, want)
	}
}

// TestRead_PendingExpiry: no command can read an expired key whose expiry is not
// committed yet.
func TestRead_PendingExpiry(t *testing.T) {
	f := newFeed(t)
	f.do("SET k v PX 1000", "SET other v", "SET far v EX 1000")
	now := f.stamp + 1_000_000_000
	for line, want := range map[string]bool{
		"GET k": true, "TTL k": true, "PTTL k": true, "EXISTS k": true, "EXISTS other k": true, "MGET other k": true, "STRLEN k": true, "TYPE k": true,
		"OBJECT ENCODING k": true, "GETRANGE k 0 1": true, "EXPIRETIME k": true, "TOUCH k": true, "_version k": true,
		"KEYS nothing": true, "SCAN 0": true, "RANDOMKEY": true, "DBSIZE": true,
		"GET other": false, "GET far": false, "GET nokey": false, "MGET other far": false, "TIME": false, "OBJECT HELP": false,
	} {
		if _, expiryPending := f.read(now, line); expiryPending != want {
			t.Errorf("%s at the deadline: expiry pending is %v, want %v", line, expiryPending, want)
		}
		if _, expiryPending := f.read(now-1, line); expiryPending {
			t.Errorf("%s before the deadline: an expiry is pending", line)
		}
		if _, expiryPending := f.read(0, line); expiryPending {
			t.Errorf("%s by the log's clock: an expiry is pending", line)
		}
	}
	if got, _ := f.read(now, "GET far"); got != "$1\r\nv\r\n" {
		t.Errorf("GET far: %q", got)
	}
}

// TestExpiry_Order: keys expire in the order of their deadlines. If a deadline
// was moved to a later time, the earlier deadline has no effect.
func TestExpiry_Order(t *testing.T) {
	f := newFeed(t)
	f.do("SET a 1 PX 10", "SET b 1 PX 20", "SET c 1 PX 30", "PEXPIRE a 40", "PERSIST b", "SET d 1 PX 20", "SET d 2", "SET e 1 PX 20", "DEL e", "SET f 1 PX 20", "RENAME f g")
	start := f.stamp
	for _, step := range []struct {
		ms   int64
		keys string
	}{{19, "*5\r\n"}, {20, "*4\r\n"}, {29, "*4\r\n"}, {30, "*3\r\n"}, {40, "*2\r\n"}} {
		f.stamp = start + step.ms*1_000_000
		if got := f.do("KEYS *"); !strings.HasPrefix(got, step.keys) {
			t.Errorf("after %d ms: %q, want %q…", step.ms, got, step.keys)
		}
	}
	if got, want := f.m.NextDeadline(), int64(0); got != want {
		t.Errorf("next deadline is %d, want none", got)
	}
}
