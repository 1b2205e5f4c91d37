package acl

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Guard checks commands against users as the replicated state has them: for a
// leader, who runs scripts in other nodes' names. It may be used by several
// goroutines.
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

// NewGuard makes a guard that knows the commands of a catalog.
func NewGuard(c *Catalog) *Guard { return &Guard{catalog: c, users: make(map[string]compiled)} }

// ScriptCatalog makes a catalog of what scripts can call: the commands of a table,
// and those about the connection that a script may call, as they are in the client
// port's catalog.
func ScriptCatalog(t *fsm.Table) *Catalog {
	rows := append(slices.Clone(t.Rows()),
		&fsm.Command{Name: "ping", Flags: fsm.Fast, Categories: []string{"connection"}},
		&fsm.Command{Name: "echo", Flags: fsm.Fast, Categories: []string{"connection"}},
		&fsm.Command{Name: "select", Flags: fsm.Fast, Categories: []string{"connection"}})
	return NewCatalog(rows)
}

// Check says why a user may not run a command that a script calls, or "". A user
// who is no longer there may nothing, the default user everything as long as
// nobody has changed it.
func (g *Guard) Check(users *fsm.Users, name string, args [][]byte) string {
	cmd := g.catalog.Resolve(args)
	if cmd == nil {
		return "" // there is nothing to run
	}
	kept := users.Find(name)
	if kept == nil && name == DefaultUser {
		return ""
	}
	v := Verdict{Reason: DeniedCommand, Command: cmd}
	if kept != nil {
		if u := g.compile(kept); u != nil {
			if v = u.Check(cmd, args); v.Reason == Allowed {
				return u.CheckPatterns(cmd, args)
			}
		}
	}
	if f := g.denied.Load(); f != nil && v.Reason != Allowed {
		(*f)(name, v)
	}
	return v.Script()
}

// OnDenied has f told of what is denied, by the goroutine that runs the script.
func (g *Guard) OnDenied(f func(user string, v Verdict)) { g.denied.Store(&f) }

// compile returns the user, nil if its rules cannot be read: then it may nothing.
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
	if len(g.users) > fsm.MaxUsers { // of deleted users, mostly
		clear(g.users)
	}
	g.users[kept.Name] = compiled{kept.Version, u}
	return u
}
