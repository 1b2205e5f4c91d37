package attack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// backupFaults make nodes fail during an operator's backup, restore or recovery.
// A recovery, and a restore into the running cluster, undo writes. So the clients
// of the episode pause during these two faults, and only the fault itself sends
// writes that are undone. The clients then see the same data before and after
// the pause, and all checkers apply.
var backupFaults = []fault{
	{class: "backup during a failover", group: operators, alone: true, needs: oneBuild, run: backupDuringFailover},
	{class: "restore while a node is down", group: operators, alone: true, needs: oneBuild, run: restoreWhileDown},
	{class: "recover of one of three", group: operators, alone: true, nodes: 3, needs: oneBuild, run: recoverOne},
}

// oneBuild returns why the run cannot restore a backup, or "" if it can.
func oneBuild(cfg Config) string {
	if cfg.Old != "" {
		return "needs nodes of one build"
	}
	return ""
}

// These are the keys of the faults. Their names have the prefix ownKeys.
const (
	ownKeys   = "operator:"
	keptKey   = ownKeys + "kept"   // key that is written before the backup, and changed after it
	lateKey   = ownKeys + "late"   // key that is written after the backup
	heldLock  = ownKeys + "held"   // lock that is taken before the backup
	doubtLock = ownKeys + "doubt:" // prefix of the locks that are taken after the backup
	owner     = "operator"

	doubtLocks = 5
	lockTTL    = time.Minute // longer than the fault lasts
)

// holdfast runs the holdfast program with the given arguments. code is the exit
// code of the program.
func (s *injection) holdfast(ctx context.Context, args ...string) (out string, code int, err error) {
	ctx, stop := withLimit(ctx, 60*time.Second, "holdfast "+args[0])
	defer stop()
	cmd := exec.CommandContext(ctx, s.cfg.Program, args...)
	cmd.Env = process.CleanEnv()
	if args[0] == "backup" || args[0] == "restore" {
		cmd.Env = append(cmd.Env, "HOLDFAST_PASSWORD="+Login.Password)
	}
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return string(text), exit.ExitCode(), nil
	}
	return string(text), 0, err
}

// must runs a command of the program. If the command fails, must records a
// violation, under the name of the command.
func (s *injection) must(ctx context.Context, args ...string) (out string, done bool, err error) {
	out, code, err := s.holdfast(ctx, args...)
	if err == nil && code != 0 {
		s.violation(args[0], "holdfast %s ends with code %d: %s", strings.Join(args, " "), code,
			strings.TrimSpace(out))
	}
	return out, code == 0, err
}

// quiet pauses all clients of the episode and waits until the nodes have applied
// the same log. The caller must call resume, even if quiet returns an error.
func (s *injection) quiet(ctx context.Context) (resume func(), err error) {
	wait, stop := withLimit(ctx, 30*time.Second, "pause the clients")
	defer stop()
	resume, err = s.load.Pause(wait)
	if err != nil {
		return func() {}, err
	}
	if s.companion != nil {
		first, second := resume, s.companion.Pause()
		resume = func() { first(); second() }
	}
	return resume, s.level(wait)
}

// level waits until all nodes have applied the same log.
func (s *injection) level(ctx context.Context) error {
	return process.Poll(ctx, "the nodes to be at one log index", func() bool {
		all := states(ctx, s.c.nodes)
		_, same := converged(all)
		return same && len(all) == len(s.c.nodes)
	})
}

// dial connects to a node directly, and not through its proxy.
func (n *node) dial(ctx context.Context, first ...string) (*load.Conn, error) {
	return load.Dial(ctx, n.Clients, Login, 10*time.Second, first...)
}

// do runs commands through a node, one after the other. It returns the text of
// the last reply, or the error of the first command that failed.
func (n *node) do(ctx context.Context, cmds ...[]string) (text string, err error) {
	c, err := n.dial(ctx)
	if err != nil {
		return "", err
	}
	for _, cmd := range cmds {
		v, err := c.Do(cmd...)
		if err == nil && v.Err != "" {
			err = errors.New(v.Err)
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("%s: %s: %w", n.ID, strings.Join(cmd[:min(len(cmd), 2)], " "), err),
				c.Close())
		}
		if text = v.Text; v.Kind == ':' {
			text = strconv.FormatInt(v.Int, 10)
		}
	}
	return text, c.Close()
}

// acquire takes a lock. It returns the fencing token, or the error with which
// the cluster refused to grant the lock. If another owner has the lock, token
// is 0 and refused is "".
func (n *node) acquire(ctx context.Context, lock string, ttl time.Duration) (token int64, refused string, err error) {
	c, err := n.dial(ctx)
	if err != nil {
		return 0, "", err
	}
	all, err := c.Pipeline([][]string{{"MULTI"},
		{"SET", lock, owner, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10)}, {"LOCK", "TOKEN", lock, owner},
		{"EXEC"}})
	if err := errors.Join(err, c.Close()); err != nil {
		return 0, "", fmt.Errorf("%s: take %s: %w", n.ID, lock, err)
	}
	v := all[len(all)-1]
	if v.Err != "" || len(v.Elems) != 2 {
		return 0, "", fmt.Errorf("%s: take %s: %s", n.ID, lock, v.Err)
	}
	return v.Elems[1].Int, v.Elems[0].Err, nil
}

// acquireAll takes the locks with the prefix doubtLock, and returns the highest
// token.
func (n *node) acquireAll(ctx context.Context) (highest int64, err error) {
	for i := range doubtLocks {
		token, refused, err := n.acquire(ctx, doubtLock+strconv.Itoa(i), lockTTL)
		if err != nil || token == 0 {
			return highest, errors.Join(err, fmt.Errorf("lock %d was not granted: token %d, error %q", i, token,
				refused))
		}
		highest = max(highest, token)
	}
	return highest, nil
}

// quarantined checks that n grants no lock until the quarantine has ended, that
// the first token after it is greater than highest, and that n logs the end of
// the quarantine. began is a time before the quarantine began.
func (s *injection) quarantined(ctx context.Context, n *node, began time.Time, quarantine time.Duration,
	highest int64) (refusals int, err error) {
	granted := func(token int64) {
		if took := time.Since(began); took < quarantine {
			s.violation("quarantine", "%s granted a lock %v after the beginning of a quarantine of %v", n.ID, took,
				quarantine)
		}
		if token <= highest {
			s.violation("fencing tokens", "%s granted token %d, although token %d had been granted before", n.ID, token,
				highest)
		}
	}
	text, err := n.do(ctx, []string{"LOCK", "ACQUIRE", doubtLock + "0", "another", "PX", "60000"})
	if err == nil {
		token, err := strconv.ParseInt(text, 10, 64)
		granted(token)
		return 0, err
	}
	if !strings.Contains(err.Error(), "QUARANTINE ") {
		return 0, err
	}
	refusals = 1
	wait, stop := withLimit(ctx, quarantine+20*time.Second, "end the quarantine")
	defer stop()
	var last error
	err = process.Poll(wait, "a lock after the quarantine", func() bool {
		token, refused, err := n.acquire(wait, doubtLock+"1", lockTTL)
		last = err
		switch {
		case err != nil:
		case strings.HasPrefix(refused, "QUARANTINE "):
			refusals++
		case refused != "" || token == 0:
			last = fmt.Errorf("token %d, error %q", token, refused)
		default:
			granted(token)
		}
		return err == nil && token != 0
	})
	if err != nil {
		return refusals, errors.Join(err, last)
	}
	saying, stopSaying := withLimit(ctx, 5*time.Second, "announce the end of the quarantine")
	defer stopSaying()
	if process.Poll(saying, "the log of "+n.ID, func() bool {
		return strings.Contains(n.Output(), "quarantine ended")
	}) != nil && ctx.Err() == nil {
		s.violation("quarantine", "%s does not log the end of the quarantine", n.ID)
	}
	return refusals, nil
}

// holds checks that the lock from before the backup still has its owner, and that
// this owner can renew it during the quarantine.
func (s *injection) holds(ctx context.Context, n *node) error {
	got, err := n.do(ctx, []string{"GET", heldLock})
	if err == nil && got != owner {
		s.violation("restored data", "%s: the owner of a lock from before the backup is %q", n.ID, got)
		return nil
	}
	if err == nil {
		_, err = n.do(ctx, []string{"LOCK", "RENEW", heldLock, owner, "PX", "60000"})
		if err != nil && ctx.Err() == nil {
			s.violation("quarantine", "the owner of a lock from before the backup cannot renew it: %v", err)
			return nil
		}
	}
	return err
}

// forgetOwnKeys deletes the keys of the fault.
func (s *injection) forgetOwnKeys(ctx context.Context, more ...string) error {
	n, err := s.leader(ctx)
	if err != nil {
		return err
	}
	cmd := append([]string{"DEL", keptKey, lateKey, heldLock}, more...)
	for i := range doubtLocks {
		cmd = append(cmd, doubtLock+strconv.Itoa(i))
	}
	_, err = n.do(ctx, cmd)
	return err
}

// pairs is a client of one node that writes the same number to two keys, in one
// transaction.
type pairs struct {
	n    *node
	keys [2]string

	mu          sync.Mutex
	sent, acked int64
	err         error // error of the first command that failed
}

// write writes until ctx is done, or until a command fails.
func (p *pairs) write(ctx context.Context) {
	c, err := p.n.dial(ctx)
	for err == nil && load.Sleep(ctx, time.Millisecond) {
		p.mu.Lock()
		p.sent++
		value := strconv.FormatInt(p.sent, 10)
		p.mu.Unlock()
		var all []string
		v, failed := c.Pipeline([][]string{{"MULTI"}, {"SET", p.keys[0], value}, {"SET", p.keys[1], value}, {"EXEC"}})
		for _, reply := range v {
			if reply.Err != "" {
				all = append(all, reply.Err)
			}
		}
		if err = failed; err == nil && len(all) > 0 {
			err = errors.New(strings.Join(all, ", "))
		}
		if err == nil {
			p.mu.Lock()
			p.acked = p.sent
			p.mu.Unlock()
		}
	}
	if c != nil {
		err = errors.Join(err, c.Close())
	}
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
}

func (p *pairs) numbers() (acked, sent int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked, p.sent, p.err
}

// writers contains one client for each of several nodes. stop ends their
// goroutines.
type writers struct {
	all  []*pairs
	stop func()
}

func (s *injection) startWriters(ctx context.Context, nodes []*node) *writers {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{}
	var running sync.WaitGroup
	for _, n := range nodes {
		key := ownKeys + "pair:" + n.ID + ":"
		p := &pairs{n: n, keys: [2]string{key + "a", key + "b"}}
		w.all = append(w.all, p)
		running.Go(func() { p.write(ctx) })
	}
	w.stop = func() {
		cancel()
		running.Wait()
	}
	return w
}

// progress waits until each client has written the given number of further
// values or has failed. It returns the number of acknowledged values of each
// client.
func (w *writers) progress(ctx context.Context, more int64) (acked []int64, err error) {
	want := make([]int64, len(w.all))
	for i, p := range w.all {
		now, _, _ := p.numbers()
		want[i] = now + more
	}
	wait, stop := withLimit(ctx, 20*time.Second, "write")
	defer stop()
	err = process.Poll(wait, "the clients of the live nodes to write", func() bool {
		acked = acked[:0]
		for i, p := range w.all {
			now, _, failed := p.numbers()
			if failed == nil && now < want[i] {
				return false
			}
			acked = append(acked, now)
		}
		return true
	})
	return acked, err
}

// backupDuringFailover kills the leader while another node streams a backup. No
// command of a client of a live node may fail. The backup file must be complete,
// and it must show the data at one log index. backupDuringFailover restores the
// file into a new cluster, which must not grant a token that the first cluster
// has granted.
func backupDuringFailover(ctx context.Context, s *injection) (string, error) {
	file := filepath.Join(s.dir, "failover.hfb")
	if err := s.ballast(ctx, true); err != nil {
		return "", err
	}
	what, err := s.backups(ctx, file)
	if what == "" || err != nil {
		return "", errors.Join(err, s.ballast(ctx, false))
	}
	var own []string
	for _, n := range s.c.nodes {
		own = append(own, ownKeys+"pair:"+n.ID+":a", ownKeys+"pair:"+n.ID+":b")
	}
	return what, errors.Join(s.ballast(ctx, false), s.forgetOwnKeys(ctx, own...), os.Remove(file))
}

// ballast writes 4 MiB of data if the parameter named there is true, and deletes
// the data otherwise. The data makes a backup take so long that the leader can
// die during the backup.
func (s *injection) ballast(ctx context.Context, there bool) error {
	n, err := s.leader(ctx)
	if err != nil {
		return err
	}
	var cmds [][]string
	for i := range 16 {
		key := ownKeys + "ballast:" + strconv.Itoa(i)
		if there {
			cmds = append(cmds, []string{"SET", key, strings.Repeat("x", 256<<10)})
		} else {
			cmds = append(cmds, []string{"DEL", key})
		}
	}
	_, err = n.do(ctx, cmds...)
	return err
}

// backups takes backups, five at most, until one of them was still running when
// the leader was killed.
func (s *injection) backups(ctx context.Context, file string) (what string, err error) {
	for range 5 {
		leader, err := s.leader(ctx)
		if err != nil {
			return "", err
		}
		w := s.startWriters(ctx, s.c.followers(leader))
		what, err := s.oneBackup(ctx, file, leader, w)
		w.stop()
		if err != nil {
			return "", err
		}
		for _, p := range w.all {
			if _, _, failed := p.numbers(); failed != nil && ctx.Err() == nil {
				s.violation("backup", "a command of a client of the live node %s failed during the backup: %v", p.n.ID,
					failed)
			}
		}
		if what != "" {
			return what, nil
		}
	}
	return "", nil
}

// oneBackup starts a backup and kills the leader shortly afterward. It returns
// "" if the backup was complete before the leader was killed, and otherwise a
// description.
func (s *injection) oneBackup(ctx context.Context, file string, leader *node, w *writers) (what string, err error) {
	through := w.all[s.rng.IntN(len(w.all))].n
	low, err := w.progress(ctx, 5)
	if err != nil {
		return "", err
	}
	type result struct {
		out   string
		done  bool
		err   error
		ended time.Time
	}
	over := make(chan result, 1)
	go func() {
		out, done, err := s.must(ctx, "backup", "--addr", through.Clients, "-o", file)
		over <- result{out, done, err, time.Now()}
	}()
	load.Sleep(ctx, s.between(10*time.Millisecond, 120*time.Millisecond))
	killed := time.Now()
	err = leader.kill()
	res := <-over
	if err := errors.Join(err, res.err); err != nil {
		return "", err
	}
	if _, err := w.progress(ctx, 5); err != nil {
		return "", err
	}
	if !res.done { // must() has already recorded the violation
		return "no backup was taken", errors.Join(s.leavesNothing(file), leader.start())
	}
	var high []int64
	for _, p := range w.all {
		_, sent, _ := p.numbers()
		high = append(high, sent)
	}
	if err := leader.start(); err != nil {
		return "", err
	}
	if _, err := s.c.healthy(ctx); err != nil {
		return "", err
	}
	if out, done, err := s.must(ctx, "inspect", file); err != nil || !done {
		return "a backup that is not complete", err
	} else if !strings.Contains(out, "whole: all checksums match") {
		s.violation("inspect", "the backup is not complete: %s", out)
	}
	if res.ended.Before(killed) {
		return "", nil
	}
	refusals, err := s.restoreElsewhere(ctx, file, w.all, low, high)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %v after the leader %s had died, through %s; restored into a new cluster, which refused "+
		"%d locks", strings.TrimSpace(strings.TrimPrefix(res.out, filepath.Dir(file)+"/")),
		res.ended.Sub(killed).Round(time.Millisecond), leader.ID, through.ID, refusals), nil
}

// leavesNothing records a violation if a backup that failed has left a file.
func (s *injection) leavesNothing(file string) error {
	left, err := filepath.Glob(file + "*")
	if err == nil && len(left) > 0 {
		s.violation("backup", "a backup that failed has left %v", left)
	}
	return err
}

// restoreElsewhere restores a backup into a new cluster of the spare node, and
// compares the data with the numbers that the clients had written. low contains
// the number that each client had written before the backup began, and high the
// number that it had sent soon after the backup ended.
func (s *injection) restoreElsewhere(ctx context.Context, file string, all []*pairs,
	low, high []int64) (refusals int, err error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return 0, err
	}
	highest, err := leader.acquireAll(ctx) // the backup does not contain these locks
	if err != nil {
		return 0, err
	}
	n := s.c.spare
	if err := errors.Join(n.wipe(), n.start("--peers", n.ID+"="+n.peers.addr)); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.kill(), n.wipe()) }()
	if err := s.ready(ctx, n); err != nil {
		return 0, err
	}
	began := time.Now()
	quarantine := s.between(700*time.Millisecond, 1500*time.Millisecond)
	_, done, err := s.must(ctx, "restore", file, "--addr", n.Clients, "--quarantine", quarantine.String())
	if err != nil || !done {
		return 0, err
	}
	for i, p := range all {
		var values [2]int64
		for j, key := range p.keys {
			text, err := n.do(ctx, []string{"GET", key})
			if err != nil {
				return 0, err
			}
			if values[j], err = strconv.ParseInt(text, 10, 64); err != nil {
				s.violation("backup", "%s is missing from the backup: %q", key, text)
			}
		}
		if values[0] != values[1] || values[0] < low[i] || values[0] > high[i] {
			s.violation("backup", "a transaction of a client of %s wrote one number to two keys, and the backup has "+
				"%d, %d; %d was acknowledged before the backup, and %d had been sent soon after it", p.n.ID, values[0],
				values[1], low[i], high[i])
		}
	}
	return s.quarantined(ctx, n, began, quarantine, highest)
}

// ready waits until a node serves.
func (s *injection) ready(ctx context.Context, n *node) error {
	wait, stop := withLimit(ctx, 20*time.Second, "serve")
	defer stop()
	return process.Poll(wait, n.ID+" to be ready", func() bool {
		st, err := n.state(wait)
		return err == nil && st.Ready
	})
}

// restoreWhileDown restores a backup into the running cluster while one node is
// down. The node must come back with the restored data.
func restoreWhileDown(ctx context.Context, s *injection) (string, error) {
	resume, err := s.quiet(ctx)
	defer func() { resume() }()
	if err != nil {
		return "", err
	}
	down, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	live := s.c.followers(down)
	through := live[s.rng.IntN(len(live))]
	file := filepath.Join(s.dir, "running.hfb")
	if _, err := through.do(ctx, []string{"SET", keptKey, "before"},
		[]string{"SET", heldLock, owner, "NX", "PX", "60000"}); err != nil {
		return "", err
	}
	if _, done, err := s.must(ctx, "backup", "--addr", through.Clients, "-o", file); err != nil || !done {
		return "", err
	}
	if _, err := through.do(ctx, []string{"SET", keptKey, "after"}, []string{"SET", lateKey, "after"},
		[]string{"DEL", heldLock}); err != nil {
		return "", err
	}
	highest, err := through.acquireAll(ctx)
	if err != nil {
		return "", err
	}
	if err := down.kill(); err != nil {
		return "", err
	}
	began := time.Now()
	quarantine := s.between(500*time.Millisecond, 2500*time.Millisecond)
	_, done, err := s.must(ctx, "restore", file, "--addr", through.Clients, "--replace", "--quarantine",
		quarantine.String())
	if err != nil || !done {
		return "", err
	}
	if err := s.holds(ctx, through); err != nil {
		return "", err
	}
	if err := down.start(); err != nil {
		return "", err
	}
	refusals, err := s.quarantined(ctx, through, began, quarantine, highest)
	if err != nil {
		return "", err
	}
	wait, stop := withLimit(ctx, healthyWithin, "follow the restored cluster")
	defer stop()
	if _, err := s.c.healthy(wait); err != nil {
		return "", err
	}
	if err := s.level(wait); err != nil {
		return "", err
	}
	for _, n := range s.c.nodes {
		if err := s.restored(ctx, n); err != nil {
			return "", err
		}
	}
	if err := errors.Join(s.forgetOwnKeys(ctx), os.Remove(file)); err != nil {
		return "", err
	}
	return fmt.Sprintf("restored through %s while %s was down; it came back with the restored data; %d locks were "+
		"refused in %v", through.ID, down.ID, refusals, quarantine.Round(time.Millisecond)), nil
}

// restored checks a node's own copy of the data that restoreWhileDown restored.
func (s *injection) restored(ctx context.Context, n *node) error {
	c, err := n.dial(ctx, "READONLY")
	if err != nil {
		return err
	}
	all, err := c.Pipeline([][]string{{"GET", keptKey}, {"EXISTS", lateKey}, {"GET", heldLock}})
	if err := errors.Join(err, c.Close()); err != nil {
		return err
	}
	if all[0].Text != "before" || all[1].Int != 0 || all[2].Text != owner {
		s.violation("restored data", "%s does not have the data of the backup: %+v", n.ID, all)
	}
	return nil
}

// recoverOne makes a new cluster from the data of one node after the loss of all
// other nodes. The other nodes have granted locks while that node was cut off,
// so these locks are missing from its data.
func recoverOne(ctx context.Context, s *injection) (string, error) {
	resume, err := s.quiet(ctx)
	defer func() { resume() }()
	if err != nil {
		return "", err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	if _, err := leader.do(ctx, []string{"SET", keptKey, "before"},
		[]string{"SET", heldLock, owner, "NX", "PX", "60000"}); err != nil {
		return "", err
	}
	leveling, stop := withLimit(ctx, 20*time.Second, "apply the log")
	defer stop()
	if err := s.level(leveling); err != nil {
		return "", err
	}
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	others := s.c.followers(n)
	lift := s.c.net.apply(func(h hop) bool { return between(h) && (h.from == n.ID || h.to == n.ID) },
		effect{block: true})
	highest, err := others[s.rng.IntN(len(others))].acquireAll(ctx)
	for _, other := range s.c.nodes {
		err = errors.Join(err, other.kill())
	}
	lift()
	if err != nil {
		return "", err
	}
	old, done, err := s.recovery(ctx, n, highest)
	if err != nil || !done {
		return "", err
	}
	for i, other := range others {
		if i == 0 {
			if err := s.stranger(ctx, other); err != nil {
				return "", err
			}
		}
		if err := s.rejoin(ctx, other); err != nil {
			return "", err
		}
	}
	if err := errors.Join(s.forgetOwnKeys(ctx), os.RemoveAll(old)); err != nil {
		return "", err
	}
	return fmt.Sprintf("a new cluster of %s, which lacked %d locks of the lost majority; the others joined it",
		n.ID, doubtLocks), nil
}

// recovery makes n, whose process is dead, the only node of a new cluster. It then
// checks the data, the quarantine and the tokens of the new cluster. highest is
// the highest token that the lost cluster granted. old is the data directory
// that n had in the lost cluster.
func (s *injection) recovery(ctx context.Context, n *node, highest int64) (old string, done bool, err error) {
	old = n.files
	before, err := fingerprint(old)
	if err != nil {
		return old, false, err
	}
	quarantine := s.between(500*time.Millisecond, 2500*time.Millisecond)
	s.recovered++
	suffix := fmt.Sprintf("-recovered-%d", s.recovered)
	out, done, err := s.must(ctx, "recover", "--data-dir", old, "--to", old+suffix, "--quarantine",
		quarantine.String(), "--yes")
	if err != nil || !done {
		return old, false, err
	}
	if !strings.Contains(out, "May be lost:") {
		s.violation("recover", "recover does not name the data that may be lost: %s", out)
	}
	s.mon.newCluster()
	n.data, n.files = n.data+suffix, n.files+suffix
	began := time.Now()
	if err := n.start("--peers", n.ID+"="+n.peers.addr); err != nil {
		return old, false, err
	}
	if err := s.ready(ctx, n); err != nil {
		return old, false, err
	}
	if got, err := n.do(ctx, []string{"GET", keptKey}); err != nil || got != "before" {
		s.violation("restored data", "the recovered %s has lost a write of the whole cluster: %q, %v", n.ID, got, err)
	}
	if err := s.holds(ctx, n); err != nil {
		return old, false, err
	}
	if _, err := s.quarantined(ctx, n, began, quarantine, highest); err != nil {
		return old, false, err
	}
	after, err := fingerprint(old)
	if err != nil {
		return old, false, err
	}
	if !maps.Equal(before, after) {
		s.violation("recover", "the old data directory has changed: it had %d files, and has %d", len(before),
			len(after))
	}
	return old, true, nil
}

// stranger starts a node of the lost cluster with its old data. The node must not
// join the new cluster.
func (s *injection) stranger(ctx context.Context, n *node) error {
	if err := n.launch(true); err != nil {
		return err
	}
	wait, stop := withLimit(ctx, 20*time.Second, "refuse "+n.ID)
	defer stop()
	err := process.Poll(wait, n.ID+" to be refused", func() bool {
		if st, err := n.state(wait); err == nil && st.Ready {
			s.violation("recover", "%s serves with the data of the lost cluster", n.ID)
			return true
		}
		return strings.Contains(n.Output(), "belongs to another cluster")
	})
	return errors.Join(err, n.kill())
}

// fingerprint returns the hashes of all files of a directory, by path.
func fingerprint(dir string) (map[string][sha256.Size]byte, error) {
	all := make(map[string][sha256.Size]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = sha256.Sum256(b)
		return err
	})
	return all, err
}
