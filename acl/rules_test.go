package acl_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// catalog returns a catalog of the commands on data and of two others: SELECT,
// and CONFIG, which has subcommands.
var catalog = sync.OnceValue(func() *acl.Catalog {
	rows := append(slices.Clone(command.NewTable().Rows()),
		&fsm.Command{Name: "select", Flags: fsm.Fast, Categories: []string{"connection"}},
		&fsm.Command{Name: "config", Sub: []fsm.Command{
			{Name: "get", Flags: fsm.Admin, Arity: -3}, {Name: "set", Flags: fsm.Admin, Arity: -4},
		}})
	return acl.NewCatalog(rows)
})

func user(t testing.TB, rules string) *acl.User {
	t.Helper()
	u, err := acl.NewUser(catalog(), "u", acl.Options{}).Apply(catalog(), strings.Fields(rules), acl.Options{})
	if err != nil {
		t.Fatalf("%s: %v", rules, err)
	}
	return u
}

func may(t testing.TB, u *acl.User, line string) acl.Reason {
	t.Helper()
	var args [][]byte
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	cmd := catalog().Resolve(args)
	if cmd == nil {
		t.Fatalf("no command %q", line)
	}
	return u.Check(cmd, args).Reason
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		rules, line string
		want        acl.Reason
	}{
		{"", "get a", acl.DeniedCommand},
		{"+get", "get a", acl.DeniedKey},
		{"+get ~a", "GET a", acl.Allowed},
		{"+get ~a*", "get b", acl.DeniedKey},
		{"+@all %R~*", "set a b", acl.DeniedKey},
		{"+@all %W~*", "set a b", acl.Allowed},
		{"+@all %W~*", "set a b get", acl.DeniedKey},
		{"+@all %W~*", "get a", acl.DeniedKey},
		// A command that compares the value reveals it to a client that tries
		// many values.
		{"+@all %W~*", "set a b ifeq c", acl.DeniedKey},
		{"+@all %W~*", "set a b EX 10 IfNe c", acl.DeniedKey},
		{"+@all %W~*", "set a b nx px 10", acl.Allowed},
		{"+@all %R~*", "set a b ifeq c", acl.DeniedKey},
		{"+@all %R~* %W~a*", "set a b ifeq c", acl.DeniedKey},
		{"+@all %RW~*", "set a b ifeq c", acl.Allowed},
		{"+@all %W~*", "delifeq a b", acl.DeniedKey},
		{"+@all %R~*", "delifeq a b", acl.DeniedKey},
		{"+@all ~*", "delifeq a b", acl.Allowed},
		{"+@all %W~*", "delex a", acl.Allowed},
		{"+@all %W~*", "delex a ifeq b", acl.DeniedKey},
		{"+@all %W~*", "delex a IFNE b", acl.DeniedKey},
		{"+@all ~*", "delex a ifeq b", acl.Allowed},
		{"+@all %W~*", "msetex 1 a b nx", acl.Allowed},
		{"+@all %W~*", "exists a", acl.Allowed},
		{"+@all %R~a %W~b", "copy a b", acl.Allowed},
		{"+@all %R~a %W~b", "copy b a", acl.DeniedKey},
		{"+@all ~*", "publish c x", acl.DeniedChannel},
		{"+@all ~* &c*", "publish c x", acl.Allowed},
		{"+@all ~* &c*", "spublish c x", acl.Allowed},
		{"+@all -@string ~*", "get a", acl.DeniedCommand},
		{"+config|get", "config get x", acl.Allowed},
		{"+config|get", "config set x y", acl.DeniedCommand},
		{"+config -config|set", "config set x y", acl.DeniedCommand},
		{"+select|1", "select 1", acl.Allowed},
		{"+select|1", "select 2", acl.DeniedCommand},
		{"+get ~a (+set ~b)", "set b x", acl.Allowed},
		{"+get ~a (+set ~b)", "set a x", acl.DeniedKey},
		{"+get ~a (+set ~b)", "get b", acl.DeniedKey},
		{"+get ~a (+set ~b) clearselectors", "set b x", acl.DeniedCommand},
		{"+@all allkeys allchannels reset", "get a", acl.DeniedCommand},
	} {
		if got := may(t, user(t, c.rules), c.line); got != c.want {
			t.Errorf("rules %s: the check of %s returns the reason %d, want %d", c.rules, c.line, got, c.want)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	for _, c := range []struct {
		rules, password string
		want            bool
	}{
		{"on >p", "p", true}, {"on >p", "q", false}, {"on >p", "", false}, {"off >p", "p", false}, {"on", "", false}, {"on nopass", "x", true},
		{"off nopass", "x", false}, {"on >p >q", "q", true}, {"on >p >q <q", "q", false}, {"on #" + acl.HashPassword("h"), "h", true}, {"on >p resetpass", "p", false},
	} {
		if got := user(t, c.rules).Authenticate(c.password); got != c.want {
			t.Errorf("rules %s: the login with %q has the result %t, want the opposite", c.rules, c.password, got)
		}
	}
}

// TestParseFile_NamesLines checks that an error names its line, and that all
// errors are reported.
func TestParseFile_NamesLines(t *testing.T) {
	text := "user a on >p ~* +get\n\n# no comments\nuser b +nope\nuser\nuser a off\r\n  user c on (+get ~x\nuser d on nopass (~a +get) (%R~b +set)\r\n"
	users, err := acl.ParseFile(catalog(), "users.acl", text)
	if err == nil {
		t.Fatal("ParseFile returned no error for a file with invalid lines")
	}
	want := `users.acl:3: should start with user keyword followed by the username
users.acl:4: user "b": Error in ACL SETUSER modifier '+nope': Unknown command or category name in ACL
users.acl:5: should start with user keyword followed by the username
users.acl:6: user "a" occurs twice in the file
users.acl:7: user "c": Unmatched parenthesis in acl selector starting at '(+get'.`
	if err.Error() != want {
		t.Errorf("error\n%s\nwant\n%s", err, want)
	}
	if len(users) != 2 || users[0].Name != "a" || users[1].Name != "d" {
		t.Errorf("ParseFile returned the users %v, want a and d", users)
	}
}

// TestParse_Lenient checks rules that name a command that the catalog does not
// know. Parse must accept and keep such rules.
func TestParse_Lenient(t *testing.T) {
	few := acl.NewCatalog([]*fsm.Command{command.NewTable().Find([]byte("get"))})
	u, err := acl.Parse(few, "u", user(t, "on ~* +get +set +config|get -config|set +@read").Rules())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := u.Rules(), "on ~* resetchannels -@all +get +set +config|get -config|set +@read"; got != want {
		t.Errorf("rules %q, want %q", got, want)
	}
}

// TestGuard checks which commands scripts may call, for users of a replicated
// state.
func TestGuard(t *testing.T) {
	g := acl.NewGuard(acl.ScriptCatalog(command.NewTable()))
	check := func(users *fsm.Users, name, line string) string {
		var args [][]byte
		for _, w := range strings.Fields(line) {
			args = append(args, []byte(w))
		}
		return g.Check(users, name, args)
	}
	users := &fsm.Users{Version: 2, List: []fsm.User{{Name: "broken", Rules: "+@all ~* huh", Version: 1}, {Name: "u", Rules: user(t, "+get ~a").Rules(), Version: 2}}}
	const denied = "ERR The user executing the script can't run this command or subcommand"
	for _, c := range [][3]string{
		{"u", "get a", ""}, {"u", "GET a", ""}, {"u", "set a b", denied}, {"gone", "get a", denied}, {"default", "set a b", ""}, {"broken", "get a", denied},
		{"u", "get b", "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"}, {"u", "ping", denied},
	} {
		if got := check(users, c[0], c[1]); got != c[2] {
			t.Errorf("user %s, command %s: got the error %q, want another", c[0], c[1], got)
		}
	}
	users = &fsm.Users{Version: 3, List: []fsm.User{{Name: "u", Rules: user(t, "+set ~a").Rules(), Version: 3}}}
	users.List = append(users.List, fsm.User{Name: "w", Rules: user(t, "+@all %W~*").Rules(), Version: 3})
	for line, allowed := range map[string]bool{"set a b": true, "set a b ifeq c": false, "delex a": true, "delex a ifeq b": false, "delifeq a b": false,
		"lock list": false, "lock token a": false} {
		if text := check(users, "w", line); (text == "") != allowed {
			t.Errorf("%s of a user that may only write: got the error %q, want the opposite decision", line, text)
		}
	}
	if check(users, "u", "get a") == "" || check(users, "u", "set a b") != "" {
		t.Error("the user may still run GET or not yet run SET after its rules have changed")
	}
}

// TestApply_ManyPasswords checks that Apply accepts as many passwords as fit
// into the rules that the state machine accepts, and refuses one more.
func TestApply_ManyPasswords(t *testing.T) {
	const most = 992
	rules := make([]string, 0, most+1)
	for i := range cap(rules) {
		rules = append(rules, ">"+strconv.Itoa(i))
	}
	u, err := acl.NewUser(catalog(), "u", acl.Options{}).Apply(catalog(), rules[:most], acl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if size := len(u.Name) + len(u.Rules()); size > fsm.MaxUserBytes {
		t.Errorf("a user with %d passwords has %d bytes, more than %d", most, size, fsm.MaxUserBytes)
	}
	if _, err := u.Apply(catalog(), rules[most:], acl.Options{}); err == nil ||
		!strings.Contains(err.Error(), "at most 992 passwords") {
		t.Errorf("%d passwords: got %v, want the error about the limit of %d", len(rules), err, most)
	}
}

// FuzzApply checks that Parse makes an equal user from the text that Rules
// returns, for any rules, and that Apply does not change its receiver.
func FuzzApply(f *testing.F) {
	for _, s := range []string{"on >p ~a* &c +get -set +@read -@write", "(+get ~a) (+@all\n%R~x)", "+select|0 +config|get -config", "reset\nnopass", "%RW~* ~b", "skip-sanitize-payload", "~\x80 &\xa0 +\xff", "((", "+@all -@all +acl|x", "allkeys resetkeys"} {
		f.Add(s)
	}
	c := catalog()
	f.Fuzz(func(t *testing.T, text string) {
		u := acl.NewUser(c, "u", acl.Options{})
		for _, call := range strings.Split(text, "\n") {
			before := u.Rules()
			n, err := u.Apply(c, strings.Split(call, " "), acl.Options{})
			if got := u.Rules(); got != before {
				t.Fatalf("Apply of %q changed its receiver from %q to %q, want no change", call, before, got)
			}
			if err != nil {
				continue
			}
			u = n
		}
		again, err := acl.Parse(c, "u", u.Rules())
		if err != nil {
			t.Fatalf("rules %q of %q: %v", u.Rules(), text, err)
		}
		if again.Rules() != u.Rules() || again.String() != u.String() {
			t.Fatalf("rules %q become %q when they are parsed again, want the same", u.Rules(), again.Rules())
		}
		for _, line := range []string{"get a", "set a b", "config get x", "config set a b", "select 0", "publish c x", "mget a x", "del b"} {
			if a, b := may(t, u, line), may(t, again, line); a != b {
				t.Fatalf("%s: the reason is %d before, and %d after the rules %q are parsed again", line, a, b, u.Rules())
			}
		}
	})
}
