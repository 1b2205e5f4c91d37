package execution

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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Scripts connects the state machine with the interpreter. It keeps a list of
// the scripts that run on this node. It ends a script that exceeds its time, or
// that a client kills with SCRIPT KILL or FUNCTION KILL. It converts a panic of
// the interpreter into an error of the script. Its methods are safe for
// concurrent use.
type Scripts struct {
	cfg   ScriptConfig
	brief time.Duration // time limit of scripts that have had no dry run: see fsm.ScriptBudget

	short, long *lane // lanes for short dry runs, and for the other dry runs
	// A read-only script needs a slot of reads. A slow read-only script also
	// needs a slot of slowSlots, and takes that slot first: see enter.
	reads, slowSlots *fairshare.Slots

	mu      sync.Mutex       // guards the fields below
	running []*runningScript // oldest first
	// slow contains the scripts, by SHA1 and function, that exceeded the brief
	// limit when they last ran, with a lower bound of the time that they need.
	// RunScript does not run such a script briefly first, so its session
	// requests a dry run at once.
	slow map[string]time.Duration
}

// maxSlowScripts is the largest number of slow scripts that are remembered.
const maxSlowScripts = 1024

// runningScript is a script, or a call of a function, that this node executes now.
type runningScript struct {
	killed   atomic.Bool
	begun    time.Duration
	function string   // "" for a script
	command  [][]byte // the call of the function; must not be read after the call has ended
}

// Errors of scripts that were ended or not run. The first is the text of Redis.
const (
	msgScriptKilled = "ERR Script killed by user with SCRIPT KILL..."
	msgScriptLost   = "ERR script was ended because its node no longer leads"
	msgLoadTimeout  = "ERR FUNCTION LOAD timeout"
	msgScriptPanic  = "ERR script made the interpreter fail and was rolled back"
	msgScriptRoom   = "BUSY the script or transaction was not executed: " +
		"other slow scripts and transactions occupied all slots for too long, try again later"
	msgWriteRoom = "BUSY the command was not executed: " +
		"other heavy writes and slow scripts occupied all slots, try again later"
	msgScriptQueue = "BUSY the script or transaction was not executed: " +
		"too many slow scripts and transactions wait for their turn, try again later"
)

// ScriptConfig contains the settings and functions that Scripts needs from its
// node.
type ScriptConfig struct {
	Interpreter fsm.ScriptRunner // nil if this program has no interpreter
	Guard       *acl.Guard
	Rules       func(cmd *fsm.Command, args [][]byte) string // nil for none
	Full        func() string                                // see fsm.FullNotice; nil for always ""
	Mono        func() time.Duration                         // monotonic time
	// Limit bounds the time of a script. Brief bounds the time of a script that
	// has had no dry run.
	Limit, Brief time.Duration
	// Wait bounds how long a dry run waits in a lane, if it is longer than
	// laneTimes times Limit. Queue bounds the number of dry runs that wait in a
	// lane.
	Wait  time.Duration
	Queue int
	// MostWork limits the number of steps that the writes of a group's scripts
	// may take.
	MostWork int
	Logger   hclog.Logger
	Metrics  ScriptMetrics
}

// ScriptMetrics are the metrics of Scripts.
type ScriptMetrics struct {
	Scripts prometheus.Counter
	Seconds prometheus.Histogram
	// Refused counts the slow scripts, and WritesRefused the heavy writes, that
	// got no slot.
	Refused, WritesRefused prometheus.Counter
	// MemoryRefused counts the writes of scripts that were refused because of
	// maxmemory.
	MemoryRefused prometheus.Counter
}

// NewScripts returns the Scripts of a node.
func NewScripts(cfg ScriptConfig) *Scripts {
	slots := runtime.GOMAXPROCS(0) + 1 // at least 2
	return &Scripts{
		cfg:       cfg,
		brief:     min(cfg.Brief, cfg.Limit),
		short:     newLane(shortDryRuns*cfg.Brief, cfg.Queue, cfg.Mono),
		long:      newLane(math.MaxInt64, cfg.Queue, cfg.Mono),
		reads:     fairshare.New(slots, math.MaxInt64, cfg.Mono),
		slowSlots: fairshare.New(slots/2, math.MaxInt64, cfg.Mono),
		slow:      make(map[string]time.Duration),
	}
}

// Runner returns a runner that ends its scripts when done is closed. It returns
// nil if this program has no interpreter.
func (h *Scripts) Runner(done <-chan struct{}) fsm.ScriptRunner {
	if h.cfg.Interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done}
}

// PacedRunner is like Runner, for scripts that run on one goroutine. That
// goroutine yields according to pace.
func (h *Scripts) PacedRunner(done <-chan struct{}, pace *yield.Pace) fsm.ScriptRunner {
	if h.cfg.Interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done, pace: pace}
}

// DryRunner is like Runner, for a dry run.
func (h *Scripts) DryRunner(done <-chan struct{}, t *DryRun) fsm.ScriptRunner {
	if h.cfg.Interpreter == nil {
		return nil
	}
	return hostedRunner{h: h, done: done, dryRun: t}
}

// Kill implements fsm.RunningScripts. Unlike in Redis, it also ends a script
// that has written; the writes of that script are discarded.
func (h *Scripts) Kill(function bool) fsm.KillResult {
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
func (h *Scripts) Function() *fsm.RunningFunction {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.running {
		if r.function == "" {
			continue
		}
		f := &fsm.RunningFunction{Name: r.function, Millis: (h.cfg.Mono() - r.begun).Milliseconds()}
		for i, w := range r.command {
			word := string(w)
			if i == 0 { // a group contains the command name in lower case
				word = strings.ToUpper(word)
			}
			f.Command = append(f.Command, word)
		}
		return f
	}
	return nil
}

func (h *Scripts) begin(r *runningScript) {
	h.mu.Lock()
	h.running = append(h.running, r)
	h.mu.Unlock()
}

func (h *Scripts) end(r *runningScript) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.running {
		if h.running[i] == r {
			h.running = append(h.running[:i], h.running[i+1:]...)
			return
		}
	}
}

// groupTimes is the common time limit of the scripts of a transaction, in
// multiples of ScriptConfig.Limit, in a dry run and after it. Before a dry run,
// the scripts share a shorter limit: see allowance.
const groupTimes = 10

// tooLong returns the error of a script that takes too long.
func (h *Scripts) tooLong() string {
	return fmt.Sprintf("ERR script exceeded its time limit (%d ms) and was rolled back", h.cfg.Limit.Milliseconds())
}

// allowance returns how long a script that begins at since may run. shared says
// that the script may run for less than its own limit, because the group's
// earlier scripts have used up most of the common limit.
func (h *Scripts) allowance(call *fsm.ScriptCall, since time.Duration) (limit time.Duration, shared bool) {
	limit, all := h.cfg.Limit, groupTimes*h.cfg.Limit
	switch call.ScriptBudget {
	case fsm.Briefly:
		// Other clients' writes wait for the whole attempt, so all scripts of
		// the group share one brief limit. Otherwise, one client could delay
		// the others for long: a pipeline that exceeds the limit is run in
		// pieces, so a client that sends such pipelines without a pause causes
		// one attempt after the other.
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
// full memory limit and occupy a processor, so there are few slots. The user
// and the connection that have had the least slot time go first. At least half
// of the slots are reserved for scripts that are not known to be slow. Such
// scripts usually wait only briefly, but many may arrive at once, so the
// limit of their wait is longer. The wait is limited, because the clone that
// the script reads becomes outdated, and because clients give up.
func (h *Scripts) enter(name string, who fairshare.Worker, done <-chan struct{}) (leave func(), refusal string) {
	if !h.isSlow(name) {
		p, refusal := h.takeSlot(h.reads, who, groupTimes*h.cfg.Limit, done)
		if refusal != "" {
			return nil, refusal
		}
		return p.Leave, ""
	}
	slow, refusal := h.takeSlot(h.slowSlots, who, h.cfg.Limit, done)
	if refusal != "" {
		return nil, refusal
	}
	p, refusal := h.takeSlot(h.reads, who, h.cfg.Limit, done)
	if refusal != "" {
		slow.Leave()
		return nil, refusal
	}
	return func() {
		p.Leave()
		slow.Leave()
	}, ""
}

func (h *Scripts) takeSlot(
	slots *fairshare.Slots, who fairshare.Worker, limit time.Duration, done <-chan struct{},
) (*fairshare.Slot, string) {
	p, err := slots.Enter(who, limit, done)
	switch {
	case errors.Is(err, fairshare.ErrLost):
		return nil, msgScriptLost
	case err != nil:
		h.cfg.Metrics.Refused.Add(1)
		return nil, msgScriptRoom
	}
	return p, ""
}

func (h *Scripts) isSlow(sha string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, slow := h.slow[sha]
	return slow
}

// time returns the recorded time of a slow script: see Scripts.slow. It returns
// 0 for a script that is not known to be slow.
func (h *Scripts) time(sha string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slow[sha]
}

// noteTime records how long a script took if that exceeded the brief limit.
// Otherwise it removes the record of the script. ended says that the script was
// ended and would have taken longer.
func (h *Scripts) noteTime(sha string, took time.Duration, ended bool) {
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

// NoRoom returns the error for commands that add data, or "".
func (h *Scripts) NoRoom() string {
	if h.cfg.Full == nil {
		return ""
	}
	return h.cfg.Full()
}

// failed logs a panic and returns the error of the script.
func (h *Scripts) failed(p any) string {
	h.cfg.Logger.Error("the script interpreter panicked", "panic", p, "stack", string(debug.Stack()))
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

// OnDenied sets the function that is called when a script is denied a command.
func (h *Scripts) OnDenied(f func(user string, v acl.Verdict)) { h.cfg.Guard.OnDenied(f) }
