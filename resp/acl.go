package resp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// There is one user, default. What would need more is refused.
var aclRows = []row{
	{cmd: fsm.Command{Name: "acl", Arity: -2, Group: "server", Since: "6.0.0", Complexity: "Depends on subcommand.", Doc: "Commands about users"}, sub: []row{
		{cmd: fsm.Command{Name: "whoami", Arity: 2, Since: "6.0.0", Complexity: "O(1)", Doc: "Name of this connection's user"}, words: "noscript loading stale", run: aclWhoami},
		{cmd: fsm.Command{Name: "users", Arity: 2, Since: "6.0.0", Complexity: "O(1)", Doc: "Names of the users"}, words: "admin noscript loading stale", run: aclUsers},
		{cmd: fsm.Command{Name: "list", Arity: 2, Since: "6.0.0", Complexity: "O(1)", Doc: "The users and their rules"}, words: "admin noscript loading stale", run: aclList},
		{cmd: fsm.Command{Name: "getuser", Arity: 3, Since: "6.0.0", Complexity: "O(1)", Syntax: "username", Doc: "The rules of a user"}, words: "admin noscript loading stale", run: aclGetuser},
		{cmd: fsm.Command{Name: "cat", Arity: -2, Since: "6.0.0", Complexity: "O(N) where N is the number of commands", Syntax: "[categoryname]", Doc: "The categories, or the commands of one"}, words: "noscript loading stale", run: aclCat},
		{cmd: fsm.Command{Name: "genpass", Arity: -2, Since: "6.0.0", Complexity: "O(1)", Syntax: "[bits]", Doc: "Make up a password"}, words: "noscript loading stale", run: aclGenpass},
		{cmd: fsm.Command{Name: "setuser", Arity: -3, Since: "6.0.0", Complexity: "O(1)", Syntax: "username [rule [rule ...]]", Doc: "Refused: there is one user"}, words: "admin noscript loading stale", run: aclRefuse},
		{cmd: fsm.Command{Name: "deluser", Arity: -3, Since: "6.0.0", Complexity: "O(1)", Syntax: "username [username ...]", Doc: "Refused: there is one user"}, words: "admin noscript loading stale", run: aclRefuse},
		{cmd: fsm.Command{Name: "dryrun", Arity: -4, Since: "7.0.0", Complexity: "O(1)", Syntax: "username command [arg [arg ...]]", Doc: "Refused: there is one user"}, words: "admin noscript loading stale", run: aclRefuse},
		{cmd: fsm.Command{Name: "load", Arity: 2, Since: "6.0.0", Complexity: "O(1)", Doc: "Refused: there is one user"}, words: "admin noscript loading stale", run: aclRefuse},
		{cmd: fsm.Command{Name: "save", Arity: 2, Since: "6.0.0", Complexity: "O(1)", Doc: "Refused: there is one user"}, words: "admin noscript loading stale", run: aclRefuse},
		{cmd: fsm.Command{Name: "log", Arity: -2, Since: "6.0.0", Complexity: "O(1)", Syntax: "[count | RESET]", Doc: "Refused: denials are not kept"}, words: "admin noscript loading stale", run: aclRefuse},
		helpRow("6.0.0"),
	}},
}

func aclWhoami(c *conn, args [][]byte) fsm.Reply { return fsm.Bulk("default") }

func aclUsers(c *conn, args [][]byte) fsm.Reply { return fsm.Strings("default") }

func aclList(c *conn, args [][]byte) fsm.Reply {
	secret := "nopass"
	if pass := c.srv.password(); pass != "" {
		secret = "#" + passwordHash(pass)
	}
	return fsm.Strings("user default on " + secret + " ~* &* +@all")
}

func passwordHash(pass string) string {
	sum := sha256.Sum256([]byte(pass))
	return hex.EncodeToString(sum[:])
}

func aclGetuser(c *conn, args [][]byte) fsm.Reply {
	if string(args[2]) != "default" {
		return fsm.Null
	}
	flags, passwords := []fsm.Reply{fsm.Bulk("on"), fsm.Bulk("nopass")}, fsm.Array(nil)
	if pass := c.srv.password(); pass != "" {
		flags, passwords = flags[:1], fsm.Strings(passwordHash(pass))
	}
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("flags"), fsm.Set(flags),
		fsm.Bulk("passwords"), passwords,
		fsm.Bulk("commands"), fsm.Bulk("+@all"),
		fsm.Bulk("keys"), fsm.Bulk("~*"),
		fsm.Bulk("channels"), fsm.Bulk("&*"),
		fsm.Bulk("selectors"), fsm.Array(nil),
	})
}

func aclCat(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 2:
		return fsm.Strings(aclCategories...)
	case 3:
	default:
		return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try ACL HELP.")
	}
	category := strings.ToLower(string(args[2]))
	if !slices.Contains(aclCategories, category) {
		return fsm.Error("ERR Unknown category '" + string(args[2]) + "'")
	}
	return fsm.Strings(names(c.srv.allSpecs(), func(s *spec) bool { return s.in(category) })...)
}

func aclGenpass(c *conn, args [][]byte) fsm.Reply {
	bits := 256
	if len(args) > 2 {
		if len(args) > 3 {
			return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try ACL HELP.")
		}
		n, refusal, ok := intArg(args[2])
		if !ok {
			return refusal
		}
		if n <= 0 || n > 4096 {
			return fsm.Error("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096")
		}
		bits = int(n)
	}
	digits := (bits + 3) / 4
	b := make([]byte, (digits+1)/2)
	rand.Read(b) // never fails: see crypto/rand
	return fsm.Bulk(hex.EncodeToString(b)[:digits])
}

func aclRefuse(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR ACL " + upper(string(args[1])) + " is not supported: there is one user, default")
}
