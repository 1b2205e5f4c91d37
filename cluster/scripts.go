package cluster

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
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
	trials chan struct{}                                // capacity 1: a trial needs a processor for itself
	reads  chan struct{}                                // places for read-only scripts: see enter
	slowly chan struct{}                                // those of them that slow ones may take
	rules  func(cmd *fsm.Command, args [][]byte) string // nil for none

	mu      sync.Mutex
	running []*runningScript // oldest first
	// slow are scripts, by SHA1 and function, that were cut and have not been quick since:
	// they are tried out at once.
	slow map[string]struct{}
}

// maxSlowScripts bounds the memory of slow ones.
const maxSlowScripts = 1024

type runningScript struct {
	killed   atomic.Bool
	begun    time.Duration
	function string   // "" for a script
	words    [][]byte // the function's call; not to be touched when it has ended
}

// Why a script is ended. The first is Redis' text.
const (
	msgScriptKilled = "ERR Script killed by user with SCRIPT KILL..."
	msgScriptLost   = "ERR script was ended because its node does not lead any more"
	msgLoadTimeout  = "ERR FUNCTION LOAD timeout"
	msgScriptPanic  = "ERR script made the interpreter fail, nothing of it was done"
	msgScriptRoom   = "ERR script was not run: others took all the room for too long"
)

func newScriptHost(n *Node) *scriptHost {
	catalog := n.cfg.Catalog
	if catalog == nil {
		catalog = acl.ScriptCatalog(n.machine.table)
	}
	places := runtime.GOMAXPROCS(0) + 1
	return &scriptHost{runner: n.cfg.Scripts, rules: n.cfg.ScriptRules, clock: n.clock, limit: n.cfg.Options.ScriptTime, moment: min(n.cfg.Options.ScriptMoment, n.cfg.Options.ScriptTime),
		trials: make(chan struct{}, 1), reads: make(chan struct{}, places), slowly: make(chan struct{}, places/2), slow: make(map[string]struct{}), log: n.log.Named("script"), stats: &n.stats, guard: acl.NewGuard(catalog)}
}

// until returns a runner for scripts that end when done is closed, nil if this
// program has no interpreter.
func (h *scriptHost) until(done <-chan struct{}) fsm.ScriptRunner {
	if h.runner == nil {
		return nil
	}
	return hostedRunner{h, done, false}
}

// trying is until for a trial.
func (h *scriptHost) trying(done <-chan struct{}) fsm.ScriptRunner {
	if h.runner == nil {
		return nil
	}
	return hostedRunner{h, done, true}
}

// Kill implements fsm.RunningScripts. Unlike in Redis what is ended may have
// written: then nothing of that stays.
func (h *scriptHost) Kill(function bool) fsm.KillResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	result := fsm.NotBusy
	for _, r := range h.running {
		switch {
		case r.killed.Load():
		case (r.function != "") != function:
			result = fsm.Other
		default:
			r.killed.Store(true)
			return fsm.Killed
		}
	}
	return result
}

// Function implements fsm.RunningScripts.
func (h *scriptHost) Function() *fsm.RunningFunction {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.running {
		if r.function == "" {
			continue
		}
		f := &fsm.RunningFunction{Name: r.function, Millis: (h.clock.Mono() - r.begun).Milliseconds()}
		for i, w := range r.words {
			word := string(w)
			if i == 0 { // the log has it in lower case
				word = strings.ToUpper(word)
			}
			f.Command = append(f.Command, word)
		}
		return f
	}
	return nil
}

func (h *scriptHost) begin(r *runningScript) {
	h.mu.Lock()
	h.running = append(h.running, r)
	h.mu.Unlock()
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
	h     *scriptHost
	done  <-chan struct{}
	trial bool
}

// yieldEvery is how long a script may keep a processor to itself. A short one does
// not give it away: it would hold up those who wait for its place.
const yieldEvery = 100 * time.Microsecond

// groupTimes is how often Options.ScriptTime the scripts of a transaction have
// together, once a trial has shown how long they take.
const groupTimes = 10

// allowance is how long a script may run that begins at since, and whether the rest
// of its group has left it less than its own time. Untried, a group may hold up the
// writes of others for as long as one script that was tried, however many scripts
// of less than a moment it has.
func (h *scriptHost) allowance(call *fsm.ScriptCall, since time.Duration) (limit time.Duration, shared bool) {
	limit, all := h.limit, groupTimes*h.limit
	switch call.Patience {
	case fsm.Briefly:
		limit, all = h.moment, h.limit
	case fsm.GivenUp:
		limit = h.moment
	}
	if call.Group == nil {
		return limit, false
	}
	if *call.Group == 0 {
		*call.Group = max(int64(since), 1)
	}
	if left := all - (since - time.Duration(*call.Group)); left < limit {
		return left, true
	}
	return limit, false
}

// enter waits for a place for a read-only script. Each may have its memory to
// itself and keep a processor busy, so there are places for few. Half of them are
// for scripts that are not known to be slow: those have not long to wait, and may
// come in a crowd, so their patience is longer. It ends because the fork that is to
// be read grows old, and the client with it.
func (h *scriptHost) enter(name string, done <-chan struct{}) (p place, refusal string) {
	p = place{h: h, slow: h.isSlow(name)}
	patience := groupTimes * h.limit
	if p.slow {
		patience = h.limit
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	if p.slow {
		if refusal = await(h.slowly, done, t.C); refusal != "" {
			return p, refusal
		}
	}
	if refusal = await(h.reads, done, t.C); refusal != "" && p.slow {
		<-h.slowly
	}
	return p, refusal
}

// await takes one of the places. One that is free is not refused.
func await(places chan<- struct{}, done <-chan struct{}, late <-chan time.Time) (refusal string) {
	select {
	case places <- struct{}{}:
		return ""
	default:
	}
	select {
	case places <- struct{}{}:
		return ""
	case <-done:
		return msgScriptLost
	case <-late:
		return msgScriptRoom
	}
}

// place is one for a read-only script.
type place struct {
	h    *scriptHost
	slow bool
}

func (p place) leave() {
	<-p.h.reads
	if p.slow {
		<-p.h.slowly
	}
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
	tooLong, name := fmt.Sprintf("ERR script ran longer than %v, nothing of it was done", h.limit), call.SHA+call.Function
	if call.Register != nil {
		tooLong = msgLoadTimeout
	}
	if call.Patience == fsm.Briefly && h.isSlow(name) {
		call.Cut()
		return fsm.Error(tooLong)
	}
	if call.Patience == fsm.Trial && !r.trial {
		p, refusal := h.enter(name, r.done)
		if refusal != "" {
			return fsm.Error(refusal)
		}
		defer p.leave()
	}
	run := &runningScript{begun: h.clock.Mono(), function: call.Function, words: call.Words}
	since := run.begun
	if call.Begun != nil {
		if *call.Begun == 0 {
			*call.Begun = max(int64(since), 1)
		}
		since = time.Duration(*call.Begun)
	}
	limit, shared := h.allowance(&call, since)
	if shared && call.Patience != fsm.Briefly {
		tooLong = fmt.Sprintf("ERR scripts of a transaction ran longer than %v together, nothing of this one was done", groupTimes*h.limit)
	}
	ended := false // not by itself
	yielded := run.begun
	h.begin(run)
	defer func() {
		if p := recover(); p != nil {
			reply = fsm.Error(h.failed(p))
		}
		h.end(run)
		took := h.clock.Mono() - run.begun
		if slow := took > h.moment; slow || !ended {
			h.noteTime(name, slow)
		}
		h.stats.Scripts.Add(1)
		h.stats.ScriptSeconds.Observe(took.Seconds())
	}()
	call.Interrupt = func() string {
		text, now := "", h.clock.Mono()
		switch {
		case run.killed.Load():
			text = msgScriptKilled
		case closed(r.done):
			text = msgScriptLost
		case now-since > limit:
			text = tooLong
		case now-yielded < yieldEvery:
			return ""
		default:
			// The processor may be the only one: others have waited for it long enough.
			yielded = now
			runtime.Gosched()
			return ""
		}
		ended = true
		if call.Patience == fsm.Trial || call.Patience == fsm.Briefly && (shared || limit < h.limit) && text == tooLong {
			call.Cut()
		}
		return text
	}
	if call.Begun != nil || shared { // those before it may have used up the time
		if text := call.Interrupt(); text != "" {
			return fsm.Error(text)
		}
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

// Refuses implements fsm.ScriptRules.
func (r hostedRunner) Refuses(cmd *fsm.Command, args [][]byte) string {
	if r.h.rules == nil {
		return ""
	}
	return r.h.rules(cmd, args)
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
