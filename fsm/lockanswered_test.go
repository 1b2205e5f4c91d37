package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// lockNodes executes commands of clients of several nodes, each in an entry of its
// own.
type lockNodes struct {
	t     testing.TB
	m     *fsm.Machine
	index uint64
	seqs  map[string]uint64
	woken map[string]fsm.Pos // positions of the served waiters, by "node/client"
	// unchecked turns off the check of the invariants after each entry. The
	// check takes time in proportion to the size of the state.
	unchecked bool
}

func newLockNodes(t testing.TB, features int) *lockNodes {
	t.Helper()
	s := &lockNodes{
		t: t, m: fsm.New(command.NewTable()), index: 1, seqs: make(map[string]uint64),
		woken: make(map[string]fsm.Pos),
	}
	start := fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c", Features: features}
	if _, err := s.m.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1}, start)); err != nil {
		t.Fatal(err)
	}
	return s
}

// do executes a command of a client, such as "n1/2".
func (s *lockNodes) do(client, line string) string {
	s.t.Helper()
	var node string
	var origin uint64
	if _, err := fmt.Sscanf(strings.ReplaceAll(client, "/", " "), "%s %d", &node, &origin); err != nil {
		s.t.Fatal(err)
	}
	args := bytes.Fields([]byte(line))
	var g fsm.Group
	g.Reset(2, origin)
	g.Command(s.m.Table().Find(args[0]), 0, args)
	var b fsm.BatchBuilder
	s.seqs[node]++
	b.Add(fsm.SessionID{NodeID: node, Boot: 1}, 0, s.seqs[node], g.Bytes())
	s.index++
	res, err := s.m.Apply(s.index, 1, b.Encode(fsm.Header{Term: 1, Stamp: 1e9}))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range res.Woken {
		if w.Reply() != nil {
			s.woken[fmt.Sprintf("%s/%d", w.Session().NodeID, w.Origin())] = w.Pos()
		}
	}
	if !s.unchecked {
		if err := fsm.Broken(s.m); err != nil {
			s.t.Fatalf("after %s: %v", line, err)
		}
	}
	return string(res.Groups[0].Reply)
}

// want executes a command and checks the beginning of its reply.
func (s *lockNodes) want(client, line, reply string) string {
	s.t.Helper()
	got := s.do(client, line)
	if !strings.HasPrefix(got, reply) {
		s.t.Errorf("%s of %s: %q, want %q", line, client, got, reply)
	}
	return got
}

// claim executes the claim of a served waiter.
func (s *lockNodes) claim(client, reply string) {
	s.t.Helper()
	pos, served := s.woken[client]
	if !served {
		s.t.Fatalf("%s was not served", client)
	}
	_, origin, _ := strings.Cut(client, "/")
	s.want(client, fmt.Sprintf("%s %s %d", fsm.UnwaitCommand, origin, pos), reply)
}

// TestLock_AnsweredElsewhere: a client whose connection hangs asks for the lock
// again on another connection, and gets a reply. The end of the first connection
// or of its node then does not take the lock away.
func TestLock_AnsweredElsewhere(t *testing.T) {
	for _, mode := range []string{"", " SHARED", " LIMIT 2"} {
		for _, end := range []string{fsm.SuspendEnd, fsm.SuspendDrop} {
			s := newLockNodes(t, fsm.MaxFeatures)
			s.want("n1/1", "LOCK ACQUIRE k w PX 30000", ":")
			s.do("n2/2", "LOCK ACQUIRE k a PX 30000 WAIT 0"+mode)
			s.want("n1/1", "LOCK RELEASE k w", ":1")
			token := s.want("n1/3", "LOCK ACQUIRE k a PX 30000"+mode, ":")
			s.do("n1/9", "_hold 1 n2 1 "+end)
			if got := s.do("n1/3", "LOCK TOKEN k a"); got != token {
				t.Errorf("mode %q, after %s: the token is %q, but a client got the reply %q", mode, end, got, token)
			}
		}
		// The reply to the first connection cannot be sent.
		s := newLockNodes(t, fsm.MaxFeatures)
		s.want("n1/1", "LOCK ACQUIRE k w PX 30000", ":")
		s.do("n1/2", "LOCK ACQUIRE k a PX 30000 WAIT 0"+mode)
		s.want("n1/1", "LOCK RELEASE k w", ":1")
		s.claim("n1/2", "$")
		token := s.want("n1/3", "LOCK ACQUIRE k a PX 30000"+mode, ":")
		undelivered := fmt.Sprintf("%s k %s", fsm.UndeliveredCommand, strings.TrimSpace(token[1:]))
		s.want("n1/2", undelivered, "+OK")
		s.want("n1/3", "LOCK TOKEN k a", token)
	}
}

// TestLock_AnsweredBySetNX is like TestLock_AnsweredElsewhere, for a client that asks
// again with SET NX or SETNX, where the setting lock-idempotent permits it. Below
// FeatureParts, the next waiter gets the lock.
func TestLock_AnsweredBySetNX(t *testing.T) {
	for _, tc := range []struct{ line, reply string }{
		{"SET k a NX PX 30000", "+OK"},
		{"SET k a NX", "+OK"},
		{"SETNX k a", ":1"},
	} {
		for features, kept := range map[int]bool{fsm.FeatureParts: true, fsm.FeatureDelay: false} {
			s := newLockNodes(t, features)
			s.want("n1/9", "_setsettings lock-idempotent k", "+OK")
			s.want("n1/1", "LOCK ACQUIRE k w PX 30000", ":")
			s.do("n2/2", "LOCK ACQUIRE k a PX 30000 WAIT 0")
			s.do("n3/5", "LOCK ACQUIRE k b PX 30000 WAIT 0")
			s.want("n1/1", "LOCK RELEASE k w", ":1")
			s.want("n1/3", tc.line, tc.reply)
			s.do("n1/9", "_hold 1 n2 1 end")
			owner := "$1\r\nb"
			if kept {
				owner = "$1\r\na"
			}
			if got := s.do("n1/3", "GET k"); !strings.HasPrefix(got, owner) {
				t.Errorf("%s, feature version %d: the lock is %q after the end of the waiter, want %q",
					tc.line, features, got, owner)
			}
		}
	}
}

// TestLock_ReservedForWaiter: while the node of a waiting client is
// disconnected for a short time, a free lock is reserved for this client. Below
// FeatureDelay, SET with NX and GET returns null to another client, as if the
// command had taken the lock. From FeatureDelay on, it returns an error.
func TestLock_ReservedForWaiter(t *testing.T) {
	for _, tc := range []struct {
		features int
		setGet   string
	}{
		{fsm.FeatureHistory, "$-1"},
		{fsm.FeatureDelay, "-LOCKDELAY a client that waits"},
	} {
		s := newLockNodes(t, tc.features)
		s.want("n1/1", "LOCK ACQUIRE k w PX 30000", ":")
		s.do("n2/2", "LOCK ACQUIRE k a PX 30000 WAIT 0")
		s.do("n1/9", "_hold 1 n2 1 on")
		s.want("n1/1", "LOCK RELEASE k w", ":1")
		s.want("n1/3", "SET k x NX PX 30000", "$-1")
		s.want("n1/3", "SET k x NX GET PX 30000", tc.setGet)
		s.want("n1/3", "SET k x XX GET", "$-1")
		s.want("n1/3", "EXISTS k", ":0")
	}
}

// TestLock_UndeliveredPassesOn: if a grant could not be delivered, and its client
// has not asked for the lock again, the lock passes to the next waiter.
func TestLock_UndeliveredPassesOn(t *testing.T) {
	for _, mode := range []string{"", " LIMIT 1"} {
		s := newLockNodes(t, fsm.MaxFeatures)
		token := s.want("n1/1", "LOCK ACQUIRE k a PX 30000"+mode, ":")
		s.do("n1/2", "LOCK ACQUIRE k b PX 30000 WAIT 0"+mode)
		s.want("n1/1", fmt.Sprintf("%s k %s", fsm.UndeliveredCommand, strings.TrimSpace(token[1:])), "+OK")
		s.claim("n1/2", "$")
		s.want("n1/3", "LOCK TOKEN k b", ":")
	}
}

// TestLock_TwoWaitersOfOneOwner: if one owner waits on two connections to share
// a lock, both connections get the same grant. When the grant ends, it ends for
// both.
func TestLock_TwoWaitersOfOneOwner(t *testing.T) {
	s := newLockNodes(t, fsm.MaxFeatures)
	s.want("n1/1", "LOCK ACQUIRE k w PX 30000", ":")
	s.do("n1/2", "LOCK ACQUIRE k a PX 5000 WAIT 0 SHARED")
	s.do("n2/3", "LOCK ACQUIRE k a PX 5000 WAIT 0 SHARED")
	s.want("n1/1", "LOCK RELEASE k w", ":1")
	s.claim("n1/2", "$")
	s.want("n1/2", "LOCK RELEASE k a", ":1")
	s.want("n1/5", "LOCK ACQUIRE k other PX 30000", ":")
	s.claim("n2/3", ":0") // the grant has ended: the node executes the command again
}

// TestLock_ServesManyBehindPassedOver: waiters that are passed over are not
// visited again for each waiter that is served behind them.
func TestLock_ServesManyBehindPassedOver(t *testing.T) {
	work := func(n int) time.Duration {
		s := newLockNodes(t, fsm.MaxFeatures)
		s.unchecked = true
		s.want("n1/1", "LOCK ACQUIRE k w PX 300000", ":")
		for i := range n {
			s.do(fmt.Sprintf("n2/%d", 10+i), fmt.Sprintf("LOCK ACQUIRE k x%d PX 30000 WAIT 0 SHARED", i))
		}
		s.do("n1/1", "_hold 1 n2 1 pass")
		for i := range n {
			s.do(fmt.Sprintf("n1/%d", 10+i), fmt.Sprintf("LOCK ACQUIRE k r%d PX 30000 WAIT 0 SHARED", i))
		}
		begun := time.Now()
		s.want("n1/1", "LOCK RELEASE k w", ":1")
		return time.Since(begun)
	}
	// The time is proportional to the number of waiters, not to its square.
	// Other programs on the machine may use the processor, so the test uses the
	// shortest of several times.
	few, many := work(200), work(2000)
	for range 10 {
		if many <= 40*few {
			return
		}
		many = min(many, work(2000))
	}
	t.Errorf("serving 2000 waiters takes %v, want at most 40 times the time of 200 waiters, %v", many, few)
}
