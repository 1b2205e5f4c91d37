package resp_test

import (
	"strings"
	"testing"
)

// TestAdmission_Order checks that the server checks commands on data and connection
// commands in the same order, the order of Redis 7.0: the arity, the
// authentication, the ACL rules, and then the subscriptions or MONITOR mode.
func TestAdmission_Order(t *testing.T) {
	s := serve(t, newFake(t), withPassword("secret"))
	c := dial(t, s)
	for _, command := range []string{"GET", "CONFIG GET"} {
		c.begins(command, "-ERR wrong number of arguments") // the arity is checked before the authentication
		c.begins(command+" a", "-NOAUTH ")
	}
	c.expect("AUTH secret", "+OK", "ACL SETUSER u on nopass ~* &* +@all -get -config|get", "+OK", "AUTH u x", "+OK")
	c.do("SUBSCRIBE c")
	for _, command := range []string{"GET", "CONFIG GET"} {
		c.begins(command, "-ERR wrong number of arguments")
		c.begins(command+" a", "-NOPERM ") // the ACL rules are checked before the subscriptions
	}
	for _, command := range []string{"SET a b", "CLIENT LIST"} {
		c.begins(command, "-ERR Can't execute '")
	}
	c.do("UNSUBSCRIBE")
	c.expect("MONITOR", "+OK")
	c.begins("GET a", "-NOPERM ")
	c.begins("SET a b", "-ERR Replica can't interact with the keyspace")
}

// begins sends a command and expects a reply that begins with a text.
func (c *client) begins(command, text string) {
	c.t.Helper()
	if got := c.do(command); !strings.HasPrefix(got, text) {
		c.t.Errorf("%s: %q, want %q…", command, got, text)
	}
}
