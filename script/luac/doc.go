// Package luac compiles Lua 5.1 to the bytecode of gopher-lua.
//
// The parser and the code generator are those of gopher-lua. Between the two, this
// package rewrites the syntax tree (rewrite.go). In most cases in which gopher-lua
// differs from Lua 5.1, the rewritten program behaves as in Lua 5.1; the
// documentation of package script lists the exceptions. Every operation that can
// allocate memory without a bound becomes a call of a hidden function (hidden.go).
// Package script implements the hidden functions, which charge for the memory. A
// chunk also contains the data with which an error names the line and the operands
// of the operation that failed (chunk.go).
//
// If Lua 5.1 refuses a text, this package refuses it with Lua's error text, as far
// as the tokens before the error show what Lua expected (syntax.go).
package luac
