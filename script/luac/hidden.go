package luac

// These are the names of the hidden functions, which the compiled program expects
// among its globals. The rewriter replaces an operation with a call of a hidden
// function if gopher-lua's implementation of the operation allocates without a
// bound or differs from Lua 5.1. The names are not valid in Lua, so a script can
// neither call nor see the functions.
const (
	HiddenSet      = "\x00set"      // (t, k, v): t[k] = v
	HiddenGlobal   = "\x00global"   // (v): an assignment of v to a global
	HiddenConcat   = "\x00concat"   // (...): a .. b .. c
	HiddenTable    = "\x00table"    // (t, ...): a new table t, and the values at the end of its list
	HiddenFunction = "\x00function" // (f): a new function; () before a local function
	HiddenLength   = "\x00length"   // (v): #v
	HiddenMinus    = "\x00minus"    // (v): -v
	HiddenModulo   = "\x00modulo"   // (a, b): a % b
	HiddenFor      = "\x00for"      // (v, n): the start (n=1), limit (n=2) or step (n=3) of a numeric for
	HiddenEach     = "\x00each"     // (f, s, v): the three values of a generic for
	HiddenVarargs  = "\x00varargs"  // (...): a call of a vararg function
	HiddenArg      = "\x00arg"      // (...): the table arg of a vararg function
)
