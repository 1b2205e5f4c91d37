// Package luac compiles Lua 5.1 to the bytecode of gopher-lua.
//
// The parser and the code generator are those of gopher-lua. Between the two,
// this package rewrites the syntax tree (rewrite.go). The program that results
// behaves as in Lua 5.1 where gopher-lua differs from it. Every operation that
// can allocate memory without a bound is a call of a hidden function
// (hidden.go), which package script implements and which charges for the
// memory. A chunk also contains the data with which an error names the line and
// the operands of the operation that failed (chunk.go).
//
// A text that Lua 5.1 refuses is refused with Lua's error text, as far as the
// tokens before the error show what Lua expected (syntax.go).
package luac
