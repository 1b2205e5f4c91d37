package acl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// newTestUser returns a user that may run all commands and has the given rules.
// It also returns the two commands of the user's catalog, mget and publish.
func newTestUser(t *testing.T, rules []string) (u *User, mget, publish *Command) {
	t.Helper()
	c := NewCatalog([]*fsm.Command{
		{Name: "mget", Arity: -2, Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		{Name: "publish", Arity: 3},
	})
	u, err := NewUser(c, "u", Options{}).Apply(c, append([]string{"+@all"}, rules...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return u, c.find("mget"), c.find("publish")
}

// TestCheck_BoundsSteps checks that a command is denied when its keys or its
// channel take too many steps to match, with patterns in one selector or in
// many. It also checks that a check ends when its budget is used up. Without
// the budget, the first check takes more than 5 s.
func TestCheck_BoundsSteps(t *testing.T) {
	var keys, channels, selectors []string
	for i := range 900 {
		slow := fmt.Sprintf("*%sb%d*", strings.Repeat("a", 31), i)
		keys = append(keys, "~"+slow)
		channels = append(channels, "&"+slow)
		selectors = append(selectors, "(+@all ~"+slow+")")
	}
	long := []byte(strings.Repeat("a", 400<<10))
	args := [][]byte{[]byte("mget")}
	for range 50 {
		args = append(args, long)
	}
	short := [][]byte{[]byte("mget")}
	for range 100_000 {
		short = append(short, []byte(strings.Repeat("a", 40)))
	}
	for _, c := range []struct {
		name    string
		rules   []string
		args    [][]byte
		publish bool
	}{
		{"long keys", keys, args, false},
		{"selectors", selectors, args, false},
		{"many keys", append(keys, "~aa*"), short, false},
		{"channel", channels, [][]byte{[]byte("publish"), long, nil}, true},
	} {
		u, cmd, publish := newTestUser(t, c.rules)
		if c.publish {
			cmd = publish
		}
		m := newMatching(len(c.args))
		v := u.check(cmd, c.args, m)
		if v.Reason != DeniedSteps || !strings.Contains(v.Denial(), "too many steps") {
			t.Errorf("%s: reason %d, %q, want %d", c.name, v.Reason, v.Denial(), DeniedSteps)
		}
		// A check may exceed its budget, because each remaining pattern of the
		// selector still costs a step.
		if m.left < -5000 {
			t.Errorf("%s: the check exceeded its budget by %d steps, want at most 5000", c.name, -m.left)
		}
	}
}

// TestCheckPatterns_BoundsSteps checks a call that takes too many steps to check.
// The error must name the steps, and not a permission that the user may have.
func TestCheckPatterns_BoundsSteps(t *testing.T) {
	var keys []string
	for i := range 900 {
		keys = append(keys, fmt.Sprintf("~*%sb%d*", strings.Repeat("a", 31), i))
	}
	u, get, _ := newTestUser(t, keys)
	cmd := *get
	cmd.KeyPattern = func([][]byte) string { return "BY" }
	long := []byte(strings.Repeat("a", 400<<10))
	args := [][]byte{[]byte("mget")}
	for range 50 {
		args = append(args, long)
	}
	if got := u.CheckPatterns(&cmd, args); !strings.Contains(got, "too many steps") {
		t.Errorf("got %q, want the error about the steps", got)
	}
	if got := u.CheckPatterns(&cmd, args[:1]); strings.Contains(got, "too many steps") || got == "" {
		t.Errorf("a short call: got %q, want an error about a permission", got)
	}
}

// TestCheck_AllowsManyPrefixes checks that a user with many ordinary patterns
// may use many keys, and long keys.
func TestCheck_AllowsManyPrefixes(t *testing.T) {
	var rules []string
	for i := range 500 {
		rules = append(rules, fmt.Sprintf("~tenant:%d:*", i))
	}
	u, mget, _ := newTestUser(t, rules)
	args := [][]byte{[]byte("mget")}
	for range 20_000 {
		args = append(args, []byte("tenant:499:key"))
	}
	if v := u.Check(mget, args); v.Reason != Allowed {
		t.Errorf("20,000 keys: the check returned the reason %d, want Allowed", v.Reason)
	}
	args = args[:1]
	for range 50 {
		args = append(args, []byte("tenant:499:"+strings.Repeat("a", 400<<10)))
	}
	if v := u.Check(mget, args); v.Reason != Allowed {
		t.Errorf("long keys: the check returned the reason %d, want Allowed", v.Reason)
	}
	args = append(args, []byte("tenant:500:key"))
	if v := u.Check(mget, args); v.Reason != DeniedKey || v.Object != "tenant:500:key" {
		t.Errorf("the key of another tenant: the check returned the reason %d, want DeniedKey", v.Reason)
	}
}

func BenchmarkCheck(b *testing.B) {
	c := NewCatalog([]*fsm.Command{
		{Name: "get", Arity: 2, Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
	})
	u, err := NewUser(c, "u", Options{}).Apply(c, []string{"+get", "~a:*", "~b:*"}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	args := [][]byte{[]byte("get"), []byte("b:key")}
	b.ReportAllocs()
	for b.Loop() {
		if u.Check(c.find("get"), args).Reason != Allowed {
			b.Fatal("denied")
		}
	}
}
