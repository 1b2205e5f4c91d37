package fsm_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// scanReply splits the reply to SCAN.
func scanReply(t *testing.T, reply string) (cursor string, keys []string) {
	t.Helper()
	lines := strings.Split(reply, "\r\n")
	if len(lines) < 4 || lines[0] != "*2" {
		t.Fatalf("SCAN returns %q, want an array of two", reply)
	}
	for i := 5; i < len(lines); i += 2 {
		keys = append(keys, lines[i])
	}
	return lines[2], keys
}

// TestScan_Guarantee: SCAN returns every key that exists from the first call of
// SCAN to the last, whatever is inserted and deleted between the calls.
func TestScan_Guarantee(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f := newFeed(t)
		stay := make(map[string]bool)
		for i := range 300 {
			f.do(fmt.Sprintf("SET stay:%d 1", i), fmt.Sprintf("SET go:%d 1", i))
			stay[fmt.Sprintf("stay:%d", i)] = true
		}
		calls := 0
		for cursor := "0"; ; calls++ {
			reply, _ := f.read(0, fmt.Sprintf("SCAN %s COUNT %d", cursor, 1+rng.IntN(20)))
			next, keys := scanReply(t, reply)
			for _, k := range keys {
				delete(stay, k)
			}
			if cursor = next; cursor == "0" {
				break
			}
			if calls > 2000 {
				t.Fatal("the scan does not end")
			}
			for range 5 {
				f.do(fmt.Sprintf("DEL go:%d", rng.IntN(300)), fmt.Sprintf("SET new:%d 1", rng.IntN(1000)))
			}
			if rng.IntN(4) == 0 {
				f.m = restore(t, snapshotOf(t, f.m))
			}
		}
		if len(stay) > 0 {
			t.Errorf("seed %d: SCAN did not return %d keys that existed all the time: %v", seed, len(stay), stay)
		}
	}
}

// TestScan_Once: without changes, SCAN returns every key once, and a call
// returns no more keys than requested.
func TestScan_Once(t *testing.T) {
	f := newFeed(t)
	for i := range 500 {
		f.do(fmt.Sprintf("SET %d 1", i))
	}
	for _, count := range []int{1, 2, 7, 10, 499, 500, 501, 1 << 40} {
		seen := make(map[string]int)
		for cursor := "0"; ; {
			reply, _ := f.read(0, fmt.Sprintf("SCAN %s COUNT %d", cursor, count))
			next, keys := scanReply(t, reply)
			if len(keys) > count {
				t.Errorf("COUNT %d: a call returned %d keys", count, len(keys))
			}
			for _, k := range keys {
				seen[k]++
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
		for k, n := range seen {
			if n != 1 {
				t.Errorf("COUNT %d: %s was returned %d times, want once", count, k, n)
			}
		}
		if len(seen) != 500 {
			t.Errorf("COUNT %d: %d keys, want 500", count, len(seen))
		}
	}
}

// TestScan_Most: one call of SCAN visits a limited number of keys, even if COUNT is
// larger.
func TestScan_Most(t *testing.T) {
	f := newFeed(t)
	for i := 0; i <= command.ScanMost; {
		f.group.Reset(2, 1)
		for range 1000 {
			f.add("SET", fmt.Sprint(i), "")
			i++
		}
		f.send()
	}
	reply, _ := f.read(0, "SCAN 0 COUNT 1000000 MATCH none")
	cursor, keys := scanReply(t, reply)
	if cursor == "0" || len(keys) != 0 {
		t.Errorf("SCAN answers %q with %d keys, want a cursor for the next call", cursor, len(keys))
	}
}

// TestRandomkey: in many calls, RANDOMKEY returns every key.
func TestRandomkey(t *testing.T) {
	f := newFeed(t)
	f.do("MSET a 1 b 1 c 1 d 1 e 1")
	f.group.Reset(2, 1)
	f.add("RANDOMKEY")
	seen := make(map[string]int)
	for seed := range uint64(2000) {
		out, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		seen[string(out)]++
	}
	if len(seen) != 5 {
		t.Errorf("RANDOMKEY returned %v, want all five keys", seen)
	}
}
