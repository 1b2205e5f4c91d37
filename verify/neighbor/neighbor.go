package neighbor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// Load describes a load that one client puts on a node.
type Load struct {
	Name string
	// NoLogin means that the client does not log in. Against a node that
	// requires no password, the load proves nothing.
	NoLogin bool
	// Logged means that large values go through the log of every node. How much
	// they delay other writes depends on the disks and on the network, because
	// an entry cannot be divided.
	Logged bool

	prepare func(ctx context.Context, t *target) error
	// workers is the number of workers before Target.Scale divides it. The
	// workers run at the same time, and each calls attack repeatedly.
	workers int
	attack  func(ctx context.Context, t *target, worker int) error
}

// All returns the loads, in a fixed order.
func All() []Load {
	return slices.Concat(replyLoads, readLoads, topicLoads, scriptLoads, noLoginLoads)
}

// Target is the node that a load runs against.
type Target struct {
	Addr  string
	Login load.Login
	// Scale divides most sizes of values, and the numbers of workers,
	// connections and subscriptions. 0 means 1: the full sizes and numbers.
	Scale int
	// Prefix is the prefix of all keys and channels of the load.
	Prefix string
}

// target is the node, and the measurements that the functions of a load record.
type target struct {
	Target
	rounds atomic.Int64
	closed atomic.Int64
	// commands contains a function for each worker: see target.encoded.
	commands sync.Map

	mu    sync.Mutex
	error string // the first error reply of the node
}

// size returns n divided by the scale, but at least 1.
func (t *target) size(n int) int { return max(n/max(t.Scale, 1), 1) }

func (t *target) key(name string) string { return t.Prefix + name }

// Running is a load that was started.
type Running struct {
	load   Load
	t      *target
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// prepareLimit bounds the time for writing the keys that a load reads.
const prepareLimit = 60 * time.Second

// Start writes the keys that the load reads, and then starts the load. The load
// runs until Stop is called or ctx is done.
func Start(ctx context.Context, l Load, to Target) (*Running, error) {
	t := &target{Target: to}
	if l.prepare != nil {
		preparing, stop := context.WithTimeout(ctx, prepareLimit)
		defer stop()
		if err := l.prepare(preparing, t); err != nil {
			return nil, fmt.Errorf("prepare the load %q: %w", l.Name, err)
		}
	}
	r := &Running{load: l, t: t}
	ctx, r.cancel = context.WithCancel(ctx)
	for i := range max(t.size(l.workers), 1) {
		r.wg.Go(func() { r.work(ctx, i) })
	}
	return r, nil
}

// pause is the time between a failed attack and the next attack of the same
// worker. It keeps the harness from flooding a node that refuses connections.
const pause = 20 * time.Millisecond

func (r *Running) work(ctx context.Context, worker int) {
	for ctx.Err() == nil {
		err := r.load.attack(ctx, r.t, worker)
		if err == nil {
			r.t.rounds.Add(1)
			continue
		}
		r.t.note(err)
		load.Sleep(ctx, pause)
	}
}

// note counts how a failed attack ended: with an error reply of the node, or
// with the end of its connection.
func (t *target) note(err error) {
	var answered replyError
	if !errors.As(err, &answered) {
		t.closed.Add(1)
		return
	}
	t.rounds.Add(1)
	t.answered(string(answered))
}

// answered records an error reply of the node.
func (t *target) answered(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.error == "" {
		t.error = text
	}
}

// Effect describes the effect of a load. A load with no rounds and no closed
// connections had no effect.
type Effect struct {
	Rounds int64  // attacks, or steps of an attack, that were completed or ended with an error reply
	Closed int64  // connections that the node refused or closed
	Error  string // the first error reply of the node, "" for none
}

// String describes the effect in one line.
func (e Effect) String() string {
	text := fmt.Sprintf("%d rounds, %d connections closed", e.Rounds, e.Closed)
	if e.Error != "" {
		text += fmt.Sprintf(", first error %q", e.Error)
	}
	return text
}

// Stop ends the load and waits for its connections to end.
func (r *Running) Stop() Effect {
	r.cancel()
	r.wg.Wait()
	return r.Effect()
}

// Effect returns the effect of the load so far.
func (r *Running) Effect() Effect {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return Effect{r.t.rounds.Load(), r.t.closed.Load(), r.t.error}
}

// Clean deletes the keys that the loads have written.
func Clean(ctx context.Context, to Target) error {
	t := &target{Target: to}
	c, err := t.client(ctx, prepareLimit)
	if err != nil {
		return fmt.Errorf("remove the keys of the loads: %w", err)
	}
	defer c.Close()
	names := []string{"DEL"}
	for _, name := range keys {
		names = append(names, t.key(name))
	}
	_, err = c.do(names...)
	return err
}
