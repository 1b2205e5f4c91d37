package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestDidYouMean(t *testing.T) {
	names := []string{"client-addr", "peer-addr", "data-dir", "node-id"}
	for typed, want := range map[string]string{
		"client-adr": `; did you mean "client-addr"?`, "DATA_DIR": `; did you mean "data-dir"?`,
		"datadir": `; did you mean "data-dir"?`, "tls-cert-file": "",
	} {
		if got := didYouMean(typed, names); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}

// TestVariables_OfOthers checks that variables which other programs set are no
// mistakes: Kubernetes sets some for a service that is named holdfast.
func TestVariables_OfOthers(t *testing.T) {
	version := func() error { return run(context.Background(), []string{"version"}, io.Discard, io.Discard) }
	for _, name := range []string{
		"HOLDFAST_SERVICE_HOST", "HOLDFAST_SERVICE_PORT_CLIENTS", "HOLDFAST_PORT", "HOLDFAST_PORT_6379_TCP",
		"HOLDFAST_PORT_6379_TCP_ADDR", "HOLDFAST_HEADLESS_SERVICE_HOST", "HOLDFAST_HEADLESS_PORT_7379_TCP_PROTO",
		"HOLDFAST_BIND", "HOLDFAST_SENTINEL_PORT_N1", "HOLDFAST_REQUIRE_REDIS", "HOLDFAST_DATA_DIR",
	} {
		t.Setenv(name, "1")
	}
	if err := version(); err != nil {
		t.Error(err)
	}
	t.Setenv("HOLDFAST_PEERADDR", "x")
	if err := version(); err == nil || !strings.Contains(err.Error(), "did you mean HOLDFAST_PEER_ADDR?") {
		t.Errorf("a mistyped variable: %v", err)
	}
}

func TestSize(t *testing.T) {
	n := int64(1)
	s := size[int64]{&n}
	for text, want := range map[string]int64{"1048576": 1 << 20, "64mb": 64 << 20, "2GiB": 2 << 30, "1k": 1024, "0": 0} {
		if err := s.Set(text); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "-1", "many", "1 x", "99999999999999999999gb"} {
		if err := s.Set(text); err == nil {
			t.Errorf("%q is accepted as %d", text, n)
		}
	}
	for n, want := range map[int64]string{0: "0", 1000: "1000", 1 << 20: "1mb", 3 << 30: "3gb", 1536: "1536", 2048: "2kb"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
