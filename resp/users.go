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
	table *fsm.Users // the table from which the set was made
	list  []*account // sorted by name
	def   *account   // the user named default
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

// accounts contains the users that this node knows, the ACL log, and the state that
// decides which logins the node accepts.
type accounts struct {
	seed         []fsm.User // Config.Users and Config.RequirePass, sorted by name
	mu           sync.Mutex // serializes install
	current      atomic.Pointer[userSet]
	log          aclLog
	logins       *guard.LoginThrottle
	openChannels atomic.Bool // acl-pubsub-default is allchannels
	// confirmed means that this node has read the users of the cluster
	// linearizably since it started. Before that, the default user may seem to
	// need no password only because the node does not know the users yet.
	confirmed atomic.Bool
	replaced  atomic.Bool // SetDefaultPassword was called
}

// identity is the user of a connection.
type identity struct {
	// limits contains the rules of the user. It is nil for a user with all
	// permissions.
	limits         atomic.Pointer[acl.User]
	born           fsm.Pos     // see account; guarded by conn.mu
	deleting       atomic.Bool // the connection runs a command that may delete its user: see delayEnd
	early          bool        // the connection was accepted before the users were confirmed: see authError
	wrongPasswords int         // number of wrong passwords since the last successful login: see wrongPassword
	// unconfirmed is set if the connection logged in before the users were
	// confirmed. It is the user as this node knew it at the login. checkLogin
	// compares it with the user of the cluster, and resets it.
	unconfirmed atomic.Pointer[acl.User]
}

// seedOf returns the first users of a cluster, in the form in which the state
// stores users. These are the users of --acl-file and, if --requirepass is set,
// a default user with this password.
func seedOf(catalog *acl.Catalog, users []*acl.User, password string) []fsm.User {
	var out []fsm.User
	if password != "" {
		u := acl.NewDefault(catalog, password)
		out = append(out, fsm.User{Name: u.Name, Rules: u.Rules()})
	}
	for _, u := range users {
		out = append(out, fsm.User{Name: u.Name, Rules: u.Rules()})
	}
	slices.SortFunc(out, func(a, b fsm.User) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// AcceptsAnyPassword reports whether clients can log in as a user with any password.
func (s *Server) AcceptsAnyPassword(user string) bool {
	a := s.accounts.current.Load().find(user)
	return a != nil && a.Open()
}

// Permits reports whether a user may run a command, according to the users that
// this node knows. Unlike a refused command, a negative answer adds no entry to
// the ACL log.
func (s *Server) Permits(user string, command ...string) bool {
	args := make([][]byte, len(command))
	for i, arg := range command {
		args[i] = []byte(arg)
	}
	a, cmd := s.accounts.current.Load().find(user), s.cmds.catalog.Resolve(args)
	return a != nil && cmd != nil && a.Check(cmd, args).Reason == acl.Allowed
}

func (s *Server) aclOptions() acl.Options {
	return acl.Options{AllChannels: s.accounts.openChannels.Load()}
}

// install makes a table of users the current one on this node, unless the node
// has a newer one, and applies it to all connections. The goroutine that
// applies the log calls install, and so do goroutines that have read the users
// from the leader.
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

// compile parses the rules of the users that are new or have changed since old.
// While the cluster has no users, the node uses those of its --acl-file and
// --requirepass. A cluster without a default user gets one with the password of
// --requirepass: see bootstrapUsers.
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
			// If the rules cannot be parsed, the user may run nothing: that is
			// safer than rules that were not intended.
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

// applyUser applies the current users to the connection: it updates the rules of
// the connection, and closes the connection if its user is gone. It reports whether
// the rules have changed; the caller must then inform the hub. Any goroutine may
// call it.
func (c *conn) applyUser() (changed bool) {
	c.mu.Lock()
	a := c.srv.accounts.current.Load().find(c.info.user)
	if a != nil && c.user.born == 0 { // a user of the ACL file, which the cluster has adopted
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
// or replaces its own user gets its reply first: see delayEnd.
func (c *conn) closeDeleted() {
	if !c.user.deleting.Load() {
		c.disconnect("cannot close the connection of a deleted user")
	}
}

// disconnect closes the connection. Any goroutine may call it. failure is the log
// message if the socket cannot be closed.
func (c *conn) disconnect(failure string) {
	if c.killed.Load() {
		return
	}
	c.kill()
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
		g.SetAuthenticated(authed || c.user.early && a.Open())
	}
}

// limitInput sets the limits of a connection that has not authenticated. If the
// default user needs no password, the limits for authenticated connections
// apply. Otherwise, the stricter limits before a login apply. While the users
// are not confirmed, the default user that this node knows decides, because the
// first command of a client may be a large one. Any goroutine may call
// limitInput.
func (c *conn) limitInput() {
	c.mu.Lock()
	authed := c.info.authed
	c.mu.Unlock()
	if g, ok := c.net.(*guard.Conn); ok && !authed {
		g.SetAuthenticated(c.srv.accounts.current.Load().def.Open())
	}
}

// needsAuth reports whether the connection may run only commands that need no
// user. A connection that has not authenticated belongs to the default user as
// soon as that user needs no password.
func (c *conn) needsAuth() bool { return !c.info.authed && !c.srv.accounts.current.Load().def.Open() }

// authError returns the error for a command of a connection that has not
// authenticated, or "". The cluster decides whether the default user needs a
// password, so a node that was started without a password must not let clients
// in before it has read the users of the cluster.
func (c *conn) authError(r *row, args [][]byte) string {
	if c.needsAuth() {
		c.limitInput()
		return msgNoAuth
	}
	if r.isOpen(args) && !c.srv.accounts.confirmed.Load() {
		return ""
	}
	m := c.tx.multi
	if m != nil && m.unconfirmed != "" {
		return m.unconfirmed // the transaction is aborted, so its other commands need not wait
	}
	if err := c.confirmUsers(); err != nil {
		text := errorText(err)
		if m != nil {
			m.unconfirmed = text
		}
		return text
	}
	def := c.srv.accounts.current.Load().def
	if !def.Open() {
		c.limitInput()
		return msgNoAuth
	}
	if c.user.early {
		// Treat the client as if it had connected after the users were confirmed.
		c.user.early = false
		c.become(def, true)
	}
	return ""
}

// isOpen reports whether a command is answered before the users are confirmed.
// Such commands read no data and reveal nothing about other clients. Client
// libraries send them when they connect. HOLDFAST STATUS tells an operator why
// a node has no leader, and says no more than the HTTP port. MULTI must not be
// refused: if it were, and the users were confirmed before the next command of
// the same pipeline, the commands of the transaction would run one by one. The
// server checks the commands between MULTI and EXEC one by one. If it refuses
// one of them, EXEC aborts the transaction.
func (r *row) isOpen(args [][]byte) bool {
	switch r.fullName() {
	case "ping", "echo", "select", "client|setname", "client|setinfo", "client|getname", "client|id", "client|reply",
		"multi", "discard":
		return true
	case "holdfast":
		return len(args) > 1 && strings.EqualFold(string(args[1]), "status")
	}
	return false
}

// confirmUsers reads the current users, unless this node has read them since it
// started.
func (c *conn) confirmUsers() error {
	if c.srv.accounts.confirmed.Load() {
		return nil
	}
	return c.users().refresh()
}

// userClient reads and changes the users of the cluster with an executor. Only
// one goroutine at a time may use it.
type userClient struct {
	srv  *Server
	exec Executor
}

// users returns a userClient with the connection's executor.
func (c *conn) users() userClient { return userClient{c.srv, c.exec} }

// refresh reads the current users linearizably, regardless of what this node has
// applied so far.
func (c userClient) refresh() error {
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
	if !c.srv.accounts.confirmed.Swap(true) {
		for _, other := range c.srv.connections() {
			other.checkLogin()
			other.limitInput()
		}
	}
	return nil
}

// checkLogin closes a connection that logged in before the users were
// confirmed, if the passwords of its user have been replaced since: the client
// may have used an old password. Any goroutine may call it.
func (c *conn) checkLogin() {
	before := c.user.unconfirmed.Swap(nil)
	if before == nil {
		return
	}
	a := c.srv.accounts.current.Load().find(before.Name)
	if a == nil || !a.SamePasswords(before) {
		c.disconnect("cannot close a connection with a replaced password")
	}
}

// ask runs an internal command of the state machine in a group of its own, because
// the group of the connection (conn.group) may contain commands that have not been
// executed yet.
func (c userClient) ask(name string, args ...string) ([]byte, error) {
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

// askInt is like ask, for commands that change the state and return an integer.
func (c userClient) askInt(name string, args ...string) (int, error) {
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

// change creates or changes a user. edit gets the current user and returns the
// new user; it may be called several times. No concurrent change of another
// connection is lost.
func (c userClient) change(name string, edit func(*acl.User) (*acl.User, error)) error {
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

// afterChange applies an executed change of users to this node. If afterChange
// fails, the cluster has the change nevertheless.
func (c userClient) afterChange() error {
	if err := c.refresh(); err != nil {
		c.srv.log.Debug("cannot read users after a change", "error", err)
		return outcome.NewExecuted("this node has not read the change yet")
	}
	return nil
}

// beforeChange reads the current users. If the cluster has none, beforeChange
// writes the users of --acl-file and --requirepass. It must do so before the
// change, because a cluster that has users ignores the users of these flags.
func (c userClient) beforeChange() error {
	if err := c.refresh(); err != nil {
		return err
	}
	s := c.srv
	if len(s.accounts.seed) == 0 || s.accounts.current.Load().table.Version != 0 {
		return nil
	}
	if err := c.seed(); err != nil {
		return err
	}
	return c.refresh()
}

// seed makes the users of this node's flags the users of the cluster, if the
// cluster has none yet.
func (c userClient) seed() error {
	s := c.srv
	var args []string
	for _, u := range s.accounts.seed {
		args = append(args, u.Name, u.Rules)
	}
	out, err := c.ask(fsm.SeedusersCommand, args...)
	switch {
	case err != nil:
		return err
	case len(out) > 0 && out[0] == '-':
		return refusedError(strings.TrimSpace(string(out[1:])))
	case string(out) == ":1\r\n":
		s.log.Info("wrote the users of --acl-file and --requirepass into the cluster", "users", len(s.accounts.seed))
	}
	return nil
}

// bootstrapEvery is the interval at which the server tries to read and write the
// users of the cluster after its start.
const bootstrapEvery = 50 * time.Millisecond

// oldFeaturesAttempts is the number of attempts after which the server logs
// that the value of --lock-delay cannot be set yet, because the feature version of
// the cluster is too low. A new cluster needs about a second.
const oldFeaturesAttempts = 200

// lockDelayChecks is the number of times that a server which has written its
// --lock-delay reads the setting again. Another node that started at the same
// time may also have found no value, and may overwrite this server's value
// shortly afterward.
const lockDelayChecks = 100

// bootstrapUsers reads the users of the cluster as soon as there is a leader,
// and writes the users that are missing. It does the same for the setting
// lock-delay.
func (s *Server) bootstrapUsers() {
	users := userClient{s, s.cluster.NewExecutor()}
	t := time.NewTicker(bootstrapEvery)
	defer t.Stop()
	old := 0    // number of attempts at which the feature version of the cluster was too low
	checks := 0 // number of reads of the setting lock-delay that are still to be made
	bootstrapped := false
	for {
		select {
		case <-s.life.stopping:
			return
		case <-t.C:
		}
		if !s.cluster.State().Ready {
			continue
		}
		wrote, same := false, true
		var err error
		if !bootstrapped {
			err = users.bootstrap()
			bootstrapped = err == nil
		}
		if err == nil {
			wrote, same, err = users.seedLockDelay()
		}
		var refused refusedError
		switch {
		case wrote:
			checks = lockDelayChecks
		case err == nil && same && checks > 1:
			checks--
		case err == nil, errors.Is(err, outcome.ErrClosed):
			return
		case errors.Is(err, errOldFeatures):
			// The leader raises the feature version soon, unless there are older nodes.
			if old++; old == oldFeaturesAttempts {
				s.log.Error("--lock-delay is not in force yet: the cluster uses an older feature version: "+
					"upgrade every node", "needs", fsm.FeatureDelay, "uses", s.cluster.FeatureVersion(fsm.FeatureDelay))
			}
		case errors.As(err, &refused):
			s.log.Error("cluster refused the users from --acl-file and --requirepass, or the value of --lock-delay",
				"error", err)
			return
		default:
			s.warn("users", "cannot read or write the users of the cluster yet", "error", err)
		}
	}
}

// bootstrap reads the users of the cluster. If the cluster has no users, bootstrap
// writes the users of this node's flags. If there is no default user, it writes one
// with the password of --requirepass, so that all nodes need the same password.
func (c userClient) bootstrap() error {
	s := c.srv
	if s.cfg.Mode == Sentinel { // the client port of the node writes the users, not the Sentinel port
		return c.refresh()
	}
	if err := c.beforeChange(); err != nil {
		return err
	}
	if s.cfg.RequirePass == "" || s.accounts.current.Load().table.Find(acl.DefaultUser) != nil {
		return nil
	}
	rules := acl.NewDefault(s.cmds.catalog, s.cfg.RequirePass).Rules()
	if _, err := c.askInt(fsm.SetuserCommand, acl.DefaultUser, "0", rules); err != nil {
		return err
	}
	return c.refresh()
}

// errOldFeatures means that the feature version of the cluster is too low for a
// setting.
var errOldFeatures = errors.New("feature version of the cluster is too low")

// seedLockDelay makes the value of --lock-delay the cluster's setting
// lock-delay, if that setting was never set. wrote reports whether it wrote the
// setting. If it did not, same reports whether the setting has the value of the
// flag. If nodes with different values write the setting at the same time, the
// last write determines it.
func (c userClient) seedLockDelay() (wrote, same bool, err error) {
	s := c.srv
	value := s.cfg.LockDelay
	if value == "" || s.cfg.Mode == Sentinel {
		return false, true, nil
	}
	if s.cluster.FeatureVersion(fsm.FeatureDelay) < fsm.FeatureDelay {
		return false, false, errOldFeatures
	}
	current, set, err := c.lockDelay()
	switch {
	case err != nil:
		return false, false, err
	case !set:
		out, err := c.ask(fsm.SetSettingsCommand, fsm.SettingDelay, value)
		if err == nil && out[0] == '-' {
			err = refusedError(strings.TrimSpace(string(out[1:])))
		}
		return err == nil, false, err
	case current != value:
		s.warn("lock-delay", "--lock-delay has no effect: the cluster has another value (change it with CONFIG SET "+
			"lock-delay)", "value", current)
	}
	return false, current == value, nil
}

// lockDelay returns the setting lock-delay of the cluster, and whether it was ever
// set.
func (c userClient) lockDelay() (value string, set bool, err error) {
	out, err := c.ask(fsm.GetSettingsCommand)
	if err != nil {
		return "", false, err
	}
	kept, err := parseSettings(out)
	if err != nil {
		return "", false, err
	}
	value, set = kept[fsm.SettingDelay]
	return value, set, nil
}

// SetDefaultPassword makes password the only password of the default user, on all
// nodes, as CONFIG SET requirepass does. If the outcome is unknown, the error says
// so.
func (s *Server) SetDefaultPassword(password string) error {
	s.accounts.replaced.Store(true) // the password of the flag is out of date from now on
	return userClient{s, s.cluster.NewExecutor()}.setDefaultPassword(password)
}

func (c userClient) setDefaultPassword(password string) error {
	return c.change(acl.DefaultUser, func(u *acl.User) (*acl.User, error) {
		u = u.Clone()
		u.SetPassword(password)
		return u, nil
	})
}

// noticePassword logs that this node's --requirepass has no effect, if the
// cluster has a default user with another password.
func (s *Server) noticePassword(set *userSet) {
	pass := s.cfg.RequirePass
	if pass == "" || s.accounts.replaced.Load() {
		return
	}
	if set.def.version != 0 && !set.def.HasPassword(pass) {
		s.warn("requirepass", "--requirepass has no effect: the cluster has a default user with another password "+
			"(change it with CONFIG SET requirepass)")
	}
}
