package flags

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"client-addr", "peer-addr", "data-dir", "node-id", "to"}
	for typed, want := range map[string]string{
		"client-adr": `; did you mean "client-addr"?`, "DATA_DIR": `; did you mean "data-dir"?`,
		"datadir": `; did you mean "data-dir"?`, "tls-cert-file": "", "FOO": "",
	} {
		if got := didYouMean(typed, names); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}
