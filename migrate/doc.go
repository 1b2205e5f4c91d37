// Package migrate moves the data of a Redis server, or of an RDB file, into a
// cluster: see Run. It is not a supported API.
//
// The values are not decoded. A live source returns each value with DUMP, and an
// RDB file contains it in the same format, so a value reaches the cluster as the
// bytes that Redis wrote, as the payload of RESTORE. The package therefore only
// needs to know where a value ends in an RDB file (rdbvalue.go).
//
// An import can be interrupted at any time. It keeps its position in a state file
// and continues there. It may then send some keys again: a key that exists with
// the same value counts as imported, and a key that exists with another value is
// left alone unless the import replaces keys.
package migrate
