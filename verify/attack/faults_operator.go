package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// operatorFaults are mistakes of operators: commands at the wrong moment, an
// additional process, signals, and changed flags.
var operatorFaults = []fault{
	{class: "transfer to a dead node", group: operators, run: transferToDead},
	{class: "transfer to a paused node", group: operators, run: transferToPaused},
	{class: "transfer to a lagging node", group: operators, run: transferToLagging},
	{class: "target of a transfer dies", group: operators, run: targetDies},
	{class: "removal that ends the quorum", group: operators, run: removalTooMany},
	{class: "leader removed", group: operators, run: leaderRemoved},
	{class: "node added while another is down", group: operators, run: addedWhileDown},
	{class: "second process with the id of a live node", group: operators, run: doubleID},
	{class: "SIGHUP", group: operators, run: hangUp},
	{class: "changed flags", group: operators, run: changedFlags},
}

// changeLimit is longer than the time that a node needs to answer TRANSFER or
// REMOVE.
const changeLimit = 12 * time.Second

// mustRefuse sends a command that the leader must refuse, and returns the
// leader's reply. Afterwards the cluster must have a leader, because a majority
// of the nodes is alive.
func (s *injection) mustRefuse(ctx context.Context, check string, args ...string) (reply string, err error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	if _, err := leader.ask(ctx, changeLimit, args...); err != nil {
		reply = err.Error()
	} else {
		s.violation(check, "%s executed a command that it must refuse: %s", leader.ID, strings.Join(args, " "))
	}
	if _, err = s.leader(ctx); err != nil && ctx.Err() == nil {
		s.violation(check, "no leader after %s, to which the reply was %q", strings.Join(args, " "), reply)
	}
	return reply, err
}

// transferToDead asks more than once for a transfer of leadership to a dead
// follower. The follower stays dead for a while, and the cluster must continue
// to serve.
func transferToDead(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	refused := 0
	for range 2 + s.rng.IntN(2) {
		reply, err := s.mustRefuse(ctx, "transfer", "TRANSFER", n.ID)
		if err != nil {
			return "", err
		}
		if strings.Contains(reply, n.ID+" does not answer") {
			refused++
		}
	}
	s.waitRandom(ctx, 50*time.Millisecond, time.Second)
	if err := n.start(); err != nil || refused == 0 {
		return "", err
	}
	return fmt.Sprintf("%d transfers to %s, which was dead, were refused", refused, n.ID), nil
}

func transferToPaused(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	refused := 0
	var trouble error
	seen, err := s.paused(ctx, []*node{n}, 0, 500*time.Millisecond, func() {
		for range 2 {
			reply, err := s.mustRefuse(ctx, "transfer", "TRANSFER", n.ID)
			trouble = errors.Join(trouble, err)
			if strings.Contains(reply, n.ID+" does not answer") {
				refused++
			}
		}
	})
	if err := errors.Join(err, trouble); err != nil || seen == "" || refused == 0 {
		return "", err
	}
	return fmt.Sprintf("%d transfers to %s were refused, %s", refused, n.ID, seen), nil
}

// transferToLagging asks for transfers of leadership to a node that restarts,
// from its start until it leads.
func transferToLagging(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	if err := s.traffic(ctx, s.cfg.Traffic); err != nil {
		return "", err
	}
	if err := n.start(); err != nil {
		return "", err
	}
	refused := 0
	wait, stop := withLimit(ctx, 15*time.Second, "lead")
	defer stop()
	err = process.Poll(wait, n.ID+" to lead", func() bool {
		leader, err := s.c.leader(wait)
		if err != nil || leader == n {
			return leader == n
		}
		if _, err := leader.ask(wait, changeLimit, "TRANSFER", n.ID); err != nil {
			refused++
		}
		return false
	})
	if err != nil || refused == 0 {
		return "", err
	}
	return fmt.Sprintf("%s led after %d transfers that were refused", n.ID, refused), nil
}

// targetDies kills the target of a transfer of leadership during the transfer.
func targetDies(ctx context.Context, s *injection) (string, error) {
	var all []string
	for range 3 {
		leader, err := s.leader(ctx)
		if err != nil {
			return "", err
		}
		n, err := s.follower(ctx)
		if err != nil {
			return "", err
		}
		if n == leader { // elected in the meantime
			continue
		}
		after := s.between(0, 40*time.Millisecond)
		over := make(chan error, 1)
		go func() {
			_, err := leader.ask(ctx, changeLimit, "TRANSFER", n.ID)
			over <- err
		}()
		load.Sleep(ctx, after)
		if err := n.kill(); err != nil {
			return "", errors.Join(err, <-over)
		}
		how := "had taken over"
		if err := <-over; err != nil {
			how = "had not taken over"
		}
		if _, err := s.leader(ctx); err != nil {
			return "", err
		}
		if err := n.start(); err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s died after %v and %s", n.ID, after.Round(time.Millisecond), how))
	}
	return strings.Join(all, ", "), nil
}

// removalTooMany kills as many followers as the cluster can lose, and then asks
// for the removal of a live node.
func removalTooMany(ctx context.Context, s *injection) (string, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	others := s.c.followers(leader)
	s.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	lost := (len(s.c.nodes) - 1) / 2
	if len(others) <= lost {
		return "", fmt.Errorf("only %d followers are alive", len(others))
	}
	down, live := others[:lost], append(others[lost:], leader)
	for _, n := range down {
		if err := n.kill(); err != nil {
			return "", err
		}
	}
	who := live[s.rng.IntN(len(live))]
	reply, err := s.mustRefuse(ctx, "removal", "REMOVE", who.ID)
	if err != nil {
		return "", err
	}
	s.waitRandom(ctx, 50*time.Millisecond, 500*time.Millisecond)
	for _, n := range down {
		if err := n.start(); err != nil {
			return "", err
		}
	}
	if !strings.Contains(reply, "reachable") {
		return "", fmt.Errorf("removal of %s with %d nodes down: unexpected reply: %s", who.ID, lost, reply)
	}
	return fmt.Sprintf("removal of %s with %d nodes down was refused", who.ID, lost), nil
}

// leaderRemoved removes the leader, by a command to any node, and lets the
// removed node join as a new member.
func leaderRemoved(ctx context.Context, s *injection) (string, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	asked := s.c.live()[s.rng.IntN(len(s.c.live()))]
	leader.allowEnd()
	_, refused := asked.ask(ctx, changeLimit, "REMOVE", leader.ID)
	// A refusal can be caused by another fault that is active at the same time.
	// rejoin removes the node in any case.
	if err := s.rejoin(ctx, leader); err != nil {
		return "", errors.Join(err, refused)
	}
	if refused != nil {
		return "", refused
	}
	return fmt.Sprintf("%s led, was removed through %s and joined as a new member", leader.ID, asked.ID), nil
}

// addedWhileDown lets the spare node join while a follower is dead, and removes
// the spare node before the follower is back.
func addedWhileDown(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	spare := s.c.spare
	adding, added := withLimit(ctx, 30*time.Second, "add "+spare.ID)
	defer added()
	if err := errors.Join(s.c.add(adding, spare), spare.wipe(), spare.start(s.c.joinArgs()...)); err != nil {
		return "", err
	}
	wait, stop := withLimit(ctx, 60*time.Second, "add and remove "+spare.ID)
	defer stop()
	err = s.c.add(wait, spare)
	if err == nil {
		err = s.voter(ctx, spare)
	}
	if err := errors.Join(err, s.c.remove(wait, spare), spare.kill(), n.start()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s joined, voted and was removed while %s was down", spare.ID, n.ID), nil
}

// doubleID starts a second process with the id of a live node: first with a
// data directory of its own, then with the data directory of that node, unless
// that directory is on a disk of diskSet. The second process must not serve,
// and the first one must continue.
func doubleID(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	pid, spare := n.PID(), s.c.spare
	peers := []string{n.ID + "=" + spare.peers.addr}
	for _, other := range s.c.nodes {
		if other != n {
			peers = append(peers, other.ID+"="+other.peers.addr)
		}
	}
	slices.Sort(peers)
	args := []string{"--node-id", n.ID, "--peers", strings.Join(peers, ",")}
	ways := [][]string{args}
	if n.disk == nil {
		ways = append(ways, append(slices.Clip(args), "--data-dir", n.data))
	}
	var all []string
	for _, args := range ways {
		reply, err := s.second(ctx, n, args)
		if err != nil {
			return "", err
		}
		all = append(all, reply)
	}
	if n.PID() != pid || !n.Running() {
		s.violation("double id", "%s ended when a second process used its id", n.ID)
	}
	return fmt.Sprintf("a second %s was refused: %s", n.ID, strings.Join(all, "; ")), nil
}

// second starts the spare node with the flags of node n. It returns the line of
// output with which the process refuses to run beside n.
func (s *injection) second(ctx context.Context, n *node, args []string) (reply string, err error) {
	spare := s.c.spare
	if err := errors.Join(spare.wipe(), spare.launch(true, args...)); err != nil {
		return "", err
	}
	wait, stop := withLimit(ctx, 10*time.Second, "refuse")
	defer stop()
	err = process.Poll(wait, "the second "+n.ID+" to be refused", func() bool {
		if st, err := spare.state(wait); err == nil && st.Ready {
			s.violation("double id", "a second process serves as %s", n.ID)
			return true
		}
		for line := range strings.Lines(spare.Output()) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, "member remove "+n.ID) {
				s.violation("double id", "the second %s tells the operator to remove the first, which is alive: %s",
					n.ID, line)
				return true
			}
			if strings.Contains(line, "another process") || strings.Contains(line, "is alive") ||
				strings.Contains(line, "in use") {
				reply = line
			}
		}
		return reply != ""
	})
	return reply, errors.Join(err, spare.kill(), spare.wipe())
}

// hangUp sends SIGHUP to all nodes. They read their certificates and some other
// settings again, and must continue to run.
func hangUp(ctx context.Context, s *injection) (string, error) {
	pids := make(map[*node]int)
	for _, n := range s.c.live() {
		pids[n] = n.PID()
		if err := n.Signal(syscall.SIGHUP); err != nil {
			return "", err
		}
	}
	s.waitRandom(ctx, 300*time.Millisecond, time.Second)
	for n, pid := range pids {
		if !n.Running() || n.PID() != pid {
			// The monitor records this end as a violation.
			return "", fmt.Errorf("%s ended", n.ID)
		}
	}
	return fmt.Sprintf("%d processes continued", len(pids)), nil
}

// flags are the flags that operators change between two starts of a node. They
// must not affect the other nodes.
var flags = [][]string{
	{"--window", "2"}, {"--window", "4"},
	{"--snapshot-bytes", "65536"}, {"--snapshot-bytes", "1048576"},
	{"--trailing-bytes", "8192"},
	{"--heartbeat-timeout", "700ms"},
	{"--leader-wait", "2s"},
	{"--fast-failover=false"},
	{"--log-format", "json"},
	{"--threads", "1"},
}

// changedFlags restarts the nodes one after the other with other flags.
func changedFlags(ctx context.Context, s *injection) (string, error) {
	var all []string
	for _, n := range s.c.live() {
		var args []string
		for range 1 + s.rng.IntN(2) {
			args = append(args, flags[s.rng.IntN(len(flags))]...)
		}
		if err := n.stop(); err != nil {
			return "", err
		}
		if err := n.start(args...); err != nil {
			return "", err
		}
		wait, stop := withLimit(ctx, 20*time.Second, "come back")
		err := process.Poll(wait, n.ID+" to be ready", func() bool {
			st, err := n.state(ctx)
			return err == nil && st.Ready
		})
		stop()
		if err != nil {
			return "", err
		}
		all = append(all, n.ID+" "+strings.Join(args, " "))
	}
	return strings.Join(all, "; "), nil
}
