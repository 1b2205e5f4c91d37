package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// User is an ACL user as the state contains it: a name and a text. The machine
// does not interpret the text; package acl reads and writes it. So nodes of two
// versions that interpret the text differently still have the same state.
type User struct {
	Name, Rules string
	// Born is the log position at which the user was created. Version is the
	// log position of its last change. A user that was deleted and created
	// again has another Born.
	Born, Version Pos
}

// Users is the table of users, sorted by name. It is immutable: a change
// creates a new table. So clones, snapshots and the readers of a node share it
// without a lock.
type Users struct {
	// Version is the log position of the last change, 0 if there was none.
	Version Pos
	List    []User
}

// Find returns the user of a name, nil if there is none.
func (u *Users) Find(name string) *User {
	if i, ok := u.search(name); ok {
		return &u.List[i]
	}
	return nil
}

func (u *Users) search(name string) (int, bool) {
	return slices.BinarySearchFunc(u.List, name, func(u User, name string) int {
		return strings.Compare(u.Name, name)
	})
}

// Users returns the table of users, which must not be changed.
func (m *Machine) Users() *Users { return m.users }

// These limits bound the users. They are part of the meaning of a command, so
// they must be the same on all nodes.
const (
	MaxUsers     = 10000
	MaxUserBytes = 64 << 10 // limit on the name and the rules of a user
)

// These are the internal commands behind ACL. ACL SETUSER adds rules to those
// that the user has, so a node computes the new rules from the version of the
// user that it knows. SetuserCommand names that version, and is refused if the
// user now has another version. So two concurrent changes never overwrite each
// other.
const (
	// UsersCommand takes the version of the table that the node has. It returns
	// the current version, and if that differs, also the name, rules, birth and
	// version of each user: see ReadUsers.
	UsersCommand = "_users"
	// SetuserCommand takes a name, a version (0 if the user does not exist) and
	// rules. It returns 1, or 0 if the user has another version.
	SetuserCommand = "_setuser"
	// DelusersCommand takes names and returns the number of users that it
	// deleted.
	DelusersCommand = "_delusers"
	// SeedusersCommand takes names and rules. It creates these users if the
	// cluster never had any users. It returns 1 if it created them, else 0.
	SeedusersCommand = "_seedusers"
)

var userCommands = []Command{
	{
		Name: UsersCommand, Run: listUsers, Arity: 2, Flags: Internal,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N) where N is the number of users",
		Syntax:     "version",
		Doc:        "Return all users, for ACL",
	},
	{
		Name: SetuserCommand, Run: setUser, Arity: 4, Flags: Internal | Write,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N) where N is the number of users",
		Syntax:     "username version rules",
		Doc:        "Create or change a user, for ACL SETUSER",
	},
	{
		Name: DelusersCommand, Run: delUsers, Arity: -2, Flags: Internal | Write,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N) where N is the number of users",
		Syntax:     "username [username ...]",
		Doc:        "Delete users, for ACL DELUSER",
	},
	{
		Name: SeedusersCommand, Run: seedUsers, Arity: -3, Flags: Internal | Write,
		Group: "internal", Since: "holdfast",
		Complexity: "O(N) where N is the number of users",
		Syntax:     "username rules [username rules ...]",
		Doc:        "Create the first users, for --acl-file",
	},
}

func listUsers(c *Ctx, args [][]byte) Reply {
	known, ok := number.ParseInt(args[1])
	if !ok {
		return Error(MsgNotInt)
	}
	u := c.m.users
	out := []Reply{Int(int64(u.Version))}
	for _, x := range u.List {
		if u.Version == Pos(known) {
			break
		}
		out = append(out, Bulk(x.Name), Bulk(x.Rules), Int(int64(x.Born)), Int(int64(x.Version)))
	}
	return Array(out)
}

// ReadUsers reads the answer to UsersCommand. known is the table whose version
// the command named. ReadUsers returns known if the version is the same.
func ReadUsers(reply []byte, known *Users) (*Users, error) {
	fields, err := flatReply(reply)
	if err != nil || len(fields) == 0 || len(fields)%4 != 1 {
		return nil, fmt.Errorf("answer of %s: %w", UsersCommand, errors.Join(err, ErrFormat))
	}
	parse := func(s string) Pos {
		n, ok := number.ParseInt([]byte(s))
		if !ok {
			err = ErrFormat
		}
		return Pos(n)
	}
	u := &Users{Version: parse(fields[0])}
	if u.Version == known.Version {
		return known, nil
	}
	for f := fields[1:]; len(f) > 0; f = f[4:] {
		u.List = append(u.List, User{Name: f[0], Rules: f[1], Born: parse(f[2]), Version: parse(f[3])})
	}
	return u, err
}

// flatReply reads an array of strings and integers.
func flatReply(reply []byte) ([]string, error) {
	b := string(reply)
	line := func() (kind byte, n int, ok bool) {
		head, rest, ok := strings.Cut(b, "\r\n")
		if !ok || len(head) < 2 {
			return 0, 0, false
		}
		v, ok := number.ParseInt([]byte(head[1:]))
		b = rest
		return head[0], int(v), ok
	}
	kind, n, ok := line()
	if !ok || kind != '*' {
		return nil, ErrFormat
	}
	var out []string
	for ; n > 0; n-- {
		switch kind, v, ok := line(); {
		case ok && kind == ':':
			out = append(out, strconv.Itoa(v))
		case ok && kind == '$' && v >= 0 && len(b) >= v+2:
			out = append(out, b[:v])
			b = b[v+2:]
		default:
			return nil, ErrShort
		}
	}
	return out, nil
}

// checkUser returns an error reply, and false, if a user or the number of users
// exceeds a limit.
func checkUser(name, rules []byte, users int) (refusal Reply, ok bool) {
	switch {
	case len(name)+len(rules) > MaxUserBytes:
		return Error(fmt.Sprintf("ERR the rules of a user are limited to %d bytes", MaxUserBytes)), false
	case users > MaxUsers:
		return Error(fmt.Sprintf("ERR the number of users is limited to %d", MaxUsers)), false
	}
	return Reply{}, true
}

func setUser(c *Ctx, args [][]byte) Reply {
	version, ok := number.ParseInt(args[2])
	if !ok {
		return Error(MsgNotInt)
	}
	old, name := c.m.users, string(args[1])
	i, found := old.search(name)
	var has Pos
	if found {
		has = old.List[i].Version
	}
	if has != Pos(version) {
		return Zero
	}
	u := User{Name: name, Rules: string(args[3]), Born: c.pos, Version: c.pos}
	list := slices.Clone(old.List)
	if found {
		u.Born = old.List[i].Born
		list[i] = u
	} else {
		list = slices.Insert(list, i, u)
	}
	if refusal, ok := checkUser(args[1], args[3], len(list)); !ok {
		return refusal
	}
	c.Change()
	c.m.users = &Users{Version: c.pos, List: list}
	if !found || old.List[i].Rules != u.Rules {
		c.endWaitsOf(name)
	}
	return One
}

func delUsers(c *Ctx, args [][]byte) Reply {
	old := c.m.users
	names := make(map[string]bool, len(args)-1)
	for _, name := range args[1:] {
		names[string(name)] = true
	}
	list := slices.DeleteFunc(slices.Clone(old.List), func(u User) bool { return names[u.Name] })
	if len(list) == len(old.List) {
		return Zero
	}
	c.Change()
	c.m.users = &Users{Version: c.pos, List: list}
	for i := range old.List {
		if name := old.List[i].Name; c.m.users.Find(name) == nil {
			c.endWaitsOf(name)
		}
	}
	return Int(int64(len(old.List) - len(list)))
}

func seedUsers(c *Ctx, args [][]byte) Reply {
	if len(args)%2 == 0 {
		return Error(WrongArity(SeedusersCommand))
	}
	if c.m.users.Version != 0 {
		return Zero
	}
	made := &Users{Version: c.pos}
	for i := 1; i < len(args); i += 2 {
		if refusal, ok := checkUser(args[i], args[i+1], len(made.List)+1); !ok {
			return refusal
		}
		at, found := made.search(string(args[i]))
		if found {
			return Error("ERR user '" + string(args[i]) + "' twice")
		}
		u := User{Name: string(args[i]), Rules: string(args[i+1]), Born: c.pos, Version: c.pos}
		made.List = slices.Insert(made.List, at, u)
	}
	c.Change()
	c.m.users = made
	for i := range made.List {
		c.endWaitsOf(made.List[i].Name)
	}
	return One
}

// appendUsers writes the users into a snapshot, in as many records as
// necessary. It writes none if there never was a user.
func (w *snapshotWriter) appendUsers(u *Users) {
	if u.Version == 0 {
		return
	}
	list := u.List
	for first := true; first || len(list) > 0; first = false {
		n, size := 0, 0
		for n < len(list) && size < snapshotBlock {
			size += len(list[n].Name) + len(list[n].Rules)
			n++
		}
		b := append(w.b, recordUsers)
		b = binary.AppendUvarint(b, uint64(u.Version))
		b = binary.AppendUvarint(b, uint64(n))
		for _, x := range list[:n] {
			b = codec.AppendString(codec.AppendString(b, x.Name), x.Rules)
			b = binary.AppendUvarint(b, uint64(x.Born))
			b = binary.AppendUvarint(b, uint64(x.Version))
		}
		w.b = b
		list = list[n:]
		w.cut()
	}
}

// users reads a record of users.
func (l *snapshotLoader) users(d *codec.Decoder) error {
	u := l.m.users
	if u.Version == 0 {
		u = &Users{}
		l.m.users = u
	}
	u.Version = Pos(d.Uvarint())
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		x := User{
			Name: string(d.Bytes()), Rules: string(d.Bytes()), Born: Pos(d.Uvarint()), Version: Pos(d.Uvarint()),
		}
		if last := len(u.List) - 1; last >= 0 && u.List[last].Name >= x.Name {
			return fmt.Errorf("users out of order, %q after %q: %w", x.Name, u.List[last].Name, ErrFormat)
		}
		u.List = append(u.List, x)
	}
	if d.Err == nil && u.Version == 0 {
		return fmt.Errorf("users without a version: %w", ErrFormat)
	}
	return d.Err
}
