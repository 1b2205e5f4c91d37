package serve

import (
	"fmt"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cmd/flags"
)

// checkProtected returns an error if other hosts can reach a port for clients
// and clients need neither a password nor a certificate there, unless protected
// mode is off. Redis has a protected mode too, but it starts and refuses the
// connections.
func (o *options) checkProtected(users []*acl.User) error {
	if !bool(o.access.protectedMode) || !o.open(users) {
		return nil
	}
	for _, a := range []struct{ flag, addr, port string }{
		{"client-addr", o.clientAddr, "clients"}, {"sentinel-addr", o.discovery.sentinelAddr, "sentinel"},
	} {
		if a.addr != "" && !flags.Loopback(a.addr) && !o.tls.needsCertificates(a.port) {
			return fmt.Errorf("--%s is %s, which other hosts can reach, and clients need no password. Choose one: "+
				"set a password (--requirepass-file), or users (--acl-file); "+
				"let only clients with a certificate connect (--tls-auth-clients=yes, with %s in --tls-ports); "+
				"let only this machine connect (--%s 127.0.0.1:PORT); "+
				"or, on a network that you trust, start with --protected-mode=no", a.flag, a.addr, a.port, a.flag)
		}
	}
	return nil
}
