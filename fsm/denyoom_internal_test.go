package fsm

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// noRoom is a ScriptRunner that reports that there is no room for more data.
type noRoom struct{ ScriptRunner }

func (noRoom) Full() string { return MsgOOM }

// TestScriptRun_Full checks which interpreted scripts may add data although there
// is no room: those that would run natively for a user without rules, unless they
// would acquire a free lock. Any script may call a command that adds no data, and
// may continue after its first write.
func TestScriptRun_Full(t *testing.T) {
	const (
		unlock  = "90da91872223f85eb1376a17e3c4df21ace8c54b" // python-redis-lock: LPUSH
		extend  = "17a49af0c4b1a9034503fa84f3570f5ca76c4cbf" // rslock: SET
		acquire = "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf" // rueidis: SET
	)
	c := &Ctx{m: New(nil)}
	c.runner = noRoom{}
	c.m.dbs[0].Set(keyspace.NewObject([]byte("held"), []byte("token")))
	grows := &Command{Name: "set", Flags: Write | DenyOOM}
	for _, test := range []struct {
		sha, key string
		cmd      *Command
		refused  bool
	}{
		{unlock, "held", grows, false}, {extend, "held", grows, false}, {acquire, "held", grows, false},
		{acquire, "free", grows, true}, {"another", "held", grows, true},
		{"another", "held", &Command{Name: "del", Flags: Write}, false},
	} {
		s := &scriptRun{c: c, sha: test.sha, keys: [][]byte{[]byte(test.key)}}
		if text := s.full(test.cmd); (text != "") != test.refused {
			t.Errorf("%s of script %s with key %s: got error %q, but the table says the opposite",
				test.cmd.Name, test.sha, test.key, text)
		}
		if s.before = c.m; s.full(test.cmd) != "" {
			t.Errorf("script %s is refused after its first write", test.sha)
		}
	}
}
