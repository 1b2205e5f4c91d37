package fsm

import (
	"errors"
	"strings"
)

// These are Redis' own error texts, to the letter, because clients match on
// them.
//
// The replies to logged commands are part of the hash chain. So the text of an
// error that Apply can produce is part of the meaning of an entry: a change needs
// a feature version, or else nodes with two versions of the program diverge.
// The errors of a speculative execution are logged, so their texts may change.
const (
	msgWrongType    = "WRONGTYPE Operation against a key holding the wrong kind of value"
	msgSyntax       = "ERR syntax error"
	msgNotInt       = "ERR value is not an integer or out of range"
	msgNotFloat     = "ERR value is not a valid float"
	msgOverflow     = "ERR increment or decrement would overflow"
	msgDecrOverflow = "ERR decrement would overflow"
	msgNaN          = "ERR increment would produce NaN or Infinity"
	msgNoSuchKey    = "ERR no such key"
	msgDBIndex      = "ERR DB index is out of range"
	msgSameObject   = "ERR source and destination objects are the same"
	msgExpireNX     = "ERR NX and XX, GT or LT options at the same time are not compatible"
	msgExpireGTLT   = "ERR GT and LT options at the same time are not compatible"
	msgNotInt32     = "ERR value is out of range, value must between -2147483648 and 2147483647"
	msgNoFrequency  = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
		"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	msgNumKeys    = "ERR invalid numkeys value"
	msgPairs      = "ERR wrong number of key-value pairs"
	msgCondition  = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
	msgCondType   = "ERR Key should be of string type if conditions are specified"
	msgInvalidCur = "ERR invalid cursor"
	msgOffset     = "ERR offset is out of range"
	msgArguments  = "ERR command has too many arguments"
	msgTooLong    = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// These errors report a failure to decode an entry, a group or a snapshot.
var (
	// ErrShort means that an entry, group or snapshot ends in the middle of a
	// field.
	ErrShort = errors.New("ends in the middle of a field")
	// ErrChecksum means that bytes have changed since they were written.
	ErrChecksum = errors.New("checksum does not match")
	// ErrVersion means that a newer program wrote the bytes.
	ErrVersion = errors.New("format version is not known to this program")
	// ErrFormat means that the bytes do not have the required format.
	ErrFormat = errors.New("malformed")
)

// WrongArity returns Redis' error text for a wrong number of arguments. It
// prints name in lower case, because a script may have spelled it differently.
func WrongArity(name string) string {
	return "ERR wrong number of arguments for '" + strings.ToLower(name) + "' command"
}

// UnknownCommand returns Redis' error text for an unknown command. Clients
// detect missing features by its beginning, "ERR unknown command".
func UnknownCommand(args [][]byte) string {
	name := clip(args[0], 128)
	text := "ERR unknown command '" + name + "', with args beginning with: "
	for used, i := 0, 1; i < len(args) && used < 128; i++ {
		arg := clip(args[i], 128-used)
		used += len(arg) + 1
		text += "'" + arg + "' "
	}
	return text
}

// UnknownSubcommand returns Redis' error text for an unknown subcommand of the
// command whose name is upper.
func UnknownSubcommand(sub []byte, upper string) string {
	return "ERR unknown subcommand '" + clip(sub, 128) + "'. Try " + upper + " HELP."
}

func clip(b []byte, n int) string {
	if len(b) > n {
		b = b[:n]
	}
	return string(b)
}

// invalidExpire returns the error reply to an invalid time to live. It prints
// name in lower case, because a script may have spelled it differently.
func invalidExpire(name string) Reply {
	return Error("ERR invalid expire time in '" + strings.ToLower(name) + "' command")
}
