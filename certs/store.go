package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// checkEvery is the minimum time between two checks of whether the files of a
// Store have changed.
const checkEvery = time.Second

// Files are the paths of PEM files.
type Files struct {
	Cert string // certificate, followed by intermediate certificates
	Key  string // private key of Cert
	CA   string // certificates of the authorities for clients and peers; "" for none
}

// A Store holds a certificate, its key, and the authorities that it trusts. It
// reads the files again when they have changed. If a changed file is invalid,
// the Store keeps the previous certificates and reports the error. It is safe
// for concurrent use.
type Store struct {
	files Files
	// report and changed are called with mu held, so they must not call the Store.
	report  func(error)
	changed func(files Files, expires time.Time)

	mu      sync.Mutex
	current *material            // guarded by mu
	stamps  map[string]time.Time // modification times when current was read, guarded by mu
	checked time.Time            // guarded by mu
	// failed is the text of the last reported error, or "" after a success.
	// again is the time from which the same error may be reported again. mu
	// guards both fields.
	failed string
	again  time.Time
}

// reportAgain is the minimum time between two reports of the same error.
const reportAgain = 10 * time.Minute

// material is the content of the files at one time. It is immutable.
type material struct {
	cert tls.Certificate
	leaf *x509.Certificate // the first certificate of cert
	pool *x509.CertPool    // nil without a CA file
}

// Open reads the files and returns a Store of them. When the files have changed,
// the Store reads them again at its next use and calls changed with the time at
// which the new certificate expires. If the Store cannot read the changed files,
// it calls report with the error.
func Open(files Files, report func(error), changed func(files Files, expires time.Time)) (*Store, error) {
	s := &Store{files: files, report: report, changed: changed}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the files. If one of the files is invalid, Reload returns an
// error, and the Store keeps the previous certificates.
func (s *Store) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload()
}

// reload reads the files. The caller holds mu.
func (s *Store) reload() error {
	// Read the modification times first. If a file changes while reload reads
	// it, the next check finds a different time and reads the files again.
	stamps, err := s.stat()
	if err != nil {
		return err
	}
	m, err := s.files.read()
	if err != nil {
		return err
	}
	s.current, s.stamps, s.checked = m, stamps, time.Now()
	return nil
}

// stat returns the modification times of the files.
func (s *Store) stat() (map[string]time.Time, error) {
	stamps := make(map[string]time.Time)
	for _, path := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		stamps[path] = info.ModTime()
	}
	return stamps, nil
}

// Validity returns the times between which the certificate is valid.
func (s *Store) Validity() (from, until time.Time) {
	m := s.get()
	return m.leaf.NotBefore, m.leaf.NotAfter
}

// get returns the content of the files. At most once per checkEvery, it checks
// whether the files have changed. If so, it reads them again.
func (s *Store) get() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checked) < checkEvery {
		return s.current
	}
	s.checked = time.Now()
	stamps, err := s.stat()
	changed := err != nil
	for path, at := range stamps {
		changed = changed || !at.Equal(s.stamps[path])
	}
	if err == nil && changed {
		if err = s.reload(); err == nil {
			s.changed(s.files, s.current.leaf.NotAfter)
		}
	}
	switch {
	case err == nil:
		s.failed = ""
	case err.Error() != s.failed || !s.checked.Before(s.again):
		s.failed, s.again = err.Error(), s.checked.Add(reportAgain)
		s.report(fmt.Errorf("certificates not reloaded, keeping the previous ones: %w", err))
	}
	return s.current
}

func (f Files) read() (*material, error) {
	m := &material{}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	m.cert = cert
	if m.leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", f.Cert, err)
	}
	if time.Now().After(m.leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s expired on %s", f.Cert, m.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if f.CA == "" {
		return m, nil
	}
	m.pool, err = Authorities(f.CA)
	return m, err
}

// Authorities reads a PEM file with certificates of authorities.
func Authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate in PEM format", path)
	}
	return pool, nil
}

// Server returns the TLS configuration of a listener. Each handshake uses the
// current certificates of the Store. If auth is not tls.NoClientCert, the Store
// needs a CA file.
func (s *Store) Server(auth tls.ClientAuthType) (*tls.Config, error) {
	if auth != tls.NoClientCert && s.files.CA == "" {
		return nil, errors.New("client certificates need a CA file")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := s.get()
			return &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{m.cert},
				ClientCAs: m.pool, ClientAuth: auth,
			}, nil
		},
	}, nil
}

// Client returns the TLS configuration of one connection to a peer. name is the
// host name or IP address that the peer's certificate must contain.
func (s *Store) Client(name string) *tls.Config {
	m := s.get()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{m.cert}, RootCAs: m.pool, ServerName: name,
	}
}
