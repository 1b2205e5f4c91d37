package acl

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Guard checks the commands that scripts call against the rules of the users in
// the replicated state. It is safe for concurrent use.
type Guard struct {
	catalog *Catalog
	denied  atomic.Pointer[func(user string, v Verdict)]

	mu    sync.Mutex
	users map[string]compiled
}

type compiled struct {
	version fsm.Pos
	user    *User
}

// NewGuard returns a guard that knows the commands of a catalog.
func NewGuard(c *Catalog) *Guard { return &Guard{catalog: c, users: make(map[string]compiled)} }

// ScriptCatalog returns a catalog of the commands that scripts can call. These
// are the commands of a table, and some connection commands. The connection
// commands have the same categories as in the client port's catalog.
func ScriptCatalog(t *fsm.Table) *Catalog {
	rows := append(slices.Clone(t.Rows()),
		&fsm.Command{Name: "ping", Flags: fsm.Fast, Categories: []string{"connection"}},
		&fsm.Command{Name: "echo", Flags: fsm.Fast, Categories: []string{"connection"}},
		&fsm.Command{Name: "select", Flags: fsm.Fast, Categories: []string{"connection"}})
	return NewCatalog(rows)
}

// Check returns the error for a command that a user may not run in a script, or
// "" if the user may run it. A deleted user may run nothing. The default user may
// run everything as long as the replicated state contains no rules for it.
func (g *Guard) Check(users *fsm.Users, name string, args [][]byte) string {
	cmd := g.catalog.Resolve(args)
	if cmd == nil {
		return "" // the command is unknown, so the script's call fails in any case
	}
	kept := users.Find(name)
	if kept == nil && name == DefaultUser {
		return ""
	}
	v := Verdict{Reason: DeniedCommand, Command: cmd}
	if kept != nil {
		if u := g.compile(kept); u != nil {
			if v = u.check(cmd, args, newMatching(len(args))); v.Reason == Allowed {
				return u.CheckPatterns(cmd, args)
			}
		}
	}
	if f := g.denied.Load(); f != nil && v.Reason != Allowed {
		(*f)(name, v)
	}
	return v.Script()
}

// OnDenied registers f, which Check calls for each denied command, on the
// goroutine that runs the script. Check does not call f for a command that only
// CheckPatterns denies.
func (g *Guard) OnDenied(f func(user string, v Verdict)) { g.denied.Store(&f) }

// compile returns the user, or nil if its rules cannot be parsed. A user whose
// rules cannot be parsed may run nothing.
func (g *Guard) compile(kept *fsm.User) *User {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.users[kept.Name]; ok && c.version == kept.Version {
		return c.user
	}
	u, err := Parse(g.catalog, kept.Name, kept.Rules)
	if err != nil {
		u = nil
	}
	if len(g.users) > fsm.MaxUsers { // more entries than users: some belong to deleted users
		clear(g.users)
	}
	g.users[kept.Name] = compiled{kept.Version, u}
	return u
}
