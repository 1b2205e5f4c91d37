package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// The tests in this file check that seeds determine the schedules, and that the
// simulated network, disk and clock fail like real ones.

func TestPlan_Repeats(t *testing.T) {
	kinds := make(map[string]bool)
	for seed := uint64(1); seed <= 300; seed++ {
		a, b := Plan(seed, time.Minute), Plan(seed, time.Minute)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d gives two different schedules:\n%v\n%v", seed, a, b)
		}
		for _, f := range a.Faults {
			kinds[f.Kind] = true
			if f.At < settle || f.At+f.For > a.Length-quiet {
				t.Errorf("seed %d: %v is not within the history", seed, f)
			}
		}
	}
	for _, k := range Kinds() {
		if !kinds[k] {
			t.Errorf("none of 300 schedules has the fault %s", k)
		}
	}
}

// pipe returns the two ends of a connection from a to b.
func pipe(t *testing.T, n *network) (near, far *conn) {
	t.Helper()
	l := n.listen("b")
	c, err := n.dialer("a", func() bool { return true })(t.Context(), address("b"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn), d.(*conn)
}

func TestNetwork_CutHoldsAndDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(stream(1, "test"))
		near, far := pipe(t, n)
		write := func(s string) {
			if _, err := near.Write([]byte(s)); err != nil {
				t.Error(err)
			}
		}
		write("one")
		heal := n.cut([]direction{{"a", "b"}})
		write("two")
		buf := make([]byte, 10)
		read := func() (string, error) {
			if err := far.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
			k, err := far.Read(buf)
			return string(buf[:k]), err
		}
		if got, err := read(); got != "one" || err != nil {
			t.Errorf("the bytes that were sent before the cut: got %q, %v", got, err)
		}
		if got, err := read(); !isDeadline(err) {
			t.Errorf("during the cut: %q, %v", got, err)
		}
		if _, err := far.Write([]byte("back")); err != nil {
			t.Error(err)
		}
		if k, err := near.Read(buf); string(buf[:k]) != "back" || err != nil {
			t.Errorf("the other direction: %q, %v", buf[:k], err)
		}
		heal()
		write("three")
		var all string
		for len(all) < len("twothree") {
			got, err := read()
			if err != nil {
				t.Fatalf("after the cut: %q, %v", all, err)
			}
			all += got
		}
		if all != "twothree" {
			t.Errorf("after the cut came %q, want %q", all, "twothree")
		}
		if e := n.effects(); e.held != 1 {
			t.Errorf("%d writes were delayed, want 1", e.held)
		}
		near.Close()
		if _, err := read(); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v, want EOF", err)
		}
		far.Close()
		synctest.Wait()
	})
}

func TestNetwork_DeadHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(stream(1, "test"))
		near, _ := pipe(t, n)
		n.unplug("b", true)
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read from a killed process: %v, want a reset", err)
		}
		dial := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := n.dialer("a", func() bool { return true })(ctx, address("b"))
			return err
		}
		if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial a killed process: %v, want refused", err)
		}
		near, _ = pipe(t, n)
		n.unplug("b", false)
		if err := dial(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial a host without power: %v, want silence", err)
		}
		if _, err := near.Write([]byte("x")); err != nil {
			t.Errorf("write to a host without power: %v, want silence", err)
		}
		n.listen("b")
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read when the power is back: %v, want a reset", err)
		}
	})
}

func TestDisk_LosesOnlyWhatIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		for seed := range uint64(20) {
			d := newDisk("n1", stream(seed, "disk"), newAudit())
			open := func() raft.LogStore {
				s, err := d.open(storage.Config{Fatal: func(err error) { t.Error(err) }})
				if err != nil {
					t.Fatal(err)
				}
				return s.Log()
			}
			entries := func(from, to uint64) (all []*raft.Log) {
				for i := from; i <= to; i++ {
					all = append(all, &raft.Log{Index: i, Term: 1, Data: fmt.Append(nil, i)})
				}
				return all
			}
			log := open()
			if err := log.StoreLogs(entries(1, 5)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- log.StoreLogs(entries(6, 12)) }()
			synctest.Wait() // the write is waiting for its sync
			d.crash()
			if err := <-done; err != nil {
				t.Errorf("a dead process's write: %v", err)
			}
			log = open()
			last, err := log.LastIndex()
			if err != nil || last < 5 || last > 12 {
				t.Fatalf("after the crash the log ends at %d (%v), want 5 to 12", last, err)
			}
			lost += 12 - int(last)
			for i := uint64(1); i <= last; i++ {
				var l raft.Log
				if err := log.GetLog(i, &l); err != nil || string(l.Data) != fmt.Sprint(i) {
					t.Errorf("entry %d: %q, %v", i, l.Data, err)
				}
			}
		}
		if lost == 0 {
			t.Error("twenty crashes in the middle of an append lost nothing")
		}
	})
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Hour)
		time.Sleep(time.Second)
		c.drift(0.5)
		time.Sleep(2 * time.Second)
		c.drift(1)
		if got := c.Mono(); got != time.Hour+2*time.Second {
			t.Errorf("after a second and two at half the speed: %v", got-time.Hour)
		}
		before, mono := c.Wall(), c.Mono()
		c.jump(-time.Minute)
		if got := c.Wall().Sub(before); got != -time.Minute {
			t.Errorf("wall clock moved by %v", got)
		}
		if c.Mono() != mono {
			t.Error("the jump moved the monotonic clock")
		}
	})
}
