package dev

import (
	"strings"
	"testing"
)

func TestTLSFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "",
		"--maxmemory 1mb":                        "",
		"--tls-cert-file c":                      "--tls ",
		"--tls-cert-file=c --tls-ca-cert-file=a": "--tls --cacert a ",
		"--tls-cert-file c --tls-ports peers":    "",
		"--tls-cert-file c --tls-ca-cert-file a --tls-ports clients,http --tls-auth-clients yes": "--tls --cacert a " +
			"--cert CERTIFICATE --key KEY ",
	} {
		if got := tlsFlags(strings.Fields(args)); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
