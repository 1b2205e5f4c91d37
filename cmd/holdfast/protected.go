package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
)

// yesNoFlag is the value of a flag that accepts yes and no, as settings of
// Redis do, besides true and false.
type yesNoFlag bool

// Set implements pflag.Value.
func (y *yesNoFlag) Set(text string) error {
	switch strings.ToLower(text) {
	case "yes", "true", "1":
		*y = true
	case "no", "false", "0":
		*y = false
	default:
		return errors.New("must be yes or no")
	}
	return nil
}

// String implements pflag.Value.
func (y *yesNoFlag) String() string { return yesNo(bool(*y)) }

// Type implements pflag.Value.
func (y *yesNoFlag) Type() string { return "yes|no" }

// checkProtected returns an error if hosts that can reach a port for clients
// need no password. Redis has the same protected mode, but refuses the
// connections instead of the start.
func (o *serveOptions) checkProtected(users []*acl.User) error {
	if !bool(o.protectedMode) || !o.open(users) || o.tls.clientsNeedCertificates() {
		return nil
	}
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"sentinel-addr", o.discovery.sentinelAddr},
	} {
		if a.addr != "" && !loopback(a.addr) {
			return fmt.Errorf("--%s is %s, which other hosts can reach, and clients need no password. Choose one: "+
				"set a password (--requirepass-file), or users (--acl-file); "+
				"let only clients with a certificate connect (--tls-auth-clients=yes); "+
				"let only this machine connect (--%s 127.0.0.1:PORT); "+
				"or, on a network that you trust, start with --protected-mode=no", a.flag, a.addr, a.flag)
		}
	}
	return nil
}
