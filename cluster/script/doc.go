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
// collectgarbage collects nothing, and counts what the script has created.
//
// # Differences that come from gopher-lua
//
// pairs goes by the order of insertion, which Lua leaves open. The length of a list
// with holes may be another of its borders. A list has at most 2^19 elements that
// # counts. goto is a keyword. A function has at most 200 registers: calls with
// more than about 190 written arguments are refused. Names in errors follow the
// text, not the instructions.
package script
