package compat

import "testing"

// Redis 7.0.15 has none of the commands and options that this file tests. Except
// for LOCK, which only Holdfast has, the replies are those of Redis 8.4 and
// Valkey 9, from their documentation and test suites.

func TestSet_Conditions(t *testing.T) {
	both(t, func(p *pair) {
		const bulkOld = "$3\r\nold"
		for _, c := range []struct{ before, line, reply, after string }{
			{"", "SET k new IFEQ old", "nil", "nil"},
			{"", "SET k new IFNE old", "+OK", "$3\r\nnew"},
			{"", "SET k new IFEQ old GET", "nil", "nil"},
			{"", "SET k new IFNE old GET", "nil", "$3\r\nnew"},
			{"old", "SET k new IFEQ old", "+OK", "$3\r\nnew"},
			{"old", "SET k new ifeq old", "+OK", "$3\r\nnew"},
			{"old", "SET k new IFEQ other", "nil", bulkOld},
			{"old", "SET k new IFNE old", "nil", bulkOld},
			{"old", "SET k new IFNE other", "+OK", "$3\r\nnew"},
			{"old", "SET k new IFEQ old GET", bulkOld, "$3\r\nnew"},
			{"old", "SET k new GET IFEQ other", bulkOld, bulkOld},
			{"old", "SET k new IFNE old GET", bulkOld, bulkOld},
			{"old", "SET k new PX 100000 IFEQ old", "+OK", "$3\r\nnew"},
			{"old", "SET k new IFEQ old PX 100000", "+OK", "$3\r\nnew"},
			{"old", "SET k new IFEQ old PXAT 1", "+OK", "nil"},
			{"old", "SET k new IFEQ old NX", "-ERR syntax error", bulkOld},
			{"old", "SET k new XX IFEQ old", "-ERR syntax error", bulkOld},
			{"old", "SET k new IFEQ old IFNE x", "-ERR syntax error", bulkOld},
			{"old", "SET k new IFNE x NX", "-ERR syntax error", bulkOld},
			{"old", "SET k new IFEQ", "-ERR syntax error", bulkOld},
			{"old", "SET k new IFDEQ 0123456789abcdef", "-ERR syntax error", bulkOld},
			{"old", "SET k new IFDNE 0123456789abcdef", "-ERR syntax error", bulkOld},
			{"old", "SET k new EX 0 IFEQ old", "-ERR invalid expire time in 'set' command", bulkOld},
			{"010", "SET k new IFEQ 10", "nil", "$3\r\n010"},
			{"IFEQ", "SET k new IFEQ IFEQ", "+OK", "$3\r\nnew"},
		} {
			p.setup("DEL k")
			if c.before != "" {
				p.setup("SET k " + c.before)
			}
			p.Expect(c.line, c.reply)
			p.Expect("GET k", c.after)
		}
		p.Expect("SET k v PX 100000", "+OK")
		p.Expect("SET k w IFEQ v KEEPTTL", "+OK")
		p.Expect("PERSIST k", ":1")
		p.Expect("SET k x IFEQ w EX 100", "+OK")
		p.Expect("SET k x IFEQ x", "+OK")
		p.Expect("TTL k", ":-1")
	})
}

func TestDelex(t *testing.T) {
	both(t, func(p *pair) {
		p.Expect("DELEX k", ":0")
		p.Expect("DELEX k IFEQ v", ":0")
		p.Expect("DELEX k IFNE v", ":0")
		p.Expect("DELEX", "-ERR wrong number of arguments for 'delex' command")
		p.Expect("DELEX k IFEQ", "-ERR wrong number of arguments for 'delex' command")
		p.Expect("DELEX k IFEQ v w", "-ERR wrong number of arguments for 'delex' command")
		p.Expect("DELEX k FOO v", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
		p.Expect("DELEX k IFDEQ 0123456789abcdef", "-ERR syntax error")
		p.Expect("SET k v", "+OK")
		p.Expect("DELEX k IFEQ w", ":0")
		p.Expect("DELEX k IFNE v", ":0")
		p.Expect("DELEX k ifeq v", ":1")
		p.Expect("EXISTS k", ":0")
		p.Expect("SET k v EX 100", "+OK")
		p.Expect("DELEX k IFNE w", ":1")
		p.Expect("SET k v", "+OK")
		p.Expect("DELEX k", ":1")
		p.Expect("GET k", "nil")
	})
}

func TestDelifeq(t *testing.T) {
	both(t, func(p *pair) {
		p.Expect("DELIFEQ k v", ":0")
		p.Expect("SET k v", "+OK")
		p.Expect("DELIFEQ k w", ":0")
		p.Expect("DELIFEQ k v", ":1")
		p.Expect("GET k", "nil")
		p.Expect("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command")
	})
}

// TestLock checks the command LOCK, which only Holdfast has.
func TestLock(t *testing.T) {
	both(t, func(p *pair) {
		p.Expect("LOCK TOKEN k", "nil")
		p.Expect("LOCK CHECK k 1", ":0")
		p.Expect("LOCK CHECK k x", "-ERR token is not an integer or out of range")
		p.Expect("LOCK TOKEN", "-ERR wrong number of arguments for 'lock|token' command")
		p.Expect("LOCK", "-ERR wrong number of arguments for 'lock' command")
		p.Expect("LOCK NONE k", "-ERR unknown subcommand 'NONE'. Try LOCK HELP.")
		p.Expect("LOCK HELP k", "-ERR wrong number of arguments for 'lock|help' command")
		p.Expect("LOCK INFO k", "nil")
		p.Expect("LOCK HISTORY", "-ERR wrong number of arguments for 'lock|history' command")
		p.Expect("LOCK RENEW k me PX 1000", "nil")
		p.Expect("LOCK RELEASE k me", ":0")
		p.Expect("LOCK BREAK k", ":0")
		p.Expect("LOCK LIST OWNER nobody", "*2\r\n$1\r\n0\r\n*0")
		p.Expect("LOCK ACQUIRE k me PX 0", "-ERR invalid expire time in 'lock' command")
		p.Expect("LOCK ACQUIRE k me PX 1000 WAIT", "-ERR syntax error")
		p.setup("RPUSH k a")
		p.Expect("LOCK TOKEN k", "-WRONGTYPE Operation against a key holding the wrong kind of value")
	})
}

func TestMsetex(t *testing.T) {
	both(t, func(p *pair) {
		p.Expect("MSETEX 2 a 1 b 2", ":1")
		p.Expect("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2")
		p.Expect("MSETEX 2 a 3 c 4 NX", ":0")
		p.Expect("EXISTS c", ":0")
		p.Expect("MSETEX 2 a 3 c 4 XX", ":0")
		p.Expect("MSETEX 2 a 3 b 4 XX EX 100", ":1")
		p.Expect("PERSIST a", ":1")
		p.Expect("MSETEX 2 a 5 b 6 KEEPTTL", ":1")
		p.Expect("TTL a", ":-1")
		p.Expect("PERSIST b", ":1")
		p.Expect("MSETEX 2 c 1 d 2 PX 100000 NX", ":1")
		p.Expect("PERSIST d", ":1")
		p.Expect("MSETEX 1 a 1 EXAT 1", ":1")
		p.Expect("EXISTS a", ":0")
		p.Expect("MSETEX 2 e 1 e 2", ":1")
		p.Expect("GET e", "$1\r\n2")
		p.Expect("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command")
		p.Expect("MSETEX 1 a 1 EX x", "-ERR value is not an integer or out of range")
		p.Expect("MSETEX 1 a 1 NX XX", "-ERR syntax error")
		p.Expect("MSETEX 1 a 1 EX 10 KEEPTTL", "-ERR syntax error")
		p.Expect("MSETEX 1 a 1 GET", "-ERR syntax error")
		p.Expect("MSETEX 1 a 1 b 2", "-ERR syntax error")
		p.Expect("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs")
		p.Expect("MSETEX 2147483648 a 1", "-ERR invalid numkeys value")
		p.Expect("MSETEX 2147483647 a 1", "-ERR wrong number of key-value pairs")
		p.Expect("MSETEX 0 a 1", "-ERR invalid numkeys value")
		p.Expect("MSETEX -1 a 1", "-ERR invalid numkeys value")
		p.Expect("MSETEX x a 1", "-ERR invalid numkeys value")
		p.Expect("MSETEX 1 a", "-ERR wrong number of arguments for 'msetex' command")
	})
}
