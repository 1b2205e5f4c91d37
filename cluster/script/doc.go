// Package script runs Redis' Lua scripts: what EVAL offers to a script, what it
// makes of the script's result, and the budget that no script gets around.
//
// The package knows no keys. A script's redis.call goes to Call.Do, which the
// leader points at its fork of the machine; what Do has done when a run is
// aborted is the caller's to throw away.
//
//	compiled, err := script.Compile(src) // once; the caller caches it
//	reply, err := runtime.Run(compiled, script.Call{Keys: keys, Args: args, Do: do, Proto: 2})
//
// A script that fails as a script does (error(), a failed redis.call, a type
// error) answers an error reply with Redis' text, and err is nil. err is for
// runs that were cut off: it wraps ErrSteps, ErrMemory, ErrTime, ErrKilled or
// ErrPanic, and such a run must leave nothing behind.
//
// The interpreter is package lua below. It is not gopher-lua, because there one
// assignment (t[60000000] = 1) allocates gigabytes between two looks at any
// budget, compile errors and run-time errors are worded differently, and the
// order of pairs, which cjson.encode shows to clients, is another.
//
// Differences from Redis 7.0, on purpose: cjson's settings last for one script;
// string.dump fails; redis.set_repl accepts its flags and changes nothing,
// because here every write is replicated; tostring of an object shows a number
// of the run instead of an address; the metatable of strings is read-only.
package script
