package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/rpc"
)

// secretOptions holds the flags about authentication on the peer port.
type secretOptions struct {
	file     string
	create   bool
	insecure bool
}

func (o *secretOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "cluster-secret-file", "",
		"file with the secret that the nodes of the cluster use to authenticate each other, the same on every node; "+
			"after an empty line, the previous secret, which the node accepts too")
	f.BoolVar(&o.create, "cluster-secret-create", false,
		"create the file of --cluster-secret-file with a random secret, if it does not exist")
	f.BoolVar(&o.insecure, "insecure", false,
		"without a cluster secret: allow a peer address that other hosts can reach; with a secret: also accept nodes "+
			"that have none")
}

// makeSecret tells the operator how to make the file.
const makeSecret = "make one with: (umask 077; head -c 32 /dev/urandom | base64 > %s), and copy it to every node"

// maxSecret is the maximum size of the file in bytes.
const maxSecret = 4096

// secrets are the secrets in the file: the current one and, while an operator
// replaces the secret on one node after the other, the previous one. Both are nil if
// no secret is configured.
type secrets struct{ current, previous []byte }

func (s secrets) equal(t secrets) bool {
	return bytes.Equal(s.current, t.current) && bytes.Equal(s.previous, t.previous)
}

// read returns the secrets of the file.
func (o *secretOptions) read() (s secrets, err error) {
	if o.file == "" {
		if o.create {
			return s, errors.New("--cluster-secret-create needs --cluster-secret-file")
		}
		return s, nil
	}
	if o.create {
		if err := createSecret(o.file); err != nil {
			return s, fmt.Errorf("--cluster-secret-create: %w", err)
		}
	}
	if s, err = readSecrets(o.file); err != nil {
		return s, fmt.Errorf("--cluster-secret-file: %w", err)
	}
	return s, nil
}

func readSecrets(path string) (s secrets, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%w: "+makeSecret, err, path)
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return s, err
	case !info.Mode().IsRegular():
		return s, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o007 != 0:
		return s, fmt.Errorf("%s is open to every user of this machine (mode %04o): run chmod 600 %s", path,
			info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return s, err
	}
	if len(text) > maxSecret {
		return s, fmt.Errorf("%s is longer than %d bytes", path, maxSecret)
	}
	return parseSecrets(path, text)
}

// emptyLine separates the previous secret from the current one. A secret may have
// several lines, because base64 breaks long ones.
var emptyLine = regexp.MustCompile(`\n[ \t\r]*\n\s*`)

// parseSecrets returns the secrets in the text of a file.
func parseSecrets(path string, text []byte) (s secrets, err error) {
	parts := emptyLine.Split(string(bytes.TrimSpace(text)), -1)
	switch {
	case parts[0] == "":
		return s, fmt.Errorf("%s is empty: "+makeSecret, path, path)
	case len(parts) > 2:
		return s, fmt.Errorf("%s has %d secrets, separated by empty lines: only the current and the previous one are "+
			"possible", path, len(parts))
	}
	for i, secret := range parts {
		secret = strings.TrimSpace(secret)
		parts[i] = secret
		if len(secret) < rpc.MinSecret {
			return s, fmt.Errorf("the secret in %s has %d bytes and can be guessed; at least %d are needed: "+
				makeSecret, path, len(secret), rpc.MinSecret, path)
		}
	}
	s.current = []byte(parts[0])
	if len(parts) == 2 {
		s.previous = []byte(parts[1])
	}
	return s, nil
}

// createSecret makes a file with a random secret unless the file exists. If several
// processes call it at the same time, one of them creates the file. No process sees
// a partial file, because createSecret writes a temporary file first and links it
// to the name when it is complete.
func createSecret(path string) (err error) {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err // nil if it exists
	}
	random := make([]byte, 32)
	rand.Read(random)                                                    // never fails: see crypto/rand
	f, err := os.CreateTemp(filepath.Dir(path), ".cluster-secret-*.new") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = fmt.Fprintln(f, base64.StdEncoding.EncodeToString(random))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// admit returns an error if other hosts can reach the peer port and there is no
// cluster secret, unless the operator has set --insecure.
func (o *secretOptions) admit(cfg *cluster.Config, log hclog.Logger) error {
	exposed := exposedPeer(cfg)
	switch {
	case cfg.Secret != nil && o.insecure:
		cfg.SecretOptional = true
		log.Warn("nodes without the cluster secret are accepted (--insecure): restart without --insecure when every " +
			"node has the secret")
	case cfg.Secret != nil || exposed == "":
	case o.insecure:
		log.Warn("any host that reaches the peer port can join and change the cluster (--insecure)", "addr", exposed)
	default:
		return fmt.Errorf("%s can be reached from other hosts and there is no cluster secret: any host that reaches "+
			"the peer port could read and change everything. "+
			"Set --cluster-secret-file, the same on every node ("+makeSecret+"), or accept the risk with --insecure",
			exposed, "cluster-secret")
	}
	return nil
}

// exposedPeer returns the first peer address that is not on the loopback
// interface, with its flag, or "" if there is none.
func exposedPeer(cfg *cluster.Config) string {
	if !flags.Loopback(cfg.PeerAddr) {
		return "--peer-addr " + cfg.PeerAddr
	}
	if cfg.AdvertisePeerAddr != "" && !flags.Loopback(cfg.AdvertisePeerAddr) {
		return "--advertise-peer-addr " + cfg.AdvertisePeerAddr
	}
	for _, p := range cfg.Peers {
		if !flags.Loopback(p.Addr) {
			return fmt.Sprintf("--peers %s=%s", p.ID, p.Addr)
		}
	}
	return ""
}
