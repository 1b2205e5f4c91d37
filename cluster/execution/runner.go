package execution

import (
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// hostedRunner implements fsm.ScriptRunner.
type hostedRunner struct {
	h      *Scripts
	done   <-chan struct{}
	dryRun *DryRun // nil if this is not a dry run
	// pace, unless nil, is shared by the scripts that run one after the other
	// on one goroutine.
	pace *yield.Pace
	// waited, unless nil, is called with the time that a script has waited for
	// its slot.
	waited func(time.Duration)
}

// Compiled implements fsm.ScriptCompiler.
func (r hostedRunner) Compiled(sha string, library bool) bool {
	c, ok := r.h.cfg.Interpreter.(fsm.ScriptCompiler)
	return !ok || c.Compiled(sha, library)
}

// compileTime is the time that compiling a byte of a script may take: see
// fsm.CompileBound. Most scripts take less.
const compileTime = 2 * time.Microsecond

// MayCompile implements fsm.CompileBound. A compilation cannot be interrupted. So a
// dry run leaves its lane before a compilation that may exceed the lane's limit.
func (r hostedRunner) MayCompile(size int) bool {
	t := r.dryRun
	if t == nil || r.h.cfg.Mono()-t.begun+time.Duration(size)*compileTime <= t.limit {
		return true
	}
	t.exceeded = true
	return false
}

// CompileScript implements fsm.ScriptRunner.
func (r hostedRunner) CompileScript(body []byte) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = r.h.failed(p)
		}
	}()
	return r.h.cfg.Interpreter.CompileScript(body)
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
	run := &runningScript{begun: h.cfg.Mono(), function: call.Function, command: call.Command}
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
			"rolled back", (groupTimes * h.cfg.Limit).Milliseconds())
	}
	ended := false // set when Interrupt has ended the script
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
		took := h.cfg.Mono() - run.begun
		if took > h.brief || !ended {
			h.noteTime(name, took, ended)
		}
		h.cfg.Metrics.Scripts.Add(1)
		h.cfg.Metrics.Seconds.Observe(took.Seconds())
	}()
	call.Interrupt = func() string {
		text, now := "", h.cfg.Mono()
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
			// Yield, because the node may have only one processor. Check does
			// not yield in a short script: a yield would delay the work that
			// waits for the script's slot.
			pace.Check()
			return ""
		}
		ended = true
		brief := call.ScriptBudget == fsm.Briefly && (shared || limit < h.cfg.Limit)
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
	return h.cfg.Interpreter.RunScript(call)
}

// enter waits for a slot for a read-only script. The wait does not count toward the
// time limit of the script, nor toward that of the read that runs it.
func (r hostedRunner) enter(name string, call *fsm.ScriptCall) (leave func(), refusal string) {
	h := r.h
	begun := h.cfg.Mono()
	leave, refusal = h.enter(name, scriptWorker(call.Origin, call.User), r.done)
	waited := h.cfg.Mono() - begun
	if call.Begun != nil && *call.Begun != 0 {
		*call.Begun += int64(waited)
	}
	if r.waited != nil {
		r.waited(waited)
	}
	return leave, refusal
}

// Forbids implements fsm.ScriptGuard.
func (r hostedRunner) Forbids(users *fsm.Users, user string, args [][]byte) string {
	return r.h.cfg.Guard.Check(users, user, args)
}

// Full implements fsm.FullNotice. It counts each call that is refused because
// of maxmemory, but not in a dry run, so that it counts no call twice.
func (r hostedRunner) Full() string {
	text := r.h.NoRoom()
	if text == fsm.MsgOOM && r.dryRun == nil {
		r.h.cfg.Metrics.MemoryRefused.Inc()
	}
	return text
}

// MostWork implements fsm.WorkBound.
func (r hostedRunner) MostWork() int { return r.h.cfg.MostWork }

// Refuses implements fsm.ScriptRules.
func (r hostedRunner) Refuses(cmd *fsm.Command, args [][]byte) string {
	if r.h.cfg.Rules == nil {
		return ""
	}
	return r.h.cfg.Rules(cmd, args)
}
