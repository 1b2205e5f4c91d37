// Package script runs Redis' Lua scripts: what EVAL offers to a script, what it
// makes of the script's result, and the budget that no script gets around.
//
// The package knows no keys. A script's redis.call goes to ScriptCall.Do, which
// the leader points at its fork of the machine; what Do has done when a run fails
// is the caller's to throw away.
//
//	runner := script.NewRunner(script.DefaultConfig())
//	reply := runner.RunScript(fsm.ScriptCall{Body: src, Keys: keys, Args: args, Do: do, Proto: 2})
//
// A library of functions (library.go) is run by the same runner: to see what it
// registers, and anew for each call of one of its functions.
//
// # On gopher-lua
//
// The interpreter is github.com/yuin/gopher-lua v1.1.2, unpatched. What it does
// without bound, or otherwise than Lua 5.1, is fenced off here:
//
//   - It asks its context before every instruction: that is the State, which
//     counts (budget.go). Coroutines get the same context.
//   - Between its parser and its compiler the syntax tree is rewritten
//     (rewrite.go): what allocates or changes a table becomes a call of a function
//     of ours, which charges for it first (operators.go).
//   - Of its libraries none is used. Ours charge for their work; patterns are
//     matched step by step.
//   - Its errors are translated into Lua's (position.go), those of its parser too,
//     as far as the tokens tell what was expected (syntax.go).
//   - Two of its variables hold for the whole process: MaxArrayIndex, which is set
//     to 2^19 because an assignment fills a list up to its index, and CompatVarArg.
//
// A run that was cut off takes its interpreter with it; others are used again.
// Libraries, and all else that runs share, are read-only.
//
// # Differences from Redis 7.0, on purpose
//
// cjson's settings last for one script. string.dump fails, and so does what load
// is given as bytecode. redis.set_repl checks its flags and changes nothing,
// because here every write is replicated. tostring of an object shows a number
// of the run instead of an address. The metatable of strings is read-only.
// collectgarbage collects nothing, and counts what the script has created. TIME is
// the entry's and stands still. What tells of a node or its connections cannot be
// called, read-only or not: INFO, ROLE, PUBSUB, COMMAND, CLUSTER, MEMORY, SLOWLOG,
// LASTSAVE and their like; with a wrong number of arguments that is what they answer
// too. In cluster mode scripts may reach keys of several slots. The local variables of
// a library last for one call.
//
// # Differences that come from gopher-lua
//
// pairs goes by the order of insertion, which Lua leaves open. The length of a list
// with holes may be another of its borders. A list has at most 2^19 elements that
// # counts. goto is a keyword. A function has at most 200 registers: calls with
// more than about 190 written arguments are refused. Names in errors follow the
// text, not the instructions. A stack is about 5000 calls deep. A ; may stand alone,
// a numeral in hexadecimal has no exponent, and a text goes on behind a zero byte.
// next with a key that was never there ends, without an error. What pcall calls has
// no position to put into an error of level 2. A script has at most 256 KiB.
//
// ^, exp, log and the functions of angles are those of Go, which may differ from C's
// in the last bit: 8^(1/3) is a little less than 2.
package script
