package fsm

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// The machine never executes Lua when it applies an entry. The leader executes
// a group with a script speculatively on a clone (see Speculation). The entry
// then contains the write commands that the script called, and its reply. The
// log contains a script call itself only if this program implements the script
// natively (nativescript.go).

const (
	scriptNotesRW = "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"
	scriptNotesRO = "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"
	evalFlags     = Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys
)

var scriptingCommands = []Command{
	{
		Name: "eval", Run: eval, Arity: -3, Flags: MayWrite | evalFlags, KeysOf: scriptKeys,
		Specs: scriptSpecs(scriptNotesRW, "RW", "access update"),
		Group: "scripting", Since: "2.6.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "script numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a Lua script server side",
	},
	{
		Name: "evalsha", Run: evalsha, Arity: -3, Flags: MayWrite | evalFlags, KeysOf: scriptKeys,
		Specs: scriptSpecs("", "RW", "access update"),
		Group: "scripting", Since: "2.6.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "sha1 numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a Lua script server side",
	},
	{
		Name: "eval_ro", Run: eval, Arity: -3, Flags: ReadOnly | Slow | evalFlags, KeysOf: scriptKeys,
		Specs: scriptSpecs(scriptNotesRO, "RO", "access"),
		Group: "scripting", Since: "7.0.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "script numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a read-only Lua script server side",
	},
	{
		Name: "evalsha_ro", Run: evalsha, Arity: -3, Flags: ReadOnly | Slow | evalFlags, KeysOf: scriptKeys,
		Specs: scriptSpecs("", "RO", "access"),
		Group: "scripting", Since: "7.0.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "sha1 numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a read-only Lua script server side",
	},
	{Name: "script", Run: script, Arity: -2,
		Group: "scripting", Since: "2.6.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "DEBUG | EXISTS | FLUSH | HELP | KILL | LOAD [arg ...]",
		Doc:        "A container for Lua scripts management commands", Sub: []Command{
			{
				Name: "debug", Run: scriptDebug, Arity: 3, Flags: NoScript,
				Group: "scripting", Since: "3.2.0",
				Complexity: "O(1)",
				Syntax:     "<YES | SYNC | NO>",
				Doc:        "Set the debug mode for executed scripts.",
			},
			{
				Name: "exists", Run: scriptExists, Arity: -3, Flags: NoScript,
				Group: "scripting", Since: "2.6.0",
				Complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
				Syntax:     "sha1 [sha1 ...]",
				Doc:        "Check existence of scripts in the script cache.",
				Tips:       []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
			},
			{
				Name: "flush", Run: scriptFlush, Arity: -2, Flags: MayWrite | NoScript,
				Group: "scripting", Since: "2.6.0",
				Complexity: "O(N) with N being the number of scripts in cache",
				History:    []Change{{"6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers."}},
				Syntax:     "[ASYNC | SYNC]",
				Doc:        "Remove all the scripts from the script cache.",
				Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			},
			{
				Name: "help", Run: func(*Ctx, [][]byte) Reply { return scriptHelp }, Arity: 2, Flags: Loading | Stale,
				Group: "scripting", Since: "5.0.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "kill", Run: scriptKill, Arity: 2, Flags: NoScript | AllowBusy,
				Group: "scripting", Since: "2.6.0",
				Complexity: "O(1)",
				Doc:        "Kill the script currently in execution.",
				Tips:       []string{"request_policy:all_shards", "response_policy:one_succeeded"},
			},
			{
				Name: "load", Run: scriptLoad, Arity: 3, Flags: MayWrite | Scripted | NoScript | Stale,
				Group: "scripting", Since: "2.6.0",
				Complexity: "O(N) with N being the length in bytes of the script body.",
				Syntax:     "script",
				Doc:        "Load the specified Lua script into the script cache.",
				Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			},
		}},
}

func scriptSpecs(notes, mode, flags string) []KeySpec {
	return []KeySpec{{
		Keys: Keys{First: 2, Step: 1}, NumKeys: true, Access: Access{Mode: mode, Flags: flags, Notes: notes},
	}}
}

// These are error texts of scripting. The first five are Redis' own, to the
// letter.
const (
	msgNoScript      = "NOSCRIPT No matching script. Please use EVAL."
	msgNegativeKeys  = "ERR Number of keys can't be negative"
	msgTooManyKeys   = "ERR Number of keys can't be greater than number of args"
	msgNotBusy       = "NOTBUSY No scripts in execution right now."
	msgFlushMode     = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
	msgDebugMode     = "ERR Use SCRIPT DEBUG YES/SYNC/NO"
	msgNoDebugger    = "ERR SCRIPT DEBUG is not supported: there is no debugger"
	msgNoInterpreter = "ERR this program has no interpreter for scripts, it only knows some by their SHA1"
	msgNotSpeculated = "ERR script reached the log without having been run by the leader"
)

// scriptKeys returns the positions of the keys of a script. The second argument
// is their number.
func scriptKeys(args [][]byte) []int {
	keys, _, fail := scriptArgs(args)
	if fail != "" {
		return nil
	}
	pos := make([]int, len(keys))
	for i := range pos {
		pos[i] = 3 + i
	}
	return pos
}

// scriptArgs splits the arguments after the script into keys and other
// arguments.
func scriptArgs(args [][]byte) (keys, argv [][]byte, fail string) {
	n, ok := number.ParseInt(args[2])
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

// interpreted reports whether a call needs the interpreter, so that the leader
// has to execute it speculatively.
func (cmd *Command) interpreted(args [][]byte) bool {
	if cmd.Flags&Scripted == 0 {
		return false
	}
	switch cmd.Name {
	case "eval":
		return !isNative(SHA1(args[1]), args)
	case "evalsha":
		var buf [shaLen]byte
		return len(args[1]) == shaLen && !isNative(viewString(lowerSHA(&buf, args[1])), args)
	case "load": // of SCRIPT or FUNCTION
		return fold(args[0], "FUNCTION") || native[SHA1(args[2])] == nil
	}
	return true
}

// lowerSHA writes the SHA1 of a script into buf, in lower case.
func lowerSHA(buf *[shaLen]byte, sha []byte) []byte {
	for i, b := range sha {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		buf[i] = b
	}
	return buf[:len(sha)]
}

const shaLen = 40

func eval(c *Ctx, args [][]byte) Reply {
	keys, argv, fail := scriptArgs(args)
	switch {
	case fail != "":
		return Error(fail)
	case len(args[1]) > maxScriptBytes:
		return Error(msgScriptLength)
	}
	sha := SHA1(args[1])
	if n := c.nativeFor(sha, args, keys, argv); n != nil {
		if refusal := c.cacheScript(sha, args[1], false); refusal.IsError() {
			return refusal
		}
		return n.call(c, sha, keys, argv)
	}
	return c.script(sha, args[1], keys, argv, readOnlyScript(args))
}

func evalsha(c *Ctx, args [][]byte) Reply {
	if len(args[1]) != shaLen { // checked before everything else, as in Redis
		return Error(msgNoScript)
	}
	var buf [shaLen]byte
	sha := viewString(lowerSHA(&buf, args[1]))
	body, known := c.m.scripts.get(sha)
	keys, argv, fail := scriptArgs(args)
	switch {
	case fail != "":
		return Error(fail)
	case !known:
		return Error(msgNoScript)
	}
	if n := c.nativeFor(sha, args, keys, argv); n != nil {
		if now := c.scriptClock(); now != 0 && c.m.scripts.stale(sha, now, scriptUseEvery) {
			c.cacheScript(strings.Clone(sha), []byte(body), false) // the script is in the cache, so there is room for it
		}
		return n.call(c, sha, keys, argv)
	}
	return c.script(strings.Clone(sha), []byte(body), keys, argv, readOnlyScript(args))
}

// readOnlyScript reports whether the command is EVAL_RO, EVALSHA_RO or
// FCALL_RO.
func readOnlyScript(args [][]byte) bool { return args[0][len(args[0])-1]|0x20 == 'o' }

// script executes a script with the interpreter of the leader, or of the node
// that executes a read.
func (c *Ctx) script(sha string, body []byte, keys, argv [][]byte, readOnly bool) Reply {
	if refusal := c.interpreter(); refusal != "" {
		return Error(refusal)
	}
	return c.interpret(ScriptCall{
		SHA: sha, Body: body, Keys: keys, Args: argv,
		ReadOnly: readOnly, Proto: c.proto, Seed: c.random(),
	})
}

// interpreter returns the reason for which no script can be interpreted, "" if
// it can.
func (c *Ctx) interpreter() (refusal string) {
	switch {
	case c.rec == nil && !c.readOnly:
		return msgNotSpeculated
	case c.runner == nil:
		if c.rec != nil {
			c.rec.replaced() // the error is logged, because other nodes may have an interpreter
		}
		return msgNoInterpreter
	}
	return ""
}

// cacheScript puts a script into the cache. It returns an error or None.
func (c *Ctx) cacheScript(sha string, body []byte, pinned bool) (refusal Reply) {
	now := c.scriptClock()
	if c.readOnly {
		if _, known := c.m.scripts.get(sha); !known || now != 0 && c.m.scripts.stale(sha, now, scriptReadUseEvery) {
			c.unlogged = true
		}
		return None
	}
	changed, ok := c.m.scripts.add(sha, string(body), c.pos, pinned, now)
	if !ok {
		return Error(msgScriptCache)
	}
	if changed {
		c.changes++
	}
	return None
}

// scriptClock returns the lease clock for recording uses of scripts, and 0
// before FeatureScriptCache.
func (c *Ctx) scriptClock() int64 {
	if c.m.features < FeatureScriptCache {
		return 0
	}
	return max(c.now, 1)
}

// cacheCommand is the logged effect of an EVAL that puts its script into the
// cache.
const cacheCommand = "_script"

func cacheEvaluated(c *Ctx, args [][]byte) Reply { return c.cacheScript(SHA1(args[1]), args[1], false) }

// script executes a subcommand of SCRIPT.
func script(c *Ctx, args [][]byte) Reply {
	sub := c.m.table.Find(args[0]).FindSub(args[1])
	switch {
	case sub == nil:
		return Error(UnknownSubcommand(args[1], "SCRIPT"))
	case !sub.ArityOK(len(args)):
		return Error(WrongArity("script|" + sub.Name))
	}
	return sub.Run(c, args)
}

func scriptLoad(c *Ctx, args [][]byte) Reply {
	if len(args[2]) > maxScriptBytes {
		return Error(msgScriptLength)
	}
	sha := SHA1(args[2])
	if _, known := c.m.scripts.get(sha); !known && c.rec != nil && c.runner != nil && native[sha] == nil {
		if text := c.runner.CompileScript(args[2]); text != "" {
			c.rec.replaced() // the error is logged, because other nodes do not compile the script
			return Error(text)
		}
	}
	if refusal := c.cacheScript(sha, args[2], true); refusal.IsError() {
		return refusal
	}
	return Bulk(sha)
}

func scriptExists(c *Ctx, args [][]byte) Reply {
	found := make([]Reply, 0, len(args)-2)
	for _, sha := range args[2:] {
		_, known := c.m.scripts.get(strings.ToLower(string(sha)))
		found = append(found, Bool(known))
	}
	return Array(found)
}

func scriptFlush(c *Ctx, args [][]byte) Reply {
	if len(args) > 3 || len(args) == 3 && !fold(args[2], "ASYNC") && !fold(args[2], "SYNC") {
		return Error(msgFlushMode)
	}
	c.m.scripts = newScriptCache()
	c.changes++
	return OK
}

// scriptKill ends a script of the node that executes SCRIPT KILL as a read. In
// a group that goes through the log c.scripts is nil: the command is ordered
// after the script that it could have ended.
func scriptKill(c *Ctx, args [][]byte) Reply { return c.killScript(false) }

// killScript ends a running function, or a running script if function is false.
func (c *Ctx) killScript(function bool) Reply {
	if c.scripts == nil {
		return Error(msgNotBusy)
	}
	switch c.scripts.Kill(function) {
	case Killed:
		return OK
	case NotBusy:
		return Error(msgNotBusy)
	}
	if function {
		return Error(msgBusyScript)
	}
	return Error(msgBusyFunction)
}

func scriptDebug(c *Ctx, args [][]byte) Reply {
	switch {
	case fold(args[2], "NO"):
		return OK
	case fold(args[2], "YES"), fold(args[2], "SYNC"):
		return Error(msgNoDebugger)
	}
	return Error(msgDebugMode)
}

var scriptHelp = func() Reply {
	var lines []Reply
	for _, l := range []string{
		"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DEBUG (YES|SYNC|NO)",
		"    Set the debug mode for subsequent scripts executed.",
		"EXISTS <sha1> [<sha1> ...]",
		"    Return information about the existence of the scripts in the script cache.",
		"FLUSH [ASYNC|SYNC]",
		"    Flush the Lua scripts cache. Very dangerous on replicas.",
		"    When called without the optional mode argument, the behavior is determined by the",
		"    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
		"    * ASYNC: Asynchronously flush the scripts cache.",
		"    * SYNC: Synchronously flush the scripts cache.",
		"KILL",
		"    Kill the currently executing Lua script.",
		"LOAD <script>",
		"    Load a script into the scripts cache without executing it.",
		"HELP",
		"    Prints this help.",
	} {
		lines = append(lines, Simple(l))
	}
	return Array(lines)
}()
