package compat

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/resp/parameter"
)

// settingsOf returns the names that CONFIG GET * prints.
func settingsOf(t *testing.T, reply string) []string {
	t.Helper()
	_, elems := elements(reply)
	var names []string
	for i := 0; i+1 < len(elems); i += 2 {
		_, name, _ := strings.Cut(elems[i], "\r\n")
		names = append(names, strings.TrimSuffix(name, "\r\n"))
	}
	slices.Sort(names)
	return names
}

// TestConfig_Names checks that CONFIG GET has every parameter of Redis. In
// addition, it may have only the limits of Holdfast, whose names begin with
// "holdfast-", and two settings of locks.
func TestConfig_Names(t *testing.T) {
	p := newPair(t, 2)
	redis, holdfast := p.ask("CONFIG GET *")
	want, got := settingsOf(t, redis[0]), settingsOf(t, holdfast[0])
	got = slices.DeleteFunc(got, func(name string) bool {
		return strings.HasPrefix(name, "holdfast-") || name == "lock-delay" || name == "lock-idempotent"
	})
	if len(want) < 150 {
		t.Fatalf("Redis has %d parameters", len(want))
	}
	if !slices.Equal(got, want) {
		t.Errorf("parameters\n%v, want\n%v", got, want)
	}
}

// TestConfig_NoEffect checks the parameters that have no effect in Holdfast.
// Each begins with the default of Redis. Holdfast checks new values as Redis
// does, and stores them.
func TestConfig_NoEffect(t *testing.T) {
	p := newPair(t, 2)
	values := []string{`""`, "yes", "NO", "zzz", "0", "1", "2", "-1", "-2147483649", "100", "101", "500", "501", "1000",
		"1001", "65535", "65536", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
		"010", `" 1"`, "1.5", "1k", "1KB", "3mb", "1g", "1tb", "swapdb", "ON-EMPTY-DB", "ignore", "PANIC", "absolute",
		"clients", "force", `"now SAVE"`, `"force default"`, "default", `"default save"`,
		`"1 2 3"`, `"1 2 2001"`, `"50 99.90 100"`, `"50 101"`, "{title}", `"{foo}"`, `"a {port} {"`}
	names := parameter.WithoutEffect()
	if len(names) < 60 {
		t.Fatalf("%d parameters without effect: %v", len(names), names)
	}
	for _, name := range names {
		redis, _ := p.ask("CONFIG GET " + name)
		_, elems := elements(redis[0])
		_, start, _ := strings.Cut(elems[1], "\r\n")
		p.Do("CONFIG GET " + name)
		for _, v := range values {
			// Redis accepts larger values of this size than Holdfast, and equal ones of all
			// other sizes.
			if name == "cluster-link-sendbuf-limit" && v == "9223372036854775808" {
				continue
			}
			p.Do("CONFIG SET "+name+" "+v, "CONFIG GET "+name)
		}
		p.Do("CONFIG SET "+name+" \""+strings.TrimSuffix(start, "\r\n")+"\"", "CONFIG GET "+name)
	}
}

// TestConfig_AllOrNothing checks that CONFIG SET changes all of its parameters
// or none, and reports the same error as Redis.
func TestConfig_AllOrNothing(t *testing.T) {
	p := newPair(t, 2)
	p.Do("CONFIG SET hz 20 lfu-decay-time 3", "CONFIG GET hz", "CONFIG GET lfu-decay-time",
		"CONFIG SET hz 30 lfu-decay-time x", "CONFIG SET lfu-decay-time 4 hz x", "CONFIG SET hz 30 hz 31",
		"CONFIG SET hz x nope 1", "CONFIG SET hz x daemonize yes", "CONFIG SET daemonize no",
		"CONFIG SET dir /tmp", "CONFIG SET hz 30 dbfilename x", "CONFIG SET hz", "CONFIG SET hz 1 lfu-decay-time",
		"CONFIG SET slave-priority 5", "CONFIG GET replica-priority", "CONFIG GET slave-priority",
		"CONFIG SET hz 30 notify-keyspace-events q", "CONFIG SET notify-keyspace-events KEA hz 40",
		"CONFIG GET notify-keyspace-events", "CONFIG GET hz", "CONFIG GET lfu-decay-time",
		"CONFIG SET replica-priority 100 hz 10 lfu-decay-time 1 notify-keyspace-events \"\"", "CONFIG REWRITE",
		"CONFIG RESETSTAT")
}

// TestConfig_Refused checks that Holdfast refuses values that it cannot apply,
// and says why. It accepts a value that is already in effect.
func TestConfig_Refused(t *testing.T) {
	p := newPair(t, 2)
	p.DoError("CONFIG SET appendonly maybe", "CONFIG SET maxmemory x", "CONFIG SET maxmemory-policy x")
	for line, want := range map[string]string{
		"appendonly yes": "",
		"appendonly no":  "it stays 'yes': every write is in the log before it is acknowledged",
		"appendfsync everysec": "it stays 'always': every write is on the disks of a majority before it is " +
			"acknowledged",
		"maxmemory 0":                        "",
		"maxmemory 100mb":                    "",
		"maxmemory-policy allkeys-lru":       "it stays 'noeviction': keys are never evicted",
		`save ""`:                            "",
		`save "900 1"`:                       "it stays '': --snapshot-bytes decides when snapshots are taken",
		"min-replicas-to-write 2":            "it stays '0': every write waits for a majority of the nodes",
		"replica-read-only no":               "it stays 'yes': writes through a follower are executed by the leader",
		"timeout 300":                        "it stays '0': idle connections are not closed",
		"tls-port 6380":                      "it stays '0': TLS is set by --tls-cert-file and the like",
		"hz 50 maxmemory-policy allkeys-lru": "it stays 'noeviction': keys are never evicted",
		"replicaof no":                       "can't set immutable config",
		"cluster-enabled no":                 "can't set immutable config",
		"notify-keyspace-events m hz 50":     "Events of class 'm' are not sent: reads do not go through the log.",
	} {
		reply := "+OK\r\n"
		if want != "" {
			name, _, _ := strings.Cut(line, " ")
			if strings.HasPrefix(line, "hz 50 ") {
				name = "maxmemory-policy"
			}
			reply = "-ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + want + "\r\n"
		}
		p.Expect("CONFIG SET "+line, strings.TrimSuffix(reply, "\r\n"))
	}
	p.Do("CONFIG GET hz", "CONFIG SET maxmemory 0")
}

// TestConfig_MaxMemory compares the replies while the data set is larger than
// maxmemory. The Holdfast of these tests is a single node, so it is the leader.
func TestConfig_MaxMemory(t *testing.T) {
	p := newPair(t, 2)
	p.Do("FLUSHALL", "SET lock token", "SET n 5", "HSET h f v", "RPUSH l a b", "SET gone v",
		"CONFIG SET maxmemory 100mb", "CONFIG GET maxmemory", "SET k v")
	t.Cleanup(func() { p.Do("CONFIG SET maxmemory 0", "FLUSHALL") })
	p.Do("MULTI", "SET k w", "INCR n", "CONFIG SET maxmemory 1", "EXEC")
	p.Do("CONFIG GET maxmemory", "SET k v", "SET lock token NX PX 1000", "INCR n", "HINCRBY h c 1", "LPUSH l c",
		"MSET a 1 b 2", "COPY n m", "GETSET k v", "SETRANGE k 1 x", "APPEND k x", "SORT l ALPHA STORE m",
		"RESTORE r 0 x", "XADD s * f v", "XGROUP CREATE s g $ MKSTREAM", "FUNCTION LOAD x",
		"BLMOVE l l LEFT RIGHT 1", "GEOADD g 1 1 a", "PFADD hll a", "BITFIELD b SET u8 0 1",
		"GET k", "HGETALL h", "LRANGE l 0 -1", "PEXPIRE lock 100000", "PERSIST lock", "GETDEL gone", "RENAME n o",
		"HDEL h f", "LPOP l", "UNLINK l", "DEL o", "PUBLISH ch m",
		"MULTI", "SET k v", "EXEC", "MULTI", "INCR n", "DISCARD", "SET k v",
		`EVAL "return redis.call('get', KEYS[1])" 1 k`,
		`EVAL "return redis.pcall('set', KEYS[1], 'v')" 1 k`,
		`EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 5000) end" 1 lock token`,
		`EVAL "redis.call('del', KEYS[2]) return redis.call('set', KEYS[1], 'v')" 2 new nosuch`,
		`EVAL "redis.call('persist', KEYS[1]) return redis.call('set', KEYS[1], 'token')" 1 lock`,
		`EVAL "redis.call('del', KEYS[1]) return redis.call('set', KEYS[1], 'v')" 1 lock`,
		"GET lock")
	p.Do("CONFIG SET maxmemory 0", "SET k v")
}
