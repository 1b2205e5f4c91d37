package client

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// LoginFlags holds the flags of a command for the user, the password and TLS.
type LoginFlags struct {
	user, password, file string
	tls                  bool
	ca, cert, key        string // paths
}

// Define adds the flags to f.
func (o *LoginFlags) Define(f *pflag.FlagSet) {
	f.StringVar(&o.user, "user", "",
		"user at the client port, if not the default user; the user needs the command HOLDFAST, or @admin")
	f.StringVar(&o.password, "password", "",
		"password at the client port. Other users of the machine can see it in ps: prefer --password-file or "+
			"HOLDFAST_PASSWORD")
	f.StringVar(&o.file, "password-file", "", "file with the password at the client port")
	f.BoolVar(&o.tls, "tls", false, "connect with TLS")
	f.StringVar(&o.ca, "tls-ca-cert-file", "",
		"PEM file with the authorities that sign the nodes' certificates (default: those of this machine); implies "+
			"--tls")
	f.StringVar(&o.cert, "tls-cert-file", "",
		"PEM file with a certificate, for nodes with --tls-auth-clients; implies --tls")
	f.StringVar(&o.key, "tls-key-file", "", "PEM file with the key of --tls-cert-file")
}

// Login returns the user, the password and the configuration of TLS. It reads
// the files that the flags name.
func (o *LoginFlags) Login() (load.Login, error) {
	l := load.Login{User: o.user, Password: o.password}
	var err error
	if l.TLS, err = o.encryption(); err != nil {
		return l, err
	}
	if o.file == "" {
		return l, nil
	}
	if o.password != "" {
		return l, errors.New("--password and --password-file are both set: use one of them")
	}
	l.Password, err = flags.ReadSecret("password-file", o.file)
	return l, err
}

// encryption returns the configuration of TLS, nil if no flag asks for TLS.
func (o *LoginFlags) encryption() (*tls.Config, error) {
	if !o.tls && o.ca == "" && o.cert == "" && o.key == "" {
		return nil, nil
	}
	if (o.cert == "") != (o.key == "") {
		return nil, errors.New("--tls-cert-file and --tls-key-file must be set together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.cert != "" {
		cert, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	if o.ca != "" {
		pool, err := certs.Authorities(o.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca-cert-file: %w", err)
		}
		cfg.RootCAs = pool
	}
	return cfg, nil
}
