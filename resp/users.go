package resp

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/guard"
)

// account is a user to which connections can belong. born distinguishes it from
// an earlier user of the same name.
type account struct {
	*acl.User
	born, version fsm.Pos
}

// userSet is the set of all users on this node. It is immutable; a change
// replaces it.
type userSet struct {
	table *fsm.Users // the table that it was made from
	list  []*account // sorted by name
	def   *account   // the user default
}

func (u *userSet) find(name string) *account {
	i, ok := slices.BinarySearchFunc(u.list, name, func(a *account, name string) int {
		return strings.Compare(a.Name, name)
	})
	if !ok {
		return nil
	}
	return u.list[i]
}

// accounts are the users of this node, and what it remembers of logins.
type accounts struct {
	seed         []fsm.User // Config.Users, sorted by name
	mu           sync.Mutex // serializes install
	current      atomic.Pointer[userSet]
	log          aclLog
	logins       guard.LoginThrottle
	openChannels atomic.Bool // acl-pubsub-default is allchannels
	// password is the password that CONFIG GET requirepass prints: see
	// requirePass. Server.mu guards it.
	password string
}

// identity is the user of a connection.
type identity struct {
	// limits contains the rules of the user. It is nil for a user with all
	// permissions.
	limits         atomic.Pointer[acl.User]
	born           fsm.Pos     // see account; guarded by conn.mu
	deleting       atomic.Bool // the connection is running ACL DELUSER: see closeDeleted
	wrongPasswords int         // failed AUTHs: see auth
}

// seedOf returns users in the form in which the state stores them.
func seedOf(users []*acl.User) []fsm.User {
	var out []fsm.User
	for _, u := range users {
		out = append(out, fsm.User{Name: u.Name, Rules: u.Rules()})
	}
	slices.SortFunc(out, func(a, b fsm.User) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s *Server) aclOptions() acl.Options {
	return acl.Options{AllChannels: s.accounts.openChannels.Load()}
}

// install makes a table of users the current one on this node, unless the node
// has a newer one, and applies it to all connections. The goroutine that
// applies the log calls it, and connections that have asked the leader.
func (s *Server) install(table *fsm.Users) {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	old := s.accounts.current.Load()
	if old != nil && table.Version <= old.table.Version {
		return
	}
	set := s.compile(table, old)
	s.accounts.current.Store(set)
	if old != nil && set.def.version != old.def.version {
		s.noticePassword(set)
	}
	changed := make(map[uint64]bool)
	subscribed := false
	for _, c := range s.connections() {
		if c.applyUser() {
			changed[c.id] = true
			subscribed = subscribed || c.subscribed()
		}
	}
	s.hub.RightsChanged(changed)
	if !subscribed {
		return
	}
	for _, id := range s.hub.Forbidden(changed) {
		if c := s.connection(id); c != nil {
			c.disconnect("cannot close a connection with a forbidden subscription")
		}
	}
}

// compile parses the rules of the users that old does not contain. While the
// cluster has no users, the users of this node's --acl-file count, and
// --requirepass is the password of a default user that no client has changed.
func (s *Server) compile(table *fsm.Users, old *userSet) *userSet {
	set := &userSet{table: table}
	kept := table.List
	if table.Version == 0 {
		kept = s.accounts.seed
	}
	for i := range kept {
		k := &kept[i]
		a := (*account)(nil)
		if old != nil {
			a = old.find(k.Name)
		}
		if a == nil || a.version != k.Version || a.born != k.Born {
			u, err := acl.Parse(s.cmds.catalog, k.Name, k.Rules)
			// The user may run nothing: that is safer than rules that were not
			// intended.
			if err != nil {
				s.log.Error("cannot parse the rules of a user", "user", k.Name, "error", err)
				u = acl.NewUser(s.cmds.catalog, k.Name, acl.Options{})
			}
			a = &account{u, k.Born, k.Version}
		}
		set.list = append(set.list, a)
	}
	if set.def = set.find(acl.DefaultUser); set.def == nil {
		set.def = &account{User: acl.NewDefault(s.cmds.catalog, s.cfg.RequirePass)}
		set.list = append(set.list, set.def)
	}
	slices.SortFunc(set.list, func(a, b *account) int { return strings.Compare(a.Name, b.Name) })
	return set
}

// applyUser applies the current users to the connection: its rules, and its end if
// its user is gone. It reports whether the rules have changed; the caller must
// pass that on to the hub. Any goroutine may call it.
func (c *conn) applyUser() (changed bool) {
	c.mu.Lock()
	a := c.srv.accounts.current.Load().find(c.info.user)
	if a != nil && c.user.born == 0 { // a user of the ACL file, which the cluster has taken over
		c.user.born = a.born
	}
	gone := a == nil || a.born != c.user.born && a.Name != acl.DefaultUser
	var limits *acl.User
	switch {
	case gone:
		limits = acl.NewUser(c.srv.cmds.catalog, c.info.user, acl.Options{})
	case !a.Unrestricted():
		limits = a.User
	}
	changed = c.user.limits.Swap(limits) != limits
	c.mu.Unlock()
	if gone {
		c.closeDeleted()
	}
	if changed && limits != nil {
		c.recheckWait()
	}
	return changed
}

// closeDeleted closes the connection of a deleted user. A connection that deletes
// its own user gets its reply first.
func (c *conn) closeDeleted() {
	if !c.user.deleting.Load() {
		c.disconnect("cannot close the connection of a deleted user")
	}
}

// disconnect closes the connection. Any goroutine may call it. It logs failure if
// the socket cannot be closed.
func (c *conn) disconnect(failure string) {
	if c.killed.Swap(true) {
		return
	}
	if err := ignoreClosed(c.net.Close()); err != nil {
		c.srv.log.Debug(failure, "client", c.id, "error", err)
	}
}

// become makes a the user of the connection.
func (c *conn) become(a *account, authed bool) {
	c.edit(func(i *clientInfo) {
		i.user, i.authed = a.Name, authed
		c.user.born = a.born
	})
	if c.applyUser() {
		c.srv.hub.RightsChanged(map[uint64]bool{c.id: true})
	}
	if g, ok := c.net.(*guard.Conn); ok {
		g.SetAuthenticated(authed)
	}
}

// needsAuth reports whether the connection may run only commands that need no
// user. A connection that has not authenticated belongs to the default user as
// soon as that user needs no password.
func (c *conn) needsAuth() bool { return !c.info.authed && !c.srv.accounts.current.Load().def.Open() }

// refreshUsers reads the current users linearizably, whatever this node has
// applied so far.
func (c *conn) refreshUsers() error {
	known := c.srv.accounts.current.Load().table
	out, err := c.ask(fsm.UsersCommand, strconv.FormatUint(uint64(known.Version), 10))
	if err != nil {
		return err
	}
	users, err := fsm.ReadUsers(out, known)
	if err != nil {
		return err
	}
	c.srv.install(users)
	return nil
}

// ask runs an internal command of the state machine in a group of its own,
// because the connection may have a pipeline waiting in c.group.
func (c *conn) ask(name string, args ...string) ([]byte, error) {
	return run(c.exec, c.srv.cmds.machine, name, args...)
}

func run(exec Executor, table *fsm.Table, name string, args ...string) ([]byte, error) {
	words := [][]byte{[]byte(name)}
	for _, a := range args {
		words = append(words, []byte(a))
	}
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(table.Find(words[0]), 0, words)
	return exec.Do(&g, false, nil)
}

// askInt is ask for commands that change the state and return an integer.
func (c *conn) askInt(name string, args ...string) (int, error) {
	out, err := c.ask(name, args...)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSuffix(string(out), "\r\n")
	switch {
	case strings.HasPrefix(text, ":"):
		return strconv.Atoi(text[1:])
	case strings.HasPrefix(text, "-"):
		return 0, refusedError(text[1:])
	}
	return 0, outcome.NewUnknown(fmt.Errorf("%s answered %q", name, text))
}

// refusedError is an error reply of the state machine, with its code.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// changeTries bounds how often a change of a user is tried again because
// another client changed the user first.
const changeTries = 1000

// changeUser creates or changes a user. edit gets the current user and returns
// the new one; it may be called several times. No concurrent change of another
// connection is lost.
func (c *conn) changeUser(name string, edit func(*acl.User) (*acl.User, error)) error {
	for range changeTries {
		if err := c.beforeChange(); err != nil {
			return err
		}
		a := c.srv.accounts.current.Load().find(name)
		if a == nil {
			a = &account{User: acl.NewUser(c.srv.cmds.catalog, name, c.srv.aclOptions())}
		}
		u, err := edit(a.User)
		if err != nil {
			return err
		}
		done, err := c.askInt(fsm.SetuserCommand, name, strconv.FormatUint(uint64(a.version), 10), u.Rules())
		if err != nil {
			return err
		}
		if done == 1 {
			return c.afterChange()
		}
	}
	return fmt.Errorf("other clients changed user %q during each of %d attempts", name, changeTries)
}

// afterChange applies an executed change of users to this node. If it fails,
// the change still stands.
func (c *conn) afterChange() error {
	if err := c.refreshUsers(); err != nil {
		c.srv.log.Debug("cannot read users after a change", "client", c.id, "error", err)
		return outcome.NewExecuted("this node has not read the change yet")
	}
	return nil
}

// beforeChange reads the current users. It first writes the users of the ACL
// file, if the cluster has none: a change must not be the first that the log
// knows about users.
func (c *conn) beforeChange() error {
	if err := c.refreshUsers(); err != nil {
		return err
	}
	s := c.srv
	if len(s.accounts.seed) == 0 || s.accounts.current.Load().table.Version != 0 {
		return nil
	}
	if err := s.seedUsers(c.exec); err != nil {
		return err
	}
	return c.refreshUsers()
}

// seedUsers makes the users of this node's --acl-file the users of the cluster,
// if the cluster has none yet.
func (s *Server) seedUsers(exec Executor) error {
	var args []string
	for _, u := range s.accounts.seed {
		args = append(args, u.Name, u.Rules)
	}
	out, err := run(exec, s.cmds.machine, fsm.SeedusersCommand, args...)
	switch {
	case err != nil:
		return err
	case len(out) > 0 && out[0] == '-':
		return refusedError(strings.TrimSpace(string(out[1:])))
	case string(out) == ":1\r\n":
		s.log.Info("wrote the users of the ACL file into the cluster", "users", len(s.accounts.seed))
	}
	return nil
}

// bootstrapEvery is the interval at which the server tries to write the users
// of the ACL file.
const bootstrapEvery = 50 * time.Millisecond

// bootstrapUsers writes the users of the ACL file as soon as there is a leader.
// It ends once the cluster has users.
func (s *Server) bootstrapUsers() {
	exec := s.cluster.NewExecutor()
	t := time.NewTicker(bootstrapEvery)
	defer t.Stop()
	for s.accounts.current.Load().table.Version == 0 {
		select {
		case <-s.life.stopping:
			return
		case <-t.C:
		}
		if !s.cluster.State().Ready {
			continue
		}
		err := s.seedUsers(exec)
		var refused refusedError
		switch {
		case errors.Is(err, outcome.ErrClosed):
			return
		case errors.As(err, &refused):
			s.log.Error("cluster refused the users of the ACL file", "error", err)
			return
		case err != nil:
			s.log.Warn("cannot write the users of the ACL file yet", "error", err)
		}
	}
}

// noticePassword logs that this node's --requirepass has no effect, if the
// cluster has a default user with another password.
func (s *Server) noticePassword(set *userSet) {
	if pass := s.cfg.RequirePass; pass != "" && set.def.version != 0 && !set.def.HasPassword(pass) {
		s.warn("requirepass", "--requirepass has no effect: the cluster has a default user with another password")
	}
}
