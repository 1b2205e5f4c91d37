package fsm

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"sort"
	"strings"
)

// Lua never runs in the machine. The leader rehearses a group with a script on
// a fork (see Rehearsal) and puts the write commands that the script made, and
// its reply, into the entry. Only scripts of which this program knows what they
// do (nativescript.go) come through the log as they are.

var scriptingCommands = []Command{
	{Name: "eval", Arity: -3, Flags: MayWrite | Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys, KeysOf: numberedKeys, Specs: scriptSpecs("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE", "RW", "access update"), Group: "scripting", Since: "2.6.0", Complexity: "Depends on the script that is executed.", Syntax: "script numkeys [key [key ...]] [arg [arg ...]]", Doc: "Execute a Lua script server side", Categories: []string{"scripting"}, Run: eval},
	{Name: "evalsha", Arity: -3, Flags: MayWrite | Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys, KeysOf: numberedKeys, Specs: scriptSpecs("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE", "RW", "access update"), Group: "scripting", Since: "2.6.0", Complexity: "Depends on the script that is executed.", Syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]", Doc: "Execute a Lua script server side", Categories: []string{"scripting"}, Run: evalsha},
	{Name: "eval_ro", Arity: -3, Flags: MayWrite | Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys | ReadOnly, KeysOf: numberedKeys, Specs: scriptSpecs("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS", "RO", "access"), Group: "scripting", Since: "7.0.0", Complexity: "Depends on the script that is executed.", Syntax: "script numkeys key [key ...] arg [arg ...]", Doc: "Execute a read-only Lua script server side", Categories: []string{"scripting"}, Run: eval},
	{Name: "evalsha_ro", Arity: -3, Flags: MayWrite | Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys | ReadOnly, KeysOf: numberedKeys, Specs: scriptSpecs("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS", "RO", "access"), Group: "scripting", Since: "7.0.0", Complexity: "Depends on the script that is executed.", Syntax: "sha1 numkeys key [key ...] arg [arg ...]", Doc: "Execute a read-only Lua script server side", Categories: []string{"scripting"}, Run: evalsha},
	{Name: "script", Arity: -2, Flags: MayWrite | NoScript, Group: "scripting", Since: "2.6.0", Complexity: "Depends on subcommand.", Syntax: "subcommand [arg ...]", Doc: "A container for Lua scripts management commands", Categories: []string{"scripting"}, Run: scriptContainer, Sub: []Command{
		{Name: "load", Arity: 3, Flags: MayWrite | NoScript | Stale, Group: "scripting", Since: "2.6.0", Complexity: "O(N) with N being the length in bytes of the script body.", Syntax: "script", Doc: "Load the specified Lua script into the script cache.", Categories: []string{"scripting"}, Run: scriptLoad},
		{Name: "exists", Arity: -3, Flags: MayWrite | NoScript, Group: "scripting", Since: "2.6.0", Complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).", Syntax: "sha1 [sha1 ...]", Doc: "Check existence of scripts in the script cache.", Categories: []string{"scripting"}, Run: scriptExists},
		{Name: "flush", Arity: -2, Flags: MayWrite | NoScript, Group: "scripting", Since: "2.6.0", Complexity: "O(N) with N being the number of scripts in cache", Syntax: "[ASYNC|SYNC]", Doc: "Remove all the scripts from the script cache.", Categories: []string{"scripting"}, Run: scriptFlush},
		{Name: "kill", Arity: 2, Flags: MayWrite | NoScript | AllowBusy, Group: "scripting", Since: "2.6.0", Complexity: "O(1)", Doc: "Kill the script currently in execution.", Categories: []string{"scripting"}, Run: scriptKill},
		{Name: "help", Arity: 2, Flags: Loading | Stale, Group: "scripting", Since: "5.0.0", Complexity: "O(1)", Doc: "Show helpful text about the different subcommands", Categories: []string{"scripting"}, Run: scriptHelpText},
	}},
}

func scriptSpecs(notes, mode, flags string) []KeySpec {
	return []KeySpec{{Access: Access{Mode: mode, Flags: flags, Notes: notes}}}
}

// Texts of scripting errors.
const (
	msgNoScript       = "NOSCRIPT No matching script. Please use EVAL."
	msgNegativeKeys   = "ERR Number of keys can't be negative"
	msgTooManyKeys    = "ERR Number of keys can't be greater than number of args"
	msgScriptUnknown  = "ERR Unknown Redis command called from script"
	msgScriptArity    = "ERR Wrong number of args calling Redis command from script"
	msgScriptNotHere  = "ERR This Redis command is not allowed from script"
	msgScriptReadOnly = "ERR Write commands are not allowed from read-only scripts."
	msgScriptCache    = "ERR the script cache is full (33554432 bytes), use SCRIPT FLUSH"
	msgNotRehearsed   = "ERR script reached the log without having been run by the leader"
	msgScriptTooBig   = "ERR script wrote more than 8388608 bytes, nothing of it was done"
)

// maxScriptCache bounds the bytes of all scripts, maxScriptEffects what one
// script may write.
const (
	maxScriptCache   = 32 << 20
	maxScriptEffects = 8 << 20
)

// numberedKeys finds the keys of commands whose second argument counts them.
func numberedKeys(args [][]byte) []int {
	if len(args) < 3 {
		return nil
	}
	n, ok := parseInt(args[2])
	if !ok || n < 0 || n > int64(len(args)-3) {
		return nil
	}
	pos := make([]int, n)
	for i := range pos {
		pos[i] = 3 + i
	}
	return pos
}

// SHA1 returns the name of a script: 40 lower-case hexadecimal digits.
func SHA1(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

// scripts is the script cache, replicated like any state: an EVALSHA finds its
// script after a failover too. It is replaced, never changed: forks share it.
type scripts struct {
	bodies map[string]string
	bytes  int
}

func (s scripts) with(sha, body string) scripts {
	bodies := maps.Clone(s.bodies)
	if bodies == nil {
		bodies = make(map[string]string)
	}
	bodies[sha] = body
	return scripts{bodies, s.bytes + len(body)}
}

// sorted returns the bodies in the order of their names.
func (s scripts) sorted() []string {
	var names []string
	for name := range s.bodies {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = s.bodies[name]
	}
	return names
}

// loadScript puts a script into the cache.
func (c *Ctx) loadScript(sha string, body []byte) (err Reply, ok bool) {
	if _, known := c.m.scripts.bodies[sha]; known {
		return Reply{}, true
	}
	if c.m.scripts.bytes+len(body) > maxScriptCache {
		return Error(msgScriptCache), false
	}
	c.m.scripts = c.m.scripts.with(sha, string(body))
	if c.rec != nil {
		c.rec.record(c.db, [][]byte{[]byte("script"), []byte("load"), body})
	}
	return Reply{}, true
}

// scriptContainer finds the subcommand's row through the machine: the row of
// SCRIPT cannot name itself.
func scriptContainer(c *Ctx, args [][]byte) Reply {
	sub := c.m.table.Find([]byte("script")).FindSub(args[1])
	if sub == nil {
		return Error(UnknownSubcommand(args[1], "SCRIPT"))
	}
	if !sub.ArityOK(len(args)) {
		return Error(WrongArity("script|" + sub.Name))
	}
	return sub.Run(c, args)
}

func scriptLoad(c *Ctx, args [][]byte) Reply {
	if c.rec != nil && c.rec.runner != nil {
		if err := c.rec.runner.CompileScript(args[2]); err != "" {
			c.rec.interpreted = true // the error is the reply; nothing is to be logged
			return Error(err)
		}
	}
	sha := SHA1(args[2])
	if err, ok := c.loadScript(sha, args[2]); !ok {
		return err
	}
	return Bulk(sha)
}

func scriptExists(c *Ctx, args [][]byte) Reply {
	found := make([]Reply, 0, len(args)-2)
	for _, sha := range args[2:] {
		_, ok := c.m.scripts.bodies[strings.ToLower(string(sha))]
		found = append(found, Bool(ok))
	}
	return Array(found)
}

func scriptFlush(c *Ctx, args [][]byte) Reply {
	if len(args) > 3 || len(args) == 3 && !fold(args[2], "ASYNC") && !fold(args[2], "SYNC") {
		return Error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	c.m.scripts = scripts{}
	return OK
}

// scriptKill stands in the log behind the script that it would have killed,
// whose budget has ended it meanwhile.
func scriptKill(c *Ctx, args [][]byte) Reply {
	return Error("NOTBUSY No scripts in execution right now.")
}

func scriptHelpText(c *Ctx, args [][]byte) Reply { return scriptHelp }

var scriptHelp = func() Reply {
	var lines []Reply
	for _, l := range []string{
		"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"EXISTS <sha1> [<sha1> ...]", "    Return information about the existence of the scripts in the script cache.",
		"FLUSH [ASYNC|SYNC]", "    Flush the Lua scripts cache.",
		"KILL", "    Kill the currently executing Lua script.",
		"LOAD <script>", "    Load a script into the scripts cache without executing it.",
		"HELP", "    Prints this help.",
	} {
		lines = append(lines, Simple(l))
	}
	return Array(lines)
}()

func eval(c *Ctx, args [][]byte) Reply {
	keys, argv, err := scriptArgs(args)
	if err != "" {
		return Error(err)
	}
	return c.runScript(SHA1(args[1]), args[1], keys, argv, len(args[0]) > len("eval"))
}

func evalsha(c *Ctx, args [][]byte) Reply {
	sha := strings.ToLower(string(args[1]))
	body, known := c.m.scripts.bodies[sha]
	keys, argv, err := scriptArgs(args)
	switch {
	case err != "":
		return Error(err)
	case !known:
		return Error(msgNoScript)
	}
	return c.runScript(sha, []byte(body), keys, argv, len(args[0]) > len("evalsha"))
}

// scriptArgs splits what follows the script into keys and arguments.
func scriptArgs(args [][]byte) (keys, argv [][]byte, err string) {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		return nil, nil, msgNotInt
	case n > int64(len(args)-3):
		return nil, nil, msgTooManyKeys
	case n < 0:
		return nil, nil, msgNegativeKeys
	}
	return args[3 : 3+n], args[3+n:], ""
}

// runScript runs a script: as a native one, or by the leader's interpreter.
func (c *Ctx) runScript(sha string, body []byte, keys, argv [][]byte, readOnly bool) Reply {
	if n := native[sha]; n != nil && !readOnly && n.fits(keys, argv) {
		if err, ok := c.loadScript(sha, body); !ok {
			return err
		}
		return n.run(c, keys, argv)
	}
	if c.rec == nil || c.rec.runner == nil {
		return Error(msgNotRehearsed)
	}
	return c.interpret(ScriptCall{
		SHA: sha, Body: body, Keys: keys, Args: argv, ReadOnly: readOnly, Proto: c.proto, Seed: c.random(),
	})
}

// interpret runs a script on the fork. It is all or nothing: a script that ends
// with an error has changed nothing.
func (c *Ctx) interpret(call ScriptCall) Reply {
	rec := c.rec
	rec.interpreted = true
	if err := rec.runner.CompileScript(call.Body); err != "" {
		return Error(err)
	}
	if err, ok := c.loadScript(call.SHA, call.Body); !ok {
		return err
	}
	before, effects, size, db := c.m.Fork(), len(rec.effects), rec.size, c.db
	call.Do = func(args [][]byte) Reply { return c.scriptCommand(args, call.ReadOnly) }
	reply := rec.runner.RunScript(call)
	c.db = db
	if rec.size-size > maxScriptEffects {
		reply = Error(msgScriptTooBig)
	}
	if reply.IsError() {
		clear(rec.effects[effects:])
		rec.effects, rec.size = rec.effects[:effects], size
		c.m.restoreFork(before)
	}
	return reply
}

// fromSession are commands that scripts may call although they belong to the
// connection: here they mean what they mean for the script.
func (c *Ctx) fromSession(args [][]byte) (Reply, bool) {
	switch name := strings.ToLower(string(args[0])); {
	case name == "ping" && len(args) == 1:
		return Simple("PONG"), true
	case name == "ping" && len(args) == 2, name == "echo" && len(args) == 2:
		return Bulk(string(args[1])), true
	case name == "ping", name == "echo", name == "select":
		if name != "select" || len(args) != 2 {
			return Error(msgScriptArity), true
		}
		n, ok := parseInt(args[1])
		if !ok {
			return Error(msgNotInt), true
		}
		if n < 0 || n >= Databases {
			return Error(msgDBIndex), true
		}
		c.db = int(n)
		return OK, true
	case sessionOnly[name]:
		return Error(msgScriptNotHere), true
	}
	return Reply{}, false
}

// sessionOnly are the commands of the connection that Redis refuses in scripts.
var sessionOnly = map[string]bool{
	"acl": true, "asking": true, "auth": true, "client": true, "config": true, "debug": true, "discard": true, "exec": true,
	"hello": true, "holdfast": true, "multi": true, "psubscribe": true, "punsubscribe": true, "quit": true, "readonly": true, "readwrite": true,
	"replicaof": true, "reset": true, "save": true, "bgsave": true, "bgrewriteaof": true, "shutdown": true, "slaveof": true, "slowlog": true,
	"ssubscribe": true, "subscribe": true, "sunsubscribe": true, "unsubscribe": true, "unwatch": true, "wait": true, "watch": true,
	"monitor": true, "sync": true, "psync": true, "failover": true, "module": true,
}

// scriptCommand runs one redis.call on the fork.
func (c *Ctx) scriptCommand(args [][]byte, readOnly bool) Reply {
	cmd := c.m.table.Find(args[0])
	if cmd == nil || cmd.Flags&Internal != 0 {
		if r, ok := c.fromSession(args); ok {
			return r
		}
		return Error(msgScriptUnknown)
	}
	write := cmd.Flags&(Write|MayWrite) != 0
	switch {
	case cmd.Flags&(NoScript|Blocking) != 0:
		return Error(msgScriptNotHere)
	case !cmd.ArityOK(len(args)):
		return Error(msgScriptArity)
	case readOnly && write:
		return Error(msgScriptReadOnly)
	}
	if cmd.Sub != nil {
		sub := cmd.FindSub(args[1])
		if sub == nil {
			return Error(UnknownSubcommand(args[1], strings.ToUpper(cmd.Name)))
		}
		if !sub.ArityOK(len(args)) {
			return Error(msgScriptArity)
		}
	}
	c.setPlace(c.place + 1)
	reply := cmd.Run(c, args)
	if write && !reply.IsError() {
		c.rec.record(c.db, args)
		if c.rec.size > maxScriptEffects {
			return Error(msgScriptTooBig)
		}
	}
	return reply
}

// cloneArgs copies arguments that outlive what they were read from.
func cloneArgs(args [][]byte) [][]byte {
	out := make([][]byte, len(args))
	for i, a := range args {
		out[i] = bytes.Clone(a)
	}
	return out
}
