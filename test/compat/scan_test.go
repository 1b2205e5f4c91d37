package compat

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

func TestScan(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("SCAN 0", "KEYS *", "RANDOMKEY", "DBSIZE", "SET a 1", "SCAN 0", "SCAN 0 MATCH * COUNT 10",
			"SCAN 0 MATCH b*", "SCAN 0 TYPE string", "SCAN 0 TYPE STRING", "SCAN 0 TYPE list", "SCAN 0 TYPE foo",
			"SCAN 0 COUNT 0", "SCAN 0 COUNT -1", "SCAN 0 COUNT x", "SCAN 0 COUNT", "SCAN 0 MATCH", "SCAN 0 FOO",
			"SCAN 0 FOO bar", "SCAN 0 COUNT 1 FOO", "SCAN x", `SCAN ""`, `SCAN " 0"`, `SCAN "0 "`,
			"SCAN +0", "SCAN -0", "SCAN 0x0", "SCAN 00", "SCAN 99999999999999999999", "SCAN -99999999999999999999",
			"SCAN 18446744073709551616", "SCAN", "SCAN 0 match a count 5 type string", "SCAN 0 MATCH a MATCH b",
			"SCAN x FOO", "SCAN 0 COUNT 9223372036854775807", "SCAN 0 COUNT 99999999999999999999", "RANDOMKEY",
			"DBSIZE", "KEYS a", "KEYS b", "SELECT 1", "SCAN 0", "RANDOMKEY", "DBSIZE", "SELECT 0")
		p.Do("SCAN 18446744073709551615 MATCH nothing", "SCAN -1 MATCH nothing")
	})
}

// TestScan_Whole compares the results of complete scans as sets.
func TestScan_Whole(t *testing.T) {
	both(t, func(p *pair) {
		for i := range 300 {
			p.setup(fmt.Sprintf("SET key:%d %d", i, i))
		}
		p.DoSorted("KEYS *", "KEYS key:1*", "KEYS key:?", "KEYS *[13579]")
		p.Do("DBSIZE")
		for _, options := range []string{"", " COUNT 1", " COUNT 1000", " MATCH *7*", " MATCH key:1? COUNT 50",
			" TYPE string", " TYPE hash COUNT 77"} {
			redis, holdfast := scanAll(t, p.redis, "SCAN", options), scanAll(t, p.holdfast, "SCAN", options)
			if redis != holdfast {
				t.Errorf("SCAN%s to the end\n  redis    %q\n  holdfast %q", options, redis, holdfast)
			}
		}
	})
}

// TestGlob matches random keys against random patterns, with the command KEYS.
func TestGlob(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(7, uint64(p.proto)))
		random := func(alphabet string, n int) string {
			b := make([]byte, rng.IntN(n))
			for i := range b {
				b[i] = alphabet[rng.IntN(len(alphabet))]
			}
			return strconv.Quote(string(b))
		}
		var lines []string
		for range 300 {
			lines = append(lines, "SET "+random("abc[]^-\\*?\x00\xc3\xff", 7)+" 1")
		}
		p.setup(lines...)
		lines = lines[:0]
		for range 4000 {
			lines = append(lines, "KEYS "+random("aabbc[[]]^--\\**?\x00\xc3\xff", 10))
		}
		lines = append(lines, `KEYS "*"`, `KEYS "**"`, `KEYS ""`, `KEYS "[^"`, `KEYS "["`, `KEYS "\\"`, `KEYS "a\\"`,
			`KEYS "[a-"`, `KEYS "[\\"`, `KEYS "[z-a]"`, `KEYS "[\x80-\xff]"`, `KEYS "[\x00-\xff]*"`)
		for range 1000 { // few letters and many stars make many partial matches
			lines = append(lines, "KEYS "+random("ab**", 12))
		}
		p.DoSorted(lines...)
	})
}

// scanAll repeats a SCAN command until the cursor is 0. It returns all keys or
// elements, sorted and without duplicates.
func scanAll(t *testing.T, c *conn, command, options string) string {
	t.Helper()
	seen := make(map[string]bool)
	for cursor := "0"; ; {
		raw, err := c.do(respwire.Words(command + " " + cursor + options))
		if err != nil {
			t.Fatal(err)
		}
		_, elems := elements(raw[0])
		if len(elems) != 2 {
			t.Fatalf("%s %s%s answers %q", command, cursor, options, raw[0])
		}
		_, found := elements(elems[1])
		for _, e := range found {
			seen[e] = true
		}
		if cursor = strings.Split(elems[0], "\r\n")[1]; cursor == "0" {
			break
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "")
}
