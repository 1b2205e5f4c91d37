package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/lock"
)

// Exit codes of "holdfast lock" itself. It exits with 1 after any other error,
// and with the exit code of the command that it runs if there was no error. The
// first two codes come from sysexits.h, and the other codes come from env(1)
// and from shells.
const (
	exitTaken      = terminal.ExitCode(75) // the lock was not acquired in time
	exitLost       = terminal.ExitCode(76) // the lock was lost, and the command was ended
	exitNotStarted = terminal.ExitCode(126)
	exitNotFound   = terminal.ExitCode(127)
	exitSignal     = 128 // plus the number of the signal
)

const (
	dialTimeout = 3 * time.Second
	// releaseLimit bounds the release of a lock. While the cluster has no leader,
	// the release is tried again. If no try succeeds, the lease ends on its own.
	releaseLimit = 10 * time.Second
	// lostLimit bounds the release of a lock that is probably lost.
	lostLimit = time.Second
)

type lockOptions struct {
	endpoint
	ttl, wait, grace time.Duration
	limited          bool // whether --wait is set
	graceful         bool // whether --grace is set
	owner, meta      string
	shared           bool
	permits          int
}

func lockCommand() *cobra.Command {
	var o lockOptions
	cmd := &cobra.Command{
		Use:   "lock KEY [flags] -- COMMAND [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Take the lock KEY, run a command, and release the lock when the command ends. If
another owner holds the lock, wait for it, in the order in which the clients of
all nodes began to wait.

lock renews the lease after each third of --ttl. If the lock is lost, lock sends SIGTERM
to the command, and SIGKILL after --grace. If the cluster does not confirm a renewal in
time, lock sends SIGTERM when only --grace is left of the lease, and SIGKILL when the
lease ends. lock notices a broken or overwritten lock at the next renewal. If lock
itself is killed, the kernel kills the command (on Linux).

With --shared, other owners with --shared may hold the lock at the same time, like the
readers of a readers-writer lock; an owner without --shared is a writer. With
--limit N, up to N owners may hold the lock at the same time, as with a semaphore. All
owners wait in one queue.

The environment of the command contains HOLDFAST_LOCK_TOKEN, which is the fencing
token, and HOLDFAST_LOCK_KEY. lock forwards the signals it receives to the command.
If standard input is not a terminal, the command runs in a process group of its own,
and signals go to the whole group.

The exit code is that of the command, or 128 plus the number of the signal that
killed it; 75 if the lock was not acquired within --wait; 76 if the lock was lost;
126 or 127 if the command cannot be started; 1 after any other error.`,
		Example: `  holdfast lock nightly -- /usr/local/bin/backup
  holdfast lock deploy --wait 1m --addr 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 -- make deploy
  holdfast lock catalog --shared -- /usr/local/bin/export
  holdfast lock report --wait 0 --ttl 10s -- sh -c 'echo "token $HOLDFAST_LOCK_TOKEN"'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch at := cmd.ArgsLenAtDash(); {
			case at == 1 && len(args) > 1:
				return nil
			case len(args) == 0 || at == 0:
				return errors.New("the key of the lock is missing: holdfast lock KEY -- COMMAND")
			case at < 0 || len(args) == at:
				return errors.New("the command is missing: write it after --, as in holdfast lock KEY -- COMMAND")
			}
			return fmt.Errorf("there is more than one key before --: %q", args[:cmd.ArgsLenAtDash()])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.limited = cmd.Flags().Changed("wait")
			o.graceful = cmd.Flags().Changed("grace")
			if cmd.Flags().Changed("limit") && (o.permits < 1 || o.permits > lock.MaxLimit) {
				return fmt.Errorf("--limit is %d, must be from 1 to %d", o.permits, lock.MaxLimit)
			}
			return o.run(cmd, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.ttl, "ttl", 30*time.Second,
		"length of the lease: the longest time that other clients wait if this machine fails")
	f.DurationVar(&o.wait, "wait", 0, "longest time to wait for the lock, 0 to not wait (default: no limit)")
	f.DurationVar(&o.grace, "grace", 0,
		"time between SIGTERM and SIGKILL if the lock is lost, at most half of --ttl (default: a sixth of --ttl)")
	f.StringVar(&o.owner, "owner", "", "owner of the lock, a unique text (default: HOST:PID:RANDOM)")
	f.BoolVar(&o.shared, "shared", false, "hold the lock together with other owners that use --shared")
	f.IntVar(&o.permits, "limit", 0, "hold the lock together with other owners, up to this number (default: alone)")
	cmd.MarkFlagsMutuallyExclusive("shared", "limit")
	f.StringVar(&o.meta, "meta", "", "text that LOCK INFO and locks info show")

	o.define(f)
	return cmd
}

func (o *lockOptions) check() error {
	if !o.graceful {
		o.grace = o.ttl / 6
	}
	switch {
	case o.ttl < lock.MinTTL:
		return fmt.Errorf("--ttl is %v, must be at least %v", o.ttl, lock.MinTTL)
	case o.grace < 0 || o.grace > o.ttl/2:
		return fmt.Errorf("--grace is %v, must be from 0 to %v (half of --ttl)", o.grace, o.ttl/2)
	case o.wait < 0:
		return fmt.Errorf("--wait is %v: it must not be negative", o.wait)
	}
	return nil
}

// run takes the lock and runs the command.
func (o *lockOptions) run(cmd *cobra.Command, key string, command []string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	nodes, err := o.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	say := func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: "+format+"\n", args...)
	}
	held, err := o.acquire(cmd.Context(), nodes, key, signals, say)
	if err != nil {
		return err
	}
	code, lost := supervise(held, o.grace, command, signals, say)
	limit := releaseLimit
	if lost != nil {
		say("the lock %q was lost, and the command was ended: %v", key, lost)
		limit = lostLimit
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(cmd.Context()), limit)
	defer stop()
	released := held.Release(ctx)
	switch {
	case lost != nil:
		return exitLost
	case errors.Is(released, lock.ErrLost):
		say("the lock %q was lost before the command ended (exit code %d): %v", key, int(code), released)
		return exitLost
	case released != nil:
		say("%v; the lease ends by itself within %v", released, o.ttl)
	}
	if code != 0 {
		return code
	}
	return nil
}

// forwarded returns the signals that the command gets too. A signal that is
// ignored, as SIGHUP is under nohup, remains ignored.
func forwarded() []os.Signal {
	var all []os.Signal
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// interruption is the cause of a canceled context if a signal has ended the wait
// for the lock.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return "interrupted: " + i.signal.String() }

// acquire takes the lock. A signal ends the wait.
func (o *lockOptions) acquire(ctx context.Context, nodes *lock.Nodes, key string, signals <-chan os.Signal,
	say func(string, ...any)) (*lock.Held, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	acquired, watched := make(chan struct{}), make(chan struct{})
	defer func() { close(acquired); <-watched }()
	go func() {
		defer close(watched)
		select {
		case s := <-signals:
			cancel(interruption{s.(syscall.Signal)})
		case <-acquired:
		}
	}()
	held, err := o.ask(ctx, nodes, key, say)
	if stop := (interruption{}); errors.As(context.Cause(ctx), &stop) {
		if err == nil { // the signal came just before the grant
			limited, done := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
			defer done()
			if err := held.Release(limited); err != nil {
				say("%v; the lease ends by itself within %v", err, o.ttl)
			}
		}
		say("%v while waiting for the lock %q", stop, key)
		return nil, terminal.ExitCode(exitSignal + int(stop.signal))
	}
	if errors.Is(err, lock.ErrTaken) {
		say("the lock %q is taken%s", key, owner(ctx, nodes, key))
		return nil, exitTaken
	}
	return held, err
}

// ask checks that a node answers, and then asks for the lock. If --wait allows it,
// a cluster that cannot be reached is not an error yet: lock.Acquire tries again
// until the wait is over.
func (o *lockOptions) ask(ctx context.Context, nodes *lock.Nodes, key string, say func(string, ...any)) (*lock.Held,
	error) {
	begun := time.Now()
	reply := redis.Error(nil)
	if err := nodes.Do(ctx, "PING").Err(); err != nil && (!o.limited || o.wait == 0 || errors.As(err, &reply)) {
		return nil, fmt.Errorf("no node of %s has accepted PING: %w", strings.Join(o.addrs, ", "), err)
	}
	opts := []lock.Option{lock.WithTTL(o.ttl), lock.WithOwner(cmp.Or(o.owner, ownName())), lock.WithMeta(o.meta)}
	switch {
	case o.shared:
		opts = append(opts, lock.WithShared())
	case o.permits > 0:
		opts = append(opts, lock.WithLimit(o.permits))
	}
	if !o.limited {
		// Ask once without a wait, to print who holds the lock before the wait.
		held, err := lock.Acquire(ctx, nodes, key, append(opts, lock.WithWait(0))...)
		if !errors.Is(err, lock.ErrTaken) {
			return held, err
		}
		say("waiting for the lock %q%s", key, owner(ctx, nodes, key))
		return lock.Acquire(ctx, nodes, key, opts...)
	}
	return lock.Acquire(ctx, nodes, key, append(opts, lock.WithWait(max(o.wait-time.Since(begun), 0)))...)
}

// owner returns a clause about the current owner for a message, or "" if the owner
// is not known.
func owner(ctx context.Context, nodes *lock.Nodes, key string) string {
	limited, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	d, err := infoOf(limited, nodes, key)
	if n := len(d.Holders()); err == nil && n > 0 {
		return fmt.Sprintf(", %d owners hold it (%s)", n, d.Mode())
	}
	if err != nil || d.Text("owner") == "" {
		return "" // the message is complete without the owner
	}
	return fmt.Sprintf(", %s holds it", terminal.Shown(d.Text("owner")))
}
