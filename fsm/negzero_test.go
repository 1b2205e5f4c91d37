package fsm_test

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestZUnionStore_NegativeZero: from FeatureMend on, ZUNIONSTORE chooses the
// encoding of its result when the result is complete. So a score of -0 stays in
// a large result even if the member that makes the result large comes later.
// Below FeatureMend, the score becomes 0. A replay on a real Redis
// (verify/replay) found this bug.
func TestZUnionStore_NegativeZero(t *testing.T) {
	for _, tc := range []struct {
		features     int
		large, small string
	}{
		{fsm.FeatureMend, "$2\r\n-0\r\n", "$1\r\n0\r\n"},
		{fsm.FeatureMend - 1, "$1\r\n0\r\n", "$1\r\n0\r\n"},
	} {
		f := newFeed(t)
		f.raise(tc.features)
		f.do("ZADD a 0 m 1 " + strings.Repeat("x", 65))
		f.do("ZUNIONSTORE large 1 a WEIGHTS -1", "ZREM a "+strings.Repeat("x", 65), "ZUNIONSTORE small 1 a WEIGHTS -1", "ZINTERSTORE both 2 large small")
		if got := f.do("ZSCORE large m"); got != tc.large {
			t.Errorf("feature version %d: large result has %q, want %q", tc.features, got, tc.large)
		}
		if got := f.do("ZSCORE small m"); got != tc.small {
			t.Errorf("feature version %d: small result has %q, want %q", tc.features, got, tc.small)
		}
		if got := f.do("OBJECT ENCODING large", "OBJECT ENCODING small"); got != "$8\r\nskiplist\r\n$8\r\nlistpack\r\n" {
			t.Errorf("feature version %d: encodings %q, want skiplist and listpack", tc.features, got)
		}
		if again := restore(t, snapshotOf(t, f.m)); string(snapshotOf(t, again)) != string(snapshotOf(t, f.m)) {
			t.Errorf("feature version %d: the restored machine differs from the original", tc.features)
		}
	}
}
