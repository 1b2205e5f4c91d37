package script

import (
	"bytes"
	"container/list"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Flags are what a script says about itself in its first line, as
// "#!lua flags=no-writes,allow-stale".
type Flags struct {
	Shebang         bool // there is such a line
	NoWrites        bool
	AllowOOM        bool
	AllowStale      bool
	NoCluster       bool
	AllowCrossSlots bool
}

// compiled is a script ready to run. It never changes, and any number of runs
// may use it at the same time.
type compiled struct {
	chunk *chunk
	flags Flags
}

// SHA1 returns the name of a script: its SHA1 in lower-case hexadecimal.
func SHA1(src []byte) string {
	sum := sha1.Sum(src)
	return hex.EncodeToString(sum[:])
}

// compile translates a script. The error's text is the error reply that Redis
// gives.
func compile(src []byte) (*compiled, error) {
	if len(src) > MaxBytes {
		return nil, errTooLarge
	}
	flags, body, err := parseShebang(string(src))
	if err != nil {
		return nil, err
	}
	c, err := compileChunk(body, "@user_script", 0)
	if err != nil {
		return nil, fmt.Errorf("%s%s", compileStart, oneLine(err.Error()))
	}
	return &compiled{c, flags}, nil
}

// compileLibrary is compile for the code of a library, whose first line is not
// looked at.
func compileLibrary(src []byte) (*compiled, error) {
	if len(src) > MaxBytes {
		return nil, errTooLarge
	}
	end := max(bytes.IndexByte(src, '\n'), 0)
	c, err := compileChunk(string(src[end:]), "@user_function", 0)
	if err != nil {
		return nil, fmt.Errorf("%s%s", compileLibraryStart, oneLine(err.Error()))
	}
	return &compiled{c, Flags{}}, nil
}

// Texts of compile, which are error replies.
var (
	errTooLarge  = fmt.Errorf("ERR script is larger than %d bytes", MaxBytes)
	errShebang   = errors.New("ERR Invalid script shebang")
	msgMayWrite  = "ERR Can not execute a script with write flag using *_ro command."
	compileStart = "ERR Error compiling script (new function): "

	compileLibraryStart = "ERR Error compiling function: "
)

// oneLine makes a text fit into an error line, as Redis does.
func oneLine(s string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(strings.Trim(s, "\r\n"))
}

// Config is what a Runner is made of. The zero value is not useful.
type Config struct {
	Limits Limits
	// CacheEntries and CacheBytes bound the compiled scripts that are kept; bytes
	// are those of the sources, a compiled one takes up to a hundred times that.
	CacheEntries, CacheBytes int
	// Log receives what redis.log writes, a line at a time and not too many of
	// them; nil drops it.
	Log func(level int, text string)
}

// DefaultConfig is what a node uses.
func DefaultConfig() Config {
	return Config{Limits: DefaultLimits(), CacheEntries: 1000, CacheBytes: 2 << 20}
}

// Runner runs scripts; it is an fsm.ScriptRunner. Any number of goroutines may
// use it at the same time: each run has a State of its own, taken from those that
// ended well before. A run that was cut off takes its State with it.
type Runner struct {
	limits Limits
	log    func(level int, text string)
	states sync.Pool // *State

	mu    sync.Mutex // guards what follows
	cache map[string]*list.Element
	order *list.List // of *cached, the latest used in front
	bytes int
	conf  Config
}

type cached struct {
	name string // SHA1, with an f in front for the code of a library
	size int
	c    *compiled
	err  string
}

// NewRunner returns a runner.
func NewRunner(c Config) *Runner {
	r := &Runner{limits: c.Limits, cache: make(map[string]*list.Element), order: list.New(), conf: c}
	if c.Log != nil {
		r.log = newLogLimiter(c.Log).log
	}
	return r
}

// CompileScript is fsm.ScriptRunner's.
func (r *Runner) CompileScript(body []byte) string {
	return r.compiled(SHA1(body), body, compile).err
}

// compiled returns a script from the cache, where name is its SHA1, or compiles it.
// Two goroutines may compile the same script at the same time; both results are
// good.
func (r *Runner) compiled(name string, body []byte, compile func([]byte) (*compiled, error)) *cached {
	r.mu.Lock()
	if e, ok := r.cache[name]; ok {
		r.order.MoveToFront(e)
		r.mu.Unlock()
		return e.Value.(*cached)
	}
	r.mu.Unlock()
	c := &cached{name: name, size: len(body)}
	var err error
	if c.c, err = compile(body); err != nil {
		c.err = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.cache[name]; ok {
		return e.Value.(*cached)
	}
	r.cache[name] = r.order.PushFront(c)
	r.bytes += c.size
	for r.order.Len() > 1 && (r.order.Len() > r.conf.CacheEntries || r.bytes > r.conf.CacheBytes) {
		e := r.order.Back()
		old := r.order.Remove(e).(*cached)
		delete(r.cache, old.name)
		r.bytes -= old.size
	}
	return c
}

// RunScript is fsm.ScriptRunner's.
func (r *Runner) RunScript(call fsm.ScriptCall) fsm.Reply {
	reply, _, _ := r.run(call)
	return reply
}

// Usage is what a run spent of its limits.
type Usage struct{ Steps, Bytes int }

// run is RunScript, and says what the script cost and whether it was cut off:
// then err is an *Abort.
func (r *Runner) run(call fsm.ScriptCall) (reply fsm.Reply, used Usage, err error) {
	if call.SHA == "" {
		call.SHA = SHA1(call.Body)
	}
	name, translate := call.SHA, compile
	if ofLibrary(call) {
		name, translate = "f"+name, compileLibrary
	}
	c := r.compiled(name, call.Body, translate)
	if c.err != "" {
		return fsm.Error(c.err), used, nil
	}
	if call.ReadOnly && c.c.flags.Shebang && !c.c.flags.NoWrites {
		return fsm.Error(msgMayWrite), used, nil
	}
	if c.c.flags.NoWrites && call.SetReadOnly != nil {
		call.SetReadOnly()
	}
	st, ok := r.states.Get().(*State)
	if !ok {
		st = newState()
	}
	reply, abort := st.run(r, c.c, call)
	used = st.used()
	if abort != nil {
		return r.aborted(call, abort), used, abort
	}
	if st.coroutines == nil {
		st.clean()
		r.states.Put(st)
	}
	return reply, used, nil
}

// aborted is the reply to a run that was cut off.
func (r *Runner) aborted(call fsm.ScriptCall, a *Abort) fsm.Reply {
	var i *interrupted
	line, name, source := max(a.Line, 1), call.SHA, "user_script"
	switch {
	case call.Register != nil:
		return loadAborted(a)
	case call.Function != "":
		name, source = call.Function, "user_function"
	}
	if errors.As(a.Reason, &i) {
		return fsm.Error(fmt.Sprintf("%s script: %s, on @%s:%d.", i.text, name, source, line))
	}
	return fsm.Error(oneLine(fmt.Sprintf("ERR %s:%d: the script was stopped: %s script: %s, on @%s:%d.", source, line, a.Reason, name, source, line)))
}

// run runs a script to its end and returns its reply, or why it was cut off.
func (st *State) run(r *Runner, c *compiled, call fsm.ScriptCall) (fsm.Reply, *Abort) {
	st.reset(r.limits)
	st.runner, st.call, st.interrupt = r, call, call.Interrupt
	st.chunks = append(st.chunks[:0], c.chunk)
	st.resp, st.json = 2, defaultJSON
	st.random.Seed(int32(call.Seed ^ call.Seed>>32))
	st.cur = st.main
	if ofLibrary(call) {
		st.main.Env = st.lib.env
	}
	e := st.top()
	switch {
	case st.aborted != nil:
		return fsm.Null, st.aborted
	case e != nil:
		return st.failure(e), nil
	}
	return st.reply, nil
}

// top runs the script within a protected call.
func (st *State) top() (e *scriptError) {
	defer func() {
		if r := recover(); r != nil && st.aborted == nil {
			st.aborted = &Abort{Reason: ErrPanic, Detail: fmt.Sprint(r)}
		}
	}()
	_, e = st.protect(mainFunction, nil)
	return e
}

// mainFunction is inside the protected call, so that the run also pays for what
// is done before and after the script.
var mainFunction = builtin(runMain)

func runMain(st *State, _ []Value) []Value {
	st.calls, st.boundary = 0, 0
	if st.isLibrary() {
		st.look()
		runLibrary(st)
		return nil
	}
	setGlobal(st.env, st.visible, "KEYS", bytesTable(st, st.call.Keys))
	setGlobal(st.env, st.visible, "ARGV", bytesTable(st, st.call.Args))
	st.look()
	st.reply = st.toReply(st.Call(st.main.NewFunctionFromProto(st.chunks[0].proto)))
	return nil
}

// bytesTable makes KEYS or ARGV.
func bytesTable(st *State, list [][]byte) Value {
	t := st.NewTable(len(list), 0)
	for i, b := range list {
		t.RawSetInt(i+1, st.NewString(string(b)))
	}
	return t
}

// failure is the reply to an error that the script did not handle.
func (st *State) failure(e *scriptError) fsm.Reply {
	text := "ERR " + plainText(e.value)
	if t, ok := asTable(e.value); ok {
		if text, ok = toString(field(t, "err")); !ok {
			text = "ERR unknown error"
		}
	}
	name := st.call.SHA
	switch f := st.lib.callee; {
	case st.call.Register != nil:
		return fsm.Error(oneLine(loadStart + text))
	case f != nil && f.IsG: // the function is a builtin: it stands nowhere
		return fsm.Error(oneLine(text))
	case st.call.Function != "":
		name = st.call.Function
	}
	return fsm.Error(oneLine(fmt.Sprintf("%s script: %s, on %s:%d.", text, name, e.source, e.line)))
}

// plainText is tostring when the run is over.
func plainText(v Value) string {
	if s, ok := toString(v); ok {
		return s
	}
	switch {
	case v == Nil:
		return "nil"
	case v == True:
		return "true"
	case v == False:
		return "false"
	}
	return typeName(v)
}

// clean forgets the run, so that the next one finds nothing of it.
func (st *State) clean() {
	st.main.SetTop(0)
	st.main.Env = st.env
	st.lib.loading, st.lib.callee = false, nil
	st.lib.functions = nil
	st.call, st.reply, st.runner, st.interrupt = fsm.ScriptCall{}, fsm.Null, nil, nil
	clear(st.chunks)
	st.chunks = st.chunks[:0]
	st.ids, st.sparse = nil, nil
	clear(st.argbuf)
	st.argbuf = st.argbuf[:0]
	st.one, st.two = [1]Value{}, [2]Value{}
	st.calls, st.boundary, st.nested = 0, 0, 0
	st.errSource, st.errLine = "", 0
	setGlobal(st.env, st.visible, "KEYS", st.visible)
	setGlobal(st.env, st.visible, "ARGV", st.visible)
}
