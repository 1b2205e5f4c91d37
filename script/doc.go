// Package script runs Redis' Lua scripts. It provides the API that EVAL offers
// to a script, it converts the script's result into a reply, and it enforces a
// budget that no script can evade.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// The package has no knowledge of keys. A script's redis.call calls
// ScriptCall.Do, with which package fsm executes the command on a clone of the
// state machine. If a run fails, the caller must discard the changes that Do has
// made.
//
//	runner := script.NewRunner(script.DefaultConfig())
//	reply := runner.RunScript(fsm.ScriptCall{Body: src, Keys: keys, Args: args, Do: do, Proto: 2})
//
// The same runner also runs libraries of functions (library.go). It runs a
// library's code once to learn which functions the library registers, and again
// for each call of one of these functions.
//
// # On gopher-lua
//
// The interpreter is github.com/yuin/gopher-lua v1.1.2, unpatched. Some of its
// operations consume resources without a bound, and some differ from Lua 5.1.
// This package restricts or corrects them as follows:
//
//   - The interpreter calls Done of its context before every instruction. The
//     context is the State, which counts the instructions (budget.go). Coroutines
//     get the same context.
//   - Package luac rewrites the syntax tree between gopher-lua's parser and its
//     compiler. An operation that allocates memory or changes a table becomes a
//     call of a function of this package. That function charges for the
//     operation before it executes it (operators.go).
//   - The package uses none of gopher-lua's libraries. Its own libraries charge
//     for their work, including each step of a pattern match.
//   - The package translates gopher-lua's errors into Lua's (position.go).
//     Package luac translates the errors of the parser.
//   - The package sets two variables of gopher-lua, which apply to the whole
//     process. It sets MaxArrayIndex to 2^19, because an assignment fills a list
//     with nils up to the assigned index. It clears CompatVarArg, because package
//     luac makes the table arg of vararg functions (globals.go).
//
// A run that is aborted discards its interpreter, and so does a run that has
// created coroutines. The interpreters of other runs are reused. Libraries, and
// all other data that runs share, are read-only.
//
// # Differences from Redis 7.0, on purpose
//
// The settings of cjson last for one run of a script. string.dump fails, and
// load refuses bytecode. redis.set_repl checks its flags and changes nothing,
// because every write is replicated. tostring of an object shows a number that
// the run gives to the object, instead of an address. The metatable of strings
// is read-only. collectgarbage collects nothing; with "count", it returns the
// amount of memory that the run has allocated. TIME returns the time of the log
// entry and does not advance during the script. A script cannot call commands that
// describe a node or its connections, whether or not these commands are
// read-only: INFO, ROLE, PUBSUB, COMMAND, CLUSTER, MEMORY, SLOWLOG, LASTSAVE and
// similar commands. A call of such a command gives the same error even if its
// number of arguments is wrong. In cluster mode, scripts may access keys of
// several slots. The local variables of a library last for one call. A script can
// have at most 256 KiB.
//
// # Differences that come from gopher-lua
//
// pairs uses the order of insertion; Lua leaves the order open. For a list with
// holes, # may return a different border than Lua does. # counts fewer than 2^19
// elements of a list. goto is a keyword. A function has at most 200 registers,
// so a call is refused if its text has more than about 190 arguments. Names in
// errors follow the source text, not the instructions. The stack is about 5000
// calls deep. A ; may be a statement, a hexadecimal numeral has no exponent,
// and a zero byte does not end a text. next with a key that was never in the
// table ends the iteration without an error. A function that pcall calls has no
// position to put into an error of level 2.
//
// The operator ^, exp, log and the trigonometric functions are those of Go,
// which may differ from C's in the last bit: 8^(1/3) is a little less than 2.
package script
