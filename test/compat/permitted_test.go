package compat

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// difference is a reply that may be another than Redis gives.
type difference struct {
	line  string
	reply string // Holdfast's, without the last line end
	why   string
}

func (d *difference) want(proto int) string { return d.reply + "\r\n" }

// permitted is the whole list.
var permitted = []difference{
	{"SETRANGE k 8388608 x", tooLong, "values end at 8 MiB (fsm.MaxStringBytes), not at 512 MiB"},
	{"APPEND k x8M", tooLong, "the same"},
	{"SET " + longKey + " v", tooLong, "keys end at 512 KiB (fsm.MaxKeyBytes), so that a key and its value fit a block of a snapshot"},
	{"OBJECT ENCODING whole", "$3\r\nint", "INCRBYFLOAT leaves an integral sum as text in Redis; values are all kept alike here, and the answer is computed from the text"},
	{"EXISTS undone", ":0", "a script that ends with an error is undone; Redis keeps what it had written"},
	{"OBJECT REFCOUNT copied", ":2147483647", "COPY makes an object of its own of a shared small integer in Redis; here the answer is computed from the text"},
}

var longKey = strings.Repeat("k", fsm.MaxKeyBytes+1)

const tooLong = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"

func permittedFor(line string) *difference {
	for i := range permitted {
		if permitted[i].line == line {
			return &permitted[i]
		}
	}
	return nil
}
