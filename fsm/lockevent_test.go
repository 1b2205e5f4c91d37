package fsm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// lockBook computes the open grants from the events of locks.
type lockBook struct {
	open         map[fsm.Pos]string // grants by token: database, key and owner
	begun, ended int
}

func describeLock(db int, key, owner string) string { return fmt.Sprintf("%d %q %q", db, key, owner) }

// add applies the events of an entry to the book. It returns an error if they
// contradict earlier events.
func (b *lockBook) add(events []fsm.LockEvent) error {
	if b.open == nil {
		b.open = make(map[fsm.Pos]string)
	}
	for _, e := range events {
		switch lock := describeLock(e.DB, e.Key, e.Owner); e.Kind {
		case fsm.LockGranted:
			if b.open[e.Token] != "" {
				return fmt.Errorf("token %d is granted again: %+v", e.Token, e)
			}
			b.open[e.Token] = lock
			b.begun++
		case fsm.LockEnded:
			if b.open[e.Token] != lock || e.How == "" {
				return fmt.Errorf("the open grant of this token is %q, but the event is %+v", b.open[e.Token], e)
			}
			delete(b.open, e.Token)
			b.ended++
		case fsm.LocksReplaced:
			clear(b.open)
		default:
			for token, lock := range b.open {
				db, rest, _ := strings.Cut(lock, " ")
				switch {
				case db == fmt.Sprint(e.DB) && e.Kind == fsm.LocksFlushed:
					delete(b.open, token)
				case db == fmt.Sprint(e.DB):
					b.open[token] = fmt.Sprint(e.With) + " " + rest
				case db == fmt.Sprint(e.With) && e.Kind == fsm.LocksSwapped:
					b.open[token] = fmt.Sprint(e.DB) + " " + rest
				}
			}
		}
	}
	return nil
}

// compare returns an error unless the grants of the state are the open grants of
// the book.
func (b *lockBook) compare(m *fsm.Machine) error {
	state := make(map[fsm.Pos]string)
	fsm.OpenGrants(m, func(db int, key, owner string, token fsm.Pos) { state[token] = describeLock(db, key, owner) })
	if !maps.Equal(state, b.open) {
		return fmt.Errorf("the state has the grants %v, want those of the history: %v", state, b.open)
	}
	return nil
}

// history executes commands and returns their events of locks, separated by
// semicolons. If a line begins with "after N: ", history first moves the lease
// clock by N ms.
func history(t *testing.T, o *operated, lines ...string) string {
	t.Helper()
	var all []string
	for _, line := range lines {
		if text, found := strings.CutPrefix(line, "after "); found {
			var ms int64
			text, line, _ = strings.Cut(text, ": ")
			if _, err := fmt.Sscan(text, &ms); err != nil {
				t.Fatal(err)
			}
			o.lease += ms * 1e6
		}
		if reply := o.do(line); strings.HasPrefix(reply, "-") {
			t.Errorf("%s: %s, want no error", line, reply)
		}
		for _, e := range o.last.Locks {
			text := e.How
			switch e.Kind {
			case fsm.LockGranted:
				text = "granted"
			case fsm.LocksFlushed:
				text = "flushed"
			case fsm.LocksSwapped:
				text = fmt.Sprint("swapped with ", e.With)
			}
			if e.Key != "" {
				text += " " + e.Key + " to " + e.Owner
			}
			if e.Waited > 0 {
				text += fmt.Sprint(" waited ", e.Waited/1e6)
			}
			if e.Before > 0 {
				text += fmt.Sprint(" before ", e.Before/1e6)
			}
			if e.Shared {
				text += fmt.Sprint(" limit ", e.Limit)
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// TestLockEvents checks the events of commands that begin or end grants of locks,
// and the events of expiry.
func TestLockEvents(t *testing.T) {
	for _, c := range []struct {
		lines string // separated by semicolons
		want  string
	}{
		// Commands on strings.
		{"set k a nx px 100; delifeq k a", "granted k to a; released k to a"},
		{"set k a nx px 100; delex k ifeq a", "granted k to a; released k to a"},
		{"set k a nx px 100; del k", "granted k to a; deleted k to a"},
		{"set k a nx px 100; unlink k", "granted k to a; deleted k to a"},
		{"set k a nx px 100; getdel k", "granted k to a; deleted k to a"},
		{"set k a nx px 100; pexpire k -1", "granted k to a; deleted k to a"},
		{"set k a nx px 100; after 99: exists none; after 1: exists none", "granted k to a; expired k to a"},
		{"set k a nx px 100; after 100: set k b nx px 100", "granted k to a; expired k to a; granted k to b"},
		{"set k a nx px 100; after 1: set k b px 100", "granted k to a; overwritten k to a; granted k to b"},
		{"set k a nx px 100; rpush l x; rename l k", "granted k to a; overwritten k to a"},
		{"set k a nx px 100; sadd s x; sunionstore k s", "granted k to a; overwritten k to a"},
		{"set k a nx px 100; rename k n; del n", "granted k to a; renamed k to a; granted n to a; deleted n to a"},
		{"set k a nx px 100; move k 1", "granted k to a; renamed k to a; granted k to a"},
		{"set k a nx px 100; copy k n", "granted k to a; granted n to a"},
		{"set k a nx px 100; append k x", "granted k to a; overwritten k to a"},
		{"set k 1 nx px 100; incr k; incr k", "granted k to 1; overwritten k to 1"},
		{"set k a nx px 100; flushdb", "granted k to a; flushed"},
		{"set k a nx px 100; swapdb 0 1", "granted k to a; swapped with 1"},
		// These keep the grant until DEL.
		{"set k a nx px 100; set k a px 200; pexpire k 500; persist k; set k b nx px 9; del k", "granted k to a; deleted k to a"},
		// These make a key without a time to live, or several keys.
		{"setnx k a; after 30: pexpire k 100; del k", "granted k to a before 30; deleted k to a"},
		{"set k a nx; expire k 1; delifeq k a", "granted k to a; released k to a"},
		{"setnx k a; after 50: getset k b; del k",
			"granted k to a before 50; overwritten k to a; granted k to b; deleted k to b"},
		{"setnx k a; after 50: set k b get px 100; getset k c",
			"granted k to a before 50; overwritten k to a; granted k to b; overwritten k to b; granted k to c"},
		{"msetnx k a n b; pexpire n 100", "granted n to b"},
		{"msetex 2 k a n b nx px 100", "granted k to a; granted n to b"},
		// These are not locks.
		{"setnx k a; del k", ""},
		{"setnx k a; set k b; expire k 100; del k", ""},
		{"setnx k 1; incr k; expire k 100; del k", ""},
		{"set k a px 100; set k b; del k", ""},
		{"set k a; getset k b; expire k 9", ""},
		{"setnx k a; rename k n; del n", ""},
		// These use the command LOCK.
		{"lock acquire k a px 100; lock renew k a px 200; lock release k a", "granted k to a; released k to a"},
		{"lock acquire k a px 100; lock break k", "granted k to a; broken k to a"},
		{"lock acquire k a px 100; after 100: exists none", "granted k to a; expired k to a"},
		{"lock acquire k a px 100; after 200: set k b nx px 5", "granted k to a; expired k to a; granted k to b"},
		{"lock acquire k a px 100; set k b; del k",
			"granted k to a; overwritten k to a; granted k to b; deleted k to b"},
		{"lock acquire k a px 100; rename k n; del n",
			"granted k to a; renamed k to a; granted n to a; deleted n to a"},
		{"lock acquire k a px 100; lock acquire k b px 100 wait 0; after 60: lock release k a",
			"granted k to a; released k to a; granted k to b waited 60"},
		{"lock acquire k a px 100 shared; lock acquire k b px 300 shared; after 100: lock release k b",
			"granted k to a limit 0; granted k to b limit 0; expired k to a; released k to b"},
		{"lock acquire k a px 100 limit 2; lock acquire k b px 300 limit 2; lock break k",
			"granted k to a limit 2; granted k to b limit 2; broken k to a; broken k to b"},
		{"lock acquire k a px 100 shared; lock acquire k b px 100 shared; del k",
			"granted k to a limit 0; granted k to b limit 0; deleted k to a; deleted k to b"},
		{"lock acquire k a px 100 shared; rename k n; set n x",
			"granted k to a limit 0; renamed k to a; granted n to a limit 0; overwritten n to a"},
	} {
		o := newOperated(t, "c", fsm.MaxFeatures)
		o.lease = 1e9
		o.m.RecordLocks(true)
		got := history(t, o, strings.Split(c.lines, "; ")...)
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.lines, got, c.want)
		}
	}
}

// TestLockEvents_Clients checks which clients the events name.
func TestLockEvents_Clients(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.m.RecordLocks(true)
	client := fsm.LockClient{Node: "n", ID: 1}
	for _, c := range []struct {
		line string
		want []fsm.LockClient
	}{
		{"set k a nx px 100", []fsm.LockClient{client}},
		{"delifeq k a", []fsm.LockClient{client}},
		{"_lock acquire k a px 100 client 1.2.3.4:5 job", []fsm.LockClient{{Node: "n", ID: 1, Addr: "1.2.3.4:5", Name: "job"}}},
		{"lock break k", []fsm.LockClient{client}},
		{"set k a nx px 100", []fsm.LockClient{client}},
	} {
		o.do(c.line)
		var got []fsm.LockClient
		for _, e := range o.last.Locks {
			got = append(got, e.LockClient)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.line, got, c.want)
		}
	}
	o.lease += 1e9
	o.do("exists none")
	if e := o.last.Locks; len(e) != 1 || e[0].How != fsm.LockExpired || e[0].LockClient != (fsm.LockClient{}) {
		t.Errorf("events of the expiry: %+v, want the end of one grant without a client", e)
	}
}

// TestLockEvents_NativeScript: if a known lock script reads a key and then sets
// it, the key counts as a lock.
func TestLockEvents_NativeScript(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.m.RecordLocks(true)
	var got string
	for _, call := range [][]string{
		{"eval", "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])", "1", "k", "a", "9"}, // Laravel
		{"eval", fsm.Spellings()[0], "1", "k", "a"},
	} {
		var args [][]byte
		for _, arg := range call {
			args = append(args, []byte(arg))
		}
		o.args(args...)
		for _, e := range o.last.Locks {
			got += e.How + " " + e.Owner + ";"
		}
	}
	if want := " a;released a;"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// TestLockEvents_Features: below FeatureHistory, only grants of LOCK ACQUIRE
// cause events. When the feature version is raised, later grants of SET NX
// cause events too.
func TestLockEvents_Features(t *testing.T) {
	o := newOperated(t, "c", fsm.FeatureShared)
	o.m.RecordLocks(true)
	got := history(t, o, "set k a nx px 100", "lock acquire l a px 100", "set l b px 900", "del k")
	if want := "granted l to a; overwritten l to a"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	o.do("set n a nx px 90000")
	o.want(fmt.Sprintf("%s 1 %d", fsm.FeaturesCommand, fsm.FeatureHistory), ":1")
	if got := history(t, o, "del n", "set n b nx px 100"); got != "granted n to b" {
		t.Errorf("after the feature version was raised: %s, want granted n to b", got)
	}
}

// TestLockEvents_Cut: an entry that ends the grants of very many holders reports a
// bounded number of events.
func TestLockEvents_Cut(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	for lock := range 8 {
		for i := range 9000 {
			o.do(fmt.Sprintf("lock acquire k%d o%d px 1000 limit 10000", lock, i))
		}
	}
	o.m.RecordLocks(true)
	o.do("del k0 k1 k2 k3 k4 k5 k6 k7")
	if n := len(o.last.Locks); n != fsm.MaxLockEvents || !o.last.LocksCut {
		t.Errorf("%d events, cut: %v, want MaxLockEvents, cut", n, o.last.LocksCut)
	}
	o.do("set k0 a nx px 100")
	if n := len(o.last.Locks); n != 1 || o.last.LocksCut {
		t.Errorf("in the next entry: %d events, cut: %v, want 1 event, not cut", n, o.last.LocksCut)
	}
}

// TestLocksRefused checks which commands count as refused. It also checks the
// numbers of grants and waiters, and the time for which a grant lasted.
func TestLocksRefused(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.m.RecordLocks(true)
	for _, c := range []struct {
		line string
		want fsm.LockRefusals
	}{
		{"set k a nx px 1000", fsm.LockRefusals{}},
		{"set k b nx px 1000", fsm.LockRefusals{Held: 1}},
		{"setnx k b", fsm.LockRefusals{Held: 1}},
		{"lock acquire k b px 1000", fsm.LockRefusals{Held: 1}},
		{"lock acquire k a px 1000", fsm.LockRefusals{}}, // extends the lease
		{"set k b xx px 1000", fsm.LockRefusals{}},
		{"set text x", fsm.LockRefusals{}},
		{"set text y nx", fsm.LockRefusals{}}, // not a lock
		{"get k", fsm.LockRefusals{}},
	} {
		o.do(c.line)
		if got := o.last.LocksRefused; got != c.want {
			t.Errorf("%s: refused %+v, want %+v", c.line, got, c.want)
		}
	}

	o.do("lock acquire l a px 1000")
	o.lease += 5e6
	reply := o.do("lock acquire l b px 1000 wait 50")
	pos, _, waits := fsm.Waiting([]byte(reply))
	if held, waiting := o.m.LockCounts(); !waits || held != 1 || waiting != 1 {
		t.Fatalf("reply %q, %d held, %d waiting, want a wait, 1 and 1", reply, held, waiting)
	}
	o.do(fmt.Sprint("_unwait 1 ", pos))
	if want := (fsm.LockRefusals{TimedOut: 1}); o.last.LocksRefused != want {
		t.Errorf("a wait that ended: refused %+v, want %+v", o.last.LocksRefused, want)
	}
	o.lease += 5e6
	o.do("lock release l a")
	if e := o.last.Locks[0]; e.Now-e.Since != 10e6 {
		t.Errorf("held for %d ns, want 10 ms: %+v", e.Now-e.Since, e)
	}
	if held, waiting := o.m.LockCounts(); held != 0 || waiting != 0 {
		t.Errorf("%d held, %d waiting at the end, want 0 and 0", held, waiting)
	}
}
