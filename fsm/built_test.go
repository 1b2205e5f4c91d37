package fsm_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// state returns the encoding of a collection, its elements in their order, and
// the payload that DUMP returns. For any other key, it returns "(nil)".
func (f *feed) state(key string) string {
	f.t.Helper()
	elements := map[string][]string{
		"+set\r\n": {"SMEMBERS", key}, "+zset\r\n": {"ZRANGE", key, "0", "-1", "WITHSCORES"},
		"+list\r\n": {"LRANGE", key, "0", "-1"}, "+hash\r\n": {"HGETALL", key},
	}[f.call("TYPE", key)]
	if elements == nil {
		return "(nil)"
	}
	return strings.Join([]string{f.call("OBJECT", "ENCODING", key), f.call(elements...), f.dump(key)}, "\n")
}

// TestBuilt compares commands that build or change a collection as a whole with
// commands that add or remove its elements one by one. The resulting collections
// must be equal. The test uses collections around the sizes at which the encoding
// and the method of building them change.
func TestBuilt(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.raise(fsm.FeatureMend)
	rng := rand.New(rand.NewPCG(7, 7))
	add := func(key, cmd string, n int, words func(i int) []string) {
		f.call("DEL", key)
		for i := range n {
			f.call(append([]string{cmd, key}, words(i)...)...)
		}
	}
	for _, n := range []int{3, 127, 128, 129, 511, 512, 513, 1500} {
		word := "m"
		if n%2 == 1 { // sets of integers
			word = ""
		}
		add("s", "SADD", n, func(i int) []string { return []string{fmt.Sprint(word, i)} })
		add("s2", "SADD", 700, func(i int) []string { return []string{fmt.Sprint(word, i*3)} })
		add("z", "ZADD", n, func(i int) []string { return []string{fmt.Sprint(rng.IntN(50) - 9), fmt.Sprint("m", i)} })
		add("z2", "ZADD", 200, func(i int) []string { return []string{"1", fmt.Sprint("m", i*5)} })
		add("l", "RPUSH", n, func(i int) []string { return []string{fmt.Sprint(i % 7)} })
		add("h", "HSET", n, func(i int) []string { return []string{fmt.Sprint("m", i), fmt.Sprint(i)} })

		operations(t, f, n)
		for _, key := range []string{"s", "z", "l", "h"} {
			if got := f.call("RESTORE", "got", "0", f.dump(key), "REPLACE"); got != "+OK\r\n" {
				t.Fatalf("RESTORE of %s: %q, want OK", key, got)
			}
			same(t, f, fmt.Sprint("RESTORE ", key, n), "got", key)
		}
		removals(t, f, n, rng.IntN(n))
	}
	if a, b := snapshotOf(t, f.m), snapshotOf(t, restore(t, snapshotOf(t, f.m))); string(a) != string(b) {
		t.Error("a restored machine differs from the original")
	}
}

// same requires that two keys have the same state.
func same(t *testing.T, f *feed, what, a, b string) {
	t.Helper()
	if a, b := f.state(a), f.state(b); a != b {
		t.Errorf("%s: %.200q, want %.200q", what, a, b)
	}
}

// operations runs operations on sets and sorted sets, makes the same results one
// member at a time, and compares both results. n is the number of members of the
// keys s and z.
func operations(t *testing.T, f *feed, n int) {
	t.Helper()
	for _, op := range []string{"UNION", "INTER", "DIFF"} {
		for _, keys := range [][]string{{"s"}, {"s", "s"}, {"s", "s2"}, {"s2", "s"}, {"s2", "none", "s"}} {
			f.call(append([]string{"S" + op + "STORE", "got"}, keys...)...)
			f.call("DEL", "want")
			for _, m := range f.list(append([]string{"S" + op}, keys...)...) {
				f.call("SADD", "want", m)
			}
			same(t, f, fmt.Sprint("S", op, keys, n), "got", "want")
		}
		for _, keys := range [][]string{{"1", "z"}, {"2", "z", "z2"}, {"2", "z2", "z"}, {"2", "s", "z"}, {"2", "z", "z"}} {
			f.call(append([]string{"Z" + op + "STORE", "got"}, keys...)...)
			f.call("DEL", "want")
			pairs := f.list(append(append([]string{"Z" + op}, keys...), "WITHSCORES")...)
			for i := 0; i < len(pairs); i += 2 {
				f.call("ZADD", "want", pairs[i+1], pairs[i])
			}
			if f.call("ZRANGE", "got", "0", "-1", "WITHSCORES") != f.call("ZRANGE", "want", "0", "-1", "WITHSCORES") {
				t.Errorf("Z%sSTORE of %v with %d members differs from a sorted set that was built one member at a time",
					op, keys, n)
			}
		}
	}
	f.call("ZRANGESTORE", "got", "z", "1", "-2")
	f.call("COPY", "z", "want", "REPLACE")
	f.call("ZPOPMIN", "want")
	f.call("ZPOPMAX", "want")
	if a, b := f.call("ZRANGE", "got", "0", "-1", "WITHSCORES"), f.call("ZRANGE", "want", "0", "-1", "WITHSCORES"); a != b {
		t.Errorf("ZRANGESTORE without the first and the last of %d members differs from ZPOPMIN and ZPOPMAX", n)
	}
}

// removals removes many elements from collections of n elements with one
// command, removes the same elements one by one from copies, and compares the
// results. LTRIM and ZREMRANGEBYRANK remove cut elements near the beginning.
func removals(t *testing.T, f *feed, n, cut int) {
	t.Helper()
	f.call("COPY", "l", "got", "REPLACE")
	f.call("COPY", "l", "want", "REPLACE")
	f.call("LREM", "got", "0", "3")
	for f.call("LREM", "want", "1", "3") == ":1\r\n" {
	}
	same(t, f, "LREM", "got", "want")
	some := max(n/10, 1)
	f.call("COPY", "l", "got", "REPLACE")
	f.call("LREM", "got", fmt.Sprint(-some), "2")
	f.call("COPY", "l", "want", "REPLACE")
	for range some {
		f.call("LREM", "want", "-1", "2")
	}
	same(t, f, "LREM from the end", "got", "want")
	f.call("COPY", "l", "got", "REPLACE")
	f.call("COPY", "l", "want", "REPLACE")
	f.call("LTRIM", "got", fmt.Sprint(cut), "-2")
	f.call("RPOP", "want")
	for range cut {
		f.call("LPOP", "want")
	}
	same(t, f, "LTRIM", "got", "want")
	f.call("COPY", "z", "got", "REPLACE")
	f.call("COPY", "z", "want", "REPLACE")
	f.call("ZREMRANGEBYRANK", "got", "1", fmt.Sprint(cut))
	for range cut {
		f.call("ZREMRANGEBYRANK", "want", "1", "1")
	}
	same(t, f, "ZREMRANGEBYRANK", "got", "want")
	for _, m := range f.list("ZRANGE", "got", "0", "-1") {
		if f.call("ZSCORE", "got", m) != f.call("ZSCORE", "z", m) {
			t.Fatalf("the score of %s has changed", m)
		}
	}
}

// list returns the elements of the reply to a command.
func (f *feed) list(words ...string) (all []string) {
	f.t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(f.call(words...), "\r\n"), "\r\n") {
		if i > 0 && i%2 == 0 {
			all = append(all, line)
		}
	}
	return all
}

// TestBuilt_Shared checks that a result and its source are independent although
// they share tree nodes: a change of one does not change the other.
func TestBuilt_Shared(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.raise(fsm.FeatureMend)
	set, zset := []string{"SADD", "s"}, []string{"ZADD", "z"}
	for i := range 3000 {
		set = append(set, fmt.Sprint("m", i))
		zset = append(zset, fmt.Sprint(i%100), fmt.Sprint("m", i))
	}
	f.call(set...)
	f.call(zset...)
	for _, tt := range []struct {
		source string
		store  []string
		change []string
	}{
		{"s", []string{"SUNIONSTORE", "d", "s"}, []string{"SREM", "", "m7"}},
		{"s", []string{"SDIFFSTORE", "d", "s"}, []string{"SADD", "", "new"}},
		{"z", []string{"ZUNIONSTORE", "d", "1", "z"}, []string{"ZADD", "", "5", "m7"}},
		{"z", []string{"ZDIFFSTORE", "d", "1", "z"}, []string{"ZREMRANGEBYRANK", "", "5", "9"}},
	} {
		for _, key := range []string{"d", tt.source} {
			f.call(tt.store...)
			before := f.state(tt.source)
			if f.state("d") != before {
				t.Fatalf("%v: the result differs from its source", tt.store)
			}
			tt.change[1] = key
			other := "d"
			if key == "d" {
				other = tt.source
			}
			if got := f.call(tt.change...); strings.HasPrefix(got, "-") {
				t.Fatalf("%v: %q, want no error", tt.change, got)
			}
			if f.state(other) != before || f.state(key) == before {
				t.Errorf("after %v and %v: %s must be unchanged, and %s must have changed",
					tt.store, tt.change, other, key)
			}
		}
	}
}
