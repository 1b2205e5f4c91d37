package fsm_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/fsm"
)

// expiring creates keys with the same deadline, one second from now.
func (f *feed) expiring(names ...string) {
	f.t.Helper()
	for ; len(names) > 0; names = names[min(len(names), 1000):] {
		f.group.Reset(2, 1)
		for _, name := range names[:min(len(names), 1000)] {
			f.add("SET", name, "v", "PX", "1000")
		}
		f.send()
	}
}

// numbered returns n names of keys: k0, k1 and so on, each followed by filler.
func numbered(n int, filler string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("k%d%s", i, filler)
	}
	return names
}

// TestExpiry_Mass: if more keys expire than one entry may remove, all become
// invisible at the same time, and several entries remove them.
func TestExpiry_Mass(t *testing.T) {
	for features, perEntry := range map[int]int{
		fsm.FeatureScriptCache: fsm.ExpiryPerEntry,
		fsm.FeatureBudget:      fsm.ExpiryWork / fsm.ExpiryKeyWork,
	} {
		t.Run(fmt.Sprint(features), func(t *testing.T) { expiryMass(t, features, perEntry) })
	}
}

func expiryMass(t *testing.T, features, perEntry int) {
	f := newFeed(t)
	f.raise(features)
	keys := 2*perEntry + 10
	f.expiring(numbered(keys, "")...)
	f.do("SET stays 1")
	if _, expiryPending := f.read(0, "GET k5"); expiryPending {
		t.Fatal("a key expires before its deadline")
	}
	f.stamp += 1_000_000_000
	if _, expiryPending := f.read(f.stamp, "DBSIZE"); !expiryPending {
		t.Error("a read by the leader's clock does not say that expiries are pending")
	}

	// The first entry after the deadline removes some of the expired keys, and
	// none of the expired keys is visible.
	last := fmt.Sprintf("k%d", keys-1)
	got := f.do("DBSIZE", "KEYS *", "EXISTS k0 k1 k2 "+last, "RANDOMKEY", "SET k7 again NX", "TTL k7", "EXPIRE k8 10", "PERSIST k9", "DEL k10", "RENAME k11 x", "SCAN 0 COUNT 5", "DBSIZE")
	head, rest, _ := strings.Cut(got, ":0\r\n:0\r\n:0\r\n-ERR no such key\r\n")
	if want := ":1\r\n*1\r\n$5\r\nstays\r\n:0\r\n$5\r\nstays\r\n+OK\r\n:-1\r\n"; head != want {
		t.Errorf("got %q, want %q", head, want)
	}
	if strings.Contains(rest, "$1\r\nk") && !strings.Contains(rest, "k7") || !strings.HasSuffix(rest, ":2\r\n") {
		t.Errorf("SCAN and DBSIZE return %q, want no expired key and a size of 2", rest)
	}
	left := f.m.Len()
	// SET k7 expires k7 too, unless the entry has already expired this key.
	if expired := int(f.m.Stats().Expired); expired != perEntry && expired != perEntry+1 {
		t.Errorf("one entry expired %d keys, want %d or one more", expired, perEntry)
	}
	if _, expiryPending := f.read(f.stamp, "DBSIZE"); expiryPending {
		t.Error("an expiry is pending although the log's clock has passed the deadlines")
	}
	if f.m.NextDeadline() == 0 {
		t.Error("no deadline, although keys are left to expire")
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
		t.Errorf("%d keys expired, want %d, each key once", got, want)
	}
	if got, want := f.m.Volatile(), 0; got != want {
		t.Errorf("%d volatile keys, want %d", got, want)
	}
}

// TestExpiry_LongNames: from FeatureBudget on, an entry expires fewer keys if
// their names are long.
func TestExpiry_LongNames(t *testing.T) {
	const length = 32 << 10
	const perKey = fsm.ExpiryKeyWork + length/fsm.ExpiryNameBytes
	const perEntry = (fsm.ExpiryWork + perKey - 1) / perKey
	for features, want := range map[int]int{fsm.FeatureScriptCache: 0, fsm.FeatureBudget: 1000 - perEntry} {
		f := newFeed(t)
		f.raise(features)
		f.expiring(numbered(1000, strings.Repeat("x", length))...)
		f.stamp += 1_000_000_000
		f.do("GET k")
		if got := f.m.Len(); got != want {
			t.Errorf("feature version %d: one entry left %d keys, want %d", features, got, want)
		}
	}
}

// TestExpiry_Restored: between entries that expire keys, a machine is restored
// from a snapshot of the original, and the original is cloned. The restored
// machine and the clone then expire the same keys as the original. The feature
// version is raised between two of the entries.
func TestExpiry_Restored(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.FeatureScriptCache)
	f.expiring(numbered(2*fsm.ExpiryPerEntry, "")...)
	f.stamp += 1_000_000_000
	f.do("SET a 1")
	f.do(fsm.FeaturesCommand + " 1 " + fmt.Sprint(fsm.FeatureBudget))
	left := f.m.Len()
	if left == 0 || f.m.Features() != fsm.FeatureBudget {
		t.Fatalf("%d keys are left at feature version %d, want some at FeatureBudget", left, f.m.Features())
	}
	for entries := 0; f.m.Volatile() > 0; entries++ {
		if entries > 2*fsm.ExpiryPerEntry/(fsm.ExpiryWork/fsm.ExpiryKeyWork) {
			t.Fatalf("%d volatile keys are left after %d entries, want none", f.m.Volatile(), entries)
		}
		var b fsm.BatchBuilder
		entry := b.Encode(fsm.Header{Term: 1, Stamp: f.stamp})
		others := []*fsm.Machine{restore(t, snapshotOf(t, f.m)), f.m.Clone()}
		f.apply(entry)
		_, want := f.m.Hash()
		for i, m := range others {
			if _, err := m.Apply(m.Applied()+1, 1, entry); err != nil {
				t.Fatal(err)
			}
			if _, got := m.Hash(); got != want || m.Len() != f.m.Len() || m.Stats() != f.m.Stats() {
				t.Fatalf("machine %d has %d keys and hash %x, want %d and %x", i, m.Len(), got, f.m.Len(), want)
			}
		}
		f.m = others[entries%2]
	}
	if got := f.do("DBSIZE"); got != ":1\r\n" {
		t.Errorf("DBSIZE returned %q, want 1", got)
	}
}

// threadTime returns the processor time of the current thread, without that of
// other threads and programs. The caller must have locked its goroutine to the
// thread.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// BenchmarkExpiry_Mass measures entries that expire a million keys with the
// same deadline: without clones, and with a clone of the machine before each
// entry. It reports the processor time of the entries.
func BenchmarkExpiry_Mass(b *testing.B) {
	for _, cloned := range []bool{false, true} {
		b.Run(fmt.Sprintf("cloned=%v", cloned), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range b.N {
				f := newFeed(b)
				f.raise(fsm.FeatureBudget)
				f.expiring(numbered(1_000_000, "")...)
				f.m.Want(fsm.Kinds(fsm.EventChanged))
				f.stamp += 1_000_000_000
				var slowest, total time.Duration
				entries := 0
				var clone *fsm.Machine
				for ; f.m.NextDeadline() != 0; entries++ {
					if cloned {
						clone = f.m.Clone()
					}
					var batch fsm.BatchBuilder
					entry := batch.Encode(fsm.Header{Term: 1, Stamp: f.stamp})
					begun := threadTime(b)
					f.apply(entry)
					took := threadTime(b) - begun
					slowest, total = max(slowest, took), total+took
				}
				runtime.KeepAlive(clone)
				b.ReportMetric(float64(entries), "entries")
				b.ReportMetric(slowest.Seconds()*1e3, "ms-slowest")
				b.ReportMetric(total.Seconds()*1e3/float64(entries), "ms/entry")
			}
		})
	}
}

// TestRead_PendingExpiry: a read reports whether its reply depends on an
// expired key whose expiry is not committed yet.
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
		t.Errorf("GET far: %q, want v", got)
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
