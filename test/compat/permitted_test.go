package compat

import (
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// difference is a permitted difference: Holdfast must give this reply to the
// line, and Redis gives another one.
type difference struct {
	line  string
	reply string // reply of Holdfast, without the last line end
	why   string
}

func (d *difference) want(proto int) string { return d.reply + "\r\n" }

// permitted lists all differences.
var permitted = []difference{
	{"SETRANGE k 8388608 x", tooLong, "a value has at most 8 MiB (fsm.MaxStringBytes), not 512 MiB"},
	{"APPEND k x8M", tooLong, "the same"},
	{"SET " + longKey + " v", tooLong,
		"a key has at most 512 KiB (fsm.MaxKeyBytes), so that a key and its value fit a block of a snapshot"},
	{"OBJECT ENCODING whole", "$3\r\nint",
		"in Redis, INCRBYFLOAT stores an integral sum as text; Holdfast stores all strings in the same way and " +
			"computes the reply from the text"},
	{"EXISTS undone", ":0", "Holdfast rolls back a script that ends with an error; Redis keeps its writes"},
	{"SRANDMEMBER one -262145", tooManyRepeats,
		"with repetitions, a call may ask for at most 262144 elements (maxRepeats), so that its reply is bounded"},
	{"HRANDFIELD onehash -262145", tooManyRepeats, "the same"},
	{"ZRANDMEMBER onezset -262145 WITHSCORES", tooManyRepeats, "the same"},
	{"GET counted", "$27\r\nHYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ",
		"in Redis, PFCOUNT stores the count in the header of the value; in Holdfast, it is a read and writes nothing"},
	{evalCount, ":3", "in Holdfast, PFCOUNT is a read, so a read-only script may call it"},
	{"GEOSEARCH same FROMLONLAT 1 1 BYRADIUS 1 km COUNT 3", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc",
		"of members at the same distance, Holdfast returns the first ones; in Redis, the choice depends on its sort"},
	{"geosearch same fromlonlat 1 1 asc desc asc",
		"-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
		"the state machine does not learn how the client spelled the name"},
	{"COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a STORE b", "*3\r\n$1\r\nk\r\n$1\r\na\r\n$1\r\nb",
		"Redis does not report the key that it writes, and so does not check the user's right to write it"},
	{anotherCount, ":1", "in Holdfast, the local variables of a library last for one call, because another node may " +
		"lead at the next call; in Redis, they last as long as the process"},
	{restoreCandidate, "-ERR Pre-release function format not supported.",
		"Holdfast does not read the functions of release candidates of 7.0, and neither do later versions of Redis"},
	{"OBJECT REFCOUNT copied", ":2147483647",
		"in Redis, COPY makes a separate object of a shared small integer; Holdfast computes the reply from the text"},
}

var longKey = strings.Repeat("k", fsm.MaxKeyBytes+1)

const tooManyRepeats = "-ERR more than 262144 elements with repetitions, ask for less at a time"

const anotherCount = "FCALL count 0 again"

var restoreCandidate = fmt.Sprintf("FUNCTION RESTORE %q", sealed("\xf6", 10))

const evalCount = `EVAL_RO "return redis.call('pfcount', KEYS[1])" 1 counted`

const tooLong = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"

func permittedFor(line string) *difference {
	for i := range permitted {
		if permitted[i].line == line {
			return &permitted[i]
		}
	}
	return nil
}
