package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// versionFaults are the faults of versions: nodes of two builds in one cluster.
var versionFaults = []fault{
	{class: rollingUp, group: versions, needs: twoBuilds, run: rollingUpgrade},
	{class: rollingDown, group: versions, needs: twoBuilds, run: rollingDowngrade},
	{class: takenBack, group: versions, needs: twoBuilds, run: upgradeTakenBack},
}

const (
	rollingUp   = "rolling upgrade"
	rollingDown = "rolling downgrade"
	takenBack   = "upgrade taken back"
)

// twoBuilds returns why the run cannot mix two builds, or "" if it can.
func twoBuilds(cfg Config) string {
	if cfg.Old == "" {
		return "needs another build: -old, or make upgrade-test"
	}
	old, err := os.ReadFile(cfg.Old)
	if err != nil {
		return "other build: " + err.Error()
	}
	if now, err := os.ReadFile(cfg.Program); err == nil && bytes.Equal(now, old) {
		return "both builds are the same"
	}
	return ""
}

// begins returns the program with which the nodes of a plan start. It is the
// old program if the plan upgrades them.
func (p Plan) begins(cfg Config) string {
	for _, step := range p.Steps {
		if (slices.Contains(step, rollingUp) || slices.Contains(step, takenBack)) && twoBuilds(cfg) == "" {
			return cfg.Old
		}
	}
	return cfg.Program
}

// mixes reports whether an episode runs nodes of two builds.
func (p Plan) mixes(cfg Config) bool {
	return cfg.Old != "" && slices.ContainsFunc(p.Steps, func(step []string) bool {
		return slices.ContainsFunc(step, func(class string) bool { return find(class).group == versions })
	})
}

// Flags that older builds do not have.
const (
	trailingFlag = "--trailing-bytes"
	secretFlag   = "--cluster-secret-file"
)

// hasFlag reports whether the serve command of a build has a flag.
func hasFlag(program, flag string) bool {
	out, err := exec.Command(program, "serve", "--help").CombinedOutput()
	return err == nil && strings.Contains(string(out), flag)
}

func rollingUpgrade(ctx context.Context, s *injection) (string, error) {
	return s.mixed(ctx, s.cfg.Old, s.cfg.Program)
}

func rollingDowngrade(ctx context.Context, s *injection) (string, error) {
	return s.mixed(ctx, s.cfg.Program, s.cfg.Old)
}

// upgradeTakenBack upgrades some of the nodes, at most all but one, and then
// downgrades them again. The downgrade must be possible as long as one member
// runs the old program.
func upgradeTakenBack(ctx context.Context, s *injection) (string, error) {
	things, err := s.writeSamples(ctx)
	if err != nil {
		return "", err
	}
	count := 1 + s.rng.IntN(len(s.c.nodes)-1)
	for range count {
		n, err := s.next(ctx, s.cfg.Old)
		if err != nil {
			return "", err
		}
		if refused, err := s.replace(ctx, n, s.cfg.Program); err != nil || refused != "" {
			return "", errors.Join(err, s.restoreProgram(ctx, s.cfg.Old), fmt.Errorf("refused: %s", refused))
		}
		s.checkFeatureVersions(ctx)
	}
	crossed, err := s.snapshotBetweenBuilds(ctx, s.cfg.Program)
	if err != nil {
		return "", err
	}
	if err := s.traffic(ctx, s.cfg.Traffic); err != nil {
		return "", err
	}
	s.checkFeatureVersions(ctx)
	for _, n := range s.c.nodes {
		if n.Program() != s.cfg.Program {
			continue
		}
		refused, err := s.replace(ctx, n, s.cfg.Old)
		if refused != "" {
			s.violation("mixed versions",
				"%s, downgraded while another node also ran the old program, refuses the data: %s", n.ID, refused)
		}
		if err != nil || refused != "" {
			return "", errors.Join(err, fmt.Errorf("refused: %s", refused))
		}
	}
	things.check(ctx, s)
	return fmt.Sprintf("%d nodes upgraded and downgraded; %s", count, crossed), nil
}

// checkFeatureVersions checks that no node uses a feature version that another node
// does not know.
func (s *injection) checkFeatureVersions(ctx context.Context) {
	known := ""
	lowest := 0
	states := s.states(ctx)
	for _, st := range states {
		// Programs that do not report a feature version know version 1 at most.
		if knows := max(st.Features, 1); known == "" || knows < lowest {
			known, lowest = st.ID, knows
		}
	}
	for _, st := range states {
		if st.FeatureVersion > lowest {
			s.violation("mixed versions", "%s uses feature version %d, and %s knows %d at most", st.ID,
				st.FeatureVersion, known, lowest)
		}
	}
}

// states returns the states of all nodes that answer.
func (s *injection) states(ctx context.Context) []state {
	var all []state
	for _, n := range s.c.live() {
		if st, err := n.state(ctx); err == nil {
			all = append(all, st)
		}
	}
	return all
}

// awaitFeatureVersion waits until all nodes use the feature version that the upgraded
// program knows, if that program reports one.
func (s *injection) awaitFeatureVersion(ctx context.Context) {
	wait, stop := withLimit(ctx, 20*time.Second, "raise the feature version")
	defer stop()
	var states []state
	err := process.Poll(wait, "the feature version to be raised", func() bool {
		states = s.states(ctx)
		return len(states) == len(s.c.nodes) &&
			!slices.ContainsFunc(states,
				func(st state) bool { return st.FeatureVersion != st.Features && st.Features > 0 })
	})
	if err != nil && ctx.Err() == nil {
		s.violation("mixed versions", "all nodes are upgraded, but the feature version is not raised: %+v", states)
	}
}

// mixed replaces the program of the nodes one after the other. As the documentation
// tells operators to do, it replaces a leader only after all followers. When the
// first node has been replaced, a leader of each build sends a snapshot to a node of
// the other build.
func (s *injection) mixed(ctx context.Context, from, to string) (string, error) {
	for _, n := range s.c.nodes {
		if n.Program() != from {
			return "", fmt.Errorf("%s does not run the build that the fault replaces", n.ID)
		}
	}
	things, err := s.writeSamples(ctx)
	if err != nil {
		return "", err
	}
	var crossed []string
	for left := len(s.c.nodes); left > 0; left-- {
		n, err := s.next(ctx, from)
		if err != nil {
			return "", err
		}
		// Take a snapshot, so that the other build finds a snapshot on the disk
		// and not only a log.
		_, _ = n.ask(ctx, 5*time.Second, "SNAPSHOT") // fails if there are no new entries
		refused, err := s.replace(ctx, n, to)
		if refused != "" && to == s.cfg.Program {
			s.violation("mixed versions", "%s was upgraded and cannot read the data of the older version: %s", n.ID,
				refused)
		}
		if err != nil || refused != "" {
			return "", errors.Join(err, s.restoreProgram(ctx, from), fmt.Errorf("refused: %s", refused))
		}
		if left > 1 {
			s.checkFeatureVersions(ctx)
		}
		if left < len(s.c.nodes) || left == 1 {
			continue
		}
		for _, leads := range []string{from, to} {
			what, err := s.snapshotBetweenBuilds(ctx, leads)
			if err != nil {
				return "", err
			}
			crossed = append(crossed, what)
		}
	}
	if to == s.cfg.Program {
		s.awaitFeatureVersion(ctx)
	}
	things.check(ctx, s)
	for _, n := range s.c.nodes {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.PID())); err != nil || exe != to {
			return "", fmt.Errorf("%s runs %q, want %q, error %v", n.ID, exe, to, err)
		}
	}
	return fmt.Sprintf("all nodes run the other program; %s; %d values of all types are unchanged",
		strings.Join(crossed, ", "), len(things)), nil
}

// next returns a live node that runs the given program. It returns the leader
// only if no follower runs that program.
func (s *injection) next(ctx context.Context, program string) (*node, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range append(s.c.followers(leader), leader) {
		if n.Program() == program {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no live node runs %s", program)
}

// replace stops a node and starts it with another program. refused is the
// message of the node if it refused the data of the other build, or "" if it
// serves.
func (s *injection) replace(ctx context.Context, n *node, program string) (refused string, err error) {
	if err := n.stop(); err != nil {
		return "", err
	}
	n.Use(program)
	if err := n.start(); err != nil {
		return "", err
	}
	if program == s.cfg.Old {
		n.allowEnd()
	}
	return s.serves(ctx, n, 0)
}

// otherVersion is the error of a node that cannot read the data that a newer
// build wrote.
const otherVersion = "format version is not known to this program"

// serves waits until a node serves and has applied the log up to index, or
// reports that it cannot read the data that another build wrote.
func (s *injection) serves(ctx context.Context, n *node, index uint64) (refused string, err error) {
	wait, stop := withLimit(ctx, 20*time.Second, "serve")
	defer stop()
	err = process.Poll(wait, n.ID+" to be ready", func() bool {
		for line := range strings.Lines(n.Output()) {
			if strings.Contains(line, otherVersion) {
				refused = strings.TrimSpace(line)
				return true
			}
		}
		st, err := n.state(ctx)
		return err == nil && st.Ready && st.Applied >= index || !n.Running()
	})
	if err == nil && refused == "" && !n.Running() {
		s.violation("mixed versions", "%s has ended, and not because of the data of the other version: %s", n.ID,
			n.last())
		return n.last(), nil
	}
	if err == nil && refused == "" {
		n.forbidEnd()
	}
	return refused, err
}

// restoreProgram makes all nodes run the given program again. It restarts the
// nodes that now run another one.
func (s *injection) restoreProgram(ctx context.Context, program string) error {
	for _, n := range s.c.nodes {
		if n.Program() == program {
			continue
		}
		if err := n.kill(); err != nil {
			return err
		}
		n.Use(program)
		if err := n.start(); err != nil {
			return err
		}
		if refused, err := s.serves(ctx, n, 0); err != nil || refused != "" {
			return errors.Join(err, fmt.Errorf("%s does not serve with its former program: %s", n.ID, refused))
		}
	}
	return nil
}

// snapshotBetweenBuilds makes a leader of one build send a snapshot to a
// follower of the other. Another fault may cause a change of leader in the
// meantime. In that case snapshotBetweenBuilds tries again.
func (s *injection) snapshotBetweenBuilds(ctx context.Context, leads string) (string, error) {
	direction := "new to old"
	if leads == s.cfg.Old {
		direction = "old to new"
	}
	for range 4 {
		leader, f, err := s.leaderAndFollower(ctx, leads)
		if err != nil {
			return "", err
		}
		before := f.installs()
		if err := f.kill(); err != nil {
			return "", err
		}
		st, err := s.compactBeyond(ctx, leader)
		if err := errors.Join(err, f.start()); err != nil {
			return "", err
		}
		f.allowEnd()
		refused, err := s.serves(ctx, f, st.Applied)
		if err != nil {
			return "", err
		}
		if refused != "" && leads == s.cfg.Old {
			s.violation("mixed versions", "%s cannot read the snapshot of an older version: %s", f.ID, refused)
		}
		if refused != "" {
			// A follower with the old program gets the snapshot after its own
			// upgrade. A follower that was downgraded gets it at the end of the
			// attempt, when all nodes run one program again.
			return fmt.Sprintf("snapshot from %s refused (%s)", direction, refused), nil
		}
		// The follower logs the snapshot shortly after it begins to serve.
		saying, stop := withLimit(ctx, 2*time.Second, "log the snapshot")
		got := process.Poll(saying, f.ID+" to get a snapshot from "+leader.ID,
			func() bool { return f.installs() > before })
		stop()
		now, err := leader.state(ctx)
		if got == nil && err == nil && now.Role == "leader" && now.Term == st.Term {
			return "snapshot from " + direction, nil
		}
	}
	return "", fmt.Errorf("no node got a snapshot from %s", direction)
}

// leaderAndFollower makes a node of the given build the leader, by a transfer
// of leadership if necessary. It returns this node and a follower of the other
// build.
func (s *injection) leaderAndFollower(ctx context.Context, leads string) (leader, follower *node, err error) {
	wait, stop := withLimit(ctx, 20*time.Second, "a leader of the given build")
	defer stop()
	err = process.Poll(wait, "the transfer of leadership", func() bool {
		var err error
		if leader, err = s.c.leader(wait); err != nil {
			return false
		}
		if leader.Program() == leads {
			return true
		}
		for _, n := range s.c.live() {
			if n.Program() == leads {
				// Poll repeats the command if it fails.
				_, _ = leader.ask(ctx, 3*time.Second, "TRANSFER", n.ID)
				break
			}
		}
		return false
	})
	if err != nil {
		return nil, nil, err
	}
	for _, n := range s.c.followers(leader) {
		if n.Program() != leads {
			return leader, n, nil
		}
	}
	return nil, nil, errors.New("no live follower runs the other build")
}

// compactBeyond makes a leader take snapshots until its log begins after the
// last entry that a dead node can have. The caller has just killed that node.
// compactBeyond returns the state of the leader before the last snapshot.
func (s *injection) compactBeyond(ctx context.Context, leader *node) (state, error) {
	dead, err := leader.state(ctx)
	if err != nil {
		return state{}, err
	}
	if !s.trailing { // 16 MiB of the log are kept: only a large write moves the beginning of the log
		if err := large(ctx, leader); err != nil {
			return state{}, err
		}
	}
	// A snapshot keeps about --trailing-bytes of entries. The node computes
	// their number from the average size of all entries that were in the log,
	// so several snapshots may be needed.
	for range 20 {
		if err := s.traffic(ctx, 100); err != nil {
			return state{}, err
		}
		before, err := leader.state(ctx)
		if err != nil {
			return state{}, err
		}
		if _, err := leader.ask(ctx, 5*time.Second, "SNAPSHOT"); err != nil {
			return state{}, err
		}
		out := leader.Output()
		var trailing uint64
		if _, err := fmt.Sscan(out[strings.LastIndex(out, trailingField)+len(trailingField):], &trailing); err != nil {
			return state{}, fmt.Errorf("%s does not log how many entries it keeps after a snapshot: %w", leader.ID, err)
		}
		if before.Applied > dead.Commit+trailing+underWay {
			return before, nil
		}
	}
	return state{}, fmt.Errorf("%s keeps too much of its log after its snapshots", leader.ID)
}

// trailingField is the field in which a node logs how many entries of its log a
// snapshot left.
const trailingField = "trailing_entries="

// underWay is more than the number of entries that a dead node can have had
// beyond the commit index.
const underWay = 32

// large writes 36 MiB to one key.
func large(ctx context.Context, n *node) error {
	c, err := load.Dial(ctx, n.Clients, Login, 10*time.Second)
	if err != nil {
		return err
	}
	value := strings.Repeat("x", 900<<10)
	for range 41 {
		if _, err = c.Do("SET", "version:large", value); err != nil {
			break
		}
	}
	return errors.Join(err, c.Close())
}

// sample is a command that reads a value of one type, with its expected reply.
type sample struct {
	read []string
	want string
}

type samples []sample

// writeSamples writes a value of each type that the leader's build supports.
func (s *injection) writeSamples(ctx context.Context) (samples, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	c, err := load.Dial(ctx, leader.Clients, Login, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tag := fmt.Sprintf("version:%d:", s.rng.Uint32())
	var all samples
	for _, cmd := range []struct{ write, read string }{
		{"SET #string a", "GET #string"},
		{"RPUSH #list a b c", "LRANGE #list 0 -1"},
		{"HSET #hash f a g b", "HMGET #hash f g h"},
		{"SADD #set a b c", "SMISMEMBER #set a b c d"},
		{"ZADD #zset 1 a 2.5 b -inf c", "ZRANGE #zset 0 -1 WITHSCORES"},
		{"XADD #stream 5-1 f a", "XRANGE #stream - +"},
		{"XGROUP CREATE #stream g 0", "XPENDING #stream g"},
		{"SETBIT #bits 77 1", "BITCOUNT #bits"},
	} {
		split := func(text string) []string { return strings.Fields(strings.ReplaceAll(text, "#", tag)) }
		if v, err := c.Do(split(cmd.write)...); err != nil {
			return nil, err
		} else if v.Err != "" {
			continue // this build does not have the command
		}
		v, err := c.Do(split(cmd.read)...)
		if err != nil {
			return nil, err
		}
		all = append(all, sample{split(cmd.read), fmt.Sprint(v)})
	}
	return all, nil
}

// check reads the values that writeSamples wrote, through every node.
func (t samples) check(ctx context.Context, s *injection) {
	for _, n := range s.c.live() {
		c, err := load.Dial(ctx, n.Clients, Login, 5*time.Second)
		if err != nil {
			continue // another check requires that the node recovers
		}
		for _, x := range t {
			if v, err := c.Do(x.read...); err != nil {
				break
			} else if got := fmt.Sprint(v); got != x.want {
				s.violation("mixed versions", "%s answers %v with %s, but answered %s before", n.ID, x.read, got,
					x.want)
			}
		}
		discard(c.Close())
	}
}
