package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// killAtPoint is the class in which processes kill themselves at a failpoint:
// see package cluster/failpoint.
const killAtPoint = "kill at a point"

// pointsPerFault is how many processes one fault ends, one after the other.
const pointsPerFault = 3

// way describes how to make a node reach a failpoint. The node is a follower
// that has been killed.
type way struct {
	most int             // largest count for which a node is armed: see Plan.Points
	fits func(Plan) bool // reports whether the plan's cluster can reach the failpoint; nil for all plans
	// before, unless it is nil, runs while the node is dead.
	before func(ctx context.Context, s *injection, n *node, spec string) error
	// meanwhile runs repeatedly until the armed node has ended. If meanwhile is
	// nil, the load alone leads the node to the failpoint.
	meanwhile func(ctx context.Context, s *injection, n *node)
	// after, unless it is nil, cleans up when the node is back.
	after func(ctx context.Context, s *injection) error
}

// ways holds the way to each failpoint. FormConfirmed has none, because the
// first node passes it when the cluster is formed.
var ways = map[string]way{
	failpoint.AppendTorn:         {most: 40, fits: onWAL},
	failpoint.AppendWritten:      {most: 40, fits: onWAL},
	failpoint.AppendSynced:       {most: 40},
	failpoint.GroupSent:          {most: 40, meanwhile: clientsCome},
	failpoint.ReplyReceived:      {most: 40, meanwhile: clientsCome},
	failpoint.SegmentUnlisted:    {most: 2, fits: smallSegments},
	failpoint.SegmentUndeleted:   {most: 2, fits: smallSegments, meanwhile: takesSnapshots},
	failpoint.SnapshotTorn:       {most: 2, meanwhile: takesSnapshots},
	failpoint.SnapshotNamed:      {most: 2, meanwhile: takesSnapshots},
	failpoint.TermWritten:        {most: 2, meanwhile: othersLead},
	failpoint.VoteUnwritten:      {most: 2, meanwhile: othersLead},
	failpoint.VoteWritten:        {most: 2, meanwhile: othersLead},
	failpoint.LeadershipUnopened: {most: 1, meanwhile: leads},
	failpoint.EntryProposed:      {most: 40, meanwhile: leads},
	failpoint.EntryOpen:          {most: 40, meanwhile: leads},
	failpoint.EntryDurable:       {most: 40, meanwhile: leads},
	failpoint.EntryApplied:       {most: 40, meanwhile: leads},
	failpoint.TransferBegun:      {most: 1, meanwhile: handsOver},
	failpoint.MemberProposed:     {most: 3, meanwhile: changesMembers, after: withoutSpare},
	failpoint.MemberChanged:      {most: 3, meanwhile: changesMembers, after: withoutSpare},
	failpoint.InstallUncut:       {most: 1, fits: func(p Plan) bool { return p.Trailing < 1<<20 }, before: fallsBehind},
	failpoint.SuffixUncut:        {most: 1, meanwhile: leadsAlone},
	failpoint.FileUnnamed:        {most: 5, before: startsAnew},
	failpoint.JoinNoted:          {most: 1, before: losesData},
	failpoint.JoinAnswered:       {most: 1, before: losesData},
	failpoint.JoinedNoted:        {most: 1, before: losesData},
}

func onWAL(p Plan) bool { return p.LogStore == "wal" }

func smallSegments(p Plan) bool { return onWAL(p) && p.Segment > 0 }

// pointOf returns the name of the failpoint in a value of --test-kill-at.
func pointOf(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	return name
}

// pointChooser chooses failpoints for plans, from shuffled lists of the
// failpoints in ways. It appends a newly shuffled list when a plan can reach
// none of the remaining failpoints.
type pointChooser struct {
	rng  *rand.Rand
	deck []string
	on   bool // true if the run selects the class killAtPoint
}

func newPointChooser(seed uint64, faults []fault) *pointChooser {
	on := slices.ContainsFunc(faults, func(f fault) bool { return f.class == killAtPoint })
	return &pointChooser{rng: rand.New(rand.NewPCG(seed, 4)), on: on}
}

func (d *pointChooser) choose(p *Plan) {
	for _, step := range p.Steps {
		if !slices.Contains(step, killAtPoint) {
			continue
		}
		for range pointsPerFault {
			name := d.take(*p)
			p.Points = append(p.Points, fmt.Sprintf("%s:%d", name, 1+d.rng.IntN(ways[name].most)))
		}
	}
	if d.on && d.rng.IntN(4) == 0 {
		p.Forms = fmt.Sprintf("%s:%d", failpoint.FormConfirmed, 1+d.rng.IntN(p.Nodes-1))
	}
}

// take removes and returns the first failpoint that the plan can reach.
func (d *pointChooser) take(p Plan) string {
	for {
		for i, name := range d.deck {
			if w := ways[name]; w.fits == nil || w.fits(p) {
				d.deck = slices.Delete(d.deck, i, i+1)
				return name
			}
		}
		more := slices.Sorted(maps.Keys(ways))
		d.rng.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		d.deck = append(d.deck, more...)
	}
}

// form starts the nodes. If Plan.Forms names a failpoint, the first node ends
// there while it forms the cluster, and form restarts it.
func (e *episode) form(ctx context.Context) error {
	if e.plan.Forms == "" || e.plan.mixes(e.cfg) {
		return e.c.start()
	}
	for _, n := range e.c.nodes[1:] {
		if err := n.start(); err != nil {
			return err
		}
	}
	first := e.c.nodes[0]
	if err := first.armed(e.plan.Forms); err != nil {
		return err
	}
	if err := first.dies(ctx, e.plan.Forms, func() {}); err != nil {
		return err
	}
	e.events = append(e.events, Event{Class: killAtPoint, Seen: first.ID + " killed itself at " + e.plan.Forms,
		Points: []string{e.plan.Forms}})
	return errors.Join(first.kill(), first.start())
}

// killAtPoints makes nodes end at the failpoints of the plan, one after the
// other, and come back.
func killAtPoints(ctx context.Context, s *injection) (string, error) {
	s.mu.Lock()
	n := min(pointsPerFault, len(s.episode.points))
	todo := s.episode.points[:n]
	s.episode.points = s.episode.points[n:]
	s.mu.Unlock()
	var seen []string
	var errs []error
	for _, spec := range todo {
		id, err := s.killAt(ctx, spec)
		if id != "" {
			s.points = append(s.points, spec)
			seen = append(seen, id+" killed itself at "+spec)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", spec, err))
		}
	}
	err := errors.Join(errs...)
	if len(seen) > 0 && err != nil {
		seen, err = append(seen, fmt.Sprintf("but not all of them: %v", err)), nil
	}
	return strings.Join(seen, ", "), err
}

// reachWithin is how long a node may take to reach a failpoint.
const reachWithin = 15 * time.Second

// killAt makes one node end at a failpoint and come back. It returns the id of
// the node if the node ended there.
func (s *injection) killAt(ctx context.Context, spec string) (id string, err error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if n.Program() != s.cfg.Program {
		return "", fmt.Errorf("%s runs another build", n.ID)
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	w := ways[pointOf(spec)]
	if err = s.reach(ctx, w, n, spec); err == nil {
		id = n.ID
		s.waitRandom(ctx, 0, 300*time.Millisecond)
	}
	s.mon.ends() // records a crash; a restart of the node would hide it: see node.dies
	// From here on the node must not end by itself, whether or not it has ended
	// at the failpoint.
	err = errors.Join(err, s.pointErr, n.kill(), n.start(), s.voter(ctx, n))
	if w.after != nil {
		err = errors.Join(err, w.after(ctx, s))
	}
	if err != nil {
		s.mu.Lock()
		s.cutShort = true // the node may no longer be a member, or may have no data
		s.mu.Unlock()
	}
	return id, err
}

// reach arms a dead node and leads it to the failpoint.
func (s *injection) reach(ctx context.Context, w way, n *node, spec string) error {
	ctx, stop := withLimit(ctx, reachWithin, "reach the failpoint")
	defer stop()
	if w.before != nil {
		if err := w.before(ctx, s, n, spec); err != nil {
			return err
		}
	}
	if err := n.armed(spec); err != nil {
		return err
	}
	return n.dies(ctx, spec, func() {
		if w.meanwhile != nil {
			w.meanwhile(ctx, s, n)
		}
	})
}

// armed starts the process of the node so that it ends at a failpoint.
func (n *node) armed(spec string) error { return n.launch(true, "--test-kill-at", spec) }

// dies waits until the process has ended at the failpoint for which it was
// armed. While it waits, it calls meanwhile repeatedly to lead the node there.
func (n *node) dies(ctx context.Context, spec string, meanwhile func()) error {
	err := process.Poll(ctx, n.ID+" to kill itself at "+spec, func() bool {
		if n.Running() {
			meanwhile()
		}
		return !n.Running()
	})
	if err != nil {
		return err
	}
	name, number, _ := strings.Cut(spec, ":")
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	if !strings.Contains(n.Output(), failpoint.Line(name, count)+"\n") {
		n.forbidEnd() // the monitor reports an end that was not planned
		return fmt.Errorf("%s ended before it reached %s: %s", n.ID, spec, n.last())
	}
	return nil
}

// withLeader calls f with the current leader, if it finds one soon. It returns no
// error: node.dies repeats the whole attempt until the node ends at its
// failpoint, and returns an error if the node does not end there.
func (s *injection) withLeader(ctx context.Context, f func(leader *node)) {
	wait, stop := withLimit(ctx, 2*time.Second, "find a leader")
	defer stop()
	if leader, err := s.c.leader(wait); err == nil {
		f(leader)
	}
}

// handOver asks a leader to hand over to a node, or to any node if the argument
// to is nil. The leader may refuse or die. In that case the caller tries again,
// possibly with another leader.
func handOver(ctx context.Context, leader, to *node) {
	args := []string{"TRANSFER"}
	if to != nil {
		args = append(args, to.ID)
	}
	_, _ = leader.ask(ctx, 2*time.Second, args...)
}

// clientsCome makes clients connect to the node. The clients of the node moved
// to other nodes when the node was killed. clientsCome resets their connections
// to those nodes, so that the clients connect to this node again. The node must
// not be the leader, so clientsCome makes the node hand over if it leads.
func clientsCome(ctx context.Context, s *injection, n *node) {
	if st, err := n.state(ctx); err != nil || !st.Ready {
		return
	}
	s.c.net.reset(func(h hop) bool { return h.from == clientSide && h.to != n.ID })
	s.withLeader(ctx, func(leader *node) {
		if leader == n {
			handOver(ctx, leader, nil)
		}
	})
	wait, stop := withLimit(ctx, time.Second, "reach the failpoint")
	defer stop()
	// If the node does not end, the caller calls clientsCome again.
	_ = process.Poll(wait, n.ID+" to end", func() bool { return !n.Running() })
}

// leads transfers leadership to the node, unless the node already leads.
func leads(ctx context.Context, s *injection, n *node) { s.leading(ctx, n, func() {}) }

// leading calls f if the node leads. Otherwise it transfers leadership to the
// node and does not call f.
func (s *injection) leading(ctx context.Context, n *node, f func()) {
	s.withLeader(ctx, func(leader *node) {
		if leader != n {
			handOver(ctx, leader, n)
			return
		}
		f()
	})
}

// handsOver makes the node the leader and then makes it hand over.
func handsOver(ctx context.Context, s *injection, n *node) {
	s.leading(ctx, n, func() { handOver(ctx, n, nil) })
}

// othersLead moves the leadership among the nodes, so that the node votes for
// others or campaigns.
func othersLead(ctx context.Context, s *injection, _ *node) {
	s.withLeader(ctx, func(leader *node) {
		if all := s.c.followers(leader); len(all) > 0 {
			handOver(ctx, leader, all[s.rng.IntN(len(all))])
		}
	})
}

// takesSnapshots makes the node take a snapshot when there are new entries.
func takesSnapshots(ctx context.Context, s *injection, n *node) {
	if s.traffic(ctx, 50) == nil {
		// The node may end during the command, which is the purpose.
		_, _ = n.ask(ctx, 3*time.Second, "SNAPSHOT")
	}
}

// changesMembers makes the node the leader, lets the spare node join and become
// a voter, and removes the spare node.
func changesMembers(ctx context.Context, s *injection, n *node) {
	spare := s.c.spare
	s.leading(ctx, n, func() {
		if !spare.Running() {
			s.pointErr = errors.Join(s.pointErr, spare.wipe(), spare.start(s.c.joinArgs()...))
			return
		}
		// The caller repeats the command if it fails. The leader refuses it
		// once the spare node is a voter.
		_, _ = n.ask(ctx, 3*time.Second, "ADD", spare.ID, spare.peers.addr)
		if st, err := spare.state(ctx); err == nil && st.Voter {
			_, _ = n.ask(ctx, 3*time.Second, "REMOVE", spare.ID) // the caller repeats the command if it fails
		}
	})
}

// withoutSpare removes the spare node from the cluster.
func withoutSpare(ctx context.Context, s *injection) error {
	if err := s.c.spare.kill(); err != nil {
		return err
	}
	wait, stop := withLimit(ctx, 20*time.Second, "remove "+s.c.spare.ID)
	defer stop()
	return s.c.remove(wait, s.c.spare)
}

// fallsBehind makes the leader take snapshots until its log begins after the
// last entry that the node can have.
func fallsBehind(ctx context.Context, s *injection, _ *node, _ string) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	_, err = s.compactBeyond(ctx, leader)
	return err
}

// leadsAlone makes the node the leader and then cuts it off from the others
// until there is another leader. While it still leads, the node appends entries
// that no other node receives.
func leadsAlone(ctx context.Context, s *injection, n *node) {
	s.leading(ctx, n, func() {
		lift := s.c.net.apply(func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) },
			effect{block: true})
		defer lift()
		wait, stop := withLimit(ctx, 4*time.Second, "another leader")
		defer stop()
		// If no other node becomes leader in time, the caller repeats the fault.
		_ = process.Poll(wait, "another leader", func() bool {
			for _, st := range states(wait, s.c.followers(n)) {
				if st.Role == "leader" {
					return true
				}
			}
			return false
		})
	})
}

// losesData removes the node from the cluster, permits it to join again, and
// deletes its data. At its next start, the node joins as a new member.
func losesData(ctx context.Context, s *injection, n *node, _ string) error {
	if err := errors.Join(s.c.remove(ctx, n), s.c.add(ctx, n)); err != nil {
		return err
	}
	return n.wipe()
}

// startsAnew keeps the data of the node if the first file that it writes after
// a start is enough to reach the failpoint. Otherwise startsAnew calls
// losesData, because a node that joins writes more files.
func startsAnew(ctx context.Context, s *injection, n *node, spec string) error {
	if strings.HasSuffix(spec, ":1") {
		return nil
	}
	return losesData(ctx, s, n, spec)
}
