package compat

import (
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// difference is a reply that may differ from that of Redis.
type difference struct {
	line  string
	reply string // reply of Holdfast, without the last line end
	why   string
}

func (d *difference) want(proto int) string { return d.reply + "\r\n" }

// permitted lists all differences.
var permitted = []difference{
	{"SETRANGE k 8388608 x", tooLong, "values end at 8 MiB (fsm.MaxStringBytes), not at 512 MiB"},
	{"APPEND k x8M", tooLong, "the same"},
	{"SET " + longKey + " v", tooLong,
		"keys end at 512 KiB (fsm.MaxKeyBytes), so that a key and its value fit a block of a snapshot"},
	{"OBJECT ENCODING whole", "$3\r\nint",
		"INCRBYFLOAT leaves an integral sum as text in Redis; values are all kept alike here, and the answer is " +
			"computed from the text"},
	{"EXISTS undone", ":0", "a script that ends with an error is undone; Redis keeps what it had written"},
	{"SRANDMEMBER one -262145", tooManyRepeats,
		"with repetitions a call may ask for 262144 elements (fsm.maxRepeats), so that it cannot take gigabytes"},
	{"HRANDFIELD onehash -262145", tooManyRepeats, "the same"},
	{"ZRANDMEMBER onezset -262145 WITHSCORES", tooManyRepeats, "the same"},
	{"GET counted", "$27\r\nHYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ",
		"PFCOUNT notes the count in the header of the value in Redis; here it is a read, and reads write nothing"},
	{evalCount, ":3", "and so a script that must not write may call it"},
	{"GEOSEARCH same FROMLONLAT 1 1 BYRADIUS 1 km COUNT 3", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc",
		"of members that are equally far COUNT takes the first ones here; Redis takes those that its sorting happens " +
			"to put first"},
	{"geosearch same fromlonlat 1 1 asc desc asc",
		"-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
		"the state machine does not learn how the client spelled the name"},
	{"COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a STORE b", "*3\r\n$1\r\nk\r\n$1\r\na\r\n$1\r\nb",
		"Redis does not name the key that it writes to, and so does not ask whether the user may"},
	{anotherCount, ":1", "a library's local variables are new for each call here, which any node may lead; Redis " +
		"keeps them as long as its process lives"},
	{restoreCandidate, "-ERR Pre-release function format not supported.",
		"the functions of release candidates of 7.0 are not read, as they are not by later versions of Redis"},
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
