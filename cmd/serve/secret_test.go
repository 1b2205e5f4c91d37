package serve

import (
	"strings"
	"testing"
)

func TestParseSecrets(t *testing.T) {
	long, other := strings.Repeat("l", 40), strings.Repeat("o", 40)
	lines := long + "\n" + other
	for _, tt := range []struct {
		text, current, previous string
		says                    string // part of the error, "" for no error
	}{
		{text: long + "\n", current: long},
		{text: lines + "\n", current: lines}, // base64 breaks long lines
		{text: long + "\n\n" + other + "\n", current: long, previous: other},
		{text: "\n" + long + "\r\n \t\r\n\n" + other, current: long, previous: other},
		{text: " \n\n", says: "is empty"},
		{text: "short", says: "has 5 bytes"},
		{text: long + "\n\nshort", says: "has 5 bytes"},
		{text: long + "\n\n" + other + "\n\n" + long, says: "has 3 secrets"},
	} {
		s, err := parseSecrets("file", []byte(tt.text))
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v, want an error with %q", tt.text, err, tt.says)
			}
			continue
		}
		if err != nil || string(s.current) != tt.current || string(s.previous) != tt.previous {
			t.Errorf("%q: current secret %q, previous secret %q, error %v", tt.text, s.current, s.previous, err)
		}
	}
}
