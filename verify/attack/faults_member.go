package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// memberFaults are faults of membership, and of data directories that have
// changed while the node was down.
var memberFaults = []fault{
	{class: "node joins and leaves", group: members, run: joinAndLeave},
	{class: "follower replaced", group: members, run: replaced},
	{class: "island removes the others", group: members, run: island},
	{class: "wiped data directory", group: members, run: wiped},
	{class: "old data directory", group: members, run: oldData},
	{class: "bit flip on disk", group: members, run: bitFlip},
	{class: "truncated file", group: members, run: truncated},
}

// voter waits until a node is a voter, is reachable and is ready.
func (s *injection) voter(ctx context.Context, n *node) error {
	wait, stop := withLimit(ctx, 40*time.Second, n.ID+" votes")
	defer stop()
	return process.Poll(wait, n.ID+" to vote", func() bool {
		all, err := s.c.members(ctx)
		if err != nil {
			return false
		}
		for _, m := range all {
			if m.ID == n.ID {
				return m.Voter && m.Reachable && m.Ready
			}
		}
		return false
	})
}

// rejoin removes a node and lets it join as a new member with an empty
// directory, as a node that has lost its data tells the operator to do.
func (s *injection) rejoin(ctx context.Context, n *node) error {
	if err := n.kill(); err != nil {
		return err
	}
	wait, stop := withLimit(ctx, 30*time.Second, "remove "+n.ID)
	defer stop()
	if err := s.c.remove(wait, n); err != nil {
		return err
	}
	if err := s.c.add(wait, n); err != nil {
		return err
	}
	if err := n.wipe(); err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	return s.voter(ctx, n)
}

// outside waits until a node that was not added reports that it must be added.
// Until then the node must not be a member and must not serve.
func (s *injection) outside(ctx context.Context, n *node) error {
	wait, stop := withLimit(ctx, 20*time.Second, "report that "+n.ID+" must be added")
	defer stop()
	return process.Poll(wait, n.ID+" to ask to be added", func() bool {
		if st, err := n.state(wait); err == nil && (st.Ready || st.Applied > 0) {
			s.violation("admission", "%s serves the cluster's data, although it was not added", n.ID)
			return true
		}
		all, err := s.c.members(wait)
		for _, m := range all {
			if err == nil && m.ID == n.ID {
				s.violation("admission", "%s is a member, although it was not added", n.ID)
				return true
			}
		}
		return strings.Contains(n.Output(), "holdfast member add "+n.ID)
	})
}

// withoutSecret starts a node that does not have the cluster's secret. The
// cluster must refuse it for that reason and no other.
func (s *injection) withoutSecret(ctx context.Context, n *node) error {
	if err := errors.Join(n.wipe(), n.start(append(s.c.joinArgs(), secretFlag+"=")...)); err != nil {
		return err
	}
	wait, stop := withLimit(ctx, 20*time.Second, "refuse "+n.ID)
	defer stop()
	err := process.Poll(wait, n.ID+" to be refused for its secret", func() bool {
		said := n.Output()
		if strings.Contains(said, "is not a member of this cluster") || strings.Contains(said, "joined cluster") {
			s.violation("secret", "%s has no secret, and the cluster talks to it: %s", n.ID, n.last())
			return true
		}
		return strings.Contains(said, "cluster secret does not match")
	})
	return errors.Join(err, n.kill())
}

// clientPortInUse starts a node with the client address of another node. The
// process must end before it opens its data directory, and so before it takes
// any part in the cluster.
func (s *injection) clientPortInUse(ctx context.Context, n *node) error {
	if err := errors.Join(n.kill(), n.wipe()); err != nil {
		return err
	}
	args := append(s.c.joinArgs(), "--client-addr", s.c.nodes[0].Clients)
	said, accepted, err := s.refuses(ctx, n, 10*time.Second, args...)
	if err != nil {
		return err
	}
	left, err := os.ReadDir(n.files)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if accepted || len(left) > 0 {
		s.violation("address in use", "%s has opened its data and could not serve clients: %s", n.ID, said)
	}
	return errors.Join(n.kill(), n.wipe())
}

func joinAndLeave(ctx context.Context, s *injection) (string, error) {
	n := s.c.spare
	mixed := s.cfg.Old != "" // the other build might not authenticate its peers
	if !mixed {
		if err := s.withoutSecret(ctx, n); err != nil {
			return "", err
		}
	}
	if err := n.wipe(); err != nil {
		return "", err
	}
	if err := n.start(s.c.joinArgs()...); err != nil {
		return "", err
	}
	if err := s.outside(ctx, n); err != nil {
		return "", errors.Join(err, n.kill())
	}
	if !mixed {
		err := errors.Join(s.clientPortInUse(ctx, n), n.start(s.c.joinArgs()...))
		if err != nil {
			return "", err
		}
	}
	adding, done := withLimit(ctx, 30*time.Second, "add "+n.ID)
	err := s.c.add(adding, n)
	done()
	if err != nil {
		return "", errors.Join(err, n.kill())
	}
	if err := s.voter(ctx, n); err != nil {
		return "", errors.Join(err, n.kill())
	}
	s.waitRandom(ctx, 100*time.Millisecond, 600*time.Millisecond)
	// If the node has become leader, it must first hand over.
	wait, stop := withLimit(ctx, 30*time.Second, "remove "+n.ID)
	defer stop()
	err = process.Poll(wait, n.ID+" to leave", func() bool {
		if st, err := n.state(ctx); err == nil && st.Role == "leader" {
			// Poll repeats the command until the node no longer leads.
			_, _ = n.ask(ctx, 2*time.Second, "TRANSFER")
			return false
		}
		return s.c.remove(wait, n) == nil
	})
	if err := errors.Join(err, n.kill()); err != nil {
		return "", err
	}
	return n.ID + " joined, voted and was removed", nil
}

func replaced(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := s.rejoin(ctx, n); err != nil {
		return "", err
	}
	return n.ID + " was removed and joined as a new member", nil
}

// island cuts the leader off from all other nodes and tells it to remove them.
// The command contains FORCE, because otherwise the leader would ask the other
// nodes first. The leader must not report success. It is undefined whether the
// removal takes effect when the other nodes are back, as for any command
// without a reply. Nodes that were removed then join as new members.
func island(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	lift := s.c.net.apply(func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) },
		effect{block: true})
	refused := 0
	for _, other := range s.c.nodes {
		if other == n {
			continue
		}
		if _, err := n.ask(ctx, 1500*time.Millisecond, "REMOVE", other.ID, "FORCE"); err == nil {
			s.violation("membership", "%s, which was cut off from all others, removed %s", n.ID, other.ID)
		} else {
			refused++
		}
	}
	touched := lift()
	wait, stop := withLimit(ctx, 6*time.Second, "recover")
	_, err = s.c.healthy(wait)
	stop()
	if err != nil {
		if err := s.readmit(ctx); err != nil {
			return "", err
		}
	}
	if touched == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s, which was cut off, could not remove %d others", n.ID, refused), nil
}

// refuses starts a node that should report an error and end, for example because
// its data is damaged or old. accepted is true if the node runs instead.
func (s *injection) refuses(ctx context.Context, n *node,
	timeout time.Duration, args ...string) (said string, accepted bool, err error) {
	if err := n.launch(true, args...); err != nil {
		return "", false, err
	}
	wait, stop := withLimit(ctx, timeout, "refuse")
	defer stop()
	if process.Poll(wait, n.ID+" to refuse", func() bool { return !n.Running() }) != nil {
		return "", true, nil
	}
	return n.last(), false, nil
}

func wiped(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := errors.Join(n.kill(), n.wipe()); err != nil {
		return "", err
	}
	said, accepted, err := s.refuses(ctx, n, 10*time.Second)
	if err != nil {
		return "", err
	}
	if accepted {
		if st, err := n.state(ctx); err == nil && st.Ready {
			s.violation("wiped data directory", "%s came back under its old name with an empty directory", n.ID)
		}
	}
	if err := s.rejoin(ctx, n); err != nil {
		return "", err
	}
	if !strings.Contains(said, "member remove") {
		return "", nil
	}
	return n.ID + " refused and named the remedy, which worked", nil
}

// oldData gives a node an older copy of its data directory. This copy does not
// record that the node has started since, and votes and entries may be missing.
func oldData(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	old := filepath.Join(s.dir, n.ID+".old")
	if err := n.kill(); err != nil {
		return "", err
	}
	if err := copyDir(n.files, old); err != nil {
		return "", err
	}
	for range 1 + s.rng.IntN(2) { // one or two starts that the copy does not contain
		if err := n.start(); err != nil {
			return "", err
		}
		if err := s.voter(ctx, n); err != nil {
			return "", err
		}
		s.waitRandom(ctx, 200*time.Millisecond, 800*time.Millisecond)
		if err := n.kill(); err != nil {
			return "", err
		}
	}
	if err := copyDir(old, n.files); err != nil {
		return "", err
	}
	said, accepted, err := s.refuses(ctx, n, 10*time.Second)
	if err != nil {
		return "", err
	}
	if accepted {
		s.violation("old data directory", "%s runs on a copy of its data that is older than its last start", n.ID)
	}
	if err := errors.Join(s.rejoin(ctx, n), os.RemoveAll(old)); err != nil {
		return "", err
	}
	if !strings.Contains(said, "copied or restored") {
		return "", nil
	}
	return n.ID + " noticed that its directory was copied back", nil
}

// damage calls the function harm for a file of a stopped node, and starts the
// node, which should refuse its data.
func (s *injection) damage(ctx context.Context, what string,
	harm func(path string, used int64) (at int64, err error)) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if s.rng.IntN(2) == 0 {
		// The snapshot is one more file to damage. If the command fails,
		// another file is damaged.
		_, _ = n.ask(ctx, 3*time.Second, "SNAPSHOT")
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	var files []string
	for _, pattern := range []string{"wal/*.wal", "wal/*.wal", "log.db", "stable.db", "node.json",
		"snapshots/*/state.bin", "snapshots/*/meta.json"} {
		found, err := filepath.Glob(filepath.Join(n.files, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no files", n.ID)
	}
	path := files[s.rng.IntN(len(files))]
	used, err := usedBytes(path)
	if err != nil {
		return "", err
	}
	at, err := harm(path, used)
	if err != nil {
		return "", err
	}
	said, accepted, err := s.refuses(ctx, n, 6*time.Second)
	if err != nil {
		return "", err
	}
	name := filepath.Base(path)
	if accepted {
		// Not every bit of a file matters: a database has free pages, and there
		// may be an older snapshot. The checkers verify that the cluster served
		// no wrong data. No check requires that the node notices the damage.
		return "", errors.Join(s.rejoin(ctx, n),
			fmt.Errorf("the node did not notice %s in %s at offset %d of %d bytes", what, name, at, used))
	}
	if err := s.rejoin(ctx, n); err != nil {
		return "", err
	}
	if !strings.Contains(said, "holdfast") {
		return "", nil
	}
	return fmt.Sprintf("%s refused %s in %s, and joined again", n.ID, what, name), nil
}

// usedBytes returns the length of a file without the zero bytes at its end.
func usedBytes(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return int64(len(strings.TrimRight(string(b), "\x00"))), nil
}

func bitFlip(ctx context.Context, s *injection) (string, error) {
	return s.damage(ctx, "a flipped bit", func(path string, used int64) (at int64, err error) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		at = s.rng.Int64N(max(used, 1))
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			return at, err
		}
		b[0] ^= 1 << s.rng.IntN(8)
		_, err = f.WriteAt(b[:], at)
		return at, err
	})
}

func truncated(ctx context.Context, s *injection) (string, error) {
	return s.damage(ctx, "a truncated file", func(path string, used int64) (at int64, err error) {
		at = used/2 + s.rng.Int64N(max(used/4, 1))
		return at, os.Truncate(path, at)
	})
}
