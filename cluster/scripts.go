package cluster

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// scriptHost stands between the machine and the interpreter. It knows which
// scripts run on this node, ends those whose time is over or that SCRIPT KILL
// means, and turns a panic of the interpreter into an error of the script.
type scriptHost struct {
	runner fsm.ScriptRunner // nil if this program has none
	clock  Clock
	limit  time.Duration
	log    hclog.Logger
	stats  *Counters
	guard  *acl.Guard

	mu      sync.Mutex
	running []*runningScript // oldest first
}

type runningScript struct{ killed atomic.Bool }

// Why a script is ended. The first is Redis' text.
const (
	msgScriptKilled = "ERR Script killed by user with SCRIPT KILL..."
	msgScriptLost   = "ERR script was ended because its node does not lead any more"
	msgScriptPanic  = "ERR script made the interpreter fail, nothing of it was done"
)

func newScriptHost(n *Node) *scriptHost {
	return &scriptHost{runner: n.cfg.Scripts, clock: n.clock, limit: n.cfg.Options.ScriptTime, log: n.log.Named("script"), stats: &n.stats, guard: acl.NewGuard(n.machine.table)}
}

// until returns a runner for scripts that end when done is closed, nil if this
// program has no interpreter.
func (h *scriptHost) until(done <-chan struct{}) fsm.ScriptRunner {
	if h.runner == nil {
		return nil
	}
	return hostedRunner{h, done}
}

// kill is SCRIPT KILL: it ends the script that has been running longest, if one
// runs. Unlike in Redis it may have written: then nothing of that stays.
func (h *scriptHost) kill() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.running {
		if !r.killed.Swap(true) {
			return true
		}
	}
	return false
}

func (h *scriptHost) begin() *runningScript {
	r := &runningScript{}
	h.mu.Lock()
	h.running = append(h.running, r)
	h.mu.Unlock()
	return r
}

func (h *scriptHost) end(r *runningScript) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.running {
		if h.running[i] == r {
			h.running = append(h.running[:i], h.running[i+1:]...)
			return
		}
	}
}

// hostedRunner implements fsm.ScriptRunner.
type hostedRunner struct {
	h    *scriptHost
	done <-chan struct{}
}

// CompileScript implements fsm.ScriptRunner.
func (r hostedRunner) CompileScript(body []byte) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = r.h.failed(p)
		}
	}()
	return r.h.runner.CompileScript(body)
}

// RunScript implements fsm.ScriptRunner.
func (r hostedRunner) RunScript(call fsm.ScriptCall) (reply fsm.Reply) {
	h := r.h
	run, begun := h.begin(), h.clock.Mono()
	defer func() {
		if p := recover(); p != nil {
			reply = fsm.Error(h.failed(p))
		}
		h.end(run)
		h.stats.Scripts.Add(1)
		h.stats.ScriptSeconds.Observe((h.clock.Mono() - begun).Seconds())
	}()
	call.Interrupt = func() string {
		switch {
		case run.killed.Load():
			return msgScriptKilled
		case closed(r.done):
			return msgScriptLost
		case h.clock.Mono()-begun > h.limit:
			return fmt.Sprintf("ERR script ran longer than %v, nothing of it was done", h.limit)
		}
		return ""
	}
	return h.runner.RunScript(call)
}

// Forbids implements fsm.ScriptGuard.
func (r hostedRunner) Forbids(users *fsm.Users, user string, args [][]byte) string {
	return r.h.guard.Check(users, user, args)
}

// failed logs a panic and returns the error of the script.
func (h *scriptHost) failed(p any) string {
	h.log.Error("script made the interpreter fail", "panic", p, "stack", string(debug.Stack()))
	return msgScriptPanic
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rehearse runs a batch on a fork of the machine and returns the batch to be
// proposed in its place, in which scripts are replaced by what they did. Nothing
// is on its way through the log: see windowLocked. What there was no time for
// becomes the next batch.
//
// The proposer waits meanwhile, for as long as one script may run and one more
// group takes: reads, elections and heartbeats do not wait for it.
func (o *office) rehearse(b *fsm.BatchBuilder, h fsm.Header) (*fsm.BatchBuilder, error) {
	o.mu.Lock()
	out, rest := o.spareBuilder(), o.spareBuilder()
	o.mu.Unlock()
	o.machine.mu.Lock()
	r := o.machine.m.Rehearse(h, b, o.scripts)
	o.machine.mu.Unlock()
	begun := o.clock.Mono()
	err := r.Run(out, rest, func() bool { return closed(o.done) || o.clock.Mono()-begun > o.opts.ScriptTime })
	if err != nil {
		// Table.Check has accepted every group, so this machine and its table
		// disagree: the same batch would stop every node.
		return nil, fmt.Errorf("rehearse a batch with scripts: %w", err)
	}
	b.Reset(2 * o.opts.MaxEntryBytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = append(o.spare, b)
	if groups, _ := rest.Len(); groups > 0 {
		o.full = append([]*fsm.BatchBuilder{rest}, o.full...)
	} else {
		o.spare = append(o.spare, rest)
	}
	return out, nil
}

// windowLocked is how many entries may be on their way before the next one. A
// batch with scripts is rehearsed on the state that it will meet: nothing may be
// on its way then. o.mu is held.
func (o *office) windowLocked() int {
	next := o.filling
	if len(o.full) > 0 {
		next = o.full[0]
	}
	if next.Scripts() {
		return 1
	}
	return o.opts.Window
}
