package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/library"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// Functions are executed like scripts: the leader executes them speculatively,
// and the entry contains their effects. The leader also runs the code of a
// library to find the functions that it registers, and the entry contains the
// result.

const functionPolicy = "request_policy:all_shards"

var functionCommands = []Command{
	{
		Name: "fcall", Run: fcall, Arity: -3, Flags: MayWrite | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs(scriptNotesRW, "RW", "access update"),
		Group:  "scripting", Since: "7.0.0",
		Complexity: "Depends on the function that is executed.",
		Syntax:     "function numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Invoke a function",
	},
	{
		Name: "fcall_ro", Run: fcall, Arity: -3, Flags: ReadOnly | Slow | evalFlags,
		KeysOf: scriptKeys,
		Specs:  scriptSpecs(scriptNotesRO, "RO", "access"),
		Group:  "scripting", Since: "7.0.0",
		Complexity: "Depends on the function that is executed.",
		Syntax:     "function numkeys [key [key ...]] [arg [arg ...]]",
		Doc:        "Invoke a read-only function",
	},
	{
		Name: "function", Arity: -2,
		Group: "scripting", Since: "7.0.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "DELETE | DUMP | FLUSH | HELP | KILL | LIST | LOAD | RESTORE | STATS [arg ...]",
		Doc:        "A container for function commands",
		Sub: []Command{
			{
				Name: "delete", Run: functionDelete, Arity: 3, Flags: Write | NoScript,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(1)",
				Syntax:     "library-name",
				Doc:        "Delete a function by name",
				Tips:       []string{functionPolicy, "response_policy:all_succeeded"},
			},
			{
				Name: "dump", Run: functionDump, Arity: 2, Flags: NoScript | Slow,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(N) where N is the number of functions",
				Doc:        "Dump all functions into a serialized binary payload",
			},
			{
				Name: "flush", Run: functionFlush, Arity: -2, Flags: Write | NoScript,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(N) where N is the number of functions deleted",
				Syntax:     "[ASYNC | SYNC]",
				Doc:        "Deleting all functions",
				Tips:       []string{functionPolicy, "response_policy:all_succeeded"},
			},
			{
				Name: "help", Run: func(*Ctx, [][]byte) Reply { return functionHelp }, Arity: 2, Flags: Loading | Stale,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "kill", Run: func(c *Ctx, _ [][]byte) Reply { return c.killScript(true) }, Arity: 2,
				Flags: NoScript | AllowBusy,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(1)",
				Doc:        "Kill the function currently in execution.",
				Tips:       []string{functionPolicy, "response_policy:one_succeeded"},
			},
			{
				Name: "list", Run: functionList, Arity: -2, Flags: NoScript | Slow,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(N) where N is the number of functions",
				Syntax:     "[LIBRARYNAME library-name-pattern] [WITHCODE]",
				Doc:        "List information about all the functions",
				Tips:       []string{"nondeterministic_output_order"},
			},
			{
				Name: "load", Run: functionLoad, Arity: -3, Flags: Write | DenyOOM | NoScript | Scripted,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(1) (considering compilation time is redundant)",
				Syntax:     "[REPLACE] function-code",
				Doc:        "Create a function with the given arguments (name, code, description)",
				Tips:       []string{functionPolicy, "response_policy:all_succeeded"},
			},
			{
				Name: "restore", Run: functionRestore, Arity: -3, Flags: Write | DenyOOM | NoScript | Scripted,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(N) where N is the number of functions on the payload",
				Syntax:     "serialized-value [FLUSH | APPEND | REPLACE]",
				Doc:        "Restore all the functions on the given payload",
				Tips:       []string{functionPolicy, "response_policy:all_succeeded"},
			},
			{
				Name: "stats", Run: functionStats, Arity: 2, Flags: NoScript | AllowBusy,
				Group: "scripting", Since: "7.0.0",
				Complexity: "O(1)",
				Doc:        "Return information about the function currently running (name, description, duration)",
				Tips:       []string{"nondeterministic_output", functionPolicy, "response_policy:special"},
			},
		},
	},
	{
		Name: libraryCommand, Run: putLibrary, Arity: -4, Flags: Internal | MayWrite,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N) where N is the number of functions",
		Syntax:     "library-name code function [function ...]",
		Doc:        "Add a library or replace the library of the same name, as FUNCTION LOAD REPLACE does",
	},
}

// libraryCommand is the logged effect of FUNCTION LOAD and FUNCTION RESTORE. It
// adds a library. Its arguments are the name, the code, and each function in the
// encoding of library.AppendFunction.
const libraryCommand = "_library"

// These are the errors of functions. All but the last are exactly those of
// Redis.
const (
	msgNoFunction    = "ERR Function not found"
	msgNoLibrary     = "ERR Library not found"
	msgFunctionKeys  = "ERR Bad number of keys provided"
	msgWriteFlag     = "ERR Can not execute a script with write flag using *_ro command."
	msgFunctionFlush = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"
	msgNoPattern     = "ERR library name argument was not given"
	msgNoFunctions   = "ERR No functions registered"
	msgPayload       = "ERR DUMP payload version or checksum are wrong"
	msgPolicy        = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
	msgNotFunction   = "ERR given type is not a function"
	msgPreRelease    = "ERR Pre-release function format not supported."
	msgNoPayload     = "ERR Failed loading library payload"
	msgBusyScript    = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	msgBusyFunction  = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
	msgRestoreTooBig = "ERR libraries of more than 16 MiB in one command, no library was restored"
)

func fcall(c *Ctx, args [][]byte) Reply {
	lib, f := c.m.libraries.Find(args[1])
	if f == nil {
		return Error(msgNoFunction)
	}
	keys, argv, fail := scriptArgs(args)
	switch {
	case fail == MsgNotInt:
		return Error(msgFunctionKeys)
	case fail != "":
		return Error(fail)
	case readOnlyScript(args) && f.Flags&library.NoWrites == 0:
		return Error(msgWriteFlag)
	}
	if refusal := c.interpreter(); refusal != "" {
		return Error(refusal)
	}
	if c.rec != nil {
		c.rec.replaced()
	}
	code := []byte(lib.Code)
	if refusal := c.refuseCompile(lib.SHA, code, true); refusal != "" {
		return Error(refusal)
	}
	return c.perform(ScriptCall{
		SHA: lib.SHA, Body: code, Function: f.Name, Command: args, Keys: keys, Args: argv,
		ReadOnly: f.Flags&library.NoWrites != 0, Proto: c.proto, Seed: c.Random(),
	})
}

func functionLoad(c *Ctx, args [][]byte) Reply {
	if refusal := c.interpreter(); refusal != "" {
		return Error(refusal)
	}
	c.rec.replaced()
	replace := false
	last := len(args) - 1
	for _, option := range args[2:last] {
		if !IsWord(option, "REPLACE") {
			return Error("ERR Unknown option given: " + string(option))
		}
		replace = true
	}
	lib, refusal := c.compileLibrary(args[last], new(int64), func(name string) bool {
		return c.m.libraries.Has(name) && !replace
	})
	if refusal == "" {
		refusal = c.m.libraries.Replace(lib)
	}
	if refusal != "" {
		return Error(refusal)
	}
	c.recordLibrary(lib)
	return Bulk(lib.Name)
}

// compileLibrary runs the code of a library to find the functions that it
// registers. The calls of one command share begun: see ScriptCall.
func (c *Ctx) compileLibrary(
	code []byte, begun *int64, exists func(name string) bool,
) (lib *library.Library, refusal string) {
	if len(code) > library.MaxBytes {
		return nil, library.MsgTooLong
	}
	name, refusal := library.ParseName(code)
	switch {
	case refusal != "":
		return nil, refusal
	case exists(name):
		return nil, "ERR Library '" + name + "' already exists"
	}
	sha := SHA1(code)
	if refusal := c.refuseCompile(sha, code, true); refusal != "" {
		return nil, refusal
	}
	var r library.Registry
	reply := c.runner.RunScript(ScriptCall{
		SHA: sha, Body: code, Register: r.Add, Begun: begun, Proto: 2,
		ScriptBudget: c.scriptBudget, Cut: func() { c.cut = true }, Group: c.groupBegun(),
	})
	switch {
	case reply.IsError():
		return nil, reply.s
	case len(r.Functions) == 0:
		return nil, msgNoFunctions
	}
	slices.SortFunc(r.Functions, func(a, b library.Function) int { return strings.Compare(a.Name, b.Name) })
	return library.New(name, string(code), sha, &r), ""
}

// recordLibrary records the addition of a library as an effect.
func (c *Ctx) recordLibrary(lib *library.Library) {
	c.changes++
	args := [][]byte{nil, []byte(lib.Name), []byte(lib.Code)}
	for i := range lib.Functions {
		args = append(args, library.AppendFunction(nil, &lib.Functions[i]))
	}
	c.rec.record(c, c.draws, libraryCommand, args)
}

func putLibrary(c *Ctx, args [][]byte) Reply {
	switch {
	case len(args[2]) > library.MaxBytes:
		return Error(library.MsgTooLong)
	case !library.ValidName(string(args[1])):
		return Error("ERR " + library.MsgName)
	}
	var r library.Registry
	for _, arg := range args[3:] {
		d := &codec.Decoder{Rest: arg}
		f, err := library.ReadFunction(d)
		if err != nil || len(d.Rest) > 0 {
			return Error(MsgSyntax)
		}
		if refusal := r.Add(f); refusal != "" {
			return Error("ERR " + refusal)
		}
	}
	lib := library.New(string(args[1]), string(args[2]), SHA1(args[2]), &r)
	if refusal := c.m.libraries.Replace(lib); refusal != "" {
		return Error(refusal)
	}
	c.changes++
	return OK
}

// Libraries returns the number of libraries, the number of their functions, and
// the bytes that they take.
func (m *Machine) Libraries() (libraries, functions, bytes int) {
	return m.libraries.Len()
}

// library reads a library of a snapshot.
func (l *snapshotLoader) library(d *codec.Decoder) error {
	lib, err := library.Read(d, SHA1)
	if err != nil {
		return err
	}
	if l.m.libraries.Has(lib.Name) || l.m.libraries.Replace(lib) != "" {
		return fmt.Errorf("library %q: %w", lib.Name, ErrFormat)
	}
	l.objects++ // the count at the end of the snapshot includes libraries
	return nil
}

func functionDelete(c *Ctx, args [][]byte) Reply {
	if !c.m.libraries.Remove(string(args[2])) {
		return Error(msgNoLibrary)
	}
	c.changes++
	return OK
}

func functionFlush(c *Ctx, args [][]byte) Reply {
	switch {
	case len(args) > 3:
		return WrongSubcommand(args)
	case len(args) == 3 && !IsWord(args[2], "ASYNC") && !IsWord(args[2], "SYNC"):
		return Error(msgFunctionFlush)
	}
	c.m.libraries = library.NewSet()
	c.changes++
	return OK
}

func functionList(c *Ctx, args [][]byte) Reply {
	pattern, given, code := "", false, false
	for i := 2; i < len(args); i++ {
		switch {
		case !code && IsWord(args[i], "WITHCODE"):
			code = true
		case !given && IsWord(args[i], "LIBRARYNAME"):
			if i++; i == len(args) {
				return Error(msgNoPattern)
			}
			pattern, given = string(args[i]), true
		default:
			return Error("ERR Unknown argument " + string(args[i]))
		}
	}
	out := []Reply{}
	c.m.libraries.Scan(func(lib *library.Library) bool {
		c.Charge(StepsPut + len(pattern)*len(lib.Name)/ScanBytes)
		if !given || glob.Match(strings.ToLower(pattern), strings.ToLower(lib.Name)) {
			out = append(out, describeLibrary(lib, code))
		}
		return true
	})
	return Array(out)
}

func describeLibrary(l *library.Library, code bool) Reply {
	functions := make([]Reply, len(l.Functions))
	for i, f := range l.Functions {
		description, flags := Null, []Reply{}
		if f.Described {
			description = Bulk(f.Description)
		}
		for _, name := range f.Flags.Names() {
			flags = append(flags, Simple(name))
		}
		functions[i] = Map([]Reply{
			Bulk("name"), Bulk(f.Name), Bulk("description"), description, Bulk("flags"), Set(flags),
		})
	}
	fields := []Reply{
		Bulk("library_name"), Bulk(l.Name), Bulk("engine"), Bulk(library.Engine), Bulk("functions"), Array(functions),
	}
	if code {
		fields = append(fields, Bulk("library_code"), Bulk(l.Code))
	}
	return Map(fields)
}

func functionStats(c *Ctx, args [][]byte) Reply {
	running := Null
	if c.scripts != nil {
		if f := c.scripts.Function(); f != nil {
			running = Map([]Reply{
				Bulk("name"), Bulk(f.Name), Bulk("command"), Strings(f.Command...), Bulk("duration_ms"), Int(f.Millis),
			})
		}
	}
	libraries, functions, _ := c.m.Libraries()
	engine := Map([]Reply{
		Bulk("libraries_count"), Int(int64(libraries)), Bulk("functions_count"), Int(int64(functions)),
	})
	return Map([]Reply{Bulk("running_script"), running, Bulk("engines"), Map([]Reply{Bulk(library.Engine), engine})})
}

// These are opcodes of Redis' RDB format that precede a library.
const (
	opcodeFunction   = 245
	opcodeFunctionRC = 246 // used by release candidates of 7.0
)

func functionDump(c *Ctx, args [][]byte) Reply {
	w := c.RDBWriter()
	c.m.libraries.Scan(func(lib *library.Library) bool {
		w.Byte(opcodeFunction)
		w.Text(lib.Code)
		return true
	})
	return Bulk(string(w.Payload()))
}

func functionRestore(c *Ctx, args [][]byte) Reply {
	if refusal := c.interpreter(); refusal != "" {
		return Error(refusal)
	}
	c.rec.replaced()
	flush, replace := false, false
	switch {
	case len(args) > 4:
		return WrongSubcommand(args)
	case len(args) == 3, IsWord(args[3], "APPEND"):
	case IsWord(args[3], "FLUSH"):
		flush = true
	case IsWord(args[3], "REPLACE"):
		replace = true
	default:
		return Error(msgPolicy)
	}
	if _, ok := rdb.Open(args[2]); !ok {
		return Error(msgPayload)
	}
	restored, refusal := c.readLibraries(args[2])
	if refusal == "" && !flush {
		refusal = c.m.libraries.Collision(&restored, replace)
	}
	if refusal != "" {
		return Error(refusal)
	}
	return c.restoreLibraries(&restored, flush)
}

// readLibraries reads libraries in the format of functionDump. As in Redis, the
// last library may extend into the trailer of the payload. Its code is then
// unlikely to be valid.
func (c *Ctx) readLibraries(payload []byte) (all library.Set, refusal string) {
	all = library.NewSet()
	begun, r := new(int64), rdb.NewReader(payload, RestoreLimits)
	for r.Len() > rdb.TrailerSize {
		switch r.Byte() {
		case opcodeFunction:
		case opcodeFunctionRC:
			return all, msgPreRelease
		default:
			return all, msgNotFunction
		}
		code := r.Text()
		if r.Err() != nil {
			return all, msgNoPayload
		}
		lib, refusal := c.compileLibrary(code, begun, all.Has)
		if refusal != "" {
			return all, refusal
		}
		if refusal := all.Replace(lib); refusal != "" {
			return all, refusal
		}
	}
	return all, ""
}

// restoreLibraries adds all restored libraries, or none.
func (c *Ctx) restoreLibraries(restored *library.Set, flush bool) Reply {
	before, changes, effects, n := c.m.libraries.Clone(), c.changes, len(c.rec.effects), c.rec.n
	undo := func(text string) Reply {
		c.m.libraries, c.changes, c.rec.effects, c.rec.n = before, changes, c.rec.effects[:effects], n
		return Error(text)
	}
	if flush {
		c.m.libraries = library.NewSet()
		c.changes++
		c.rec.record(c, c.draws, "function", [][]byte{nil, []byte("flush")})
	}
	// Remove the replaced libraries first, because a function may have moved
	// from one of them to another library.
	restored.Scan(func(lib *library.Library) bool {
		if c.m.libraries.Remove(lib.Name) {
			c.changes++
			c.rec.record(c, c.draws, "function", [][]byte{nil, []byte("delete"), []byte(lib.Name)})
		}
		return true
	})
	full := false
	restored.Scan(func(lib *library.Library) bool {
		if full = !c.m.libraries.Put(lib); !full {
			c.recordLibrary(lib)
		}
		return !full && len(c.rec.effects) <= c.rec.room
	})
	switch {
	case full:
		return undo(library.MsgFull)
	case len(c.rec.effects) > c.rec.room:
		return undo(msgRestoreTooBig)
	}
	return OK
}

var functionHelp = Help("FUNCTION",
	"LOAD [REPLACE] <FUNCTION CODE>",
	"    Create a new library with the given library name and code.",
	"DELETE <LIBRARY NAME>",
	"    Delete the given library.",
	"LIST [LIBRARYNAME PATTERN] [WITHCODE]",
	"    Return general information on all the libraries:",
	"    * Library name",
	"    * The engine used to run the Library",
	"    * Library description",
	"    * Functions list",
	"    * Library code (if WITHCODE is given)",
	"    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
	"STATS",
	"    Return information about the current function running:",
	"    * Function name",
	"    * Command used to run the function",
	"    * Duration in MS that the function is running",
	"    If no function is running, return nil",
	"    In addition, returns a list of available engines.",
	"KILL",
	"    Kill the current running function.",
	"FLUSH [ASYNC|SYNC]",
	"    Delete all the libraries.",
	"    When called without the optional mode argument, the behavior is determined by the",
	"    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
	"    * ASYNC: Asynchronously flush the libraries.",
	"    * SYNC: Synchronously flush the libraries.",
	"DUMP",
	"    Return a serialized payload representing the current libraries, "+
		"can be restored using FUNCTION RESTORE command",
	"RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
	"    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
	"    control how to handle existing libraries (default APPEND):",
	"    * FLUSH: delete all existing libraries.",
	"    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
	"    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
	"      libraries with the new libraries (notice that even on this option there is a chance of failure",
	"      in case of functions name collision with another library).",
)
