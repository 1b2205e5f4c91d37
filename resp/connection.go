package resp

import (
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

var connectionRows = []row{
	{cmd: fsm.Command{Name: "ping", Arity: -1, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "[message]", Doc: "Ping the server"}, words: "fast", acl: "connection", tips: "request_policy:all_shards response_policy:all_succeeded", run: ping, subscribed: true},
	{cmd: fsm.Command{Name: "echo", Arity: 2, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "message", Doc: "Answer the message"}, words: "loading stale fast", acl: "connection", run: echo},
	{cmd: fsm.Command{Name: "auth", Arity: -2, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "[username] password", Doc: "Authenticate the connection"}, words: "noscript loading stale fast no_auth allow_busy", acl: "connection", run: auth},
	{cmd: fsm.Command{Name: "hello", Arity: -1, Group: "connection", Since: "6.0.0", Complexity: "O(1)", Syntax: "[protover [AUTH username password] [SETNAME clientname]]", Doc: "Choose the protocol, authenticate and name the connection in one go"}, words: "noscript loading stale fast no_auth allow_busy", acl: "connection", run: hello},
	{cmd: fsm.Command{Name: "select", Arity: 2, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "index", Doc: "Choose the database of the connection"}, words: "loading stale fast", acl: "connection", run: selectDB},
	{cmd: fsm.Command{Name: "quit", Arity: -1, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Doc: "End the connection"}, words: "noscript loading stale fast no_auth allow_busy", acl: "connection", run: quit, subscribed: true, inMulti: true},
	{cmd: fsm.Command{Name: "reset", Arity: 1, Group: "connection", Since: "6.2.0", Complexity: "O(1)", Doc: "Bring the connection back to where a new one starts"}, words: "noscript loading stale fast no_auth allow_busy", acl: "connection", run: reset, subscribed: true, inMulti: true},
	{cmd: fsm.Command{Name: "readonly", Arity: 1, Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Doc: "Let reads on this connection be answered by this node, however old its state is"}, words: "loading stale fast", acl: "connection", run: readonly},
	{cmd: fsm.Command{Name: "readwrite", Arity: 1, Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Doc: "Take READONLY back: reads are linearizable again"}, words: "loading stale fast", acl: "connection", run: readwrite},
}

func ping(c *conn, args [][]byte) fsm.Reply {
	if c.restricted() && len(args) <= 2 { // looks like a message
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

func echo(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk(string(args[1])) }

// A connection that guesses passwords is made to wait before its second wrong
// guess is answered, twice as long at each further one, and is closed after the
// tenth.
const (
	maxStrikes   = 10
	firstPenalty = 100 * time.Millisecond
	maxPenalty   = 2 * time.Second
)

// login makes the connection one of a user, or returns the error to answer. word
// is the command that asks, as the client wrote it.
func (c *conn) login(word []byte, name, password string) (refusal string) {
	s, addr := c.srv, c.net.RemoteAddr()
	wait, ok := s.logins.reserve(addr, name, time.Now())
	if !ok {
		s.metrics.AuthFailures.Inc()
		s.warn("throttle", "login refused: too many failed logins from this address", "client", c.id, "addr", addr)
		c.done = true
		return msgThrottled
	}
	outcome := loginFailed
	defer func() { s.logins.done(addr, name, outcome, time.Now()) }()
	if wait > 0 {
		s.sleep(wait)
	}
	a := c.srv.users.Load().find(name)
	if a == nil || !a.Authenticate(password) {
		// The user, or the password, may be newer than this node knows.
		known := a != nil
		err := c.refreshUsers()
		a = c.srv.users.Load().find(name)
		if a == nil || !a.Authenticate(password) {
			doing := strings.ToLower(string(word))
			c.doing.Store(&doing)
			c.srv.acllog.note(c, aclEntry{reason: "auth", context: c.context(), object: string(word), user: name})
			if err != nil && !known {
				outcome = loginUnchecked
				return errorText(err)
			}
			c.strike()
			if err != nil {
				return errorText(err)
			}
			return msgWrongPass
		}
	}
	c.strikes = 0
	outcome = loginSucceeded
	c.become(a, true)
	return ""
}

// strike notes a wrong guess.
func (c *conn) strike() {
	s := c.srv
	s.metrics.AuthFailures.Inc()
	s.metrics.authFails.Add(1)
	s.warn("auth", "client failed to authenticate", "client", c.id, "addr", c.rc.RemoteAddr())
	if c.strikes++; c.strikes >= maxStrikes {
		c.done = true
	}
	if n := c.strikes - 1; n > 0 {
		s.sleep(min(firstPenalty<<min(n-1, maxStrikes), maxPenalty))
	}
}

// sleep waits for d, or until the server stops.
func (s *Server) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.stopping:
	}
}

func auth(c *conn, args [][]byte) fsm.Reply {
	name := acl.DefaultUser
	switch len(args) {
	case 2:
		if c.srv.users.Load().def.NoPass() {
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
		n, ok := fsm.ParseInt(args[1])
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
			if !validName(name) {
				return fsm.Error(msgBadName)
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
		return fsm.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
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
	if c.srv.cfg.Mode != Sentinel { // as Redis
		role := "master"
		if _, _, follows := c.srv.follows(); follows {
			role = "replica" // HELLO alone says so, as in Redis: others say slave
		}
		out = append(out, fsm.Bulk("role"), fsm.Bulk(role))
	}
	return fsm.Map(append(out, fsm.Bulk("modules"), fsm.Array(nil)))
}

// databases is how many databases SELECT can choose from.
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
		return fsm.Error(msgSelectClustered)
	}
	if n < 0 || n >= fsm.Databases {
		return fsm.Error(msgDBIndex)
	}
	c.setDB(int(n))
	return fsm.OK
}

func quit(c *conn, args [][]byte) fsm.Reply {
	c.done = true
	return fsm.OK
}

// reset brings the connection back to where a new one starts, except for what
// CLIENT SETINFO has set, which Redis keeps too.
func reset(c *conn, args [][]byte) fsm.Reply {
	c.setMulti(nil)
	c.watch = nil
	c.leaveAll()
	c.monitorEnd()
	c.trackingOff()
	c.out.drain()             // a message behind the reply would be taken for the next reply
	if c.replay == replyOff { // after CLIENT REPLY SKIP not even this is answered
		c.replay = replyOn
	}
	c.setLocal(false)
	c.setDB(0)
	c.setName("")
	c.setProto(2)
	def := c.srv.users.Load().def
	c.become(def, def.Open())
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
