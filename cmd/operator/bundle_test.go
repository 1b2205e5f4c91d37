package operator

import (
	"fmt"
	"testing"
)

// TestBundle_Hides checks which parts of replies are removed, and that a reply of
// an unexpected shape is removed as a whole.
func TestBundle_Hides(t *testing.T) {
	for _, tc := range []struct {
		hide        func(any) any
		reply, want any
	}{
		{hidePasswords, []any{"requirepass", "x", "save", "y"}, []any{"requirepass", "(removed)", "save", "y"}},
		{hidePasswords, map[any]any{"requirepass": "x"}, unexpectedReply},
		{hideArguments, []any{[]any{1, 2, 3, []any{"SET", "k", "v"}}, []any{1, 2, 3, []any{"PING"}}},
			[]any{[]any{1, 2, 3, []any{"SET", "(2 arguments removed)"}}, []any{1, 2, 3, []any{"PING"}}}},
		{hideArguments, []any{[]any{1, 2, 3, "SET k v"}, "k"}, []any{unexpectedReply, unexpectedReply}},
		{hideArguments, "SET k v", unexpectedReply},
		{hideKeys, []any{[]any{"reason", "key", "object", "k"}, []any{"object", "get", "reason", "command"}},
			[]any{[]any{"reason", "key", "object", "(removed)"}, []any{"object", "get", "reason", "command"}}},
		{hideKeys, []any{map[any]any{"object": "k"}}, []any{unexpectedReply}},
	} {
		before := fmt.Sprint(tc.reply)
		if got := fmt.Sprint(tc.hide(tc.reply)); got != fmt.Sprint(tc.want) {
			t.Errorf("%s: %s, want %v", before, got, tc.want)
		}
	}
}
