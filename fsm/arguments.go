package fsm

import "github.com/holdfast-kv/holdfast/fsm/number"

// This file has the parsers of arguments that commands of several families use.

// fold reports whether an argument equals a word, which must be in upper case,
// in any mix of cases.
func fold(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, b := range arg {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

const (
	msgNotPositive = "ERR value is out of range, must be positive"
	msgNotLong     = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	msgOutOfRange  = "ERR value is out of range"
)

// positive parses a count that must not be negative. The name follows the error
// message of Redis.
func positive(arg []byte, msg string) (n int64, fail Reply) {
	n, ok := number.ParseInt(arg)
	if !ok || n < 0 {
		return 0, Error(msg)
	}
	return n, Null
}

// signed parses a count that may be negative.
func signed(arg []byte) (n int64, fail Reply) {
	n, ok := number.ParseInt(arg)
	switch {
	case !ok:
		return 0, Error(msgNotInt)
	case n == -1<<63:
		return 0, Error(msgNotLong)
	}
	return n, Null
}

// popCount parses the optional count of SPOP, ZPOPMIN and ZPOPMAX, which is the
// last argument.
func popCount(args [][]byte) (count int64, fail Reply) {
	switch {
	case len(args) > 3:
		return 0, Error(msgSyntax)
	case len(args) == 3:
		return positive(args[2], msgNotPositive)
	}
	return 1, Null
}

// randomCount parses the arguments of HRANDFIELD and ZRANDMEMBER after the key.
func randomCount(args [][]byte, word string) (count int64, with bool, fail Reply) {
	count, fail = signed(args[2])
	if fail.IsError() {
		return 0, false, fail
	}
	if len(args) > 4 || len(args) == 4 && !fold(args[3], word) {
		return 0, false, Error(msgSyntax)
	}
	with = len(args) == 4
	if with && (count < -(1<<62-1) || count > 1<<62-1) {
		return 0, false, Error(msgOutOfRange)
	}
	return count, with, Null
}

// span converts a start and an end, both inclusive and counted from the end if
// they are negative, to the half-open range [from, to) of n elements.
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
