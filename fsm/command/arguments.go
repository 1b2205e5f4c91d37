package command

import (
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the parsers of arguments that commands of several families use.

const (
	msgNotPositive = "ERR value is out of range, must be positive"
	msgNotLong     = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	msgOutOfRange  = "ERR value is out of range"
)

// positive parses a count that must not be negative. The function is named
// after the error message of Redis, "must be positive", although 0 is allowed.
func positive(arg []byte, msg string) (n int64, fail fsm.Reply) {
	n, ok := number.ParseInt(arg)
	if !ok || n < 0 {
		return 0, fsm.Error(msg)
	}
	return n, fsm.Null
}

// signed parses a count that may be negative.
func signed(arg []byte) (n int64, fail fsm.Reply) {
	n, ok := number.ParseInt(arg)
	switch {
	case !ok:
		return 0, fsm.Error(fsm.MsgNotInt)
	case n == -1<<63:
		return 0, fsm.Error(msgNotLong)
	}
	return n, fsm.Null
}

// popCount parses the optional count of SPOP, ZPOPMIN and ZPOPMAX, which is the
// last argument.
func popCount(args [][]byte) (count int64, fail fsm.Reply) {
	switch {
	case len(args) > 3:
		return 0, fsm.Error(fsm.MsgSyntax)
	case len(args) == 3:
		return positive(args[2], msgNotPositive)
	}
	return 1, fsm.Null
}

// randomCount parses the arguments of HRANDFIELD and ZRANDMEMBER after the key.
func randomCount(args [][]byte, word string) (count int64, with bool, fail fsm.Reply) {
	count, fail = signed(args[2])
	if fail.IsError() {
		return 0, false, fail
	}
	if len(args) > 4 || len(args) == 4 && !fsm.IsWord(args[3], word) {
		return 0, false, fsm.Error(fsm.MsgSyntax)
	}
	with = len(args) == 4
	if with && (count < -(1<<62-1) || count > 1<<62-1) {
		return 0, false, fsm.Error(msgOutOfRange)
	}
	return count, with, fsm.Null
}

// span converts start and end to a half-open range [from, to) of the positions
// of n elements. Both start and end are inclusive. A negative number counts
// from the end.
func span(start, end int64, n int) (from, to int) {
	size := int64(n)
	if start < 0 {
		start = max(start+size, 0)
	}
	if end < 0 {
		end += size
	}
	end = min(end, size-1)
	if start > end {
		return 0, 0
	}
	return int(start), int(end) + 1
}
