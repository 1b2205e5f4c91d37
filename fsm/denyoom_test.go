package fsm_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestDivide_Full checks which operations are refused while there is no room: those
// with a command that Redis marks DENYOOM, native scripts that would create a key,
// and LOCK ACQUIRE of a free lock. A SET with IFEQ that does not change the
// value is allowed.
func TestDivide_Full(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.want("set held token", "+OK")
	m, table := o.m, o.m.Table()
	const rueidisSetIfAbsent = "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf"
	const redisPyRelease = "c3f8721cbb97f72bc19e972846bd7aaf91901658"
	for _, test := range []struct {
		lines   string // separated by "; ": one line is a command, several are a transaction
		refused int
	}{
		{"set k v", 1},
		{"set held token PX 1000 IFEQ token", 0},
		{"set held token IFEQ token EX 10", 0},
		{"set held longer IFEQ token PX 1000", 1},
		{"set ifeq ifeq PX 1000", 1},
		{"set held token PX 1000 IFNE token", 1},
		{"xgroup create s g 0 MKSTREAM", 1},
		{"evalsha " + rueidisSetIfAbsent + " 1 k token 1000", 1},
		{"evalsha " + rueidisSetIfAbsent + " 1 held token 1000", 0},
		{"evalsha " + redisPyRelease + " 1 k token", 0},
		{"_lock acquire k token PX 1000", 1},
		{"_lock acquire held token PX 1000", 0},
		{"lock release held token", 0},
		{"lock renew held token PX 1000", 0},
		{"get k", 0},
		{"del k", 0},
		{"pexpire k 1000", 0},
		{fsm.PublishCommand + " c m 0", 0},
		{"set k v; " + fsm.PublishCommand + " c m 0", 1},
		{"_lock acquire k token PX 1000; get k", 1},
		{"del held; " + fsm.PublishCommand + " c m 0", 0},
	} {
		var queued []fsm.Queued
		for line := range strings.SplitSeq(test.lines, "; ") {
			args := bytes.Fields([]byte(line))
			queued = append(queued, fsm.Queued{Cmd: table.Find(args[0]), Args: args})
		}
		var g fsm.Group
		g.Reset(2, 1)
		if len(queued) == 1 {
			g.Command(queued[0].Cmd, 0, queued[0].Args)
		} else {
			g.Transaction(nil, queued)
		}
		var in, out, rest fsm.BatchBuilder
		in.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
		limits := fsm.WorkLimits{Entry: 1 << 20, Operation: 1 << 30, Full: "MISCONF no room"}
		refused, err := m.Divide(&in, &out, &rest, limits)
		if err != nil || refused != test.refused {
			t.Errorf("%s: %d refused, %v; want %d", test.lines, refused, err, test.refused)
		}
		limits.Full = ""
		out, rest = fsm.BatchBuilder{}, fsm.BatchBuilder{}
		if refused, err := m.Divide(&in, &out, &rest, limits); err != nil || refused != 0 {
			t.Errorf("%s with room: %d refused, %v; want 0", test.lines, refused, err)
		}
	}
}
