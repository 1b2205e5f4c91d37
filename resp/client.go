package resp

import (
	"cmp"
	"math"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/resp/output"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

var clientRows = []row{
	{cmd: &fsm.Command{
		Name: "client", Arity: -2,
		Flags: fsm.KeepsCaching,
		Group: "connection", Since: "2.4.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about connections",
	}, sub: []row{
		{run: clientID, cmd: &fsm.Command{
			Name: "id", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "5.0.0",
			Complexity: "O(1)",
			Doc:        "Return the number of this connection, which is unique in the cluster",
			Categories: []string{"connection"},
		}},
		{run: clientGetname, cmd: &fsm.Command{
			Name: "getname", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.6.9",
			Complexity: "O(1)",
			Doc:        "Return the name of this connection",
			Categories: []string{"connection"},
		}},
		{run: clientSetname, cmd: &fsm.Command{
			Name: "setname", Arity: 3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.6.9",
			Complexity: "O(1)",
			Syntax:     "connection-name",
			Doc:        "Name this connection",
			Categories: []string{"connection"},
		}},
		{run: clientSetinfo, cmd: &fsm.Command{
			Name: "setinfo", Arity: 4,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.2.0",
			Complexity: "O(1)",
			Syntax:     "<LIB-NAME libname | LIB-VER libver>",
			Doc:        "Set the name or the version of the client library",
			Categories: []string{"connection"},
		}},
		{run: clientInfoLine, cmd: &fsm.Command{
			Name: "info", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.2.0",
			Complexity: "O(1)",
			Doc:        "Describe this connection",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output"},
		}},
		{run: clientList, cmd: &fsm.Command{
			Name: "list", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.4.0",
			Complexity: "O(N) where N is the number of connections",
			Syntax:     "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
			Doc:        "Describe the connections of this node",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output"},
		}},
		{run: clientKill, cmd: &fsm.Command{
			Name: "kill", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.4.0",
			Complexity: "O(N) where N is the number of connections",
			Syntax: "<ip:port | [ID client-id] [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] [USER " +
				"username] [ADDR ip:port] [LADDR ip:port] [SKIPME yes/no] [MAXAGE seconds]>",
			Doc:        "Close connections of this node",
			Categories: []string{"connection"},
		}},
		{run: clientNoEvict, cmd: &fsm.Command{
			Name: "no-evict", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(1)",
			Syntax:     "<ON | OFF>",
			Doc:        "Accepted and shown in CLIENT LIST, without effect",
			Categories: []string{"connection"},
		}},
		{run: clientNoTouch, cmd: &fsm.Command{
			Name: "no-touch", Arity: 3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.2.0",
			Complexity: "O(1)",
			Syntax:     "<ON | OFF>",
			Doc:        "Accepted and shown in CLIENT LIST; reads never touch keys here",
			Categories: []string{"connection"},
		}},
		{run: clientReply, cmd: &fsm.Command{
			Name: "reply", Arity: 3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale | fsm.RefusedInMulti,
			Since:      "3.2.0",
			Complexity: "O(1)",
			Syntax:     "<ON | OFF | SKIP>",
			Doc:        "Turn replies on, off, or off for the next command",
			Categories: []string{"connection"},
		}},
		{run: clientUnblock, cmd: &fsm.Command{
			Name: "unblock", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "5.0.0",
			Complexity: "O(1)",
			Syntax:     "client-id [TIMEOUT | ERROR]",
			Doc:        "Wake a connection that waits in a blocking command",
			Categories: []string{"connection"},
		}},
		{run: clientPause, cmd: &fsm.Command{
			Name: "pause", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.9.50",
			Complexity: "O(1)",
			Syntax:     "timeout [WRITE | ALL]",
			Doc:        "Suspend the clients of this node for some milliseconds",
			Categories: []string{"connection"},
		}},
		{run: clientUnpause, cmd: &fsm.Command{
			Name: "unpause", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.NotPaused,
			Since:      "6.2.0",
			Complexity: "O(1)",
			Doc:        "End CLIENT PAUSE",
			Categories: []string{"connection"},
		}},
		{run: clientTracking, hooks: hooks{tracks: trackingOf}, cmd: &fsm.Command{
			Name: "tracking", Arity: -3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] " +
				"[OPTOUT] [NOLOOP]",
			Doc:        "Send this connection an invalidation when a key changes that it has read",
			Categories: []string{"connection"},
		}},
		{run: clientTrackinginfo, cmd: &fsm.Command{
			Name: "trackinginfo", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.2.0",
			Complexity: "O(1)",
			Doc:        "Describe the tracking of this connection",
			Categories: []string{"connection"},
		}},
		{run: clientGetredir, cmd: &fsm.Command{
			Name: "getredir", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc: "Return the number of the connection that gets the invalidations of this one, 0 for " +
				"none, -1 without tracking",
			Categories: []string{"connection"},
		}},
		{run: clientCaching, hooks: hooks{tracks: cachingOf}, cmd: &fsm.Command{
			Name: "caching", Arity: 3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "<YES | NO>",
			Doc:        "Track, or do not track, the keys that the next command reads",
			Categories: []string{"connection"},
		}},
		{run: clientCapa, cmd: &fsm.Command{
			Name: "capa", Arity: -3,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "valkey 8.0",
			Complexity: "O(1)",
			Syntax:     "capability [capability ...]",
			Doc:        "Accepted and ignored: no node sends redirects of this kind",
			Categories: []string{"connection"},
		}},
		helpRow("5.0.0", "connection"),
	}},
}

// clientInfo contains the properties of a connection that CLIENT LIST shows, and
// whether the client has authenticated.
type clientInfo struct {
	name, user       string
	libName, libVer  string
	proto, db, multi int
	authed, local    bool
	blocked          bool
	noEvict, noTouch bool
	monitor          bool // the connection is in MONITOR mode

	subs                    [3]int // number of subscriptions by kind
	tracking, bcast, broken bool
	redirect                int64
}

// edit changes the connection's clientInfo with c.mu locked. Other goroutines
// may change only the field broken, because the connection's own goroutine
// reads all other fields without c.mu.
func (c *conn) edit(f func(i *clientInfo)) {
	c.mu.Lock()
	f(&c.info)
	c.mu.Unlock()
}

// userName returns the name of the connection's user. Any goroutine may call
// it.
func (c *conn) userName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.user
}

func (c *conn) setName(name string) { c.edit(func(i *clientInfo) { i.name = name }) }

// maxClientName is the maximum length in bytes of the name of a client, and of
// the name and the version of its library. CLIENT LIST prints all three for each
// connection, and ACL LOG keeps them in its entries. The slow log keeps the name of
// the client.
const maxClientName = 1024

// nameError returns the error for an invalid name, or "". A valid name consists
// of at most maxClientName characters of printable ASCII without spaces. what is
// the text that describes the name in the error.
func nameError(what string, name []byte) string {
	if len(name) > maxClientName {
		return "ERR " + what + " cannot be longer than " + strconv.Itoa(maxClientName) + " bytes."
	}
	for _, b := range name {
		if b < '!' || b > '~' {
			return "ERR " + what + " cannot contain spaces, newlines or special characters."
		}
	}
	return ""
}

func clientID(c *conn, args [][]byte) fsm.Reply { return fsm.Int(int64(c.id)) }

func clientGetname(c *conn, args [][]byte) fsm.Reply {
	if c.info.name == "" {
		return fsm.Null
	}
	return fsm.Bulk(c.info.name)
}

func clientSetname(c *conn, args [][]byte) fsm.Reply {
	if refusal := nameError("Client names", args[2]); refusal != "" {
		return fsm.Error(refusal)
	}
	c.setName(string(args[2]))
	return fsm.OK
}

func clientSetinfo(c *conn, args [][]byte) fsm.Reply {
	option, value := string(args[2]), string(args[3])
	var set func(i *clientInfo)
	switch strings.ToUpper(option) {
	case "LIB-NAME":
		set = func(i *clientInfo) { i.libName = value }
	case "LIB-VER":
		set = func(i *clientInfo) { i.libVer = value }
	default:
		return fsm.Error("ERR Unrecognized option '" + option + "'")
	}
	if refusal := nameError(option, args[3]); refusal != "" {
		return fsm.Error(refusal)
	}
	c.edit(set)
	return fsm.OK
}

// line returns the connection's line of CLIENT LIST. Any goroutine may call it.
// Of the fields about memory, only those about queued messages (oll, omem,
// tot-mem) are set. The others are 0.
func (c *conn) line(now time.Time) string {
	c.mu.Lock()
	i := c.info
	c.mu.Unlock()
	flags := ""
	for _, f := range []struct {
		letter string
		on     bool
	}{
		{"O", i.monitor}, {"P", i.subscribed()}, {"x", i.multi >= 0}, {"b", i.blocked}, {"t", i.tracking},
		{"R", i.broken}, {"B", i.bcast}, {"r", i.local}, {"e", i.noEvict}, {"T", i.noTouch},
	} {
		if f.on {
			flags += f.letter
		}
	}
	doing := "NULL"
	if p := c.activity.doing.Load(); p != nil {
		doing = *p
	}
	var b strings.Builder
	field := func(name, value string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(value)
	}
	number := func(name string, n int64) { field(name, strconv.FormatInt(n, 10)) }
	number("id", int64(c.id))
	field("addr", c.net.RemoteAddr().String())
	field("laddr", c.net.LocalAddr().String())
	number("fd", descriptor(c.net))
	field("name", i.name)
	number("age", int64(now.Sub(c.created)/time.Second))
	number("idle", max(0, (now.UnixNano()-c.activity.last.Load())/int64(time.Second)))
	field("flags", cmp.Or(flags, "N"))
	number("db", int64(i.db))
	number("sub", int64(i.subs[pubsub.Channels]))
	number("psub", int64(i.subs[pubsub.Patterns]))
	number("ssub", int64(i.subs[pubsub.ShardChannels]))
	number("multi", int64(i.multi))
	for _, name := range []string{"qbuf", "qbuf-free", "argv-mem", "multi-mem", "rbs", "rbp", "obl"} {
		number(name, 0)
	}
	messages, bytes := c.out.Pending()
	number("oll", int64(messages))
	number("omem", int64(bytes))
	number("tot-mem", int64(bytes))
	field("events", "r")
	field("cmd", doing)
	field("user", i.user)
	if !i.tracking {
		i.redirect = -1
	}
	number("redir", i.redirect)
	number("resp", int64(i.proto))
	field("lib-name", i.libName)
	field("lib-ver", i.libVer)
	b.WriteByte('\n')
	return b.String()
}

// descriptor returns the number of c's file descriptor, or -1 if c has none.
func descriptor(c net.Conn) int64 {
	for {
		if s, ok := c.(syscall.Conn); ok {
			fd := int64(-1)
			raw, err := s.SyscallConn()
			if err != nil || raw.Control(func(n uintptr) { fd = int64(n) }) != nil {
				return -1 // closed in the meantime
			}
			return fd
		}
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return -1
		}
		c = inner.NetConn()
	}
}

func clientInfoLine(c *conn, args [][]byte) fsm.Reply { return fsm.Verbatim(c.line(time.Now())) }

// clientType parses a TYPE filter. All connections of this port are of type
// normal or pubsub: nodes use another port.
func clientType(b []byte) (typ string, ok bool) {
	switch typ = strings.ToLower(string(b)); typ {
	case "normal", "master", "replica", "slave", "pubsub":
		return typ, true
	}
	return "", false
}

// isType reports whether the connection has the given type. Any goroutine may
// call it.
func (c *conn) isType(typ string) bool {
	return c.subscribed() && typ == "pubsub" || !c.subscribed() && typ == "normal"
}

// subscribed reports whether the connection has any subscription. Any goroutine
// may call it.
func (c *conn) subscribed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.subscribed()
}

func unknownType(b []byte) fsm.Reply {
	return fsm.Error("ERR Unknown client type '" + string(b) + "'")
}

func clientList(c *conn, args [][]byte) fsm.Reply {
	show := func(*conn) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) == 4 && strings.EqualFold(string(args[2]), "type"):
		typ, ok := clientType(args[3])
		if !ok {
			return unknownType(args[3])
		}
		show = func(d *conn) bool { return d.isType(typ) }
	case len(args) > 3 && strings.EqualFold(string(args[2]), "id"):
		ids := make(map[uint64]bool)
		for _, a := range args[3:] {
			id, ok := number.ParseInt(a)
			if !ok {
				return fsm.Error("ERR Invalid client ID")
			}
			ids[uint64(id)] = true
		}
		show = func(d *conn) bool { return ids[d.id] }
	default:
		return fsm.Error(msgSyntax)
	}
	return fsm.Verbatim(c.srv.clientLines(show))
}

// ClientList returns all connections of clients, as CLIENT LIST prints them, with a
// further field: commands, the number of the client's commands that have arrived.
func (s *Server) ClientList() string {
	now := time.Now()
	var b strings.Builder
	for _, d := range s.connections() {
		b.WriteString(strings.TrimSuffix(d.line(now), "\n"))
		b.WriteString(" commands=" + strconv.FormatInt(d.activity.commands.Load(), 10) + "\n")
	}
	return b.String()
}

func (s *Server) clientLines(show func(*conn) bool) string {
	now := time.Now()
	var b strings.Builder
	for _, d := range s.connections() {
		if show(d) {
			b.WriteString(d.line(now))
		}
	}
	return b.String()
}

// killFilter selects the connections that CLIENT KILL closes. A field with the
// zero value does not filter.
type killFilter struct {
	id          uint64
	addr, laddr string
	typ         string
	user        string
	maxAge      time.Duration
	skipMe      bool
}

func (f *killFilter) match(c, me *conn, now time.Time) bool {
	switch {
	case f.id != 0 && c.id != f.id,
		f.addr != "" && c.net.RemoteAddr().String() != f.addr,
		f.user != "" && c.userName() != f.user,
		f.laddr != "" && c.net.LocalAddr().String() != f.laddr,
		f.typ != "" && !c.isType(f.typ),
		f.maxAge != 0 && now.Sub(c.created) < f.maxAge,
		f.skipMe && c == me:
		return false
	}
	return true
}

// read parses one option with its value. If the option or the value is invalid,
// read returns the error reply and false.
func (f *killFilter) read(option string, value []byte) (refusal fsm.Reply, ok bool) {
	text := string(value)
	switch strings.ToUpper(option) {
	case "ID":
		id, ok := number.ParseInt(value)
		if !ok || id <= 0 {
			return fsm.Error("ERR client-id should be greater than 0"), false
		}
		f.id = uint64(id)
	case "ADDR":
		f.addr = text
	case "LADDR":
		f.laddr = text
	case "TYPE":
		typ, known := clientType(value)
		if !known {
			return unknownType(value), false
		}
		f.typ = typ
	case "USER":
		f.user = text
	case "SKIPME":
		switch strings.ToLower(text) {
		case "yes":
			f.skipMe = true
		case "no":
			f.skipMe = false
		default:
			return fsm.Error(msgSyntax), false
		}
	case "MAXAGE":
		seconds, ok := number.ParseInt(value)
		if !ok {
			return fsm.Error("ERR maxage is not an integer or out of range"), false
		}
		if seconds <= 0 {
			return fsm.Error("ERR maxage should be greater than 0"), false
		}
		f.maxAge = time.Duration(min(seconds, math.MaxInt64/int64(time.Second))) * time.Second
	default:
		return fsm.Error(msgSyntax), false
	}
	return fsm.Reply{}, true
}

func clientKill(c *conn, args [][]byte) fsm.Reply {
	if len(args) == 3 { // the old form has one argument, an address, which may be the caller's own
		if c.srv.kill(&killFilter{addr: string(args[2])}, c) == 0 {
			return fsm.Error("ERR No such client")
		}
		return fsm.OK
	}
	if len(args)%2 != 0 {
		return fsm.Error(msgSyntax)
	}
	f := killFilter{skipMe: true}
	for i := 2; i < len(args); i += 2 {
		if refusal, ok := f.read(string(args[i]), args[i+1]); !ok {
			return refusal
		}
		if f.user != "" && c.srv.accounts.current.Load().find(f.user) == nil {
			return fsm.Error("ERR No such user '" + f.user + "'")
		}
	}
	return fsm.Int(int64(c.srv.kill(&f, c)))
}

// kill closes the connections that match f and returns their number. If the
// calling connection matches, it is closed after its reply.
func (s *Server) kill(f *killFilter, me *conn) int {
	n := 0
	now := time.Now()
	for _, c := range s.connections() {
		if c.killed.Load() || !f.match(c, me, now) {
			continue
		}
		n++
		if c == me {
			c.done = true
			continue
		}
		c.kill()
		if err := ignoreClosed(c.net.Close()); err != nil {
			s.log.Debug("cannot close killed connection", "client", c.id, "error", err)
		}
	}
	return n
}

// onOff parses the argument ON or OFF.
func onOff(b []byte) (on, ok bool) {
	switch strings.ToUpper(string(b)) {
	case "ON":
		return true, true
	case "OFF":
		return false, true
	}
	return false, false
}

func clientNoEvict(c *conn, args [][]byte) fsm.Reply {
	on, ok := onOff(args[2])
	if !ok {
		return fsm.Error(msgSyntax)
	}
	c.edit(func(i *clientInfo) { i.noEvict = on })
	return fsm.OK
}

func clientNoTouch(c *conn, args [][]byte) fsm.Reply {
	on, ok := onOff(args[2])
	if !ok {
		return fsm.Error(msgSyntax)
	}
	c.edit(func(i *clientInfo) { i.noTouch = on })
	return fsm.OK
}

func clientReply(c *conn, args [][]byte) fsm.Reply {
	switch strings.ToUpper(string(args[2])) {
	case "ON":
		c.w.Mode = output.ReplyOn
		return fsm.OK
	case "OFF":
		c.w.Mode = output.ReplyOff
	case "SKIP":
		if c.w.Mode != output.ReplyOff {
			c.w.Mode = output.ReplySkipNext
		}
	default:
		return fsm.Error(msgSyntax)
	}
	return fsm.None
}

func clientUnblock(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 4 {
		return fsm.Error(msgSyntax)
	}
	why := wakeTimeout
	switch {
	case len(args) == 3 || strings.EqualFold(string(args[3]), "timeout"):
	case strings.EqualFold(string(args[3]), "error"):
		why = wakeError
	default:
		return fsm.Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
	}
	id, refusal, ok := intArg(args[2])
	if !ok {
		return refusal
	}
	d := c.srv.connection(uint64(id))
	return fsm.Bool(d != nil && d.wakeBlocked(why))
}

// timeoutArg parses a timeout in milliseconds.
func timeoutArg(b []byte) (d time.Duration, refusal fsm.Reply, ok bool) {
	ms, isInt := number.ParseInt(b)
	switch {
	case !isInt:
		return 0, fsm.Error("ERR timeout is not an integer or out of range"), false
	case ms < 0:
		return 0, fsm.Error("ERR timeout is negative"), false
	}
	ms = min(ms, math.MaxInt64/int64(time.Millisecond)) // a timeout of 292 years is long enough
	return time.Duration(ms) * time.Millisecond, fsm.Reply{}, true
}

func clientPause(c *conn, args [][]byte) fsm.Reply {
	all := true
	switch {
	case len(args) > 4:
		return fsm.Error(msgSyntax)
	case len(args) == 4 && strings.EqualFold(string(args[3]), "write"):
		all = false
	case len(args) == 4 && !strings.EqualFold(string(args[3]), "all"):
		return fsm.Error("ERR CLIENT PAUSE mode must be WRITE or ALL")
	}
	d, refusal, ok := timeoutArg(args[2])
	if !ok {
		return refusal
	}
	c.srv.setPause(time.Now().Add(d), all)
	return fsm.OK
}

func clientUnpause(c *conn, args [][]byte) fsm.Reply {
	c.srv.endPause()
	return fsm.OK
}

func clientCapa(c *conn, args [][]byte) fsm.Reply { return fsm.OK }
