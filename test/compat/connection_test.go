package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// stream sends lines in one pipeline, then RESET and a marker. It returns all
// bytes before the marker, because CLIENT REPLY makes the number of replies
// unpredictable.
func (p *pair) stream(c *conn, lines []string, marker string) string {
	p.t.Helper()
	if _, err := c.Write(respwire.Lines(append(lines, "RESET", "ECHO "+marker)...)); err != nil {
		p.t.Fatal(err)
	}
	for got := ""; ; {
		reply, err := c.receive()
		if err != nil {
			p.t.Fatalf("%q, then %v", got, err)
		}
		if reply == respwire.Bulk(marker) {
			return got
		}
		got += reply
	}
}

// TestConnection_Random sends random pipelines of commands about the
// connection, and compares all bytes of the replies.
func TestConnection_Random(t *testing.T) {
	lines := []string{
		"CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "CLIENT REPLY ON", "CLIENT REPLY foo",
		"CLIENT REPLY", "PING", "PING x", "ECHO y", "SET k 1", "GET k", "INCR k", "NOPE", "GET", "SELECT 1", "SELECT 0",
		"SELECT 99", "SELECT x",
		"MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "RESET", "CLIENT NO-EVICT on", "CLIENT NO-EVICT off",
		"CLIENT NO-EVICT x", "CLIENT SETNAME n", "CLIENT SETNAME \"\"", "CLIENT GETNAME", "CLIENT NOPE", "AUTH x",
		"AUTH default x", "AUTH nobody x", "AUTH a b c",
		"ACL WHOAMI", "CLIENT GETREDIR", "CLIENT TRACKING OFF", "CLIENT CACHING YES", "HELLO 4", "HELLO x",
		"HELLO 3 FOO", "HELLO 3 SETNAME \"a b\"", "DEL k", "CLIENT UNPAUSE", "CLIENT KILL ID 999999",
	}
	p := newPair(t, 2)
	p.setup("FLUSHALL")
	rng := rand.New(rand.NewPCG(25, 1))
	var q *pair
	guesses := 0
	for round := range 300 {
		if round%5 == 0 { // login throttling would slow down an old connection
			q = p.other()
		}
		var sent []string
		inMulti := false
		for range 2 + rng.IntN(14) {
			line := lines[rng.IntN(len(lines))]
			if strings.HasSuffix(line, "nobody x") {
				if guesses++; guesses > 10 { // login throttling would delay further guesses
					continue
				}
			}
			switch line {
			case "MULTI":
				inMulti = true
			case "EXEC", "DISCARD", "RESET":
				inMulti = false
			}
			if inMulti && strings.HasPrefix(line, "CLIENT REPLY") {
				continue // Redis accepts this command, and then sends only half of the array of EXEC
			}
			sent = append(sent, line)
		}
		marker := fmt.Sprintf("end-of-%d", round)
		a, b := q.stream(q.redis, sent, marker), q.stream(q.holdfast, sent, marker)
		if a != b {
			t.Fatalf("%s\n  redis    %q\n  holdfast %q", strings.Join(sent, "\n"), a, b)
		}
		p.setup("DEL k")
	}
}

// TestStrictIntegers checks that both servers give the same replies to unusual
// spellings of integers, such as "+1", "01" and " 1".
func TestStrictIntegers(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v")
		for _, n := range []string{"01", "+1", "-0", "00", `" 1"`, `"1 "`, "1e0", "0x1", "9223372036854775808", `""`} {
			p.Do("SELECT "+n, "HELLO "+n, "WAIT "+n+" 0", "WAIT 0 "+n, "CLIENT UNBLOCK "+n, "CLIENT PAUSE "+n,
				"CLIENT LIST ID "+n, "CLIENT KILL ID "+n, "CLIENT TRACKING ON REDIRECT "+n,
				"SLOWLOG GET "+n, "ACL LOG "+n, "ACL GENPASS "+n, "LOLWUT VERSION "+n, "MEMORY USAGE k SAMPLES "+n,
				"MULTI", "SELECT "+n, "SET n "+n, "EXEC", "DBSIZE")
		}
	})
}

// TestBeforeAuth checks the replies before a login. An unknown command, or a
// wrong number of arguments, gets its own error. Every other command that needs
// a login gets NOAUTH.
func TestBeforeAuth(t *testing.T) {
	p := newPair(t, 2)
	p.setup("CONFIG SET requirepass secret")
	t.Cleanup(func() { p.setup(`CONFIG SET requirepass ""`) })
	p.bare().Do("FOO", "FOO bar", "GET", "GET k", "GET k l", "CONFIG", "CONFIG FOO", "CONFIG GET", "CONFIG GET x",
		"OBJECT FOO k", "OBJECT HELP", "OBJECT ENCODING",
		"CLIENT", "CLIENT FOO", "CLIENT ID", "CLIENT ID x", "XADD", "XADD k", "EVAL", "EVAL x 0", "MULTI", "MULTI x",
		"EXEC", "PING", "SUBSCRIBE", "SUBSCRIBE ch", "SENTINEL masters",
		"HELLO", "HELLO 3", "HELLO 3 SETNAME x", "HELLO 4", "HELLO x", "HELLO 3 FOO", "HELLO 3 AUTH default wrong",
		"AUTH", "AUTH a b c", "AUTH wrong", "RESET", "GET k", "AUTH secret", "GET k")
	p.bare().Do("QUIT x")
}
