package readindex

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// fixture is the leader, n1, of a cluster of three nodes in term 5. A promise
// lasts 100 ms, and a lease lasts 99 ms.
type fixture struct {
	t       *testing.T
	r       *Rounds[*testRead]
	now     time.Duration
	term    uint64
	state   raft.RaftState
	changes uint64
	lease   time.Duration
	asked   []question
}

// question is a call of Voter.Confirm.
type question struct {
	id      raft.ServerID
	nonce   uint64
	promise time.Duration
}

// testRead is a Reader.
type testRead struct{ confirmed, lost bool }

func (r *testRead) Lost() { r.lost = true }

// members is a ConfigurationFuture.
type members raft.Configuration

func (members) Error() error                        { return nil }
func (members) Index() uint64                       { return 1 }
func (m members) Configuration() raft.Configuration { return raft.Configuration(m) }

func (f *fixture) State() raft.RaftState { return f.state }
func (f *fixture) CurrentTerm() uint64   { return f.term }
func (f *fixture) GetConfiguration() raft.ConfigurationFuture {
	return members{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}}
}

// voter is a Voter.
type voter struct {
	f  *fixture
	id raft.ServerID
}

func (v voter) Confirm(_, nonce uint64, promise time.Duration) {
	v.f.asked = append(v.f.asked, question{v.id, nonce, promise})
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, now: time.Hour, term: 5, state: raft.Leader, lease: 100 * time.Millisecond}
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "n"}) }
	f.r = New(Config[*testRead]{
		Term: 5, Self: "n1", Raft: f,
		Committed:   func() uint64 { return 7 },
		WhenApplied: func(_ uint64, done func(bool)) { done(true) },
		Confirmed: func(readers []*testRead, _ uint64) {
			for _, r := range readers {
				r.confirmed = true
			}
		},
		Mono:   func() time.Duration { return f.now },
		Lease:  func() time.Duration { return f.lease },
		Retry:  20 * time.Millisecond,
		Rounds: counter(), Reads: counter(), Leased: counter(),
		Changes: func() uint64 { return f.changes },
	})
	f.r.Attach("n2", voter{f, "n2"})
	f.r.Attach("n3", voter{f, "n3"})
	return f
}

// begin starts a round with one read. It returns the read and its question.
func (f *fixture) begin() (*testRead, question) {
	f.t.Helper()
	rd := &testRead{}
	before := len(f.asked)
	f.r.Add(rd)
	if len(f.asked) != before+1 {
		f.t.Fatalf("a round sent the questions %v, want one question", f.asked[before:])
	}
	return rd, f.asked[before]
}

// round runs a round after which the leader has a lease.
func (f *fixture) round() {
	f.t.Helper()
	rd, q := f.begin()
	f.r.Ack(q.id, 5, q.nonce, true, true)
	if !rd.confirmed {
		f.t.Fatal("the read of the round was not confirmed")
	}
	f.want(true)
}

// want checks whether the leader has a lease.
func (f *fixture) want(holds bool) {
	f.t.Helper()
	if got := f.r.Holds(); got != holds {
		f.t.Errorf("Holds() = %v, want %v", got, holds)
	}
}

// TestLease_Length: the lease begins when the questions are sent, and ends before
// the promise does.
func TestLease_Length(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.want(false)
	_, q := f.begin()
	if q.promise != 100*time.Millisecond {
		t.Errorf("asked for a promise of %v, want 100ms", q.promise)
	}
	f.now += 40 * time.Millisecond
	f.r.Ack(q.id, 5, q.nonce, true, true)
	f.want(true)
	f.now += 59*time.Millisecond - 1
	f.want(true)
	f.now++
	f.want(false)
	if f.r.Leased(&testRead{}) {
		t.Error("a read was confirmed after the end of the lease")
	}
}

// TestLease_Repeated: if a round asks again, its lease begins when it asks
// again, and an answer to its first question does not count.
func TestLease_Repeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, first := f.begin()
	f.now += 50 * time.Millisecond
	f.r.Watch()
	again := f.asked[len(f.asked)-1]
	f.r.Ack(first.id, 5, first.nonce, true, true)
	f.want(false)
	f.r.Ack(again.id, 5, again.nonce, true, true)
	f.now += 98 * time.Millisecond
	f.want(true)
}

// TestLease_Ends checks that some events end a lease early. It also checks that
// a round begins no lease if such an event occurs, or if a promise is missing.
func TestLease_Ends(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture){
		"new term":          func(f *fixture) { f.term = 6 },
		"no longer leader":  func(f *fixture) { f.state = raft.Follower },
		"change of members": func(f *fixture) { f.changes++ },
		"transfer":          func(f *fixture) { f.r.Suspend() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.round()
			end(f)
			f.want(false)

			f = newFixture(t)
			_, q := f.begin()
			end(f) // while the question is on its way
			f.r.Ack(q.id, 5, q.nonce, true, true)
			f.want(false)
		})
	}
	t.Run("confirmed without a promise", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		rd, q := f.begin()
		f.r.Ack(q.id, 5, q.nonce, true, false)
		if !rd.confirmed {
			t.Error("the read was not confirmed")
		}
		f.want(false)
	})
}

// TestLease_Suspended: during a transfer, rounds ask for no promises. After it, the
// next round begins a lease.
func TestLease_Suspended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	resume := f.r.Suspend()
	_, q := f.begin()
	if q.promise != 0 {
		t.Errorf("asked for a promise of %v during a transfer, want none", q.promise)
	}
	f.r.Ack(q.id, 5, q.nonce, true, true)
	f.want(false)
	resume()
	f.want(false)
	f.round()
}

// TestLease_Renewed: a read in the second half of the lease starts one round
// that renews the lease. The read does not wait for that round.
func TestLease_Renewed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.round()
	read := func(questions int) {
		t.Helper()
		before, rd := len(f.asked), &testRead{}
		if !f.r.Leased(rd) || !rd.confirmed {
			t.Fatalf("the read was not confirmed at %v", f.now-time.Hour)
		}
		if got := len(f.asked) - before; got != questions {
			t.Errorf("%d questions at %v, want %d", got, f.now-time.Hour, questions)
		}
	}
	f.now += 50*time.Millisecond - 1
	read(0)
	f.now++
	read(1)
	read(0) // the round that renews the lease is running
	q := f.asked[len(f.asked)-1]
	f.now += 40 * time.Millisecond
	f.r.Ack(q.id, 5, q.nonce, true, true)
	f.now += 50 * time.Millisecond
	read(1)
}

// TestLease_Off: if leases are off, rounds ask for no promises.
func TestLease_Off(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.lease = 0
	_, q := f.begin()
	if q.promise != 0 {
		t.Errorf("asked for a promise of %v, want none", q.promise)
	}
	f.r.Ack(q.id, 5, q.nonce, true, true)
	f.want(false)
}
