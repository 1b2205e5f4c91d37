package cluster

import (
	"fmt"
	"runtime"
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
	moment time.Duration // see fsm.Patience
	log    hclog.Logger
	stats  *Counters
	guard  *acl.Guard
	trials chan struct{} // capacity 1: a trial needs a processor for itself

	mu      sync.Mutex
	running []*runningScript // oldest first
	// slow are scripts, by SHA1, that were cut and have not been quick since:
	// they are tried out at once.
	slow map[string]struct{}
}

// maxSlowScripts bounds the memory of slow ones.
const maxSlowScripts = 1024

type runningScript struct{ killed atomic.Bool }

// Why a script is ended. The first is Redis' text.
const (
	msgScriptKilled = "ERR Script killed by user with SCRIPT KILL..."
	msgScriptLost   = "ERR script was ended because its node does not lead any more"
	msgScriptPanic  = "ERR script made the interpreter fail, nothing of it was done"
)

func newScriptHost(n *Node) *scriptHost {
	return &scriptHost{runner: n.cfg.Scripts, clock: n.clock, limit: n.cfg.Options.ScriptTime, moment: min(n.cfg.Options.ScriptMoment, n.cfg.Options.ScriptTime),
		trials: make(chan struct{}, 1), slow: make(map[string]struct{}), log: n.log.Named("script"), stats: &n.stats, guard: acl.NewGuard(n.machine.table)}
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
	limit := h.limit
	if call.Patience == fsm.Briefly || call.Patience == fsm.GivenUp {
		limit = h.moment
	}
	tooLong := fmt.Sprintf("ERR script ran longer than %v, nothing of it was done", h.limit)
	if call.Patience == fsm.Briefly && h.isSlow(call.SHA) {
		call.Cut()
		return fsm.Error(tooLong)
	}
	run, begun := h.begin(), h.clock.Mono()
	defer func() {
		if p := recover(); p != nil {
			reply = fsm.Error(h.failed(p))
		}
		h.end(run)
		took := h.clock.Mono() - begun
		h.noteTime(call.SHA, took > h.moment)
		h.stats.Scripts.Add(1)
		h.stats.ScriptSeconds.Observe(took.Seconds())
	}()
	call.Interrupt = func() string {
		text := ""
		switch {
		case run.killed.Load():
			text = msgScriptKilled
		case closed(r.done):
			text = msgScriptLost
		case h.clock.Mono()-begun > limit:
			text = tooLong
		default:
			// The processor may be the only one: others have waited for it long enough.
			runtime.Gosched()
			return ""
		}
		if call.Patience == fsm.Trial || call.Patience == fsm.Briefly && limit < h.limit && text == tooLong {
			call.Cut()
		}
		return text
	}
	return h.runner.RunScript(call)
}

func (h *scriptHost) isSlow(sha string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, slow := h.slow[sha]
	return slow
}

// noteTime remembers whether a script took longer than a moment when it ran last.
func (h *scriptHost) noteTime(sha string, slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slow {
		delete(h.slow, sha)
		return
	}
	if len(h.slow) >= maxSlowScripts {
		clear(h.slow) // those that come again are soon known again
	}
	h.slow[sha] = struct{}{}
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
// The proposer waits meanwhile, for two moments, or for as long as one script may
// run of which a trial has shown that it ends (see trial.go): reads, elections
// and heartbeats do not wait for it.
func (o *office) rehearse(b *fsm.BatchBuilder, h fsm.Header) (*fsm.BatchBuilder, error) {
	o.mu.Lock()
	out, rest := o.spareBuilder(), o.spareBuilder()
	o.mu.Unlock()
	o.machine.mu.Lock()
	r := o.machine.m.Rehearse(h, b, o.scripts)
	o.machine.mu.Unlock()
	begun := o.clock.Mono()
	err := r.Run(out, rest, func() bool { return closed(o.done) || o.clock.Mono()-begun > o.opts.ScriptMoment })
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
