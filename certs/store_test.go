package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// write makes a self-signed certificate and its key.
func write(t *testing.T, dir string, serial int64, end time.Time) Files {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: end.Add(-48 * time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	err = errors.Join(
		os.WriteFile(f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(f.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func serial(t *testing.T, s *Store) int64 {
	t.Helper()
	outer, err := s.Server(tls.NoClientCert)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := outer.GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Certificates[0].Leaf.SerialNumber.Int64()
}

// check makes s check at its next use whether the files have changed.
func check(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{}
}

func TestStore_ReadsChangedFiles(t *testing.T) {
	dir, tomorrow := t.TempDir(), time.Now().Add(24*time.Hour)
	files := write(t, dir, 1, tomorrow)
	var reported error
	changes := 0
	s, err := Open(files, func(err error) { reported = err }, func(changed Files, expires time.Time) {
		if changes++; changed != files || expires.Unix() != tomorrow.Unix() {
			t.Errorf("the Store reported a change of the files %v with a certificate that expires at %v, want other values", changed, expires)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := serial(t, s); n != 1 {
		t.Errorf("serial number %d, want 1", n)
	}
	write(t, dir, 2, tomorrow)
	check(s)
	if n := serial(t, s); n != 2 || changes != 1 || reported != nil {
		t.Errorf("after a change: serial number %d, %d reported changes, error %v, want 2, 1 and no error", n, changes, reported)
	}
	// The Store ignores an invalid file and reports an error.
	if err := os.WriteFile(files.Cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(s)
	if n := serial(t, s); n != 2 || reported == nil || !strings.Contains(reported.Error(), files.Cert) {
		t.Errorf("after an invalid change: serial number %d, error %v, want 2 and an error that names the file", n, reported)
	}
	reported = nil
	check(s)
	if serial(t, s); reported != nil {
		t.Errorf("the same error is reported again at once, want it suppressed: %v", reported)
	}
	if err := s.Reload(); err == nil {
		t.Error("Reload accepts half a certificate, want an error")
	}
	write(t, dir, 3, tomorrow)
	if err := s.Reload(); err != nil || serial(t, s) != 3 {
		t.Errorf("after Reload: serial number %d, error %v, want 3 and no error", serial(t, s), err)
	}
}

func TestOpen_Refuses(t *testing.T) {
	good := write(t, t.TempDir(), 1, time.Now().Add(time.Hour))
	for name, f := range map[string]Files{
		"expired on":              write(t, t.TempDir(), 1, time.Now().Add(-time.Hour)),
		"no such file":            {Cert: good.Cert, Key: filepath.Join(t.TempDir(), "none")},
		"contains no certificate": {Cert: good.Cert, Key: good.Key, CA: good.Key},
	} {
		if _, err := Open(f, func(error) {}, func(Files, time.Time) {}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error that contains the text %s, got %v", name, err)
		}
	}
	s, err := Open(good, func(error) {}, func(Files, time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Server(tls.RequireAndVerifyClientCert); err == nil {
		t.Error("Server accepts tls.RequireAndVerifyClientCert without a CA file, want an error")
	}
}

// TestExpiryLog checks that a certificate is logged when less than a quarter of
// its validity is left, and again when it has expired. In each of these states,
// it is logged at most once a day.
func TestExpiryLog(t *testing.T) {
	until := time.Now().Add(24 * time.Hour).Truncate(time.Second) // valid for 48 hours
	s, err := Open(write(t, t.TempDir(), 1, until), func(error) {}, func(Files, time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	e := NewExpiryLog(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true}))
	for _, step := range []struct {
		at   time.Duration // time after the end of the validity
		want string        // part of the only log line; "" for no line
	}{
		{-13 * time.Hour, ""},
		{-11 * time.Hour, "[WARN]  TLS certificate expires soon"},
		{-11 * time.Hour, ""},
		{-time.Hour, ""},
		{time.Minute, "[ERROR] TLS certificate has expired"},
		{time.Hour, ""},
		{24*time.Hour + time.Minute, "[ERROR] TLS certificate has expired"},
	} {
		out.Reset()
		e.Check(until.Add(step.at), s)
		if got := out.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("%v after the end of the validity: %q, want %q", step.at, got, step.want)
		}
	}
	out.Reset()
	e.Forget()
	e.Check(until.Add(25*time.Hour), s)
	if !strings.Contains(out.String(), "has expired") || !strings.Contains(out.String(), s.files.Cert) {
		t.Errorf("after Forget, the log contains %q, want the certificate again", out.String())
	}
}
