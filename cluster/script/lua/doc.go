// Package lua is an interpreter for Lua 5.1 that runs code of strangers: every
// run has a budget of steps, of memory and of call depth, and nothing that a
// script does (a pattern, a library call, a coroutine, a metamethod) is outside
// of it. It is written for Redis scripts and follows the reference
// implementation in what such scripts can see: error texts with variable names
// and lines, the order in which pairs walks a table, %.14g numbers, coercions.
//
// A script is compiled once into closures over the syntax tree (Proto), which
// any number of States may run at the same time. A State is one run: it is
// cheap to make, is used by one goroutine, and is thrown away afterwards, so
// that no script can see what another left behind. Library tables are frozen
// and shared.
//
// What is not there, on purpose: io, os, package, debug, print, dofile,
// setfenv, newproxy, binary chunks, finalizers, weak tables.
//
// Errors of a script travel as a panic with an *Error, which pcall recovers.
// The end of a budget travels as a panic with an *Abort, which nothing but
// State.Run recovers.
package lua
