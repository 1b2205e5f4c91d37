package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/rpc"
)

// tlsPorts are the ports that can use TLS.
var tlsPorts = []string{"clients", "sentinel", "peers", "http"}

// tlsOptions holds the flags about TLS. The files of peers and of the HTTP port
// are those of clients unless they are set.
type tlsOptions struct {
	clients, peers, http certs.Files
	ports                []string
	authClients          string
}

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	for _, set := range []struct {
		prefix, of string
		files      *certs.Files
	}{
		{"tls-", "for all ports of --tls-ports", &o.clients},
		{"tls-peer-", "for the peer port, instead of the one for all ports", &o.peers},
		{"tls-http-", "for the HTTP port, instead of the one for all ports", &o.http},
	} {
		f.StringVar(&set.files.Cert, set.prefix+"cert-file", "", "PEM file with the TLS certificate "+set.of)
		f.StringVar(&set.files.Key, set.prefix+"key-file", "", "PEM file with the key of --"+set.prefix+"cert-file")
		f.StringVar(&set.files.CA, set.prefix+"ca-cert-file", "",
			"PEM file with the authorities that sign the certificates of clients and peers, "+set.of)
	}
	f.StringSliceVar(&o.ports, "tls-ports", []string{"clients", "sentinel", "peers"},
		"ports that accept only TLS if a TLS certificate is set: any of clients, sentinel, peers and http")
	f.StringVar(&o.authClients, "tls-auth-clients", "no",
		"whether clients need a certificate of --tls-ca-cert-file: no, optional or yes")
}

// clientAuth contains the values of --tls-auth-clients, as package tls names them.
var clientAuth = map[string]tls.ClientAuthType{
	"no": tls.NoClientCert, "optional": tls.VerifyClientCertIfGiven, "yes": tls.RequireAndVerifyClientCert,
}

// uses reports whether a port uses TLS.
func (o *tlsOptions) uses(port string) bool {
	return o.clients.Cert != "" && slices.Contains(o.ports, port)
}

// needsCertificates reports whether the clients of a port, "clients" or "sentinel",
// must have a certificate.
func (o *tlsOptions) needsCertificates(port string) bool {
	return o.uses(port) && clientAuth[o.authClients] == tls.RequireAndVerifyClientCert
}

// validate returns an error if a flag is invalid or the flags contradict each
// other. It sets the files of the peer port and of the HTTP port, if they are not
// set, to those of the client port.
func (o *tlsOptions) validate() error {
	for _, p := range o.ports {
		if !slices.Contains(tlsPorts, p) {
			return fmt.Errorf("--tls-ports contains %q, which is none of %s", p, strings.Join(tlsPorts, ", "))
		}
	}
	if _, ok := clientAuth[o.authClients]; !ok {
		return fmt.Errorf("--tls-auth-clients is %q, must be no, optional or yes", o.authClients)
	}
	for _, set := range []struct {
		prefix string
		files  *certs.Files
	}{{"tls-", &o.clients}, {"tls-peer-", &o.peers}, {"tls-http-", &o.http}} {
		if (set.files.Cert == "") != (set.files.Key == "") {
			return fmt.Errorf("--%scert-file and --%skey-file must be set together", set.prefix, set.prefix)
		}
		if set.files.Cert != "" && o.clients.Cert == "" {
			return fmt.Errorf("--%scert-file needs --tls-cert-file", set.prefix)
		}
		if set.files.Cert == "" {
			set.files.Cert, set.files.Key = o.clients.Cert, o.clients.Key
		}
		if set.files.CA == "" {
			set.files.CA = o.clients.CA
		}
	}
	switch {
	case o.clients.Cert == "" && (o.clients.CA != "" || o.authClients != "no"):
		return errors.New("--tls-ca-cert-file and --tls-auth-clients need --tls-cert-file and --tls-key-file")
	case o.authClients != "no" && o.clients.CA == "":
		return fmt.Errorf("--tls-auth-clients=%s needs --tls-ca-cert-file: the certificate of the authority that "+
			"signs the certificates of clients", o.authClients)
	case o.authClients != "no" && !o.uses("clients") && !o.uses("sentinel"):
		return fmt.Errorf("--tls-auth-clients=%s has no effect, because --tls-ports contains neither clients nor "+
			"sentinel", o.authClients)
	case o.uses("peers") && o.peers.CA == "":
		return errors.New("TLS between nodes needs --tls-ca-cert-file (or --tls-peer-ca-cert-file): the certificate " +
			"of the authority that signs node certificates; --tls-ports without peers leaves the peer port without TLS")
	}
	return nil
}

// tlsStores are the certificates of the ports that use TLS.
type tlsStores struct{ clients, peers, http *certs.Store }

// open reads the files of the ports that use TLS. Ports with the same files share a
// Store, so that an error in a file is reported once.
func (o *tlsOptions) open(log hclog.Logger) (tlsStores, error) {
	var s tlsStores
	var errs []error
	opened := make(map[certs.Files]*certs.Store)
	report := func(err error) { log.Error("cannot reload TLS certificate", "error", err) }
	changed := func(files certs.Files, expires time.Time) {
		log.Info("TLS certificate reloaded, because a file has changed", "file", files.Cert, "expires",
			expires.UTC().Format(time.RFC3339))
	}
	for _, p := range []struct {
		flags string
		used  bool
		files certs.Files
		store **certs.Store
	}{
		{"--tls-cert-file", o.uses("clients") || o.uses("sentinel"), o.clients, &s.clients},
		{"--tls-peer-cert-file", o.uses("peers"), o.peers, &s.peers},
		{"--tls-http-cert-file", o.uses("http"), o.http, &s.http},
	} {
		if !p.used {
			continue
		}
		store, known := opened[p.files]
		if !known {
			var err error
			if store, err = certs.Open(p.files, report, changed); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", p.flags, err))
			}
			opened[p.files] = store
		}
		*p.store = store
	}
	return s, errors.Join(errs...)
}

// all returns each Store once.
func (s tlsStores) all() []*certs.Store {
	var out []*certs.Store
	for _, store := range []*certs.Store{s.clients, s.peers, s.http} {
		if store != nil && !slices.Contains(out, store) {
			out = append(out, store)
		}
	}
	return out
}

// reload reads all files again.
func (s tlsStores) reload() error {
	var errs []error
	for _, store := range s.all() {
		errs = append(errs, store.Reload())
	}
	return errors.Join(errs...)
}

// expiry returns the metric that says when the certificate of each port expires.
func (o *options) expiry(s tlsStores) []prometheus.Collector {
	var out []prometheus.Collector
	for port, p := range map[string]struct {
		addr  string
		store *certs.Store
	}{
		"clients": {o.clientAddr, s.clients}, "sentinel": {o.discovery.sentinelAddr, s.clients},
		"peers": {o.peerAddr, s.peers}, "http": {o.httpAddr, s.http},
	} {
		if p.addr == "" || !o.tls.uses(port) {
			continue
		}
		out = append(out, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_tls_certificate_expiry_timestamp_seconds",
			Help: "Unix time in seconds at which the certificate of a port that uses TLS expires, by port: clients, " +
				"sentinel, peers, http.",
			ConstLabels: prometheus.Labels{"port": port},
		}, func() float64 {
			_, until := p.store.Validity()
			return float64(until.Unix())
		}))
	}
	return out
}

// listener returns a listener that accepts only TLS.
func listener(ln net.Listener, store *certs.Store, auth tls.ClientAuthType) (net.Listener, error) {
	cfg, err := store.Server(auth)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, cfg), nil
}

// peerDialer returns a function that connects to a node with TLS.
func peerDialer(store *certs.Store) func(context.Context, string) (net.Conn, error) {
	dialer := &net.Dialer{KeepAliveConfig: rpc.KeepAlive}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, store.Client(host))
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS handshake with %s: %w", addr, err), raw.Close())
		}
		return c, nil
	}
}
