package cluster

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// scriptHost connects the state machine with the interpreter. It knows the
// scripts that run on this node, ends those that exceed their time or that
// SCRIPT KILL ends, and converts a panic of the interpreter into an error of
// the script.
type scriptHost struct {
	interpreter fsm.ScriptRunner // nil if this program has no interpreter
	clock       Clock
	limit       time.Duration
	brief       time.Duration // limit of scripts that have had no dry run: see fsm.ScriptBudget
	// mostWork is the limit of the steps that the writes of a group's scripts take.
	mostWork int
	log      hclog.Logger
	stats    *Counters
	guard    *acl.Guard
	rules    func(cmd *fsm.Command, args [][]byte) string // nil for none
	full     func() string                                // see fsm.FullNotice; nil for always ""

	short, long *lane // for short dry runs, and for the others
	// A read-only script needs a slot of reads. A slow one needs a slot of
	// slowSlots too, and takes that first: see enter.
	reads, slowSlots *fairshare.Slots

	mu      sync.Mutex       // guards the fields below
	running []*runningScript // oldest first
	// slow contains the scripts, by SHA1 and function, that exceeded the brief
	// limit when they last ran, with a minimum of the time that they took. RunScript
	// does not run such a script briefly first, so its session requests a dry
	// run at once.
	slow map[string]time.Duration
}

// maxSlowScripts is the largest number of slow scripts that are remembered.
const maxSlowScripts = 1024

// runningScript is a script that runs on this node.
type runningScript struct {
	killed   atomic.Bool
	begun    time.Duration
	function string   // "" for a script
	command  [][]byte // the call of the function; must not be read after the call has ended
}

// Errors of scripts that were ended. The first is the text of Redis.
const (
	msgScriptKilled = "ERR Script killed by user with SCRIPT KILL..."
	msgScriptLost   = "ERR script was ended because its node does not lead any more"
	msgLoadTimeout  = "ERR FUNCTION LOAD timeout"
	msgScriptPanic  = "ERR script made the interpreter fail and was rolled back"
	msgScriptRoom   = "BUSY the script was not run: other slow scripts occupied all slots for too long, try again later"
	msgWriteRoom    = "BUSY the command was not executed: " +
		"other heavy writes and slow scripts occupied all slots, try again later"
	msgScriptQueue = "BUSY the script was not run: too many slow scripts wait for their turn, try again later"
)

func newScriptHost(e *environment, m *machine.Machine) *scriptHost {
	catalog := e.cfg.Catalog
	if catalog == nil {
		catalog = acl.ScriptCatalog(m.Table())
	}
	opts := &e.cfg.Options
	slots := runtime.GOMAXPROCS(0) + 1 // at least 2
	return &scriptHost{
		interpreter: e.cfg.Scripts,
		clock:       e.clock,
		limit:       opts.ScriptTime,
		brief:       min(opts.BriefScriptTime, opts.ScriptTime),
		mostWork:    opts.workLimits().Operation,
		log:         e.log.Named("script"),
		stats:       e.stats,
		guard:       acl.NewGuard(catalog),
		rules:       e.cfg.ScriptRules,
		short:       newLane(shortDryRuns*opts.BriefScriptTime, opts.ScriptQueue, e.clock),
		long:        newLane(math.MaxInt64, opts.ScriptQueue, e.clock),
		reads:       fairshare.New(slots, math.MaxInt64, e.clock.Mono),
		slowSlots:   fairshare.New(slots/2, math.MaxInt64, e.clock.Mono),
		slow:        make(map[string]time.Duration),
	}
}

// runner returns a runner for scripts that end when done is closed. It returns
// nil if this program has no interpreter.
func (h *scriptHost) runner(done <-chan struct{}) fsm.ScriptRunner {
	if h.interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done}
}

// pacedRunner is like runner, for scripts that run on one goroutine, which yields
// according to pace.
func (h *scriptHost) pacedRunner(done <-chan struct{}, pace *yield.Pace) fsm.ScriptRunner {
	if h.interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done, pace: pace}
}

// dryRunner is like runner, for a dry run.
func (h *scriptHost) dryRunner(done <-chan struct{}, t *dryRun) fsm.ScriptRunner {
	if h.interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done, dryRun: t}
}

// Kill implements fsm.RunningScripts. Unlike in Redis, it also ends a script
// that has written; the writes of that script are discarded.
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
		for i, w := range r.command {
			word := string(w)
			if i == 0 { // the log contains the name in lower case
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
	h      *scriptHost
	done   <-chan struct{}
	dryRun *dryRun // nil if this is not a dry run
	// pace, unless nil, is shared by the scripts that run one after the other
	// on one goroutine.
	pace *yield.Pace
	// waited, unless nil, is called with the time that a script has waited for
	// its slot.
	waited func(time.Duration)
}

// groupTimes is the common time limit of the scripts of a transaction, in
// multiples of Options.ScriptTime, once a dry run has shown how long they take.
const groupTimes = 10

// tooLong returns the error of a script that takes too long.
func (h *scriptHost) tooLong() string {
	return fmt.Sprintf("ERR script exceeded its time limit (%d ms) and was rolled back", h.limit.Milliseconds())
}

// allowance returns how long a script that begins at since may run. shared says
// that the rest of its group has left it less than its own time.
func (h *scriptHost) allowance(call *fsm.ScriptCall, since time.Duration) (limit time.Duration, shared bool) {
	limit, all := h.limit, groupTimes*h.limit
	switch call.ScriptBudget {
	case fsm.Briefly:
		// Other clients' writes wait for the attempt, however many brief scripts
		// the group has. A pipeline that exceeds the limit is run in pieces, so a
		// client that sends such pipelines without a pause causes one attempt
		// after the other.
		limit, all = h.brief, h.brief
	case fsm.GivenUp:
		limit = h.brief
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

// enter waits for a slot for a read-only script. Each such script may use the
// full memory limit and occupy a processor, so there are few slots, and the
// client that has had the least time goes first. Half of the slots are reserved
// for scripts that are not known to be slow. Those wait only briefly but may
// arrive in large numbers, so their time limit is longer. The wait is limited
// because the clone that the script reads becomes outdated, and the client
// gives up.
func (h *scriptHost) enter(name string, who fairshare.Worker, done <-chan struct{}) (leave func(), refusal string) {
	if !h.isSlow(name) {
		p, refusal := h.takeSlot(h.reads, who, groupTimes*h.limit, done)
		if refusal != "" {
			return nil, refusal
		}
		return p.Leave, ""
	}
	slow, refusal := h.takeSlot(h.slowSlots, who, h.limit, done)
	if refusal != "" {
		return nil, refusal
	}
	p, refusal := h.takeSlot(h.reads, who, h.limit, done)
	if refusal != "" {
		slow.Leave()
		return nil, refusal
	}
	return func() {
		p.Leave()
		slow.Leave()
	}, ""
}

func (h *scriptHost) takeSlot(
	slots *fairshare.Slots, who fairshare.Worker, limit time.Duration, done <-chan struct{},
) (*fairshare.Slot, string) {
	p, err := slots.Enter(who, limit, done)
	switch {
	case errors.Is(err, fairshare.ErrLost):
		return nil, msgScriptLost
	case err != nil:
		h.stats.ScriptsRefused.Add(1)
		return nil, msgScriptRoom
	}
	return p, ""
}

// Compiled implements fsm.ScriptCompiler.
func (r hostedRunner) Compiled(sha string, library bool) bool {
	c, ok := r.h.interpreter.(fsm.ScriptCompiler)
	return !ok || c.Compiled(sha, library)
}

// CompileScript implements fsm.ScriptRunner.
func (r hostedRunner) CompileScript(body []byte) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = r.h.failed(p)
		}
	}()
	return r.h.interpreter.CompileScript(body)
}

// RunScript implements fsm.ScriptRunner.
func (r hostedRunner) RunScript(call fsm.ScriptCall) (reply fsm.Reply) {
	h := r.h
	tooLong, name := h.tooLong(), call.SHA+call.Function
	if call.Register != nil {
		tooLong = msgLoadTimeout
	}
	if call.ScriptBudget == fsm.Briefly && h.isSlow(name) {
		call.Cut()
		return fsm.Error(tooLong)
	}
	if r.dryRun != nil && h.time(name) > r.dryRun.limit {
		r.dryRun.exceeded = true
		call.Cut()
		return fsm.Error(tooLong)
	}
	if call.ScriptBudget == fsm.DryRun && r.dryRun == nil {
		leave, refusal := r.enter(name, &call)
		if refusal != "" {
			return fsm.Error(refusal)
		}
		defer leave()
	}
	run := &runningScript{begun: h.clock.Mono(), function: call.Function, command: call.Command}
	since := run.begun
	if call.Begun != nil {
		if *call.Begun == 0 {
			*call.Begun = max(int64(since), 1)
		}
		since = time.Duration(*call.Begun)
	}
	limit, shared := h.allowance(&call, since)
	if shared && call.ScriptBudget != fsm.Briefly {
		tooLong = fmt.Sprintf("ERR scripts of a transaction exceeded their common time limit (%d ms) and this one was "+
			"rolled back", (groupTimes * h.limit).Milliseconds())
	}
	ended := false // not ended by itself
	pace := r.pace
	if pace == nil {
		pace = &yield.Pace{}
	}
	h.begin(run)
	defer func() {
		if p := recover(); p != nil {
			reply = fsm.Error(h.failed(p))
		}
		h.end(run)
		took := h.clock.Mono() - run.begun
		if took > h.brief || !ended {
			h.noteTime(name, took, ended)
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
		case r.dryRun != nil && now-r.dryRun.begun > r.dryRun.limit:
			text, r.dryRun.exceeded = tooLong, true
		default:
			// The processor may be the only one. A short script does not
			// yield, because it would delay the work that waits for its slot.
			pace.Check()
			return ""
		}
		ended = true
		brief := call.ScriptBudget == fsm.Briefly && (shared || limit < h.limit)
		if call.ScriptBudget == fsm.DryRun || brief && text == tooLong {
			call.Cut()
		}
		return text
	}
	if call.Begun != nil || shared { // earlier scripts may have used up the time
		if text := call.Interrupt(); text != "" {
			return fsm.Error(text)
		}
	}
	return h.interpreter.RunScript(call)
}

// enter waits for a slot for a read-only script. The wait is not part of the
// time that the script and its read may run.
func (r hostedRunner) enter(name string, call *fsm.ScriptCall) (leave func(), refusal string) {
	h := r.h
	begun := h.clock.Mono()
	leave, refusal = h.enter(name, scriptWorker(call.Origin, call.User), r.done)
	waited := h.clock.Mono() - begun
	if call.Begun != nil && *call.Begun != 0 {
		*call.Begun += int64(waited)
	}
	if r.waited != nil {
		r.waited(waited)
	}
	return leave, refusal
}

func (h *scriptHost) isSlow(sha string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, slow := h.slow[sha]
	return slow
}

// time returns how long a slow script took when it last ran. It returns 0 for a
// script that is not known to be slow.
func (h *scriptHost) time(sha string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slow[sha]
}

// noteTime records how long a script took if that exceeded the brief limit.
// ended says that the script was ended and would have taken longer.
func (h *scriptHost) noteTime(sha string, took time.Duration, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if took <= h.brief {
		delete(h.slow, sha)
		return
	}
	before, known := h.slow[sha]
	if !known && len(h.slow) >= maxSlowScripts {
		clear(h.slow) // slow scripts are soon recorded again
	}
	if ended {
		took = max(took, before)
	}
	h.slow[sha] = took
}

// Forbids implements fsm.ScriptGuard.
func (r hostedRunner) Forbids(users *fsm.Users, user string, args [][]byte) string {
	return r.h.guard.Check(users, user, args)
}

// Full implements fsm.FullNotice.
func (r hostedRunner) Full() string { return r.h.noRoom() }

// noRoom returns the error for commands that add data, or "".
func (h *scriptHost) noRoom() string {
	if h.full == nil {
		return ""
	}
	return h.full()
}

// MostWork implements fsm.WorkBound.
func (r hostedRunner) MostWork() int { return r.h.mostWork }

// Refuses implements fsm.ScriptRules.
func (r hostedRunner) Refuses(cmd *fsm.Command, args [][]byte) string {
	if r.h.rules == nil {
		return ""
	}
	return r.h.rules(cmd, args)
}

// failed logs a panic and returns the error of the script.
func (h *scriptHost) failed(p any) string {
	h.log.Error("the script interpreter panicked", "panic", p, "stack", string(debug.Stack()))
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

// speculate executes a batch on a clone of the state machine and returns the
// batch that is to be proposed in its place, in which the scripts are replaced
// by their effects. No entry may be in flight: see windowLocked. The groups for
// which there was no time become the next batch.
//
// The proposer waits meanwhile, for at most half of EntryWork and the time of
// the last group: BriefScriptTime, or as long as one script may run whose dry
// run has shown that it ends (see script_dryrun.go). Reads, elections and
// heartbeats do not wait.
func (ld *leadership) speculate(b *fsm.BatchBuilder, h fsm.Header) (*fsm.BatchBuilder, error) {
	ld.mu.Lock()
	out, rest := ld.spareBuilder(), ld.spareBuilder()
	ld.mu.Unlock()
	var pace yield.Pace
	sp := ld.machine.Speculate(h, b, ld.host.pacedRunner(ld.done, &pace))
	begun := ld.clock.Mono()
	err := sp.Run(out, rest, func() bool {
		pace.Check()
		return closed(ld.done) || ld.clock.Mono()-begun > ld.opts.EntryWork/2
	})
	if err != nil {
		// Table.Check has accepted every group, so this state machine and its
		// table disagree. The same batch would stop every node.
		return nil, fmt.Errorf("speculatively execute a batch with scripts: %w", err)
	}
	rest.Weighed(0, true)
	ld.later(b, rest)
	return out, nil
}
