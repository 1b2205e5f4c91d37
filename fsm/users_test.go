package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// guarded is an interpreter that lets a user call only the commands whose names
// the user's rules contain.
type guarded struct{ *lines }

func (guarded) Forbids(users *fsm.Users, user string, args [][]byte) string {
	if u := users.Find(user); u != nil && strings.Contains(u.Rules, strings.ToLower(string(args[0]))) {
		return ""
	}
	return "ERR forbidden"
}

// TestSpeculate_Users: the leader checks the commands of a script against the
// rules that the group's user has at the position of the group in the log.
func TestSpeculate_Users(t *testing.T) {
	s := newStage(t)
	s.runner = guarded{&s.lines}
	s.group("_setuser|u|0|get ping")
	s.want("setuser", ":1 ")
	s.group("SET|k|v")
	s.groupAs("u", "EVAL|GET $K|1|k")
	s.groupAs("u", "EVAL|DEL $K|1|k")
	s.groupAs("u", "EVAL|PING|0")
	s.groupAs("u", "EVAL|ECHO x|0")
	s.groupAs("gone", "EVAL|GET $K|1|k")
	s.group("EVAL|DEL $K|1|k")
	s.want("calls", "+OK / $1 v / -ERR forbidden / +PONG / -ERR forbidden / -ERR forbidden / :1 ")

	// redis.acl_check_cmd uses the same rules.
	for _, name := range []string{"GET", "ping", "del", "multi", "nosuch", "_setuser"} {
		s.groupAs("u", "EVAL|may "+name+"|0")
	}
	s.group("EVAL|may del|0")
	s.want("may", "*2 $4 true $4 true / *2 $4 true $4 true / *2 $5 false $4 true / *2 $5 false $4 true / *2 $5 false $5 false / *2 $5 false $5 false / *2 $4 true $4 true ")

	// A change in the same entry takes effect for the operations after it.
	s.groupAs("u", "EVAL|SET $K 1|1|k")
	s.group("_delusers|u", "_setuser|u|0|set")
	s.groupAs("u", "EVAL|SET $K 2|1|k")
	s.want("change", "-ERR forbidden / :1 :1 / +OK ")

	// With a runner that cannot check rules, users with rules may execute no
	// commands from a script.
	s.runner = &s.lines
	s.groupAs("u", "EVAL|SET $K 3|1|k")
	s.group("GET|k")
	s.want("no guard", "-ERR this program cannot check what the user may run from a script / $1 2 ")
}

// TestSpeculate_UsersAreNotNative: a native script executes its commands
// without a check, so it is interpreted for a user with rules.
func TestSpeculate_UsersAreNotNative(t *testing.T) {
	s := newStage(t)
	s.runner = guarded{&s.lines}
	body := "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return 0 end"
	sha := fsm.SHA1([]byte(body))
	s.group("SCRIPT|LOAD|" + body)
	s.commit()
	runs := s.lines.runs
	s.groupAs("u", fmt.Sprintf("EVALSHA|%s|1|k|v", sha))
	s.commit()
	if s.lines.runs != runs+1 {
		t.Errorf("EVALSHA of a user with rules was interpreted %d times, want once", s.lines.runs-runs)
	}
}

func TestUsers_Limits(t *testing.T) {
	f := newFeed(t)
	f.group.Reset(2, 1)
	f.add(fsm.SetuserCommand, "big", "0", strings.Repeat("x", fsm.MaxUserBytes))
	if got := f.send(); !strings.HasPrefix(got, "-ERR the rules of a user are limited") {
		t.Errorf("a user of %d bytes: %q, want an error", fsm.MaxUserBytes+3, got)
	}
	f.group.Reset(2, 1)
	args := []string{fsm.SeedusersCommand}
	for i := range fsm.MaxUsers + 1 {
		args = append(args, fmt.Sprint("user", i), "on")
	}
	f.add(args...)
	if got := f.send(); !strings.HasPrefix(got, "-ERR the number of users is limited") {
		t.Errorf("%d users: %q, want an error", fsm.MaxUsers+1, got)
	}
	f.group.Reset(2, 1)
	f.add(args[:len(args)-2]...)
	if got := f.send(); got != ":1\r\n" {
		t.Errorf("%d users: %q, want 1", fsm.MaxUsers, got)
	}
	f.group.Reset(2, 1)
	f.add(fsm.SetuserCommand, "onemore", "0", "on")
	if got := f.send(); !strings.HasPrefix(got, "-ERR the number of users is limited") {
		t.Errorf("one user more: %q, want an error", got)
	}
	again := restore(t, snapshotOf(t, f.m))
	if got, want := again.Users(), f.m.Users(); len(got.List) != fsm.MaxUsers || got.Version != want.Version || got.List[77] != want.List[77] {
		t.Errorf("after a snapshot: %d users of version %d, want the same table", len(got.List), got.Version)
	}
}

func TestReadUsers(t *testing.T) {
	f := newFeed(t)
	known := f.m.Users()
	f.do(`_setuser a 0 "on ~*"`)
	f.do(`_setuser b 0 ""`)
	reply := f.do("_users 0")
	got, err := fsm.ReadUsers([]byte(reply), known)
	if err != nil || len(got.List) != 2 || got.Version != f.m.Users().Version || got.List[0] != f.m.Users().List[0] || got.List[1] != f.m.Users().List[1] {
		t.Errorf("ReadUsers returned %+v, %v, want the current table", got, err)
	}
	if same, err := fsm.ReadUsers([]byte(f.do(fmt.Sprintf("_users %d", got.Version))), got); err != nil || same != got {
		t.Errorf("ReadUsers returned %+v, %v, want the known table", same, err)
	}
	for i := range reply {
		if _, err := fsm.ReadUsers([]byte(reply[:i]), known); err == nil {
			t.Errorf("ReadUsers accepts the first %d bytes of the reply, want an error", i)
		}
	}
}
