package attack

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
)

var linkFaults = []fault{
	{class: "isolate leader", group: links, run: isolateLeader},
	{class: "isolate follower", group: links, run: isolateFollower},
	{class: "isolate follower for long", group: links, long: true, run: isolateForLong},
	{class: "majorities ring", group: links, nodes: 5, run: ring},
	{class: "bridge", group: links, run: bridge},
	{class: "one-way: leader unheard", group: links, run: leaderUnheard},
	{class: "one-way: leader deaf", group: links, run: leaderDeaf},
	{class: "shatter", group: links, run: shatter},
	{class: "forwarder cut from leader", group: links, run: forwarderCut},
	{class: "clients cut from leader", group: links, run: clientsCut},
	{class: "slow links", group: links, run: slowLinks},
	{class: "stall of an open socket", group: links, run: stall},
	{class: "connections reset", group: links, run: resets},
	{class: "bytes spoiled on links", group: links, run: corruptedLinks},
}

// between reports whether a direction is between two nodes.
func between(h hop) bool { return h.from != clientSide && h.to != clientSide }

// cut blocks directions for a while and then restores them.
func (s *injection) cut(ctx context.Context, what string, match func(hop) bool) (string, error) {
	return s.disturb(ctx, what, match, effect{block: true}, 400*time.Millisecond, 2500*time.Millisecond)
}

func (s *injection) disturb(ctx context.Context, what string, match func(hop) bool, e effect,
	low, high time.Duration) (string, error) {
	lift := s.c.net.apply(match, e)
	s.waitRandom(ctx, low, high)
	n := lift()
	if n == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s: %d chunks touched", what, n), nil
}

func isolateLeader(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, n.ID+" without the other nodes",
		func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) })
}

// isolateForLong cuts a follower off for a long time. The leader then removes
// the waiters of the follower's clients, and the follower replies to these
// clients that it finds no leader.
func isolateForLong(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	alone := func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) }
	return s.disturb(ctx, n.ID+" without the other nodes", alone, effect{block: true}, 11*time.Second, 12*time.Second)
}

func isolateFollower(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, n.ID+" without the other nodes",
		func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) })
}

// cutPairs blocks the directions for which cut returns true. i and j are the
// positions of the sender and of the receiver in the list of nodes.
func (s *injection) cutPairs(ctx context.Context, what string, cut func(i, j int) bool) (string, error) {
	at := make(map[string]int)
	for i, n := range s.c.nodes {
		at[n.ID] = i
	}
	return s.cut(ctx, what, func(h hop) bool { return between(h) && cut(at[h.from], at[h.to]) })
}

// ring connects each node only with its two neighbors. Every node then reaches
// a majority, and no two nodes reach the same majority.
func ring(ctx context.Context, s *injection) (string, error) {
	n := len(s.c.nodes)
	return s.cutPairs(ctx, "each node reaches its neighbors only", func(i, j int) bool {
		d := (i - j + n) % n
		return d != 1 && d != n-1
	})
}

// bridge splits the nodes into two sides that cannot reach each other. One node
// can reach both sides.
func bridge(ctx context.Context, s *injection) (string, error) {
	n := len(s.c.nodes)
	middle := s.rng.IntN(n)
	// The nodes on the left are the n/2 nodes after the bridge in the list of
	// nodes. The first node comes after the last one.
	left := func(i int) bool { return (i-middle+n)%n <= n/2 }
	return s.cutPairs(ctx, s.c.nodes[middle].ID+" is the bridge", func(i, j int) bool {
		return i != middle && j != middle && left(i) != left(j)
	})
}

func leaderUnheard(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, "no node hears "+n.ID, func(h hop) bool { return between(h) && h.from == n.ID })
}

func leaderDeaf(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, n.ID+" hears no node", func(h hop) bool { return between(h) && h.to == n.ID })
}

func shatter(ctx context.Context, s *injection) (string, error) {
	return s.cut(ctx, "every node alone", between)
}

// forwarderCut does not touch the traffic of Raft. It cuts only the connections
// that carry the commands of clients from one node to the leader.
func forwarderCut(ctx context.Context, s *injection) (string, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	f, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s cannot forward to %s", f.ID, leader.ID)
	return s.cut(ctx, what, func(h hop) bool {
		return (h.service == rpc.ServiceWrite || h.service == rpc.ServiceRead) &&
			(h.from == f.ID && h.to == leader.ID || h.from == leader.ID && h.to == f.ID)
	})
}

func clientsCut(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, "no client reaches "+n.ID, func(h hop) bool {
		return h.from == clientSide && h.to == n.ID || h.from == n.ID && h.to == clientSide
	})
}

// slowLinks slows down every link between nodes. Each direction gets its own
// delay or, in one of three cases, a limited bandwidth, so that the two
// directions of a pair differ.
func slowLinks(ctx context.Context, s *injection) (string, error) {
	var lifts []func() int64
	for _, from := range s.c.nodes {
		for _, to := range s.c.nodes {
			if from == to {
				continue
			}
			e := effect{delay: s.between(2*time.Millisecond, 80*time.Millisecond)}
			if s.rng.IntN(3) == 0 {
				e = effect{rate: 128 << 10 / 8}
			}
			a, b := from.ID, to.ID
			lifts = append(lifts, s.c.net.apply(func(h hop) bool { return h.from == a && h.to == b }, e))
		}
	}
	s.waitRandom(ctx, time.Second, 2500*time.Millisecond)
	n := int64(0)
	for _, lift := range lifts {
		n += lift()
	}
	if n == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d chunks delayed by 2 to 80 ms or at 128 kbit/s", n), nil
}

// stall blocks everything that the leader sends to one follower on Raft
// connections. The connections stay open.
func stall(ctx context.Context, s *injection) (string, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	f, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	return s.cut(ctx, fmt.Sprintf("raft from %s to %s stalls", leader.ID, f.ID), func(h hop) bool {
		return h.service == rpc.ServiceRaft && h.from == leader.ID && h.to == f.ID
	})
}

func resets(ctx context.Context, s *injection) (string, error) {
	total := 0
	for range 6 {
		total += s.c.net.reset(func(hop) bool { return s.rng.IntN(3) > 0 })
		s.waitRandom(ctx, 50*time.Millisecond, 400*time.Millisecond)
	}
	if total == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d connections reset", total), nil
}

// corruptedLinks flips one bit of every other chunk between nodes. The receivers
// must detect the corruption and must not use the data.
func corruptedLinks(ctx context.Context, s *injection) (string, error) {
	return s.disturb(ctx, "bits flipped between nodes", between, effect{corrupt: true},
		500*time.Millisecond, 2*time.Second)
}
