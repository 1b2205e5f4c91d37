package dashboard

import (
	"strings"
	"testing"
)

// TestPreview checks that a preview ends before a character that does not fit.
func TestPreview(t *testing.T) {
	fill := func(n int, rest string) string { return strings.Repeat("x", previewBytes-n) + rest }
	for _, tt := range []struct {
		name, text, want string
	}{
		{"short", "é", "é"},
		{"as long as a preview", fill(2, "é"), fill(2, "é")},
		{"a character of two bytes", fill(1, "é"), fill(1, "")},
		{"a character of three bytes", fill(2, "€"), fill(2, "")},
		{"a character of four bytes", fill(3, "🔒"), fill(3, "")},
		{"a character after the preview", fill(2, "éé"), fill(2, "é")},
		{"not UTF-8", strings.Repeat("\x80", 2*previewBytes), strings.Repeat("\x80", previewBytes)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := cutText(tt.text, previewBytes); got != tt.want {
				t.Errorf("of a string: %q, want %q", got, tt.want)
			}
			if got := preview("list", []any{tt.text}); got != tt.want {
				t.Errorf("of a list: %q, want %q", got, tt.want)
			}
		})
	}
}
