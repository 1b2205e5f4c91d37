package resp

import "github.com/holdfast-kv/holdfast/fsm"

// clientInfo is what CLIENT LIST shows of a connection.
type clientInfo struct {
	name, user      string
	libName, libVer string
	proto           int
	authed          bool
}

// CLIENT REPLY modes.
const (
	replyOn = iota
	replyOff
	replySkipNext
	replySkip
)

func (c *conn) silent() bool { return c.replay == replyOff || c.replay == replySkip }

func (c *conn) setName(name string) {
	c.mu.Lock()
	c.info.name = name
	c.mu.Unlock()
}

// validName reports whether a client name has no blank, line break or other
// byte outside printable ASCII.
func validName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

var clientRows, commandRows, serverRows []row

var _ = fsm.OK
