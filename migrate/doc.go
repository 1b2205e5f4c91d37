// Package migrate moves the data of a Redis server, or of an RDB file, into a
// cluster: see Run. It is not a supported API.
//
// The package decodes values only to write large collections and to compare a
// value with that of an existing key. A live source returns each value with
// DUMP, and an RDB file contains it in the same format. The package sends these
// bytes to the cluster as the payload of RESTORE. So for an RDB file, it only
// needs to find the end of each value (rdbvalue.go). A large collection is
// written in pieces (pieces.go).
//
// An import can be interrupted at any time. It stores its position in a state
// file, and the next import continues at that position. The next import may
// send some keys again. A key that exists with the same value counts as
// imported. A key that exists with another value does not change, unless the
// import replaces keys.
package migrate
