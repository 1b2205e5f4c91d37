package fsm_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// queue is a machine on which clients wait for a list and for locks.
type queue struct {
	t     *testing.T
	m     *fsm.Machine
	index uint64
	seq   map[fsm.SessionID]uint64
}

func newQueue(t *testing.T, features int) *queue {
	q := &queue{t: t, m: fsm.New(command.NewTable()), seq: make(map[fsm.SessionID]uint64)}
	q.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", ClusterID: "c", Features: features}))
	return q
}

func (q *queue) apply(entry []byte) *fsm.Result {
	q.t.Helper()
	q.index++
	res, err := q.m.Apply(q.index, 1, entry)
	if err != nil {
		q.t.Fatal(err)
	}
	return res
}

// run executes one command of a connection of a node.
func (q *queue) run(id fsm.SessionID, origin uint64, user string, words ...string) *fsm.Result {
	q.t.Helper()
	var g fsm.Group
	g.Reset(2, origin)
	g.As(user)
	raw := respwire.Args(words...)
	g.Command(q.m.Table().Find(raw[0]), 0, raw)
	var b fsm.BatchBuilder
	q.seq[id]++
	b.Add(id, 0, q.seq[id], g.Bytes())
	return q.apply(b.Encode(fsm.Header{Term: 1, Stamp: int64(q.index)}))
}

// restore replaces the machine by one that has read its snapshot.
func (q *queue) restore() {
	q.t.Helper()
	whole := snapshotOf(q.t, q.m)
	if q.m = restore(q.t, whole); !slices.Equal(snapshotOf(q.t, q.m), whole) {
		q.t.Fatal("a restored machine differs from the original")
	}
}

// served returns the connections that a result serves. It adds the waiters that were
// removed to removed, and fails if there are more of them than one operation may
// remove.
func (q *queue) served(res *fsm.Result, removed *int) (origins []uint64) {
	q.t.Helper()
	n := 0
	for _, w := range res.Woken {
		if w.Reply == nil {
			n++
		} else {
			origins = append(origins, w.Origin)
		}
	}
	if n > fsm.MaxEndWork/2+1 {
		q.t.Errorf("one entry removes %d waiters", n)
	}
	*removed += n
	return origins
}

// TestWaitEnd: from FeatureDivide on, one entry removes a bounded number of the
// waiters that it ends. The rest of them are served nothing, also after a snapshot, and
// the waiters behind them are served when all are removed.
func TestWaitEnd(t *testing.T) {
	n, other := fsm.SessionID{NodeID: "n", Boot: 1}, fsm.SessionID{NodeID: "other", Boot: 1}
	const clients = 2*fsm.MaxEndWork + 100
	wait := map[string][]string{
		"list": {"BLPOP", "key", "0"},
		"lock": {"LOCK", "ACQUIRE", "key", "owner", "PX", "60000", "WAIT", "0"},
	}
	give := map[string][]string{"list": {"RPUSH", "key", "x"}, "lock": {"DEL", "key"}}
	for kind, words := range wait {
		for how, end := range map[string]func(q *queue) *fsm.Result{
			"user": func(q *queue) *fsm.Result {
				version := strconv.FormatUint(uint64(q.m.Users().Find("bob").Version), 10)
				return q.run(other, 1, "", fsm.SetuserCommand, "bob", version, "off")
			},
			"start": func(q *queue) *fsm.Result {
				return q.run(fsm.SessionID{NodeID: "n", Boot: 2}, 1, "", "GET", "key")
			},
			"suspend": func(q *queue) *fsm.Result {
				return q.run(other, 1, "", fsm.SuspendCommand, "1", "n", "1", fsm.SuspendEnd)
			},
			"drop": func(q *queue) *fsm.Result {
				return q.run(other, 1, "", fsm.SuspendCommand, "1", "n", "1", fsm.SuspendDrop)
			},
		} {
			t.Run(fmt.Sprint(kind, " ", how), func(t *testing.T) {
				q := newQueue(t, fsm.FeatureDivide)
				q.run(other, 1, "", fsm.SetuserCommand, "bob", "0", "on")
				if kind == "lock" {
					q.run(other, 1, "", "SET", "key", "someone", "NX", "PX", "60000")
				}
				for origin := range uint64(clients) {
					q.run(n, origin+1, "bob", words...)
				}
				mine := uint64(clients + 1)
				q.run(other, mine, "alice", words...)
				if got := q.m.Waiting(); got != clients+1 {
					t.Fatalf("%d clients wait, want %d", got, clients+1)
				}
				if how == "suspend" || how == "drop" { // as the leader does before
					q.run(other, 1, "", fsm.SuspendCommand, "1", "n", "1", fsm.SuspendOn)
				}
				removed := 0
				if got := q.served(end(q), &removed); len(got) != 0 || removed == 0 || removed == clients {
					t.Fatalf("%v served, %d removed by the entry that ends the waits", got, removed)
				}
				q.restore()
				served := q.served(q.run(other, 2, "", give[kind]...), &removed)
				for entries := 0; removed < clients; entries++ {
					if entries > 10 {
						t.Fatalf("only %d waiters were removed", removed)
					}
					next := []string{fsm.EndWaitsCommand}
					if how == "suspend" {
						next = []string{fsm.SuspendCommand, "1", "n", "1", fsm.SuspendEnd}
					} else if how == "drop" {
						next = []string{fsm.SuspendCommand, "1", "n", "1", fsm.SuspendDrop}
					}
					served = append(served, q.served(q.run(other, 1, "", next...), &removed)...)
					q.restore()
				}
				if !slices.Equal(served, []uint64{mine}) || q.m.Waiting() != 0 || q.m.WaitsLeft() {
					t.Errorf("%v served, %d wait; left %v", served, q.m.Waiting(), q.m.WaitsLeft())
				}
			})
		}
	}
}
