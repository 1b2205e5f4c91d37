package resp

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// aclRows contains ACL with its subcommands. The subcommands that read or
// change users work on the replicated state (users.go), whichever node receives
// them. ACL LOG shows only the commands and logins that this node has refused.
var aclRows = []row{
	{cmd: &fsm.Command{
		Name: "acl", Arity: -2,
		Group: "server", Since: "6.0.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about users",
	}, sub: []row{
		{run: aclWhoami, cmd: &fsm.Command{
			Name: "whoami", Arity: 2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc:        "Return the name of this connection's user",
		}},
		{run: aclUsers, cmd: &fsm.Command{
			Name: "users", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc:        "List the names of the users",
		}},
		{run: aclList, cmd: &fsm.Command{
			Name: "list", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc:        "List the users and their rules",
		}},
		{run: aclGetuser, cmd: &fsm.Command{
			Name: "getuser", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "username",
			Doc:        "Return the rules of a user",
		}},
		{run: aclCat, cmd: &fsm.Command{
			Name: "cat", Arity: -2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(N) where N is the number of commands",
			Syntax:     "[categoryname]",
			Doc:        "List the categories, or the commands of a category",
		}},
		{run: aclGenpass, cmd: &fsm.Command{
			Name: "genpass", Arity: -2,
			Flags:      fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "[bits]",
			Doc:        "Generate a password",
		}},
		{run: aclSetuser, hooks: hooks{secrets: hideRules}, cmd: &fsm.Command{
			Name: "setuser", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "username [rule [rule ...]]",
			Doc:        "Create or change a user, on all nodes",
		}},
		{run: aclDeluser, cmd: &fsm.Command{
			Name: "deluser", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "username [username ...]",
			Doc:        "Delete users and close their connections, on all nodes",
		}},
		{run: aclDryrun, cmd: &fsm.Command{
			Name: "dryrun", Arity: -4,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(1)",
			Syntax:     "username command [arg [arg ...]]",
			Doc:        "Report whether a user may run a command, without running it",
		}},
		{run: aclNoFile, cmd: &fsm.Command{
			Name: "load", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc:        "Refused: users are part of the replicated state",
		}},
		{run: aclNoFile, cmd: &fsm.Command{
			Name: "save", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Doc:        "Refused: users are part of the replicated state",
		}},
		{run: aclShowLog, cmd: &fsm.Command{
			Name: "log", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "6.0.0",
			Complexity: "O(1)",
			Syntax:     "[count | RESET]",
			Doc:        "List the commands and logins that this node has refused recently",
		}},
		helpRow("6.0.0"),
	}},
}

func aclWhoami(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk(c.info.user) }

// current returns the current users of the cluster. It first refreshes this
// node's copy of the users, which may lag behind. If the refresh fails, the set
// is nil and the reply is the error for the client.
func (c *conn) current() (*userSet, fsm.Reply) {
	if err := c.users().refresh(); err != nil {
		return nil, fsm.Error(errorText(err))
	}
	return c.srv.accounts.current.Load(), fsm.Reply{}
}

func aclUsers(c *conn, args [][]byte) fsm.Reply {
	return c.eachUser(func(a *account) string { return a.Name })
}

func aclList(c *conn, args [][]byte) fsm.Reply {
	return c.eachUser(func(a *account) string { return a.String() })
}

func (c *conn) eachUser(text func(*account) string) fsm.Reply {
	set, refusal := c.current()
	if set == nil {
		return refusal
	}
	var out []string
	for _, a := range set.list {
		out = append(out, text(a))
	}
	return fsm.Strings(out...)
}

func aclGetuser(c *conn, args [][]byte) fsm.Reply {
	set, refusal := c.current()
	if set == nil {
		return refusal
	}
	a := set.find(string(args[2]))
	if a == nil {
		return fsm.Null
	}
	root, more := a.Selectors()
	selectors := []fsm.Reply{}
	for _, s := range more {
		selectors = append(selectors, fsm.Map(selectorFields(s)))
	}
	out := []fsm.Reply{fsm.Bulk("flags"), bulkSet(a.Flags()), fsm.Bulk("passwords"), fsm.Strings(a.Passwords()...)}
	out = append(out, selectorFields(root)...)
	return fsm.Map(append(out, fsm.Bulk("selectors"), fsm.Array(selectors)))
}

func selectorFields(s acl.Selector) []fsm.Reply {
	return []fsm.Reply{
		fsm.Bulk("commands"), fsm.Bulk(s.Commands),
		fsm.Bulk("keys"), fsm.Bulk(s.Keys),
		fsm.Bulk("channels"), fsm.Bulk(s.Channels),
	}
}

// hideRules implements hooks.secrets for ACL SETUSER. It hides the rules of the
// user and, as Redis does, the name of the user.
func hideRules(args [][]byte, hide func(i int)) {
	for i := 2; i < len(args); i++ {
		hide(i)
	}
}

func aclSetuser(c *conn, args [][]byte) fsm.Reply {
	name := string(args[2])
	if !acl.ValidName(name) {
		return fsm.Error("ERR Usernames can't contain spaces or null characters")
	}
	rules := make([]string, 0, len(args)-3)
	for _, a := range args[3:] {
		rules = append(rules, string(a))
	}
	err := c.users().change(name, func(u *acl.User) (*acl.User, error) {
		return u.Apply(c.srv.cmds.catalog, rules, c.srv.aclOptions())
	})
	if err != nil {
		return fsm.Error(errorText(err))
	}
	return fsm.OK
}

func aclDeluser(c *conn, args [][]byte) fsm.Reply {
	names := make([]string, 0, len(args)-2)
	for _, a := range args[2:] {
		if string(a) == acl.DefaultUser {
			return fsm.Error("ERR The 'default' user cannot be removed")
		}
		names = append(names, string(a))
	}
	// A client that deletes its own user gets the reply before its connection
	// is closed.
	defer c.delayEnd()()
	if err := c.users().beforeChange(); err != nil {
		return fsm.Error(errorText(err))
	}
	n, err := c.users().askInt(fsm.DelusersCommand, names...)
	if err == nil {
		err = c.users().afterChange()
	}
	if err != nil {
		return fsm.Error(errorText(err))
	}
	return fsm.Int(int64(n))
}

// delayEnd keeps the connection open while a command runs that may delete or
// replace the connection's own user. The caller calls end after the command. If the
// user no longer exists then, end closes the connection after its replies.
func (c *conn) delayEnd() (end func()) {
	c.user.deleting.Store(true)
	return func() {
		c.user.deleting.Store(false)
		c.endIfDeleted()
	}
}

// endIfDeleted ends the connection, after its replies, if the user of the
// connection no longer exists.
func (c *conn) endIfDeleted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.srv.accounts.current.Load().find(c.info.user)
	if a == nil || a.born != c.user.born && a.Name != acl.DefaultUser {
		c.done = true
	}
}

func aclDryrun(c *conn, args [][]byte) fsm.Reply {
	set, refusal := c.current()
	if set == nil {
		return refusal
	}
	a := set.find(string(args[2]))
	if a == nil {
		return fsm.Error("ERR User '" + string(args[2]) + "' not found")
	}
	cmd := c.srv.cmds.catalog.Lookup(args[3:])
	switch {
	case cmd == nil:
		return fsm.Error("ERR Command '" + string(args[3]) + "' not found")
	case !cmd.ArityOK(len(args) - 3):
		return fsm.Error(fsm.WrongArity(cmd.Full))
	}
	if v := a.Check(cmd, args[3:]); v.Reason != acl.Allowed {
		return fsm.Bulk(v.Explanation())
	}
	return fsm.OK
}

func aclShowLog(c *conn, args [][]byte) fsm.Reply {
	n := int64(10)
	switch {
	case len(args) > 3:
		return fsm.Error(msgWrongSubcommand("ACL", args[1]))
	case len(args) == 3 && strings.EqualFold(string(args[2]), "reset"):
		c.srv.accounts.log.reset()
		return fsm.OK
	case len(args) == 3:
		var refusal fsm.Reply
		var ok bool
		if n, refusal, ok = intArg(args[2]); !ok {
			return refusal
		}
	}
	return c.srv.accounts.log.reply(n, time.Now())
}

func aclNoFile(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR This Redis instance is not configured to use an ACL file. " +
		"You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE " +
		"(assuming you have a Redis configuration file set) in order to store users in the Redis configuration.")
}

func aclCat(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 2:
		return fsm.Strings(acl.Categories...)
	case 3:
	default:
		return fsm.Error(msgWrongSubcommand("ACL", args[1]))
	}
	category := strings.ToLower(string(args[2]))
	if !slices.Contains(acl.Categories, category) {
		return fsm.Error("ERR Unknown category '" + string(args[2]) + "'")
	}
	return fsm.Strings(names(c.srv.allSpecs(), func(s *spec) bool { return s.in(category) })...)
}

func aclGenpass(c *conn, args [][]byte) fsm.Reply {
	bits := 256
	if len(args) > 2 {
		if len(args) > 3 {
			return fsm.Error(msgWrongSubcommand("ACL", args[1]))
		}
		n, refusal, ok := intArg(args[2])
		if !ok {
			return refusal
		}
		if n <= 0 || n > 4096 {
			return fsm.Error("ERR ACL GENPASS argument must be the number of bits for the output password, " +
				"a positive number up to 4096")
		}
		bits = int(n)
	}
	digits := (bits + 3) / 4
	b := make([]byte, (digits+1)/2)
	rand.Read(b) // never fails: see crypto/rand
	return fsm.Bulk(hex.EncodeToString(b)[:digits])
}

// aclLog contains the commands and logins that this node has refused recently.
// ACL LOG prints it. It is safe for concurrent use.
type aclLog struct {
	mu      sync.Mutex
	max     int         // maximum number of entries: acllog-max-len
	entries []*aclEntry // newest first
}

type aclEntry struct {
	count                         int
	reason, context, object, user string
	client                        string
	at                            time.Time // time of the latest denial that this entry counts
}

// The following values are those of Redis. aclLogMax is the default of
// acllog-max-len. A denial is added to the count of an older entry of the same
// kind if that entry is at most aclLogGroup old and among the aclLogScan newest
// entries. Otherwise, it becomes a new entry.
const (
	aclLogMax   = 128
	aclLogGroup = time.Minute
	aclLogScan  = 10
)

// aclLogObject is the maximum number of bytes that an entry keeps of a key, a
// channel or the name of a command. A client without rights may send keys as
// long as guard.Limits.MaxBulk permits.
const aclLogObject = 1024

var aclReasons = map[acl.Reason]string{
	acl.DeniedCommand: "command", acl.DeniedKey: "key", acl.DeniedChannel: "channel", acl.DeniedSteps: "pattern-steps",
}

// denied adds a command that was refused.
func (l *aclLog) denied(c *conn, v acl.Verdict, context string) {
	l.addFor(c, entryOf(v, context, c.info.user))
}

func entryOf(v acl.Verdict, context, user string) aclEntry {
	object := v.Object
	if v.Reason == acl.DeniedCommand {
		object = v.Command.Full
	}
	if len(object) > aclLogObject {
		object = object[:aclLogObject] + "…"
	}
	return aclEntry{reason: aclReasons[v.Reason], context: context, object: object, user: user}
}

// script adds a command that a script called and that was refused. The client
// of the script may be connected to another node, so this node knows only the
// user.
func (l *aclLog) script(user string, v acl.Verdict) {
	e := entryOf(v, "lua", user)
	e.client = "user=" + user
	l.add(e)
}

// addFor adds an entry about a connection.
func (l *aclLog) addFor(c *conn, e aclEntry) {
	line := c.line(time.Now())
	e.client = line[:len(line)-1]
	l.add(e)
}

// add adds an entry, or counts it with an existing entry of the same kind.
func (l *aclLog) add(e aclEntry) {
	e.count, e.at = 1, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, old := range l.entries[:min(aclLogScan, len(l.entries))] {
		same := old.reason == e.reason && old.context == e.context && old.object == e.object && old.user == e.user
		if same && e.at.Sub(old.at) <= aclLogGroup {
			e.count += old.count
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	l.entries = slices.Insert(l.entries, 0, &e)
	l.trim()
}

func (l *aclLog) trim() {
	if len(l.entries) > l.max {
		clear(l.entries[l.max:])
		l.entries = l.entries[:l.max]
	}
}

func (l *aclLog) reset() {
	l.mu.Lock()
	l.entries = nil
	l.mu.Unlock()
}

func (l *aclLog) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}

func (l *aclLog) setLimit(n int) {
	l.mu.Lock()
	l.max = n
	l.trim()
	l.mu.Unlock()
}

// reply returns the n newest entries, as ACL LOG prints them.
func (l *aclLog) reply(n int64, now time.Time) fsm.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []fsm.Reply{}
	for _, e := range l.entries[:max(0, min(n, int64(len(l.entries))))] {
		out = append(out, fsm.Map([]fsm.Reply{
			fsm.Bulk("count"), fsm.Int(int64(e.count)),
			fsm.Bulk("reason"), fsm.Bulk(e.reason),
			fsm.Bulk("context"), fsm.Bulk(e.context),
			fsm.Bulk("object"), fsm.Bulk(e.object),
			fsm.Bulk("username"), fsm.Bulk(e.user),
			fsm.Bulk("age-seconds"), fsm.Double(float64(now.Sub(e.at).Milliseconds()) / 1000),
			fsm.Bulk("client-info"), fsm.Bulk(e.client),
		}))
	}
	return fsm.Array(out)
}
