package fsm

import (
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// The machine never executes Lua when it applies an entry. The leader executes
// a group with a script speculatively on a clone (see Speculation). The entry
// then contains the write commands that the script called, and the reply of the
// script. The log contains a script call itself only if the call needs no
// interpreter: it fails before the script would run, or this program implements the
// script natively (nativescript.go).

const (
	scriptNotesRW = "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"
	scriptNotesRO = "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"
	evalFlags     = Scripted | NoScript | Stale | SkipMonitor | NoMandatoryKeys | MovableKeys
)

var scriptingCommands = []Command{
	{
		Name: "eval", Run: eval, Arity: -3, Flags: MayWrite | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs(scriptNotesRW, "RW", "access update"),
		Group:  "scripting", Since: "2.6.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "script numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a Lua script server side",
	},
	{
		Name: "evalsha", Run: evalsha, Arity: -3, Flags: MayWrite | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs("", "RW", "access update"),
		Group:  "scripting", Since: "2.6.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "sha1 numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a Lua script server side",
	},
	{
		Name: "eval_ro", Run: eval, Arity: -3, Flags: ReadOnly | Slow | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs(scriptNotesRO, "RO", "access"),
		Group:  "scripting", Since: "7.0.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "script numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a read-only Lua script server side",
	},
	{
		Name: "evalsha_ro", Run: evalsha, Arity: -3, Flags: ReadOnly | Slow | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs("", "RO", "access"),
		Group:  "scripting", Since: "7.0.0",
		Complexity: "Depends on the script that is executed.",
		Syntax:     "sha1 numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Execute a read-only Lua script server side",
	},
	{
		Name: "script", Arity: -2,
		Group: "scripting", Since: "2.6.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "DEBUG | EXISTS | FLUSH | HELP | KILL | LOAD [arg ...]",
		Doc:        "A container for Lua scripts management commands",
		Sub: []Command{
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
				Complexity: "O(N) with N being the number of scripts to check (so checking a single script is an " +
					"O(1) operation).",
				Syntax: "sha1 [sha1 ...]",
				Doc:    "Check existence of scripts in the script cache.",
				Tips:   []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
			},
			{
				Name: "flush", Run: scriptFlush, Arity: -2, Flags: MayWrite | NoScript,
				Group: "scripting", Since: "2.6.0",
				Complexity: "O(N) with N being the number of scripts in cache",
				Syntax:     "[ASYNC | SYNC]",
				Doc:        "Remove all the scripts from the script cache.",
				Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				History:    []Change{{"6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers."}},
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
		},
	},
}

func scriptSpecs(notes, mode, flags string) []KeySpec {
	return []KeySpec{{
		Keys: Keys{First: 2, Step: 1}, NumKeys: true, Access: Access{Mode: mode, Flags: flags, Notes: notes},
	}}
}

// These are error texts of scripting. The first six are exactly those of Redis.
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

// scriptKeys returns the positions of the keys of a script. args[2] is their
// number.
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

// scriptArgs splits the arguments that follow the script into keys and other
// arguments.
func scriptArgs(args [][]byte) (keys, argv [][]byte, fail string) {
	n, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return nil, nil, MsgNotInt
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
		return len(args[1]) == shaLen && !isNative(codec.View(lowerSHA(&buf, args[1])), args)
	case "load": // SCRIPT LOAD or FUNCTION LOAD
		return IsWord(args[0], "FUNCTION") || native[SHA1(args[2])] == nil
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
	sha := codec.View(lowerSHA(&buf, args[1]))
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
			// The script is in the cache, so there is room for it.
			c.cacheScript(strings.Clone(sha), []byte(body), false)
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
		ReadOnly: readOnly, Proto: c.proto, Seed: c.Random(),
	})
}

// interpreter returns the reason why no script can be interpreted, or "" if
// scripts can be interpreted.
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

// cacheScript puts a script into the cache. It returns an error or None. A read
// cannot change the cache. In a read, cacheScript sets Ctx.unlogged if the cache
// needs an update.
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

// cacheCommand is the logged effect of an EVAL or EVALSHA that puts its script
// into the cache, or that updates the last use of the script. A node also sends
// this command if it cannot execute a script as a read because the script is not in
// the cache: see Table.AsRead.
const cacheCommand = "_script"

func cacheEvaluated(c *Ctx, args [][]byte) Reply {
	refusal := c.cacheScript(SHA1(args[1]), args[1], false)
	if refusal.IsError() || c.m.features < FeatureParts {
		return refusal
	}
	return OK
}

// ScriptText returns the text of a script in the cache.
func (m *Machine) ScriptText(sha string) (text string, known bool) { return m.scripts.get(sha) }

func scriptLoad(c *Ctx, args [][]byte) Reply {
	if len(args[2]) > maxScriptBytes {
		return Error(msgScriptLength)
	}
	sha := SHA1(args[2])
	if _, known := c.m.scripts.get(sha); !known && c.rec != nil && c.runner != nil && native[sha] == nil {
		if refusal := c.refuseCompile(sha, args[2], false); refusal != "" {
			return Error(refusal)
		}
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
	if len(args) > 3 || len(args) == 3 && !IsWord(args[2], "ASYNC") && !IsWord(args[2], "SYNC") {
		return Error(msgFlushMode)
	}
	c.m.scripts = newScriptCache()
	c.changes++
	return OK
}

// scriptKill ends a script of the node that executes SCRIPT KILL as a read. In
// a group that goes through the log, c.scripts is nil, because earlier scripts
// have ended when the command is executed.
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
	case IsWord(args[2], "NO"):
		return OK
	case IsWord(args[2], "YES"), IsWord(args[2], "SYNC"):
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

// These limits bound the script cache. From FeatureScriptCache on, if the cache
// has no room for a new script, the least recently used scripts are evicted, no
// matter whether EVAL or SCRIPT LOAD added them. At maxEvalScripts, a new script
// of EVAL evicts the least recently used script of EVAL. A program that builds a
// new script for every call, or loads scripts without end, must neither fill the
// memory of all nodes nor keep the scripts of other programs out of the cache.
// Before FeatureScriptCache, only scripts of EVAL were evicted, the oldest
// first. Scripts of SCRIPT LOAD stayed until SCRIPT FLUSH.
const (
	maxScriptBytes  = 1 << 20
	maxScriptCache  = 32 << 20
	maxEvalScripts  = 500
	scriptOverhead  = 256 // bytes that a cached script takes, besides its text
	msgScriptCache  = "ERR script cache is full (32 MiB), use SCRIPT FLUSH"
	msgScriptLength = "ERR script is longer than 1 MiB"
)

// SHA1 returns the SHA1 of a script in 40 lower-case hexadecimal digits.
// EVALSHA names a script by it.
func SHA1(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

// The cache records when each script was last used. Each update of a record changes
// the state, so a later use updates the record only when the record has reached a
// minimum age. These are the minimum ages, in nanoseconds of the lease clock. The
// higher one is for scripts that are executed as reads, because their group must go
// through the log to update the record.
const (
	scriptUseEvery     = int64(60e9)
	scriptReadUseEvery = int64(600e9)
)

// scriptCache contains the scripts that EVALSHA can call. Like the keys, it is
// part of the state: it is replicated, and snapshots contain it, so scripts
// survive a change of leader.
type scriptCache struct {
	bodies *btree.Map[string, cachedScript] // by SHA1
	evals  *btree.BTreeG[scriptUse]         // scripts of EVAL, least recently used first
	loaded *btree.BTreeG[scriptUse]         // scripts of SCRIPT LOAD, in the same order
	bytes  int
}

type cachedScript struct {
	body   string
	at     Pos   // log position at which it was added, or a later free one: see insert
	pinned bool  // added by SCRIPT LOAD
	used   int64 // lease clock of the last recorded use, 0 before FeatureScriptCache
}

// scriptUse is the position of a script in the order of use.
type scriptUse struct {
	used int64
	at   Pos
	sha  string
}

func newScriptCache() scriptCache {
	order := func() *btree.BTreeG[scriptUse] {
		return btree.NewBTreeGOptions(func(a, b scriptUse) bool {
			return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.at, b.at)) < 0
		}, btree.Options{NoLocks: true})
	}
	return scriptCache{bodies: new(btree.Map[string, cachedScript]), evals: order(), loaded: order()}
}

// clone returns an independent copy. It takes O(1).
func (s *scriptCache) clone() scriptCache {
	return scriptCache{s.bodies.Copy(), s.evals.IsoCopy(), s.loaded.IsoCopy(), s.bytes}
}

// Scripts returns the number of cached scripts and the bytes that they take.
func (m *Machine) Scripts() (n, bytes int) { return m.scripts.bodies.Len(), m.scripts.bytes }

func (s *scriptCache) get(sha string) (body string, known bool) {
	e, known := s.bodies.Get(sha)
	return e.body, known
}

// stale reports whether a use of a script must be recorded. It must if the
// script is not in the cache, or if the age of its last recorded use is at
// least the parameter every, in nanoseconds.
func (s *scriptCache) stale(sha string, now, every int64) bool {
	e, known := s.bodies.Get(sha)
	return !known || now-e.used >= every
}

// add puts a script into the cache. ok is false if there is no room. changed is
// false if the cache already contains the script and needs no update. now is
// the lease clock from FeatureScriptCache on, and 0 before.
func (s *scriptCache) add(sha, body string, at Pos, pinned bool, now int64) (changed, ok bool) {
	used := now
	if e, known := s.bodies.Get(sha); known {
		renew := now != 0 && now-e.used >= scriptUseEvery
		if (e.pinned || !pinned) && !renew {
			return false, true
		}
		s.remove(sha, e)
		at, pinned = e.at, pinned || e.pinned
		if !renew {
			used = e.used
		}
	}
	for s.bytes+len(body)+scriptOverhead > maxScriptCache || !pinned && s.evals.Len() >= maxEvalScripts {
		victim, found := s.evals.Min()
		if now != 0 && s.bytes+len(body)+scriptOverhead > maxScriptCache {
			if l, any := s.loaded.Min(); any && (!found || l.used < victim.used) {
				victim, found = l, true
			}
		}
		if !found {
			return false, false
		}
		e, _ := s.bodies.Get(victim.sha)
		s.remove(victim.sha, e)
	}
	s.insert(sha, cachedScript{body, at, pinned, used})
	return true, true
}

// insert adds a script for which there is room, at a free position.
func (s *scriptCache) insert(sha string, e cachedScript) {
	for s.taken(e) {
		e.at++
	}
	s.put(sha, e)
}

// put adds a script at the position in e.
func (s *scriptCache) put(sha string, e cachedScript) {
	s.bodies.Set(sha, e)
	s.order(e.pinned).Set(scriptUse{e.used, e.at, sha})
	s.bytes += len(e.body) + scriptOverhead
}

// taken reports whether another script has the position of e in the order. A
// script of EVAL may have the position of a script of SCRIPT LOAD.
func (s *scriptCache) taken(e cachedScript) bool {
	use := scriptUse{used: e.used, at: e.at}
	_, eval := s.evals.Get(use)
	_, loaded := s.loaded.Get(use)
	return eval || loaded && e.pinned
}

func (s *scriptCache) order(pinned bool) *btree.BTreeG[scriptUse] {
	if pinned {
		return s.loaded
	}
	return s.evals
}

func (s *scriptCache) remove(sha string, e cachedScript) {
	s.bodies.Delete(sha)
	s.order(e.pinned).Delete(scriptUse{e.used, e.at, sha})
	s.bytes -= len(e.body) + scriptOverhead
}

// These are the flags of a script in a snapshot.
const (
	scriptPinned = 1
	scriptUsed   = 2 // the lease clock of the script's last use follows
)

// appendScript writes a script into a snapshot.
func appendScript(b []byte, e cachedScript) []byte {
	mark := byte(0)
	if e.pinned {
		mark |= scriptPinned
	}
	if e.used != 0 {
		mark |= scriptUsed
	}
	b = binary.AppendUvarint(append(b, recordScript, mark), uint64(e.at))
	if e.used != 0 {
		b = binary.AppendUvarint(b, uint64(e.used))
	}
	return codec.AppendString(b, e.body)
}

// script reads the record that appendScript wrote.
func (l *snapshotLoader) script(d *codec.Decoder) error {
	e := cachedScript{}
	mark := d.Byte()
	e.pinned, e.at = mark&scriptPinned != 0, Pos(d.Uvarint())
	if mark&scriptUsed != 0 {
		e.used = int64(d.Uvarint())
	}
	body := d.Bytes()
	if d.Err != nil {
		return fmt.Errorf("script: %w", d.Err)
	}
	sha := SHA1(body)
	if mark > scriptPinned|scriptUsed || mark&scriptUsed != 0 && (e.used <= 0 || l.m.features < FeatureScriptCache) {
		return fmt.Errorf("script %s with mark %d: %w", sha, mark, ErrFormat)
	}
	s := &l.m.scripts
	_, known := s.bodies.Get(sha)
	if known || s.bytes+len(body)+scriptOverhead > maxScriptCache || !e.pinned && s.evals.Len() >= maxEvalScripts {
		return fmt.Errorf("duplicate script %s, or too many scripts: %w", sha, ErrFormat)
	}
	e.body = string(body)
	if _, taken := s.order(e.pinned).Get(scriptUse{used: e.used, at: e.at}); taken {
		return fmt.Errorf("script %s at the position of another script: %w", sha, ErrFormat)
	}
	s.put(sha, e)
	l.objects++ // the count at the end includes scripts
	return nil
}
