package compat

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// pushes reads n pushes or replies from both servers and compares them.
func (p *pair) pushes(n int) {
	p.t.Helper()
	for range n {
		redis, err := p.redis.receive()
		if err != nil {
			p.t.Fatalf("redis: %v", err)
		}
		holdfast, err := p.holdfast.receive()
		if err != nil {
			p.t.Fatalf("holdfast: %v, redis %q", err, redis)
		}
		if redis != holdfast {
			p.t.Errorf("redis    sends %q\nholdfast sends %q", redis, holdfast)
		}
	}
}

// send sends lines in one pipeline and does not read the replies.
func (p *pair) send(lines ...string) {
	p.t.Helper()
	for _, c := range []*conn{p.redis, p.holdfast} {
		if _, err := c.Write(respwire.Lines(lines...)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestPubSub compares confirmations, messages and errors byte by byte.
func TestPubSub(t *testing.T) {
	both(t, func(p *pair) {
		sub := p.other()
		sub.send("SUBSCRIBE a b a", "PSUBSCRIBE n* \"z?\"", "SSUBSCRIBE s t")
		sub.pushes(7)
		p.Do("PUBLISH a 1", "PUBLISH nobody 1", "PUBLISH nn 2", "PUBLISH zz 2", "SPUBLISH s 3", "SPUBLISH a 3",
			"PUBLISH s 3", "PUBLISH a \"\"", "PUBLISH a \"\\x00\\r\\n\"")
		sub.pushes(7)
		p.Do("PUBSUB NUMSUB", "PUBSUB NUMSUB a b c", "PUBSUB NUMPAT", "PUBSUB CHANNELS a", "PUBSUB CHANNELS nope*",
			"PUBSUB SHARDCHANNELS s", "PUBSUB SHARDNUMSUB s a", "PUBSUB SHARDNUMSUB")
		p.DoSorted("PUBSUB CHANNELS", "PUBSUB CHANNELS ?", "PUBSUB SHARDCHANNELS")
		p.DoError("PUBSUB", "PUBSUB NOPE", "PUBSUB CHANNELS a b", "PUBSUB NUMPAT x", "PUBLISH a", "PUBLISH",
			"SPUBLISH a", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
		p.Do("PUBSUB SHARDCHANNELS a b")
		p.DoPipelined("MULTI", "PUBLISH a 4", "SET k v", "SPUBLISH t 5", "PUBLISH nobody 6", "EXEC", "PUBLISH b 7")
		sub.pushes(4)
		p.Do(`EVAL "redis.call('PUBLISH', 'a', 'from a script') redis.call('SPUBLISH', 't', 'too') return 1" 0`)
		sub.pushes(2)
		if p.proto == 2 {
			sub.Do("GET k", "PING", "PING hello", "PING a b", "GET", "nosuch", "CLIENT ID", "MULTI", "PUBLISH a x",
				"PUBSUB NUMPAT", "SELECT 1", "ECHO x", "HELLO 4", "RESET")
			sub.Do("GET k", "PING", "PUBSUB NUMPAT")
			sub.send("SUBSCRIBE a", "UNSUBSCRIBE a", "PING", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
				"SUNSUBSCRIBE x", "PUNSUBSCRIBE x y")
			sub.pushes(9)
			sub.send("SUBSCRIBE a", "PSUBSCRIBE b", "SSUBSCRIBE c", "UNSUBSCRIBE nope", "UNSUBSCRIBE", "PUNSUBSCRIBE",
				"GET k", "SUNSUBSCRIBE", "GET k")
			sub.pushes(9)
			sub.send("MULTI", "SUBSCRIBE x y", "GET k", "EXEC", "EXEC", "EXEC more", "RESET")
			sub.send("MULTI", "SSUBSCRIBE x", "GET k", "EXEC", "GET k", "RESET")
			sub.pushes(1 + 1 + 1 + 3 + 2 + 6)
			return
		}
		sub.Do("GET k", "PING", "PING hello", "CLIENT GETNAME", "PUBSUB NUMPAT")
		// If a connection publishes a message to itself, Redis 7.0 sends the
		// message before the reply to PUBLISH, and Holdfast sends it directly
		// after that reply.
		sub.send("PUBLISH a own", "GET k")
		got := func(c *conn) (all []string) {
			for range 3 {
				push, err := c.receive()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, push)
			}
			slices.Sort(all)
			return all
		}
		if redis, holdfast := got(sub.redis), got(sub.holdfast); !slices.Equal(redis, holdfast) {
			t.Errorf("redis    sends %q\nholdfast sends %q", redis, holdfast)
		}
		sub.send("GET k", "UNSUBSCRIBE b", "UNSUBSCRIBE nope", "SUNSUBSCRIBE s", "PUNSUBSCRIBE z?", "UNSUBSCRIBE",
			"PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE", "PUNSUBSCRIBE")
		sub.pushes(11)
		sub.send("CLIENT REPLY OFF", "SUBSCRIBE q", "GET k", "CLIENT REPLY ON")
		sub.pushes(2)
		p.Do("PUBLISH q 1")
		sub.pushes(1)
		sub.Do("RESET", "PUBSUB NUMSUB q")
	})
}

// TestPubSub_Describe compares how COMMAND and CLIENT LIST describe
// subscribers.
func TestPubSub_Describe(t *testing.T) {
	both(t, func(p *pair) {
		sub := p.other()
		sub.Do("CLIENT SETNAME subscriber")
		sub.send("SUBSCRIBE a b", "PSUBSCRIBE c", "SSUBSCRIBE d")
		sub.pushes(4)
		field := func(raw string) (all []string) {
			for _, line := range strings.Split(raw, "\n") {
				if strings.Contains(line, "name=subscriber") {
					for _, f := range strings.Fields(line) {
						name, _, _ := strings.Cut(f, "=")
						if slices.Contains([]string{"flags", "sub", "psub", "ssub", "redir", "resp"}, name) {
							// the flag U means a unix socket, which only Redis
							// has here
							all = append(all, strings.TrimSuffix(f, "U"))
						}
					}
				}
			}
			return all
		}
		for _, line := range []string{"CLIENT LIST", "CLIENT LIST TYPE pubsub", "CLIENT LIST TYPE normal"} {
			redis, holdfast := p.ask(line)
			if a, b := field(redis[0]), field(holdfast[0]); !slices.Equal(a, b) {
				t.Errorf("%s: redis %q, holdfast %q", line, a, b)
			}
		}
		p.Do("CLIENT KILL TYPE pubsub")
	})
}
