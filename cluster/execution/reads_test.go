package execution

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// tickingClock advances by one step each time it is read.
type tickingClock struct {
	now  atomic.Int64
	step time.Duration
}

func (c *tickingClock) Mono() time.Duration { return time.Duration(c.now.Add(int64(c.step))) }

// slowWorld is a machine with values that take long to read, and the Reads of
// its node.
type slowWorld struct {
	t *testing.T
	h *Reads
	// entries is the number of entries that the machine has applied.
	entries uint64
}

// durable is a log whose entries are always on disk, and which refuses no
// snapshot.
type durable struct{}

func (durable) Await(uint64) bool                 { return true }
func (durable) Outdated(*raft.SnapshotMeta) error { return nil }

func newSlowWorld(t *testing.T, mono func() time.Duration, change func(cfg *ReadConfig)) *slowWorld {
	m := machine.New(machine.Config{
		Table: command.NewTable(), Features: fsm.MaxFeatures, Log: durable{},
		Events: events.NewQueue(fsm.SessionID{}), Mono: func() time.Duration { return 0 },
		Metrics:     machine.Metrics{Seconds: histogram(), Steps: counter(), Slow: counter()},
		Locks:       func(uint64, *fsm.Result) {},
		Applied:     func(uint64, uint64, *fsm.Result, time.Duration, time.Duration) {},
		TermStarted: func(uint64, uint64, fsm.TermStart, int64) {},
		Logger:      hclog.NewNullLogger(),
		Fatal:       func(err error) { t.Error(err) },
	})
	cfg := ReadConfig{
		Machine: m, Mono: mono, Slots: 1,
		Quick: 500 * time.Microsecond, Time: 10 * time.Second, Wait: time.Second, Memory: 256 << 20,
		Metrics: ReadMetrics{
			Slow: counter(), Seconds: histogram(),
			Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "r"}, []string{"reason"}),
		},
	}
	change(&cfg)
	w := &slowWorld{t: t, h: NewReads(cfg)}
	w.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1, Stamp: 1, Wall: 1}, fsm.TermStart{NodeID: "n", Boot: 1, ClusterID: "c", Features: fsm.MaxFeatures}))
	w.write([]string{"set", "text", strings.Repeat("ab", 2000)}, []string{"set", "other", strings.Repeat("ba", 2000)}, []string{"set", "bits", strings.Repeat("x", 100_000)})
	for from := 0; from < 30_000; from += 1000 {
		one, two := []string{"sadd", "one"}, []string{"sadd", "two"}
		for i := range 1000 {
			one, two = append(one, fmt.Sprint("m", from+i)), append(two, fmt.Sprint("m", from+i))
		}
		w.write(one, two)
	}
	return w
}

func (w *slowWorld) apply(entry []byte) {
	w.entries++
	w.h.cfg.Machine.Apply(&raft.Log{Index: w.entries, Term: 1, Type: raft.LogCommand, Data: entry})
}

func (w *slowWorld) group(commands ...[]string) []byte {
	g := &fsm.Group{}
	g.Reset(2, 7)
	for _, words := range commands {
		args := respwire.Args(words...)
		g.Command(w.h.cfg.Machine.Table().Find(args[0]), 0, args)
	}
	return g.Bytes()
}

func (w *slowWorld) write(commands ...[]string) {
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, w.entries, w.entries, w.group(commands...))
	w.apply(b.Encode(fsm.Header{Term: 1, Stamp: int64(w.entries) + 1, Wall: 1}))
}

func (w *slowWorld) run(done <-chan struct{}, commands ...[]string) Run {
	body := w.group(commands...)
	return Run{Request: fsm.ReadRequest{Body: body}, Who: WorkerOf("n", body), Index: w.entries, Done: done}
}

func repeated(n int, words ...string) (commands [][]string) {
	for range n {
		commands = append(commands, words)
	}
	return commands
}

// slowReads are groups that would hold the lock of the machine for long if
// reads had no budget. reply is the beginning of a group's replies.
var slowReads = []struct {
	name     string
	commands [][]string
	reply    string
}{
	{"LCS LEN", repeated(1, "lcs", "text", "other", "len"), ":3999\r\n"},
	{"LCS", repeated(1, "lcs", "text", "other"), "$3999\r\n"},
	{"SINTERCARD", repeated(1, "sintercard", "2", "one", "two"), ":30000\r\n"},
	{"BITCOUNT", repeated(300, "bitcount", "bits"), ":400000\r\n"},
	{"MGET", repeated(1, append([]string{"mget"}, strings.Fields(strings.Repeat("bits ", 100))...)...), "*100\r\n"},
}

// TestSlowRead checks that a slow group releases the lock of the machine when
// its time or its steps are used up. It then runs on a clone without the lock.
func TestSlowRead(t *testing.T) {
	for _, step := range []time.Duration{0, 300 * time.Microsecond} {
		clock := &tickingClock{}
		w := newSlowWorld(t, clock.Mono, func(*ReadConfig) {})
		clock.step = step
		for _, c := range slowReads {
			before := clock.now.Load()
			run := w.run(nil, c.commands...)
			if _, _, err := w.h.quick(nil, &run, quickSteps); !errors.Is(err, ErrSlow) {
				t.Errorf("%s with clock steps of %v: error %v, want ErrSlow", c.name, step, err)
			}
			if held := time.Duration(clock.now.Load() - before); held > 2*w.h.cfg.Quick {
				t.Errorf("%s held the lock for %v, want at most twice ReadConfig.Quick", c.name, held)
			}
			reply, _, err := w.h.Read(nil, run)
			if err != nil || !strings.HasPrefix(string(reply), c.reply) {
				t.Errorf("%s: reply %.50q, error %v, want reply %q", c.name, reply, err, c.reply)
			}
			if !w.h.isSlow(&run) && step > 0 {
				t.Errorf("%s: isSlow = false after a slow read, want true", c.name)
			}
			w.h.mark(run.Who, false)
		}
		if w.h.charged.Load() != 0 || w.h.clone != nil || w.h.users != 0 || w.h.slots.Free() != 1 {
			t.Errorf("after the reads: %d bytes charged, clone %p, %d users, %d free slots; want 0, nil, 0, 1",
				w.h.charged.Load(), w.h.clone, w.h.users, w.h.slots.Free())
		}
	}
}

// TestSlowRead_Slots checks that the slow reads of 60 connections wait for the
// only slot without a clone and without the lock, and that they then read the
// latest state. It also checks when slow reads share a clone.
func TestSlowRead_Slots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, testutil.SinceNow(), func(*ReadConfig) {})
		first, err := w.h.slots.Enter(fairshare.Worker{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan string, 60)
		for i := range 60 {
			go func() {
				run := w.run(nil, slowReads[0].commands...)
				run.Who.Conn = uint64(i)
				reply, _, err := w.h.Read(nil, run)
				answers <- fmt.Sprint(string(reply), err)
			}()
		}
		synctest.Wait()
		if got := w.h.waiting.Load(); got != 60 {
			t.Errorf("%d reads wait, want 60", got)
		}
		if w.h.clone != nil {
			t.Error("a clone exists although all reads wait for a slot, want none")
		}
		w.write([]string{"set", "text", "b"}) // would block if a read held the lock
		first.Leave()
		clone := w.h.cloned(w.entries)
		for range 60 {
			if got := <-answers; got != ":1\r\n<nil>" {
				t.Errorf("reply %q, want :1", got)
			}
		}
		w.h.retainClone()
		if w.h.cloned(w.entries) == clone {
			t.Error("cloned returns the clone of reads that have ended, want a new one")
		}
		clone = w.h.cloned(w.entries)
		w.write([]string{"set", "text", "c"})
		if w.h.cloned(w.entries-1) != clone || w.h.cloned(w.entries) == clone {
			t.Error("cloned must return the old clone for the old log index, and a new clone for the new one")
		}
		w.h.releaseClone()
	})
}

// TestSlowRead_Refused checks that a read that finds no slot, takes too long,
// or needs too much memory gets an error for each of its commands.
func TestSlowRead_Refused(t *testing.T) {
	check := func(t *testing.T, w *slowWorld, code, reason string, commands [][]string) {
		t.Helper()
		reply, _, err := w.h.runSlow(nil, w.run(nil, commands...))
		if err != nil || strings.Count(string(reply), "-"+code+" ") != len(commands) || strings.Count(string(reply), "\r\n") != len(commands) {
			t.Errorf("reply %.100q, error %v, want %d errors %s", reply, err, len(commands), code)
		}
		var m dto.Metric
		if err := w.h.cfg.Metrics.Refused.WithLabelValues(reason).Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
			t.Errorf("%v reads refused with reason %s (%v), want 1", m.GetCounter().GetValue(), reason, err)
		}
		if w.h.charged.Load() != 0 || w.h.running.Load() != 0 || w.h.waiting.Load() != 0 {
			t.Errorf("after the read: %d bytes charged, %d reads running, %d waiting; want 0",
				w.h.charged.Load(), w.h.running.Load(), w.h.waiting.Load())
		}
	}
	t.Run("place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newSlowWorld(t, testutil.SinceNow(), func(*ReadConfig) {})
			if _, err := w.h.slots.Enter(fairshare.Worker{}, 0, nil); err != nil {
				t.Fatal(err)
			}
			check(t, w, "BUSY", "no_slot", slowReads[3].commands)
		})
	})
	t.Run("time", func(t *testing.T) {
		clock := &tickingClock{}
		w := newSlowWorld(t, clock.Mono, func(c *ReadConfig) { c.Time = 20 * time.Millisecond })
		clock.step = 5 * time.Millisecond
		check(t, w, "BUSY", "time", slowReads[3].commands)
	})
	t.Run("memory", func(t *testing.T) {
		w := newSlowWorld(t, new(tickingClock).Mono, func(c *ReadConfig) { c.Memory = 1 << 20 })
		check(t, w, "OOM", "memory", repeated(2, "sunion", "one", "two"))
	})
}

// TestSlowRead_Gone checks that a read ends with ErrLost when Done is closed,
// while it waits for a slot and while it runs.
func TestSlowRead_Gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, testutil.SinceNow(), func(*ReadConfig) {})
		done := make(chan struct{})
		l, err := w.h.slots.Enter(fairshare.Worker{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, _, err := w.h.runSlow(nil, w.run(done, slowReads[0].commands...))
			ended <- err
		}()
		synctest.Wait()
		close(done)
		if err := <-ended; !errors.Is(err, fairshare.ErrLost) {
			t.Errorf("a read that waits for a slot: %v, want ErrLost", err)
		}
		l.Leave()
		if _, _, err := w.h.runSlow(nil, w.run(done, slowReads[0].commands...)); !errors.Is(err, fairshare.ErrLost) {
			t.Errorf("a read that runs: %v, want ErrLost", err)
		}
		if w.h.slots.Free() != 1 {
			t.Errorf("%d slots are free, want 1", w.h.slots.Free())
		}
	})
}

// TestSlowRead_ClientLeft checks that a read ends with ErrClientLeft when its
// client leaves, and not before WatchAfter.
func TestSlowRead_ClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, testutil.SinceNow(), func(c *ReadConfig) { c.Wait = time.Hour })
		if _, err := w.h.slots.Enter(fairshare.Worker{}, 0, nil); err != nil {
			t.Fatal(err)
		}
		left, done, stopped := make(chan struct{}), make(chan struct{}), 0
		close(left)
		begun := time.Now()
		run := w.run(done, slowReads[0].commands...)
		run.Watch = func() (<-chan struct{}, func(), error) { return left, func() { stopped++ }, nil }
		if _, _, err := w.h.Read(nil, run); !errors.Is(err, ErrClientLeft) {
			t.Errorf("a read whose client has left: %v, want ErrClientLeft", err)
		}
		if took := time.Since(begun); took != WatchAfter || stopped != 1 {
			t.Errorf("ended after %v, want %v; stopped %d watches, want 1", took, WatchAfter, stopped)
		}
		run.Watch = func() (<-chan struct{}, func(), error) { return nil, func() { stopped++ }, nil }
		time.AfterFunc(time.Second, func() { close(done) })
		if _, _, err := w.h.Read(nil, run); !errors.Is(err, fairshare.ErrLost) || stopped != 2 {
			t.Errorf("done was closed: error %v, stopped %d watches; want ErrLost and 2", err, stopped)
		}
	})
}

// measuring is a runner whose scripts compare two texts.
type measuring struct{ still }

func (measuring) RunScript(call fsm.ScriptCall) fsm.Reply {
	return call.Do([][]byte{[]byte("lcs"), []byte("text"), []byte("other"), []byte("len")})
}

// TestSlowRead_ScriptWaits checks that the time for which a read-only script
// waits for its slot is not part of the time that its read may run.
func TestSlowRead_ScriptWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mono := testutil.SinceNow()
		w := newSlowWorld(t, mono, func(c *ReadConfig) { c.Time = 100 * time.Millisecond })
		w.write([]string{"script", "load", "compare"})
		host := &Scripts{
			cfg:   ScriptConfig{Interpreter: measuring{}, Mono: mono, Limit: time.Second, Metrics: scriptMetrics()},
			brief: time.Second,
			reads: fairshare.New(1, math.MaxInt64, mono), slow: make(map[string]time.Duration),
		}
		l, err := host.reads.Enter(fairshare.Worker{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		run := w.run(nil, []string{"eval_ro", "compare", "0"})
		run.Request.Runner = host.Runner(nil)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if reply, _, err := w.h.runSlow(nil, run); err != nil || string(reply) != ":3999\r\n" {
				t.Errorf("the script returned %q, %v, want :3999", reply, err)
			}
		}()
		synctest.Wait()
		time.Sleep(5 * time.Second)
		l.Leave()
		<-ended
	})
}

// TestHostedRunner_SharedTime checks that the wait of a script for its slot is
// not part of the time that it shares with other scripts of its command.
func TestHostedRunner_SharedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mono := testutil.SinceNow()
		host := &Scripts{
			cfg:   ScriptConfig{Interpreter: still{}, Mono: mono, Limit: time.Second, Metrics: scriptMetrics()},
			brief: time.Second,
			reads: fairshare.New(1, math.MaxInt64, mono), slow: make(map[string]time.Duration),
		}
		l, err := host.reads.Enter(fairshare.Worker{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := int64(mono()) + 1
		ended := make(chan string, 1)
		go func() {
			reply := host.Runner(nil).RunScript(fsm.ScriptCall{SHA: "a", ScriptBudget: fsm.DryRun, Begun: &begun, Cut: func() {}})
			ended <- reply.Text()
		}()
		synctest.Wait()
		time.Sleep(5 * time.Second)
		l.Leave()
		if got := <-ended; got != "OK" {
			t.Errorf("the script returned %q, want OK", got)
		}
	})
}
