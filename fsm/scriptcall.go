package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/library"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// These are the errors of redis.call. All but msgScriptNoGuard and
// msgScriptWork are exactly those of Redis. The interpreter appends the end of
// the text, which names the script and the line.
const (
	msgScriptUnknown = "ERR Unknown Redis command called from script"
	msgScriptArity   = "ERR Wrong number of args calling Redis command from script"
	msgScriptNotHere = "ERR This Redis command is not allowed from script"
	msgScriptNoGuard = "ERR this program cannot check what the user may run from a script"
	msgScriptWork    = "BUSY the writes of the script would take longer than --max-write-time on every node: " +
		"nothing of it was done, divide it"
	msgScriptReadOnly = "ERR Write commands are not allowed from read-only scripts."
)

// scriptRun is one execution of a script by the interpreter.
type scriptRun struct {
	c        *Ctx
	readOnly bool
	sha      string // SHA1 of the script
	// before is the state before the script's first write. effects and n are
	// the length in bytes and the number of the effects that were recorded
	// before the script.
	before  *Machine
	effects int
	n       int
	ready   int // length of Ctx.readyList before the script
	// keys are the keys that the script was called with. tracked is set while
	// another read of the keys need not be recorded: see track.
	keys    [][]byte
	args    [][]byte
	tracked bool
	refused string // error that rolls the script back, even if the script ends normally
}

// interpret executes a script and puts it into the cache. The script stays in
// the cache even if it ends with an error.
func (c *Ctx) interpret(call ScriptCall) Reply {
	rec := c.rec
	if rec != nil {
		rec.replaced()
	}
	if refusal := c.refuseCompile(call.SHA, call.Body, false); refusal != "" {
		return Error(refusal)
	}
	if text := c.runner.CompileScript(call.Body); text != "" {
		return Error(text)
	}
	changes, draws := c.changes, c.draws
	if refusal := c.cacheScript(call.SHA, call.Body, false); refusal.IsError() {
		return refusal
	}
	if c.unlogged { // the group must go through the log
		return Null
	}
	if rec != nil && c.changes != changes {
		rec.record(c, draws, cacheCommand, [][]byte{nil, call.Body})
	}
	return c.perform(call)
}

// perform executes a script, or calls a function. If the script or the function
// fails, perform rolls back its writes.
func (c *Ctx) perform(call ScriptCall) Reply {
	rec := c.rec
	s := &scriptRun{
		c: c, readOnly: call.ReadOnly, ready: len(c.readyList), sha: call.SHA, keys: call.Keys, args: call.Args,
	}
	if rec != nil {
		s.effects, s.n = len(rec.effects), rec.n
	}
	db, proto := c.db, c.proto
	c.proto = 2
	call.Do = s.do
	call.SetProto = func(proto int) { c.proto = proto }
	call.SetReadOnly = func() { s.readOnly = true }
	call.Permits = s.permits
	call.ScriptBudget = c.scriptBudget
	call.Origin, call.User = c.r.origin, c.r.user
	call.Cut = func() { c.cut = true }
	call.Group = c.groupBegun()
	atomic := c.atomic
	c.atomic, c.inScript = true, true
	reply := c.runner.RunScript(call)
	c.db, c.proto, c.atomic, c.inScript = db, proto, atomic, false
	if rec == nil {
		return reply
	}
	text := reply.Append(nil, proto)
	switch {
	case len(text)+len(rec.effects) > rec.room:
		s.refused = msgScriptTooBig
	case c.m.features < FeatureParts:
	case c.scriptBudget == Briefly && (len(text) > largeScriptReply || c.replied+len(text) > largeGroupReply):
		c.cut, c.large = true, true
	case len(text) > maxScriptReply, c.scriptBudget != DryRun && c.replied+len(text) > maxScriptReply:
		s.refused = msgScriptReply
	}
	if s.refused != "" {
		reply = Error(s.refused)
		text = reply.Append(nil, proto)
	}
	c.replied += len(text)
	if reply.failed() {
		s.undo()
	}
	return Raw(text)
}

// scripting is the part of a Ctx for scripts and costly reads.
type scripting struct {
	rec    *recorder   // collects the effects of an operation in a Speculation, else nil
	reads  *readBudget // budget of the group's costly reads
	runner ScriptRunner
	// scriptBudget is the budget of the scripts. cut is set when the scripts or
	// the costly reads of the group have exceeded a limit: their budget,
	// maxUncompiled, or the limits of replies. The group then ends, and its
	// effects are dropped. large is set if the replies of scripts were the cause.
	scriptBudget ScriptBudget
	cut, large   bool
	begun        int64 // see ScriptCall.Group
	work         int   // work of the writes of the group's scripts: see overworked
	// uncompiled and replied are the bytes of the group's scripts that were not
	// compiled yet (see refuseCompile), and of the replies of its scripts.
	uncompiled, replied int
	scripts             RunningScripts // nil in a group that goes through the log
}

// These limits bound the replies of scripts that go through the log, in bytes,
// because each node writes them to its disk while other clients wait.
const (
	// largeScriptReply is the limit for a group without a dry run. If the reply
	// of a script is larger, nothing of the group is executed (see TooLarge).
	// The client's node then tries to execute the script as a read (see
	// Table.AsRead).
	largeScriptReply = 64 << 10
	// largeGroupReply is the limit for the replies of all scripts of a group
	// together, if the group has had no dry run. If these replies are larger,
	// nothing of the group is executed, and the client's node divides the group.
	largeGroupReply = 512 << 10
	// maxScriptReply is the limit for the replies of all scripts of a group
	// together, in a dry run and after it.
	maxScriptReply = 1 << 20

	msgScriptReply = "ERR script returns more than 1 MiB and was rolled back: return less, " +
		"or read with EVAL_RO, FCALL_RO or the flag no-writes"
)

// refuseReply returns the reply of the dry run of a group whose scripts return
// too much for the log, and nil if they do not.
func (sp *Speculation) refuseReply(body []byte) []byte {
	switch {
	case sp.c.cut || sp.c.m.features < FeatureParts:
		return nil
	case ReplyRefused(sp.replies): // perform has refused it; do not execute it again
		return sp.replies
	case sp.c.replied > maxScriptReply:
		return RefuseGrowth(nil, body, msgScriptReply)
	}
	return nil
}

// ReplyRefused reports whether replies is the error of a single script whose
// reply is too large for the log.
func ReplyRefused(replies []byte) bool { return string(replies) == "-"+msgScriptReply+"\r\n" }

// AsRead returns a group that executes the script of body as a read. ok is true
// only if body consists of one EVAL, EVALSHA or FCALL, with or without _RO, and
// its connection does not track its reads. The read fails with ErrUnlogged if
// the script writes, or if the log must record the script or its use in the
// cache. load is the internal command that puts the text of the script into the
// cache. It is nil if the group contains only the SHA1 of the script or the
// name of a function.
func (t *Table) AsRead(body []byte) (read []byte, load [][]byte, ok bool) {
	var r groupReader
	if r.open(body) != nil || r.track || r.d.Byte() != opCommand {
		return nil, nil, false
	}
	db, args, err := r.command()
	if err != nil || len(r.d.Rest) > 0 {
		return nil, nil, false
	}
	var g Group
	g.Reset(r.proto, r.origin)
	if body[0]&groupUser != 0 {
		g.As(r.user)
	}
	switch string(args[0]) {
	case "eval", "eval_ro":
		load = [][]byte{[]byte(cacheCommand), args[1]}
		g.Command(t.Find([]byte("eval_ro")), db, args)
	case "evalsha", "evalsha_ro":
		g.Command(t.Find([]byte("evalsha_ro")), db, args)
	case "fcall", "fcall_ro":
		g.Command(t.Find([]byte("fcall_ro")), db, args)
	default:
		return nil, nil, false
	}
	return g.Bytes(), load, true
}

// undo rolls back the writes of the script.
func (s *scriptRun) undo() {
	if s.before != nil {
		*s.c.m = *s.before
	}
	for _, k := range s.c.readyList[s.ready:] { // the rollback has undone the changes that made these keys ready
		delete(s.c.readyKeys, k)
	}
	s.c.readyList = s.c.readyList[:s.ready]
	rec := s.c.rec
	rec.effects, rec.n = rec.effects[:s.effects], s.n
	s.tracked = false
}

// do executes one redis.call. It checks permissions in the same order as Redis.
func (s *scriptRun) do(args [][]byte) Reply {
	c := s.c
	cmd := c.m.table.Find(args[0])
	if cmd == nil || cmd.Flags&Internal != 0 {
		return s.session(args)
	}
	row := cmd
	if cmd.Sub != nil && len(args) > 1 {
		if row = cmd.FindSub(args[1]); row == nil {
			return Error(msgScriptUnknown)
		}
	}
	write := row.Flags&(Write|MayWrite) != 0
	switch {
	case !row.ArityOK(len(args)):
		return Error(msgScriptArity)
	case row.Flags&NoScript != 0:
		return Error(msgScriptNotHere)
	case cmd.exists(args) > c.m.features:
		return Error(NeedsFeature(cmd, args, cmd.exists(args), c.m.features))
	case c.r.user != "":
		if text := c.forbidden(args); text != "" {
			return Error(text)
		}
	}
	if text := c.refused(cmd, args); text != "" {
		return Error(text)
	}
	switch {
	case write && c.readOnly && c.m.features >= FeatureParts:
		c.unlogged = true // the node may have sent a script as a read although it writes: see AsRead
		return Error(msgScriptReadOnly)
	case write && (s.readOnly || c.readOnly):
		return Error(msgScriptReadOnly)
	case s.refused != "":
		return Error(s.refused)
	}
	if text := s.full(row); text != "" {
		return Error(text)
	}
	if write && c.overworked(row, args) {
		s.refused = msgScriptWork
		return Error(s.refused)
	}
	if write {
		if fail := c.quarantinedCall(cmd, args); fail.IsError() {
			return fail
		}
		if fail := c.delayedCall(cmd, args); fail.IsError() {
			return fail
		}
	}
	if write && s.before == nil {
		s.before = c.m.Clone()
	}
	if write && native[s.sha] != nil && c.m.features >= FeatureHistory {
		cmd, args = s.ofLock(cmd, args)
	}
	c.setPosition(c.position + 1)
	changes, draws := c.changes, c.draws
	reply := c.meteredCall(cmd, args)
	if c.rec == nil {
		return reply
	}
	switch {
	case write && c.tookEffect(cmd, args, changes, reply):
		c.rec.record(c, draws, cmd.Name, args)
		s.tracked = false
	case c.recordsRead(row):
		s.track(draws)
	}
	if len(c.rec.effects) > c.rec.room {
		s.refused = msgScriptTooBig
	}
	return reply
}

// ofLock returns the command that the interpreter executes in place of a command of
// a known lock script. Both commands have the same reply, but the returned one shows
// that the script takes or releases a lock. So the history of locks is the same as
// if the script were executed in its native form. The interpreter executes such a
// script for a user with rules.
func (s *scriptRun) ofLock(cmd *Command, args [][]byte) (*Command, [][]byte) {
	c := s.c
	if len(args) < 2 {
		return cmd, args
	}
	o := c.Lookup(args[1])
	switch {
	case cmd.Name == "del" && len(args) == 2 && len(s.args) > 0:
		if o != nil && o.Type == keyspace.TypeString && o.Str == codec.View(s.args[0]) {
			name := []byte("delifeq")
			return c.m.table.Find(name), [][]byte{name, args[1], s.args[0]}
		}
	case o != nil || !acquiring[s.sha]:
	case cmd.Name == "setex":
		if n, ok := number.ParseInt(args[2]); !ok || n <= 0 {
			return cmd, args // the error would name SET instead of SETEX
		}
		name := []byte("set")
		return c.m.table.Find(name), [][]byte{name, args[1], args[3], []byte("EX"), args[2], []byte("NX")}
	case cmd.Name == "set" && len(args) == 5: // the SET has a time to live
		return cmd, append(slices.Clone(args), []byte("NX"))
	}
	return cmd, args
}

// track records a read of the script for a connection with tracking. As in
// Redis, the read counts as a read of all keys that the script was called with,
// and of no other keys, because the client cannot know which other keys a
// script reads. In the log, an EXISTS command represents the read. Further
// reads are not recorded until the script writes.
func (s *scriptRun) track(draws uint64) {
	if s.tracked || len(s.keys) == 0 {
		return
	}
	s.tracked = true
	s.c.rec.record(s.c, draws, "exists", slices.Concat([][]byte{nil}, s.keys))
}

// forbidden returns the reason why the user of the script may not execute a
// command, or "" if the user may. If the runner cannot check rules, the scripts of
// users with rules may execute no command.
func (c *Ctx) forbidden(args [][]byte) string {
	if c.r.user == "" {
		return ""
	}
	g, ok := c.runner.(ScriptGuard)
	if !ok {
		return msgScriptNoGuard
	}
	return g.Forbids(c.m.users, c.r.user, args)
}

// refused returns the reason why the node refuses a command to all scripts, or
// "" if it does not refuse the command.
func (c *Ctx) refused(cmd *Command, args [][]byte) string {
	if r, ok := c.runner.(ScriptRules); ok {
		return r.Refuses(cmd, args)
	}
	return ""
}

// permits implements redis.acl_check_cmd. known is also true for commands that
// scripts may not call.
func (s *scriptRun) permits(args [][]byte) (permitted, known bool) {
	name := strings.ToLower(string(args[0]))
	cmd := s.c.m.table.Find(args[0])
	known = cmd != nil && cmd.Flags&Internal == 0 || SessionCommand(name) || slices.Contains(inScripts, name)
	return known && s.c.forbidden(args) == "", known
}

// inScripts are the commands of the connection that scripts may call.
var inScripts = []string{"ping", "echo", "select"}

// session executes commands of the connection. In a script they affect the
// script and not the connection.
func (s *scriptRun) session(args [][]byte) Reply {
	name := strings.ToLower(string(args[0]))
	switch {
	case SessionCommand(name):
		return Error(msgScriptNotHere)
	case !slices.Contains(inScripts, name):
		return Error(msgScriptUnknown)
	}
	text := s.c.forbidden(args)
	switch {
	case text != "":
		return Error(text)
	case name == "ping" && len(args) == 1:
		return Simple("PONG")
	case name == "ping" && len(args) > 2:
		return Error(WrongArity("ping"))
	case len(args) != 2:
		return Error(msgScriptArity)
	case name != "select":
		return Bulk(string(args[1]))
	}
	n, ok := number.ParseInt(args[1])
	if !ok {
		return Error(MsgNotInt)
	}
	if text := s.c.refused(nil, args); text != "" {
		return Error(text)
	}
	if n < 0 || n >= Databases {
		return Error(MsgDBIndex)
	}
	s.c.db = int(n)
	return OK
}

// SessionCommand reports whether a command concerns the connection or the node,
// so that scripts may not call it. name is in lower case. The table of this package
// has none of these commands except SWAPDB, which scripts may therefore call. A test
// in package resp compares the names with the rows of that package.
func SessionCommand(name string) bool { return slices.Contains(sessionCommands, name) }

var sessionCommands = []string{
	"acl", "asking", "auth", "bgrewriteaof", "bgsave", "client", "cluster", "command", "config", "debug",
	"discard", "exec", "failover", "hello", "holdfast", "info", "lastsave", "latency", "lolwut", "memory",
	"module", "monitor", "multi", "psubscribe", "psync", "pubsub", "punsubscribe", "quit", "readonly",
	"readwrite", "replicaof", "reset", "role", "save", "shutdown", "slaveof", "slowlog", "ssubscribe",
	"subscribe", "sunsubscribe", "swapdb", "sync", "unsubscribe", "unwatch", "wait", "waitaof", "watch",
}

// ScriptRunner interprets scripts. The leader has one for the scripts of groups that
// go through the log, and each node has one for the scripts that it executes as
// reads. Several goroutines may call its methods at the same time.
type ScriptRunner interface {
	// CompileScript returns "" if a script can be executed, and otherwise
	// Redis' error text with its code ("ERR Error compiling script (new
	// function): …"). EVAL calls it before every execution, so an
	// implementation should cache the result.
	CompileScript(body []byte) string
	// RunScript executes a script, whose commands go through call.Do. It must
	// return within its budget, no matter what the script does. If an error ends the
	// script, the reply is an Error with the tail that Redis adds (" script:
	// <sha>, on @user_script:<line>."), and the writes of the script are rolled
	// back. If the script returns an error as its value, the reply is an
	// ErrorResult, and the writes stay.
	RunScript(call ScriptCall) Reply
}

// ScriptCompiler is implemented by runners that keep compiled scripts.
type ScriptCompiler interface {
	// Compiled reports whether the script with this SHA1 has been compiled, so
	// that it can run at once. library is set if the script is the code of a
	// library.
	Compiled(sha string, library bool) bool
}

// CompileBound is implemented by runners that bound the time of a dry run.
type CompileBound interface {
	// MayCompile reports whether the dry run may compile a script of size
	// bytes. If not, the dry run ends.
	MayCompile(size int) bool
}

// ScriptGuard is implemented by runners that know the rules of users.
type ScriptGuard interface {
	// Forbids returns "" if a user may run a command that a script calls, and
	// otherwise Redis' error text, without the tail that redis.call appends.
	// users belongs to the state on which the script runs.
	Forbids(users *Users, user string, args [][]byte) string
}

// ScriptRules is implemented by runners that refuse some commands of the
// machine to all clients, regardless of the user.
type ScriptRules interface {
	// Refuses returns "" if scripts may call a command, and otherwise Redis'
	// error text, without the tail that redis.call appends. cmd is nil for
	// commands of the connection, such as SELECT.
	Refuses(cmd *Command, args [][]byte) string
}

// ScriptCall is one call of a script.
type ScriptCall struct {
	SHA        string // SHA1 of Body: 40 lower-case hexadecimal digits
	Body       []byte // as the client sent it, including the first line
	Keys, Args [][]byte
	ReadOnly   bool   // EVAL_RO, EVALSHA_RO, a function with no-writes: Do refuses writes
	Proto      int    // RESP version of the client: 2 or 3
	Origin     uint64 // connection of the client: see Group.Reset
	User       string // user whose rules apply, "" for none
	Seed       uint64 // for math.random; differs in each call
	// Do executes one command of the script and returns its reply. It checks
	// name, arity, permissions and whether the script may write. An error reply
	// has Redis' text, without the tail that redis.call appends. Do keeps
	// nothing of args.
	Do func(args [][]byte) Reply
	// SetProto implements redis.setresp. It sets the RESP version, initially 2,
	// which decides the shape of the replies of Do. For example, ZRANGE
	// WITHSCORES returns pairs in version 3.
	SetProto func(proto int)
	// SetReadOnly implements the flag no-writes of a script's first line: Do
	// refuses writes from then on.
	SetReadOnly func()
	// Permits implements redis.acl_check_cmd: it reports whether the command is
	// known, and whether the caller of the script may run it. If Permits is
	// nil, everything is permitted.
	Permits func(args [][]byte) (permitted, known bool)
	// Interrupt, unless nil, is called regularly while a script runs: every few
	// thousand instructions, and around long library calls. If Interrupt
	// returns a text, the script ends with this text as its error, which pcall
	// cannot catch. Interrupt returns a text when the script has exceeded its
	// time limit, when it was killed, or when the leader that runs it was
	// deposed.
	Interrupt func() string
	// ScriptBudget says how long the script may run. The code that sets
	// Interrupt must call Cut if it has ended a script with the budget DryRun, or
	// if a script has exceeded the time limit of the budget Briefly. Unless the
	// script runs as a read, the reply to the client then comes from a later run.
	ScriptBudget ScriptBudget
	Cut          func()

	// Function is set for a call of a function: it is the name of the function,
	// and Body is the code of its library. The runner executes the code, and calls
	// the function that the code registers under this name. The tail of errors
	// names the function in place of the SHA1. Command is the whole command, for
	// FUNCTION STATS.
	Function string
	Command  [][]byte
	// Register is set, in place of Function, when FUNCTION LOAD or FUNCTION
	// RESTORE loads a library. Body is then the code of this library. The runner
	// calls Register for each function that the code registers. Register may
	// refuse the function. While the code runs, redis.call and everything else
	// that only functions may use is missing. An error in the code is returned
	// as the error of FUNCTION LOAD, with its error code.
	Register func(f library.Function) (refusal string)
	// Begun, unless nil, is shared by the calls of one command, which share one
	// time limit. The runner sets it.
	Begun *int64
	// Group, unless nil, is shared by the calls of a group in a speculative
	// execution. Each call has its own time limit, and the group has one for
	// all its calls.
	Group *int64
}

// RunningScripts are the scripts and functions that run on a node.
type RunningScripts interface {
	// Kill ends the function that has been running longest, or, if function is
	// false, the script that has been running longest.
	Kill(function bool) KillResult
	// Function returns the function that has been running longest, nil if none
	// is running.
	Function() *RunningFunction
}

// KillResult is the result of RunningScripts.Kill.
type KillResult int

// These are the results of RunningScripts.Kill.
const (
	Killed  KillResult = iota
	NotBusy            // nothing is running
	Other              // Kill was called for a function and a script is running, or the reverse
)

// RunningFunction describes a running function, for FUNCTION STATS.
type RunningFunction struct {
	Name    string
	Command []string
	Millis  int64 // since the start
}
