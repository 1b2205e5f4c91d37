package main

import (
	"errors"
	"fmt"
	"net"
)

// ports are the listeners of the program, except that of the peer address,
// which package cluster binds. They are bound before the node is opened: an
// open node forms or joins a cluster, and must not fail afterwards because an
// address is in use.
type ports struct{ clients, sentinel, http net.Listener }

func (o *serveOptions) bind() (*ports, error) {
	p := &ports{}
	for _, a := range []struct {
		what, flag, addr string
		to               *net.Listener
	}{
		{"client", "client-addr", o.clientAddr, &p.clients},
		{"Sentinel", "sentinel-addr", o.discovery.sentinelAddr, &p.sentinel},
		{"HTTP", "http-addr", o.httpAddr, &p.http},
	} {
		if a.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", a.addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot bind %s address %s: %w (is another node running? choose "+
				"another --%s)", a.what, a.addr, cause(err), a.flag), p.close())
		}
		*a.to = ln
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

// close closes the listeners. Those that a server has closed already are
// skipped.
func (p *ports) close() error {
	var errs []error
	for _, ln := range []net.Listener{p.clients, p.sentinel, p.http} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
