package luac

// These are the names of the hidden functions, which the compiled program
// expects among its globals. The rewriter puts a call of a hidden function in
// the place of an operation in which gopher-lua would allocate without a bound,
// or in which it differs from Lua 5.1. The names are not valid in Lua, so a
// script can neither call nor see the functions.
const (
	HiddenSet      = "\x00set"      // (t, k, v): t[k] = v
	HiddenGlobal   = "\x00global"   // (name): an assignment to a global
	HiddenConcat   = "\x00concat"   // (...): a .. b .. c
	HiddenTable    = "\x00table"    // (t, ...): a new table and the values that its list ends with
	HiddenFunction = "\x00function" // (f): a new function
	HiddenLength   = "\x00length"   // (v): #v
	HiddenMinus    = "\x00minus"    // (v): -v
	HiddenModulo   = "\x00modulo"   // (a, b): a % b
	HiddenFor      = "\x00for"      // (v, 1..3): the start, limit or step of a numeric for
	HiddenEach     = "\x00each"     // (f, s, v): the three values of a generic for
	HiddenVarargs  = "\x00varargs"  // (...): a call of a vararg function
	HiddenArg      = "\x00arg"      // (...): the table arg of a vararg function
)
