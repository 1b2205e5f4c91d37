// Package command contains the commands on data, except those of package fsm. A
// command is one row and one function in the file of its family (string.go,
// generic.go, …). The row contains all properties of the command: arity, flags,
// key positions, documentation, and hooks for properties that flags cannot
// express. Routing, MULTI, COMMAND and the metrics read the row, and
// docs/commands.md is generated from it.
//
// A command reads and changes the state only through fsm.Ctx. The rules of
// package fsm for the meaning of a log entry apply here too: the result of a
// command is a pure function of the state and the entry.
//
// work.go estimates the work of the commands whose cost depends on the values
// of their keys. Algorithms that do not need an fsm.Ctx are in packages of
// their own: fsm/geo, fsm/glob, fsm/hll, fsm/locklist, fsm/number, fsm/rdb,
// fsm/stream and fsm/subsequence.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
package command
