package listing

import "testing"

func TestEscapePattern(t *testing.T) {
	if got, want := EscapePattern(`a*?[b]\^-`), `a\*\?\[b\]\\\^\-`; got != want {
		t.Errorf("EscapePattern returns %s, want %s", got, want)
	}
}
