package resp

import (
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/output"
	"github.com/holdfast-kv/holdfast/resp/slots"
)

var connectionRows = []row{
	{run: ping, cmd: &fsm.Command{
		Name: "ping", Arity: -1,
		Flags: fsm.Fast | fsm.Subscribed,
		Group: "connection", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[message]",
		Doc:        "Ping the server",
		Categories: []string{"connection"},
		Tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
	}},
	{run: echo, cmd: &fsm.Command{
		Name: "echo", Arity: 2,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "connection", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "message",
		Doc:        "Return the message",
		Categories: []string{"connection"},
	}},
	{run: auth, hooks: hooks{secrets: hideAll}, cmd: &fsm.Command{
		Name: "auth", Arity: -2,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.NoAuth | fsm.AllowBusy,
		Group: "connection", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[username] password",
		Doc:        "Authenticate the connection",
		Categories: []string{"connection"},
	}},
	{run: hello, hooks: hooks{secrets: hideHello}, cmd: &fsm.Command{
		Name: "hello", Arity: -1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.NoAuth | fsm.AllowBusy,
		Group: "connection", Since: "6.0.0",
		Complexity: "O(1)",
		Syntax:     "[protover [AUTH username password] [SETNAME clientname]]",
		Doc:        "Choose the protocol, and optionally authenticate and name the connection",
		Categories: []string{"connection"},
	}},
	{run: selectDB, hooks: hooks{queued: selectInMulti}, cmd: &fsm.Command{
		Name: "select", Arity: 2,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "connection", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "index",
		Doc:        "Choose the database of the connection",
		Categories: []string{"connection"},
	}},
	{run: quit, cmd: &fsm.Command{
		Name: "quit", Arity: -1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.NoAuth | fsm.AllowBusy |
			fsm.RunsInMulti | fsm.Subscribed,
		Group: "connection", Since: "1.0.0",
		Complexity: "O(1)",
		Doc:        "Close the connection",
		Categories: []string{"connection"},
	}},
	{run: reset, cmd: &fsm.Command{
		Name: "reset", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.NoAuth | fsm.AllowBusy |
			fsm.RunsInMulti | fsm.Subscribed,
		Group: "connection", Since: "6.2.0",
		Complexity: "O(1)",
		Doc:        "Reset the connection to the state of a new one",
		Categories: []string{"connection"},
	}},
	{run: readonly, cmd: &fsm.Command{
		Name: "readonly", Arity: 1,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "cluster", Since: "3.0.0",
		Complexity: "O(1)",
		Doc:        "Let this node answer the reads of this connection from its own state, however old that is",
		Categories: []string{"connection"},
	}},
	{run: readwrite, cmd: &fsm.Command{
		Name: "readwrite", Arity: 1,
		Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "cluster", Since: "3.0.0",
		Complexity: "O(1)",
		Doc:        "Undo READONLY: reads are linearizable again",
		Categories: []string{"connection"},
	}},
}

func ping(c *conn, args [][]byte) fsm.Reply {
	if c.restricted() && len(args) <= 2 { // in this mode, the client cannot distinguish a simple reply from a message
		text := ""
		if len(args) == 2 {
			text = string(args[1])
		}
		return fsm.Strings("pong", text)
	}
	switch len(args) {
	case 1:
		return fsm.Simple("PONG")
	case 2:
		return fsm.Bulk(string(args[1]))
	}
	return fsm.Error(fsm.WrongArity("ping"))
}

// hideAll implements hooks.secrets for AUTH: it hides all arguments.
func hideAll(args [][]byte, hide func(i int)) {
	for i := range args[1:] {
		hide(i + 1)
	}
}

// hideHello implements hooks.secrets for HELLO: it hides the name and the password
// after AUTH.
func hideHello(args [][]byte, hide func(i int)) {
	for i := 1; i < len(args); i++ {
		switch strings.ToLower(string(args[i])) {
		case "setname":
			i++ // the argument is a name, even if it looks like an option
		case "auth":
			hide(i + 1)
			hide(i + 2)
			i += 2
		}
	}
}

func echo(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk(string(args[1])) }

// login authenticates the connection as a user, or returns the error reply.
// word is the name of the command, as the client wrote it.
func (c *conn) login(word []byte, name, password string) (refusal string) {
	s, addr := c.srv, c.net.RemoteAddr()
	wait, ok := s.accounts.logins.Reserve(addr, name, time.Now())
	if !ok {
		s.metrics.AuthFailures.Inc()
		s.refusal("failed_logins", "login refused and connection closed: too many failed logins from this address",
			"client", c.id, "addr", addr)
		c.done = true
		c.auditLogin(name, c.srv.accounts.current.Load().find(name) != nil, "too many failed logins")
		return msgThrottled
	}
	outcome := guard.LoginFailed
	defer func() { s.accounts.logins.Done(addr, name, outcome, time.Now()) }()
	if wait > 0 {
		s.sleep(wait)
	}
	// Without a leader, this node accepts the passwords that it knows.
	unconfirmed := c.confirmUsers()
	a := c.srv.accounts.current.Load().find(name)
	if unconfirmed != nil && (a == nil || a.NoPass()) {
		outcome = guard.LoginUnchecked
		return uncheckedText(unconfirmed)
	}
	if a == nil || !a.Authenticate(password) {
		// The user or its password may be newer than this node's state.
		known := a != nil
		err := c.users().refresh()
		a = c.srv.accounts.current.Load().find(name)
		if a == nil || !a.Authenticate(password) {
			doing := strings.ToLower(string(word))
			c.activity.doing.Store(&doing)
			c.srv.accounts.log.addFor(c, aclEntry{
				reason: "auth", context: c.context(), object: string(word), user: name,
			})
			if err != nil && !known {
				outcome = guard.LoginUnchecked
				return uncheckedText(err)
			}
			c.wrongPassword()
			c.auditLogin(name, known, "wrong user or password")
			if err != nil {
				return uncheckedText(err)
			}
			return msgWrongPass
		}
	}
	c.user.wrongPasswords = 0
	outcome = guard.LoginSucceeded
	c.become(a, true)
	if unconfirmed != nil {
		c.user.unconfirmed.Store(a.User)
		if c.srv.accounts.confirmed.Load() { // the users were confirmed in the meantime
			c.checkLogin()
		}
	}
	return ""
}

// uncheckedText returns the reply to a login that the node could not check
// because of err. It begins with the same code as errorText(err).
func uncheckedText(err error) string {
	text := errorText(err)
	if reason, ok := strings.CutSuffix(text, "the command was not executed"); ok {
		return reason + "so this node cannot check the user and the password"
	}
	return text
}

// wrongPassword counts a wrong password. It delays the reply to each wrong password
// after the first one. After too many wrong passwords, it ends the connection.
func (c *conn) wrongPassword() {
	s := c.srv
	s.metrics.AuthFailures.Inc()
	s.warn("auth", "client failed to authenticate", "client", c.id, "addr", c.net.RemoteAddr())
	if c.user.wrongPasswords++; c.user.wrongPasswords >= guard.MaxWrongPasswords {
		s.refusal("failed_logins", "connection closed after too many wrong passwords", "client", c.id,
			"addr", c.net.RemoteAddr())
		c.done = true
	}
	if n := c.user.wrongPasswords - 1; n > 0 {
		s.sleep(guard.LoginPenalty(n))
	}
}

// sleep waits for d, or until the server stops.
func (s *Server) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.life.stopping:
	}
}

func auth(c *conn, args [][]byte) fsm.Reply {
	name := acl.DefaultUser
	switch len(args) {
	case 2:
		if err := c.confirmUsers(); err != nil && c.srv.accounts.current.Load().def.NoPass() {
			return fsm.Error(uncheckedText(err))
		}
		if c.srv.accounts.current.Load().def.NoPass() {
			return fsm.Error(msgNoPassSet)
		}
	case 3:
		name = string(args[1])
	default:
		return fsm.Error(msgSyntax)
	}
	if refusal := c.login(args[0], name, string(args[len(args)-1])); refusal != "" {
		return fsm.Error(refusal)
	}
	return fsm.OK
}

func hello(c *conn, args [][]byte) fsm.Reply {
	proto := c.proto
	if len(args) > 1 {
		n, ok := number.ParseInt(args[1])
		if !ok {
			return fsm.Error("ERR Protocol version is not an integer or out of range")
		}
		if n != 2 && n != 3 {
			return fsm.Error(msgNoProto)
		}
		proto = int(n)
	}
	var user, pass, name []byte
	login, named := false, false
	for i := 2; i < len(args); i++ {
		switch opt := strings.ToUpper(string(args[i])); {
		case opt == "AUTH" && i+2 < len(args):
			user, pass, login = args[i+1], args[i+2], true
			i += 2
		case opt == "SETNAME" && i+1 < len(args):
			name, named = args[i+1], true
			i++
			if refusal := nameError("Client names", name); refusal != "" {
				return fsm.Error(refusal)
			}
		default:
			return fsm.Error("ERR Syntax error in HELLO option '" + string(args[i]) + "'")
		}
	}
	if login {
		if refusal := c.login(args[0], string(user), string(pass)); refusal != "" {
			return fsm.Error(refusal)
		}
	}
	if !c.info.authed && c.needsAuth() {
		return fsm.Error("NOAUTH HELLO must be called with the client already authenticated, " +
			"otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client " +
			"and select the RESP protocol version at the same time")
	}
	if named {
		c.setName(string(name))
	}
	c.setProto(proto)
	out := []fsm.Reply{
		fsm.Bulk("server"), fsm.Bulk("redis"),
		fsm.Bulk("version"), fsm.Bulk(RedisVersion),
		fsm.Bulk("proto"), fsm.Int(int64(proto)),
		fsm.Bulk("id"), fsm.Int(int64(c.id)),
		fsm.Bulk("mode"), fsm.Bulk(c.srv.cfg.Mode.String()),
	}
	if c.srv.cfg.Mode != Sentinel { // Redis' Sentinel omits the role
		role := "master"
		if _, _, follows := c.srv.follows(); follows {
			role = "replica" // as in Redis, although ROLE and INFO say slave
		}
		out = append(out, fsm.Bulk("role"), fsm.Bulk(role))
	}
	return fsm.Map(append(out, fsm.Bulk("modules"), fsm.Array(nil)))
}

// databases returns the number of databases that SELECT accepts.
func (s *Server) databases() int {
	if s.cfg.Mode == Clustered {
		return 1
	}
	return fsm.Databases
}

func selectDB(c *conn, args [][]byte) fsm.Reply {
	n, refusal, ok := intArg(args[1])
	if !ok {
		return refusal
	}
	if int64(int32(n)) != n {
		return fsm.Error("ERR value is out of range, value must between -2147483648 and 2147483647")
	}
	if n != 0 && c.srv.cfg.Mode == Clustered {
		return fsm.Error(slots.SelectRefusal)
	}
	if n < 0 || n >= fsm.Databases {
		return fsm.Error(msgDBIndex)
	}
	c.setDB(int(n))
	return fsm.OK
}

// selectInMulti implements hooks.queued for SELECT: the commands on data that
// follow in the transaction use the selected database.
func selectInMulti(c *conn, q *queued) {
	if n, ok := number.ParseInt(q.args[1]); ok && n >= 0 && n < int64(c.srv.databases()) {
		c.tx.multi.db = int(n)
	}
}

func quit(c *conn, args [][]byte) fsm.Reply {
	c.done = true
	return fsm.OK
}

// reset returns the connection to the state of a new connection. As in Redis,
// it keeps the name and version of the client library that CLIENT SETINFO has
// set.
func reset(c *conn, args [][]byte) fsm.Reply {
	c.setMulti(nil)
	c.tx.watch = nil
	c.leaveAll()
	c.monitorEnd()
	c.trackingOff()
	c.out.Drain()                    // the client would mistake a message after this reply for its next reply
	if c.w.Mode == output.ReplyOff { // ReplySkip stays: after CLIENT REPLY SKIP, RESET itself gets no reply
		c.w.Mode = output.ReplyOn
	}
	c.setLocal(false)
	c.setDB(0)
	c.setName("")
	c.setProto(2)
	c.user.early = !c.srv.accounts.confirmed.Load()
	def := c.srv.accounts.current.Load().def
	c.become(def, def.Open() && !c.user.early)
	c.edit(func(i *clientInfo) { i.noEvict, i.noTouch = false, false })
	return fsm.Simple("RESET")
}

func readonly(c *conn, args [][]byte) fsm.Reply {
	c.setLocal(true)
	return fsm.OK
}

func readwrite(c *conn, args [][]byte) fsm.Reply {
	c.setLocal(false)
	return fsm.OK
}
