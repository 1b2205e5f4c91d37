package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/rpc"
)

// ports are the listeners of the program. serve binds them before it opens the
// node: an open node forms or joins a cluster, and must not fail afterward
// because an address is in use. If the peer port does not use TLS, peers is
// nil, and package cluster binds the peer address.
type ports struct{ clients, sentinel, http, peers net.Listener }

func (o *options) bind(stores tlsStores) (*ports, error) {
	p := &ports{}
	auth, tlsPeers := clientAuth[o.tls.authClients], ""
	if o.tls.uses("peers") {
		tlsPeers = o.peerAddr
	}
	for _, a := range []struct {
		what, flag, addr string
		to               *net.Listener
		port             string // as in --tls-ports
		store            *certs.Store
		auth             tls.ClientAuthType
	}{
		{"client", "client-addr", o.clientAddr, &p.clients, "clients", stores.clients, auth},
		{"Sentinel", "sentinel-addr", o.discovery.sentinelAddr, &p.sentinel, "sentinel", stores.clients, auth},
		{"HTTP", "http-addr", o.httpAddr, &p.http, "http", stores.http, tls.NoClientCert},
		{"peer", "peer-addr", tlsPeers, &p.peers, "peers", stores.peers, tls.RequireAndVerifyClientCert},
	} {
		if a.addr == "" {
			continue
		}
		lc := net.ListenConfig{}
		if a.port == "peers" {
			lc.KeepAliveConfig = rpc.KeepAlive
		}
		ln, err := lc.Listen(context.Background(), "tcp", a.addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot bind %s address %s: %w (is another node running? choose "+
				"another --%s)", a.what, a.addr, cause(err), a.flag), p.close())
		}
		*a.to = ln
		if !o.tls.uses(a.port) {
			continue
		}
		if *a.to, err = listener(ln, a.store, a.auth); err != nil {
			return nil, errors.Join(err, ln.Close(), p.close())
		}
	}
	return p, nil
}

// cause removes the address from the error of Listen, because the message
// already contains it.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// close closes the listeners that no server has closed yet.
func (p *ports) close() error {
	var errs []error
	for _, ln := range []net.Listener{p.clients, p.sentinel, p.http, p.peers} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
