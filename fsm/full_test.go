package fsm_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestDivide_Full checks which commands are refused while there is no room: those
// that Redis marks DENYOOM, and native scripts that would create a key.
func TestDivide_Full(t *testing.T) {
	table := command.NewTable()
	m := fsm.New(table)
	const rueidisSetIfAbsent = "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf"
	const redisPyRelease = "c3f8721cbb97f72bc19e972846bd7aaf91901658"
	for _, test := range []struct {
		words   []string
		refused int
	}{
		{[]string{"set", "k", "v"}, 1},
		{[]string{"xgroup", "create", "s", "g", "0", "MKSTREAM"}, 1},
		{[]string{"evalsha", rueidisSetIfAbsent, "1", "k", "token", "1000"}, 1},
		{[]string{"evalsha", redisPyRelease, "1", "k", "token"}, 0},
		{[]string{"get", "k"}, 0},
		{[]string{"del", "k"}, 0},
		{[]string{"pexpire", "k", "1000"}, 0},
	} {
		var g fsm.Group
		g.Reset(2, 1)
		var args [][]byte
		for _, w := range test.words {
			args = append(args, []byte(w))
		}
		g.Command(table.Find(args[0]), 0, args)
		var in, out, rest fsm.BatchBuilder
		in.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
		limits := fsm.WorkLimits{Entry: 1 << 20, Operation: 1 << 30, Full: "MISCONF no room"}
		refused, err := m.Divide(&in, &out, &rest, limits)
		if err != nil || refused != test.refused {
			t.Errorf("%v: %d refused, %v; want %d", test.words, refused, err, test.refused)
		}
		limits.Full = ""
		out, rest = fsm.BatchBuilder{}, fsm.BatchBuilder{}
		if refused, err := m.Divide(&in, &out, &rest, limits); err != nil || refused != 0 {
			t.Errorf("%v with room: %d refused, %v", test.words, refused, err)
		}
	}
}
