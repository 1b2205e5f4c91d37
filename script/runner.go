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
	"github.com/holdfast-kv/holdfast/script/luac"
)

// Flags are the properties that a script declares in its first line, such as
// "#!lua flags=no-writes,allow-stale".
type Flags struct {
	Shebang         bool // the script has such a line
	NoWrites        bool
	AllowOOM        bool
	AllowStale      bool
	NoCluster       bool
	AllowCrossSlots bool
}

// compiled is a script that is ready to run. It never changes, and any number
// of runs may use it at the same time.
type compiled struct {
	chunk *luac.Chunk
	flags Flags
}

// SHA1 returns the name of a script: the SHA1 of its source in lower-case
// hexadecimal.
func SHA1(src []byte) string {
	sum := sha1.Sum(src)
	return hex.EncodeToString(sum[:])
}

// compile compiles a script. The text of the error is the error reply to the
// client.
func compile(src []byte) (*compiled, error) {
	if len(src) > luac.MaxBytes {
		return nil, errTooLarge
	}
	flags, body, err := parseShebang(string(src))
	if err != nil {
		return nil, err
	}
	c, err := luac.Compile(body, "@user_script", 0)
	if err != nil {
		return nil, fmt.Errorf("%s%s", compileStart, oneLine(err.Error()))
	}
	return &compiled{c, flags}, nil
}

// compileLibrary compiles the code of a library like compile, but skips the first
// line of the code without parsing it.
func compileLibrary(src []byte) (*compiled, error) {
	if len(src) > luac.MaxBytes {
		return nil, errTooLarge
	}
	end := max(bytes.IndexByte(src, '\n'), 0)
	c, err := luac.Compile(string(src[end:]), "@user_function", 0)
	if err != nil {
		return nil, fmt.Errorf("%s%s", compileLibraryStart, oneLine(err.Error()))
	}
	return &compiled{c, Flags{}}, nil
}

// Error replies of compile, compileLibrary and run, and the beginnings of such
// replies.
var (
	errTooLarge  = fmt.Errorf("ERR script is larger than %d bytes", luac.MaxBytes)
	errShebang   = errors.New("ERR Invalid script shebang")
	msgMayWrite  = "ERR Can not execute a script with write flag using *_ro command."
	compileStart = "ERR Error compiling script (new function): "

	compileLibraryStart = "ERR Error compiling function: "
)

// oneLine makes s fit into an error reply, as Redis does: it removes line breaks
// at both ends, and replaces the others with spaces.
func oneLine(s string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(strings.Trim(s, "\r\n"))
}

// Config configures a Runner. The zero value is not useful.
type Config struct {
	Limits Limits
	// CacheEntries and CacheBytes bound the cache of compiled scripts.
	// CacheBytes counts the sizes of the sources; a compiled script takes up to
	// a hundred times the size of its source.
	CacheEntries, CacheBytes int
	// Log receives the lines of redis.log, one line in each call and at a limited
	// rate. Several runs may call it at the same time. If Log is nil, the lines
	// are dropped.
	Log func(level int, text string)
	// LogRate is the number of lines of redis.log per second that Log receives in
	// the long run. Log receives up to ten times as many at once.
	LogRate int
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{Limits: DefaultLimits(), CacheEntries: 4096, CacheBytes: 2 << 20, LogRate: 10}
}

// Runner runs scripts; it implements fsm.ScriptRunner. Any number of goroutines
// may use it at the same time, because each run has a State of its own. A run
// reuses a State of an earlier run that ended normally. A run that was aborted
// discards its State, and so does a run that used coroutines.
type Runner struct {
	limits Limits
	log    func(level int, text string)
	states sync.Pool // *State

	mu    sync.Mutex // guards the fields below
	cache map[string]*list.Element
	order *list.List // elements of type *cached, the most recently used first
	bytes int
	conf  Config
}

type cached struct {
	name string // SHA1, with the prefix f for the code of a library
	size int
	c    *compiled
	err  string
}

// NewRunner returns a Runner with the configuration c.
func NewRunner(c Config) *Runner {
	r := &Runner{limits: c.Limits, cache: make(map[string]*list.Element), order: list.New(), conf: c}
	if c.Log != nil {
		r.log = newLogLimiter(c.Log, c.LogRate).log
	}
	return r
}

// CompileScript implements fsm.ScriptRunner.
func (r *Runner) CompileScript(body []byte) string {
	return r.compiled(SHA1(body), body, compile).err
}

// Compiled implements fsm.ScriptCompiler.
func (r *Runner) Compiled(sha string, library bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.cache[cacheName(sha, library)]
	return ok
}

// cacheName returns the key of a script, or of the code of a library, in the
// cache.
func cacheName(sha string, library bool) string {
	if library {
		return "f" + sha
	}
	return sha
}

// compiled returns a script from the cache, where name is its key, or compiles
// it. Two goroutines may compile the same script at the same time; both results
// are valid.
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

// RunScript implements fsm.ScriptRunner.
func (r *Runner) RunScript(call fsm.ScriptCall) fsm.Reply {
	reply, _, _ := r.run(call)
	return reply
}

// Usage is the part of its limits that a run has spent.
type Usage struct{ Steps, Bytes int }

// run implements RunScript. It also returns the usage of the run. If the run
// was aborted, err is an *Abort.
func (r *Runner) run(call fsm.ScriptCall) (reply fsm.Reply, used Usage, err error) {
	if call.SHA == "" {
		call.SHA = SHA1(call.Body)
	}
	translate := compile
	if ofLibrary(call) {
		translate = compileLibrary
	}
	c := r.compiled(cacheName(call.SHA, ofLibrary(call)), call.Body, translate)
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

// aborted returns the reply to a run that was aborted.
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
	return fsm.Error(oneLine(fmt.Sprintf("ERR %s:%d: the script was stopped: %s script: %s, on @%s:%d.", source, line,
		a.Reason, name, source, line)))
}

// run runs a script to its end and returns its reply, or the Abort that ended
// it.
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

// mainFunction is the function that the protected call runs. It includes the
// work before and after the script, so that the run is charged for that work
// too.
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
	st.reply = st.toReply(st.Call(st.main.NewFunctionFromProto(st.chunks[0].Proto)))
	return nil
}

// bytesTable makes the table KEYS or ARGV.
func bytesTable(st *State, list [][]byte) Value {
	t := st.NewTable(len(list), 0)
	for i, b := range list {
		t.RawSetInt(i+1, st.NewString(string(b)))
	}
	return t
}

// failure returns the reply to an error that the script did not handle.
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
	case f != nil && f.IsG: // a builtin has no position in the source
		return fsm.Error(oneLine(text))
	case st.call.Function != "":
		name = st.call.Function
	}
	return fsm.Error(oneLine(fmt.Sprintf("%s script: %s, on %s:%d.", text, name, e.source, e.line)))
}

// plainText returns the text of a value as tostring does, without metamethods.
// For an object it returns only the type. It charges nothing, so it can be used
// after the run is over.
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

// clean deletes all data of the run from the State, so that the next run cannot
// observe it.
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
