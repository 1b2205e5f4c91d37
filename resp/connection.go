package resp

import (
	"crypto/subtle"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

var connectionRows = []row{
	{cmd: fsm.Command{Name: "ping", Arity: -1, Flags: fsm.Fast, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "[message]", Doc: "Ping the server"}, run: ping},
	{cmd: fsm.Command{Name: "echo", Arity: 2, Flags: fsm.Fast, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "message", Doc: "Echo the given string"}, run: echo},
	{cmd: fsm.Command{Name: "auth", Arity: -2, Flags: fsm.Fast | fsm.NoScript, Group: "connection", Since: "1.0.0", Complexity: "O(N) where N is the number of passwords defined for the user", Syntax: "[username] password", Doc: "Authenticate to the server"}, run: auth, noAuth: true},
	{cmd: fsm.Command{Name: "hello", Arity: -1, Flags: fsm.Fast | fsm.NoScript, Group: "connection", Since: "6.0.0", Complexity: "O(1)", Syntax: "[protover [AUTH username password] [SETNAME clientname]]", Doc: "Handshake with Redis"}, run: hello, noAuth: true},
	{cmd: fsm.Command{Name: "select", Arity: 2, Flags: fsm.Fast, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Syntax: "index", Doc: "Change the selected database for the current connection"}, run: selectDB},
	{cmd: fsm.Command{Name: "quit", Arity: -1, Flags: fsm.Fast | fsm.NoScript, Group: "connection", Since: "1.0.0", Complexity: "O(1)", Doc: "Close the connection"}, run: quit, noAuth: true, inMulti: true},
	{cmd: fsm.Command{Name: "reset", Arity: 1, Flags: fsm.Fast | fsm.NoScript, Group: "connection", Since: "6.2.0", Complexity: "O(1)", Doc: "Reset the connection"}, run: reset, noAuth: true, inMulti: true},
	{cmd: fsm.Command{Name: "readonly", Arity: 1, Flags: fsm.Fast, Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Doc: "Let reads on this connection be answered by this node, however old its state is"}, run: readonly},
	{cmd: fsm.Command{Name: "readwrite", Arity: 1, Flags: fsm.Fast, Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Doc: "Take READONLY back: reads are linearizable again"}, run: readwrite},
}

func ping(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 1:
		return fsm.Simple("PONG")
	case 2:
		return fsm.Bulk(string(args[1]))
	}
	return fsm.Error(fsm.WrongArity("ping"))
}

func echo(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk(string(args[1])) }

func (s *Server) password() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rpass
}

// login checks a name and password. There is one user, default, until ACLs
// bring more.
func (c *conn) login(user, pass []byte) bool {
	want := c.srv.password()
	ok := want == "" || subtle.ConstantTimeCompare(pass, []byte(want)) == 1
	if string(user) != "default" || !ok {
		c.srv.metrics.AuthFailures.Inc()
		return false
	}
	c.setAuthenticated(true)
	return true
}

func auth(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 2:
		if c.srv.password() == "" {
			return fsm.Error(msgNoPassSet)
		}
		if !c.login([]byte("default"), args[1]) {
			return fsm.Error(msgWrongPass)
		}
	case 3:
		if !c.login(args[1], args[2]) {
			return fsm.Error(msgWrongPass)
		}
	default:
		return fsm.Error(msgSyntax)
	}
	return fsm.OK
}

func hello(c *conn, args [][]byte) fsm.Reply {
	proto := c.proto
	if len(args) > 1 {
		n, err := strconv.ParseInt(string(args[1]), 10, 64)
		if err != nil {
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
	if login && !c.login(user, pass) {
		return fsm.Error(msgWrongPass)
	}
	if !c.info.authed {
		return fsm.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if named {
		c.setName(string(name))
	}
	c.setProto(proto)
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("server"), fsm.Bulk("redis"),
		fsm.Bulk("version"), fsm.Bulk(RedisVersion),
		fsm.Bulk("proto"), fsm.Int(int64(proto)),
		fsm.Bulk("id"), fsm.Int(int64(c.id)),
		fsm.Bulk("mode"), fsm.Bulk("standalone"),
		fsm.Bulk("role"), fsm.Bulk("master"), // every node takes writes: see ROLE
		fsm.Bulk("modules"), fsm.Array(nil),
	})
}

func selectDB(c *conn, args [][]byte) fsm.Reply {
	n, err := strconv.ParseInt(string(args[1]), 10, 32)
	if err != nil {
		return fsm.Error(msgNotInt)
	}
	if n < 0 || n >= fsm.Databases {
		return fsm.Error(msgDBIndex)
	}
	c.db = int(n)
	return fsm.OK
}

func quit(c *conn, args [][]byte) fsm.Reply {
	c.flush()
	c.write([]byte("+OK\r\n"))
	c.hangUp()
	return fsm.None
}

// reset brings the connection back to where a new one starts, except for what
// CLIENT SETINFO has set, which Redis keeps too.
func reset(c *conn, args [][]byte) fsm.Reply {
	c.flush()
	c.multi, c.watch = nil, nil
	c.db, c.local, c.replay = 0, false, replyOn
	c.setName("")
	c.setProto(2)
	c.setAuthenticated(c.srv.password() == "")
	return fsm.Simple("RESET")
}

func readonly(c *conn, args [][]byte) fsm.Reply {
	c.local = true
	return fsm.OK
}

func readwrite(c *conn, args [][]byte) fsm.Reply {
	c.local = false
	return fsm.OK
}
