package script

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Limits bound one run of a script. All of them hold for everything that the
// script does: library functions, patterns, coroutines and pcall included.
type Limits struct {
	// Steps is the work: nodes of the syntax tree that are evaluated, characters
	// that patterns compare, elements that the library moves. A step takes 5 to
	// 30 ns.
	Steps int
	// Memory is the sum of the bytes of strings, tables, functions and frames
	// that the script creates, garbage included: so it also bounds what it holds.
	Memory int
	// CallDepth is how deep calls nest, deeply nested expressions counting as
	// several; a level takes about 1 KiB of stack.
	CallDepth int
	// Time is a backstop by the clock; 0 for none. It is looked at every few
	// thousand steps, and not while a redis.call runs.
	Time time.Duration
}

// DefaultLimits allow what well-behaved scripts do, and stop the others within
// about a tenth of a second.
func DefaultLimits() Limits {
	return Limits{Steps: 5_000_000, Memory: 64 << 20, CallDepth: 10_000, Time: 2 * time.Second}
}

// MaxBytes is the size of the longest script, and of the longest text that load
// takes inside of one.
const MaxBytes = lua.MaxChunk

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

// Compiled is a script ready to run. It never changes, and any number of runs
// may use it at the same time.
type Compiled struct {
	proto *lua.Proto
	sha   string
	flags Flags
}

// SHA returns the SHA1 of the source in lower-case hexadecimal.
func (c *Compiled) SHA() string { return c.sha }

// Flags returns what the script's first line says.
func (c *Compiled) Flags() Flags { return c.flags }

// SHA1 returns the name of a script: its SHA1 in lower-case hexadecimal.
func SHA1(src []byte) string {
	sum := sha1.Sum(src)
	return hex.EncodeToString(sum[:])
}

// Compile translates a script. The error's text is the error reply that Redis
// gives.
func Compile(src []byte) (*Compiled, error) {
	if len(src) > MaxBytes {
		return nil, errTooLarge
	}
	text := string(src)
	flags, body, err := parseShebang(text)
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(body, "@user_script")
	if err != nil {
		return nil, fmt.Errorf("%s%s", errCompileStart, oneLine(err.Error()))
	}
	return &Compiled{proto, SHA1(src), flags}, nil
}

// oneLine makes a text fit into an error line, as Redis does.
func oneLine(s string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(strings.Trim(s, "\r\n"))
}

// Levels of redis.log.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// Call is one EVAL.
type Call struct {
	Keys, Args [][]byte
	// SHA is what error texts call the script; the script's own when empty.
	SHA string
	// Do runs one command. Error replies are the script's to handle. It is called
	// on Run's goroutine (or, inside a coroutine, on one that Run waits for), and
	// may keep args.
	Do func(args [][]byte) fsm.Reply
	// Permits answers redis.acl_check_cmd: whether the command is known, and
	// whether the client may run it. Without it, all is permitted.
	Permits func(args [][]byte) (permitted, known bool)
	// Log receives redis.log; nil drops it.
	Log func(level int, text string)
	// Proto is the RESP version of the client, 2 or 3.
	Proto int
	// Seed is math.random's. With 0 a script sees the numbers that Redis gives.
	Seed uint64
	// Stop ends the run when it is closed.
	Stop <-chan struct{}
}

// Runtime runs scripts. It holds nothing but limits: every run has a State of
// its own, which is dropped with it, so that there is nothing to clean.
type Runtime struct{ limits Limits }

// NewRuntime returns a runtime that many goroutines may use at the same time.
func NewRuntime(l Limits) *Runtime { return &Runtime{l} }

// run is the host's side of a State.
type run struct {
	call Call
	sha  string
	resp int // of the replies that the script sees: redis.setresp
	json jsonConfig
}

func hostRun(st *lua.State) *run { return st.Host().(*run) }

// Run runs a script to its end and returns its reply. err is not nil only when
// the run was cut off: then it is an *Abort.
func (rt *Runtime) Run(c *Compiled, call Call) (fsm.Reply, error) {
	reply, _, err := rt.RunMetered(c, call)
	return reply, err
}

// Usage is what a run spent of its limits.
type Usage struct{ Steps, Bytes int }

// RunMetered is Run, and says what the script cost.
func (rt *Runtime) RunMetered(c *Compiled, call Call) (reply fsm.Reply, used Usage, err error) {
	r := &run{call: call, sha: call.SHA, resp: 2, json: defaultJSON}
	if r.sha == "" {
		r.sha = c.sha
	}
	st := lua.NewState(lua.Options{
		Limits: lua.Limits{Steps: rt.limits.Steps, Bytes: rt.limits.Memory, Depth: rt.limits.CallDepth, Time: rt.limits.Time},
		Stop:   call.Stop, Globals: globals, Strings: stringMeta, Host: r, Seed: call.Seed,
	})
	err = st.Run(c.proto, func() {
		st.SetGlobal(nameG, st.Globals().Value())
		st.SetGlobal(nameKeys, bytesTable(st, call.Keys))
		st.SetGlobal(nameArgv, bytesTable(st, call.Args))
		st.Seal()
	}, func(results []lua.Value) {
		reply = r.toReply(st, results)
	})
	if e, ok := err.(*lua.Error); ok {
		reply, err = r.failure(e), nil
	}
	used.Steps, used.Bytes = st.Used()
	return reply, used, err
}

// bytesTable makes KEYS or ARGV.
func bytesTable(st *lua.State, list [][]byte) lua.Value {
	t := st.NewTable(len(list), 0)
	for i, b := range list {
		t.SetInt(i+1, st.NewString(string(b)))
	}
	return t.Value()
}

// failure is the reply to an error that the script did not handle.
func (r *run) failure(e *lua.Error) fsm.Reply {
	text := ""
	if t, ok := e.Value.AsTable(); ok {
		s, ok := t.Field(nameErr).ToString()
		if !ok {
			s = "ERR unknown error"
		}
		text = s
	} else {
		text = "ERR " + lua.Text(e.Value)
	}
	return fsm.Error(oneLine(fmt.Sprintf("%s script: %s, on %s:%d.", text, r.sha, e.Source, e.Line)))
}
