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
	"github.com/holdfast-kv/holdfast/test/process"
)

// killAtPoint is the class in which processes kill themselves at a point of the
// program: see cluster/failpoint.
const killAtPoint = "kill at a point"

// pointsPerStrike is how many processes one strike ends, one after the other.
const pointsPerStrike = 3

// way is what leads a node to a point. The node is a follower that has been killed.
type way struct {
	most int             // the process ends when it comes there for the 1st to the most-th time
	fits func(Plan) bool // nil for all
	// before is what has to be done while the node is dead, nil for nothing.
	before func(ctx context.Context, s *strike, n *node, spec string) error
	// meanwhile is done again and again until the armed node has ended, nil for nothing:
	// the load leads there.
	meanwhile func(ctx context.Context, s *strike, n *node)
	// after tidies up once the node is back, nil for nothing.
	after func(ctx context.Context, s *strike) error
}

// The ways by point. FormTold has none: it is passed when the cluster is formed.
var ways = map[string]way{
	failpoint.AppendTorn:       {most: 40, fits: onWAL},
	failpoint.AppendWritten:    {most: 40, fits: onWAL},
	failpoint.AppendSynced:     {most: 40},
	failpoint.GroupSent:        {most: 40, meanwhile: clientsCome},
	failpoint.ReplyReceived:    {most: 40, meanwhile: clientsCome},
	failpoint.SegmentUnlisted:  {most: 2, fits: smallSegments},
	failpoint.SegmentUndeleted: {most: 2, fits: smallSegments, meanwhile: takesSnapshots},
	failpoint.SnapshotTorn:     {most: 2, meanwhile: takesSnapshots},
	failpoint.SnapshotNamed:    {most: 2, meanwhile: takesSnapshots},
	failpoint.TermWritten:      {most: 2, meanwhile: othersLead},
	failpoint.VoteUnwritten:    {most: 2, meanwhile: othersLead},
	failpoint.VoteWritten:      {most: 2, meanwhile: othersLead},
	failpoint.OfficeUnopened:   {most: 1, meanwhile: leads},
	failpoint.EntryProposed:    {most: 40, meanwhile: leads},
	failpoint.EntryOpen:        {most: 40, meanwhile: leads},
	failpoint.EntryDurable:     {most: 40, meanwhile: leads},
	failpoint.EntryApplied:     {most: 40, meanwhile: leads},
	failpoint.TransferBegun:    {most: 1, meanwhile: handsOver},
	failpoint.MemberProposed:   {most: 3, meanwhile: changesMembers, after: withoutSpare},
	failpoint.MemberChanged:    {most: 3, meanwhile: changesMembers, after: withoutSpare},
	failpoint.InstallUncut:     {most: 1, fits: func(p Plan) bool { return p.Trailing < 1<<20 }, before: fallsBehind},
	failpoint.SuffixUncut:      {most: 1, meanwhile: leadsAlone},
	failpoint.FileUnnamed:      {most: 5, before: startsAnew},
	failpoint.JoinNoted:        {most: 1, before: losesData},
	failpoint.JoinAnswered:     {most: 1, before: losesData},
	failpoint.JoinedNoted:      {most: 1, before: losesData},
}

func onWAL(p Plan) bool { return p.LogStore == "wal" }

func smallSegments(p Plan) bool { return onWAL(p) && p.Segment > 0 }

// pointOf is the point of what serve is told by --test-kill-at.
func pointOf(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	return name
}

// pointDealer deals points to plans, all before one is dealt again.
type pointDealer struct {
	rng  *rand.Rand
	deck []string
	on   bool // the class is among those of the run
}

func newPointDealer(seed uint64, faults []fault) *pointDealer {
	on := slices.ContainsFunc(faults, func(f fault) bool { return f.class == killAtPoint })
	return &pointDealer{rng: rand.New(rand.NewPCG(seed, 4)), on: on}
}

func (d *pointDealer) deal(p *Plan) {
	for _, step := range p.Steps {
		if !slices.Contains(step, killAtPoint) {
			continue
		}
		for range pointsPerStrike {
			name := d.take(*p)
			p.Points = append(p.Points, fmt.Sprintf("%s:%d", name, 1+d.rng.IntN(ways[name].most)))
		}
	}
	if d.on && d.rng.IntN(4) == 0 {
		p.Forms = fmt.Sprintf("%s:%d", failpoint.FormTold, 1+d.rng.IntN(p.Nodes-1))
	}
}

// take removes and returns the first point that a plan can lead to.
func (d *pointDealer) take(p Plan) string {
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

// form starts the nodes, of which the first may have to end while it forms the
// cluster, and go on.
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
	e.events = append(e.events, Event{Class: killAtPoint, Seen: first.ID + " killed itself at " + e.plan.Forms, Points: []string{e.plan.Forms}})
	return errors.Join(first.kill(), first.start())
}

// killAtPoints has nodes end at the points that the plan says, one after the
// other, and come back.
func killAtPoints(ctx context.Context, s *strike) (string, error) {
	s.mu.Lock()
	n := min(pointsPerStrike, len(s.episode.points))
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
		seen, err = append(seen, fmt.Sprintf("not so: %v", err)), nil
	}
	return strings.Join(seen, ", "), err
}

// reachWithin is how long a node may take to come to a point.
const reachWithin = 15 * time.Second

// killAt has one node end at a point, and come back. It returns the node's id if
// it ended there.
func (s *strike) killAt(ctx context.Context, spec string) (id string, err error) {
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
		s.last(ctx, 0, 300*time.Millisecond)
	}
	s.mon.ends() // before it is started again: see dies
	// Ended by itself or not: from here on it is not to.
	err = errors.Join(err, s.trouble, n.kill(), n.start(), s.voter(ctx, n))
	if w.after != nil {
		err = errors.Join(err, w.after(ctx, s))
	}
	if err != nil {
		s.mu.Lock()
		s.cutShort = true // it may be outside, or without data
		s.mu.Unlock()
	}
	return id, err
}

// reach arms a node that is dead and leads it to the point.
func (s *strike) reach(ctx context.Context, w way, n *node, spec string) error {
	ctx, stop := soon(ctx, reachWithin, "come there")
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

// armed starts the node's process so that it ends at a point.
func (n *node) armed(spec string) error { return n.launch(true, "--test-kill-at", spec) }

// dies waits until the process has ended at the point that it was armed for, and
// goes on doing something meanwhile that leads there.
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
		n.trust() // for the monitor: nobody planned that
		return fmt.Errorf("%s ended before it came to %s: %s", n.ID, spec, n.last())
	}
	return nil
}

// led does something with the present leader, if there is one soon. What comes of
// it shows in whether the node ends.
func (s *strike) led(ctx context.Context, f func(leader *node)) {
	wait, stop := soon(ctx, 2*time.Second, "find a leader")
	defer stop()
	if leader, err := s.c.leader(wait); err == nil {
		f(leader)
	}
}

// hand asks a leader to hand over to a node, or to any if to is nil. It may refuse,
// or die: then it, or another one, is asked again.
func hand(ctx context.Context, leader, to *node) {
	words := []string{"TRANSFER"}
	if to != nil {
		words = append(words, to.ID)
	}
	_, _ = leader.ask(ctx, 2*time.Second, words...)
}

// clientsCome has clients come to the node. Those that it had have gone to others
// when it was killed: these lose them in turn. It must not lead.
func clientsCome(ctx context.Context, s *strike, n *node) {
	if st, err := n.state(ctx); err != nil || !st.Ready {
		return
	}
	s.c.net.reset(func(h hop) bool { return h.from == clientSide && h.to != n.ID })
	s.led(ctx, func(leader *node) {
		if leader == n {
			hand(ctx, leader, nil)
		}
	})
	wait, stop := soon(ctx, time.Second, "come there")
	defer stop()
	_ = process.Poll(wait, n.ID+" to end", func() bool { return !n.Running() }) // if not, once more
}

// leads makes the node the leader.
func leads(ctx context.Context, s *strike, n *node) { s.leading(ctx, n, func() {}) }

// leading makes the node the leader or, if it is, does something with it.
func (s *strike) leading(ctx context.Context, n *node, f func()) {
	s.led(ctx, func(leader *node) {
		if leader != n {
			hand(ctx, leader, n)
			return
		}
		f()
	})
}

// handsOver makes the node the leader, and has it hand over.
func handsOver(ctx context.Context, s *strike, n *node) {
	s.leading(ctx, n, func() { hand(ctx, n, nil) })
}

// othersLead has the leadership go round, so that the node votes for others or
// stands for election.
func othersLead(ctx context.Context, s *strike, _ *node) {
	s.led(ctx, func(leader *node) {
		if all := s.c.followers(leader); len(all) > 0 {
			hand(ctx, leader, all[s.rng.IntN(len(all))])
		}
	})
}

// takesSnapshots has the node take one when there is something new to be in it.
func takesSnapshots(ctx context.Context, s *strike, n *node) {
	if s.traffic(ctx, 50) == nil {
		_, _ = n.ask(ctx, 3*time.Second, "SNAPSHOT") // it may end on the way, which is what this is for
	}
}

// changesMembers makes the node the leader, and has the spare node join, vote and be
// removed.
func changesMembers(ctx context.Context, s *strike, n *node) {
	spare := s.c.spare
	s.leading(ctx, n, func() {
		if !spare.Running() {
			s.trouble = errors.Join(s.trouble, spare.wipe(), spare.start(s.c.joinArgs()...))
			return
		}
		_, _ = n.ask(ctx, 3*time.Second, "ADD", spare.ID, spare.peers.addr) // asked again if it fails, and refused once it votes
		if st, err := spare.state(ctx); err == nil && st.Voter {
			_, _ = n.ask(ctx, 3*time.Second, "REMOVE", spare.ID) // asked again if it fails
		}
	})
}

// withoutSpare takes the spare node out again.
func withoutSpare(ctx context.Context, s *strike) error {
	if err := s.c.spare.kill(); err != nil {
		return err
	}
	wait, stop := soon(ctx, 20*time.Second, "remove "+s.c.spare.ID)
	defer stop()
	return s.c.remove(wait, s.c.spare)
}

// fallsBehind waits until the log of the others begins behind the node's.
func fallsBehind(ctx context.Context, s *strike, _ *node, _ string) error {
	leader, err := s.lead(ctx)
	if err != nil {
		return err
	}
	_, err = s.outrun(ctx, leader)
	return err
}

// leadsAlone makes the node a leader that is cut off from the others, and goes on
// taking writes that nobody else gets, until there is another one.
func leadsAlone(ctx context.Context, s *strike, n *node) {
	s.leading(ctx, n, func() {
		lift := s.c.net.apply(func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) }, effect{block: true})
		defer lift()
		wait, stop := soon(ctx, 4*time.Second, "another leader")
		defer stop()
		_ = process.Poll(wait, "another leader", func() bool { // if none comes, it is tried again
			for _, st := range states(wait, s.c.followers(n)) {
				if st.Role == "leader" {
					return true
				}
			}
			return false
		})
	})
}

// losesData removes the node with its data, so that it joins as a new member.
func losesData(ctx context.Context, s *strike, n *node, _ string) error {
	if err := errors.Join(s.c.remove(ctx, n), s.c.add(ctx, n)); err != nil {
		return err
	}
	return n.wipe()
}

// startsAnew has the node start on its data or, for files that are written later
// than the first, on none.
func startsAnew(ctx context.Context, s *strike, n *node, spec string) error {
	if strings.HasSuffix(spec, ":1") {
		return nil
	}
	return losesData(ctx, s, n, spec)
}
