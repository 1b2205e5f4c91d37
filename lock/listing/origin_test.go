package listing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOrigins_Lookup checks that Origins always knows a grant that the history
// contained, and remembers a missing grant only until missAgain has passed.
func TestOrigins_Lookup(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		found origin
		known bool
	}{
		"found long ago":   {origin{acquired: 7, asked: now.Add(-time.Hour)}, true},
		"missing":          {origin{asked: now}, true},
		"missing for long": {origin{asked: now.Add(-missAgain)}, false},
	} {
		var o Origins
		g := grant{Scope{"default", "0"}, "job", 3}
		if _, known := o.get(g); known {
			t.Errorf("%s: lookup finds a grant that was never added", name)
		}
		o.put(g, tt.found)
		if got, known := o.get(g); known != tt.known || known && got != tt.found {
			t.Errorf("%s: lookup returns %+v, %v, want %+v, %v", name, got, known, tt.found, tt.known)
		}
	}
}

// TestOrigins_Add checks which keys Add asks for, that Add uses only the
// history of the current grant, and that a second call does not ask for the
// same keys. It also checks that each user has separate results, that one call
// asks for at most MaxOriginAsks keys, and that Add returns the error of ask.
func TestOrigins_Add(t *testing.T) {
	var o Origins
	var asked []string
	ask := func(keys []string) (replies []any, err error) {
		for _, key := range keys {
			asked = append(asked, key)
			if key == "refused" {
				replies = append(replies, nil)
				continue
			}
			replies = append(replies, map[any]any{"grants": []any{map[any]any{
				"token": int64(3), "acquired-ms": int64(1000), "node": "n2", "client-id": int64(7),
			}}})
		}
		return replies, nil
	}
	long := strings.Repeat("k", maxOriginKey+1)
	list := func() (all []Lock) {
		for _, key := range []string{"plain", "refused", long} {
			all = append(all, Lock{"key": key, "token": int64(3)})
		}
		return append(all, Lock{"key": "newer", "token": int64(4)}, Lock{"key": "free", "token": int64(0)},
			Lock{"key": "acquired", "token": int64(3), "acquired-ms": int64(5)},
			Lock{"key": "shared", "token": int64(3), "holders": []Lock{{"token": int64(3), "acquired-ms": int64(5)}}})
	}
	for _, want := range [][]string{{"plain", "refused", "newer"}, nil} {
		asked = nil
		locks := list()
		if err := o.Add(Scope{}, locks, ask); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, want) {
			t.Errorf("Add asked for the keys %q, want %q", asked, want)
		}
		if l := locks[0]; l.Int("acquired-ms") != 1000 || l.Int("held-ms") <= 0 || l.Text("node") != "n2" ||
			l.Int("client-id") != 7 {
			t.Errorf("the lock lacks the time and the client of the history: %v", l)
		}
		for _, l := range locks[1:5] {
			if l.Int("acquired-ms") != 0 {
				t.Errorf("Add has added a time to a lock that it must not change: %v", l)
			}
		}
	}
	// The results that Origins remembers for one user are not used for another
	// user.
	asked = nil
	if err := o.Add(Scope{User: "ann"}, list(), ask); err != nil || len(asked) != 3 {
		t.Errorf("for another user, Add asked for the keys %q (error: %v), want 3 keys and no error", asked, err)
	}
	var many []Lock
	for i := range 2 * MaxOriginAsks {
		many = append(many, Lock{"key": fmt.Sprint("job:", i), "token": int64(3)})
	}
	asked = nil
	if err := o.Add(Scope{}, many, ask); err != nil || len(asked) != MaxOriginAsks {
		t.Errorf("Add asked for %d keys (error: %v), want the maximum of one call", len(asked), err)
	}
	broken := errors.New("connection lost")
	err := new(Origins).Add(Scope{}, list(), func([]string) ([]any, error) { return nil, broken })
	if !errors.Is(err, broken) {
		t.Errorf("Add returned the error %v, want %v", err, broken)
	}
}
