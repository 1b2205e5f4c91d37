package compat

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// bulk returns the value in a bulk reply.
func bulk(t *testing.T, raw string) string {
	t.Helper()
	v, _, err := respwire.Parse([]byte(raw))
	if err != nil || v.Kind != '$' || v.Null {
		t.Fatalf("no bulk string: %.200q", raw)
	}
	return v.Text
}

// readBack reads a key of both servers with commands for its type and compares
// the replies. It sorts replies that have no order.
func (p *pair) readBack(key, kind string) {
	p.t.Helper()
	p.DoApprox(2000, "PTTL "+key)
	p.Do("TYPE "+key, "OBJECT ENCODING "+key)
	switch kind {
	case "string":
		p.Do("GET " + key)
	case "list":
		p.Do("LRANGE " + key + " 0 -1")
	case "set":
		p.DoSorted("SMEMBERS " + key)
	case "hash":
		line := "HGETALL " + key
		redis, holdfast := p.ask(line)
		p.compare(line, sortedPairs(redis[0]), sortedPairs(holdfast[0]))
	case "zset":
		p.Do("ZRANGE " + key + " 0 -1 WITHSCORES")
	case "stream":
		p.Do("XRANGE "+key+" - +", "XLEN "+key)
		p.DoTimes("XINFO GROUPS "+key, "XPENDING "+key+" g", "XPENDING "+key+" g - + 1000",
			"XPENDING "+key+" h - + 1000", "XINFO CONSUMERS "+key+" g", "XINFO CONSUMERS "+key+" h")
		p.streamState(key)
	}
}

// sortedPairs sorts a reply that consists of names and values by the names.
func sortedPairs(raw string) string {
	head, elems := elements(raw)
	var pairs []string
	for i := 0; i+1 < len(elems); i += 2 {
		pairs = append(pairs, elems[i]+elems[i+1])
	}
	slices.Sort(pairs)
	return head + strings.Join(pairs, "")
}

// streamState compares the replies to XINFO STREAM FULL, without the fields about
// the radix tree.
func (p *pair) streamState(key string) {
	p.t.Helper()
	line := "XINFO STREAM " + key + " FULL"
	redis, holdfast := p.ask(line)
	withoutTree := func(raw string) string {
		_, elems := elements(raw)
		var kept []string
		for i := 0; i+1 < len(elems); i += 2 {
			if !strings.Contains(elems[i], "radix-tree") {
				kept = append(kept, elems[i], elems[i+1])
			}
		}
		return strings.Join(kept, "")
	}
	p.compareTimes(line, withoutTree(redis[0]), withoutTree(holdfast[0]))
}

// exchange dumps a key of both servers, restores each dump on both, and
// compares the results. If same is true, the two dumps must be equal.
func (p *pair) exchange(key, kind string, same bool) {
	p.t.Helper()
	redis, holdfast := p.ask("DUMP " + key)
	fromRedis, fromHoldfast := bulk(p.t, redis[0]), bulk(p.t, holdfast[0])
	if same && fromRedis != fromHoldfast {
		p.t.Errorf("DUMP %s\n  redis    %.1000q\n  holdfast %.1000q", key, fromRedis, fromHoldfast)
	}
	for _, payload := range []string{fromRedis, fromHoldfast} {
		p.Do("RESTORE copy 100000 " + strconv.Quote(payload) + " REPLACE")
		p.readBack("copy", kind)
	}
	if kind != "set" && kind != "hash" {
		p.Do("DEL copy") // a restored value is dumped with the same bytes
		p.Do("RESTORE copy 0 " + strconv.Quote(fromRedis))
		if kind != "stream" && kind != "list" || same {
			p.Do("DUMP copy")
		}
	}
}

// seal appends a version and a checksum to the body of a dump.
func seal(body string, version uint16) string {
	b := binary.LittleEndian.AppendUint16([]byte(body), version)
	table := crc64.MakeTable(0x95ac9329ac4bc9b5)
	return string(binary.LittleEndian.AppendUint64(b, ^crc64.Update(^uint64(0), table, b)))
}

// quoted returns s as one word of a command line. s may contain any bytes.
func quoted(s string) string { return strconv.Quote(s) }

// texts draws a random string. The strings differ in length and content, so
// that all encodings of strings occur.
func texts(rng *rand.Rand) string {
	n := []int{rng.IntN(5), rng.IntN(25), rng.IntN(70), rng.IntN(300), rng.IntN(5000)}[rng.IntN(5)]
	b := make([]byte, n)
	switch rng.IntN(5) {
	case 0:
		return strconv.FormatInt(int64(rng.Uint64())>>rng.IntN(64), 10)
	case 1:
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	case 2:
		for i := range b {
			b[i] = 'a' + byte(rng.IntN(2))
		}
	case 3:
		for i := range b {
			b[i] = "abcdefgh"[i%(1+rng.IntN(8))]
		}
	default:
		return strings.Repeat("x", n)
	}
	return string(b)
}

func TestDump_String(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 60+uint64(p.proto)))
		for _, v := range strange {
			p.setup("SET k " + v)
			p.exchange("k", "string", true)
		}
		for _, n := range []int64{0, 127, 128, -128, -129, 32767, 32768, -32768, -32769, 1<<31 - 1, 1 << 31, -1 << 31,
			-1<<31 - 1, 1<<63 - 1, -1 << 63} {
			p.setup(fmt.Sprintf("SET k %d", n))
			p.exchange("k", "string", true)
		}
		for range 400 {
			p.setup("SET k " + quoted(texts(rng)))
			p.exchange("k", "string", true)
		}
		for n := range 80 {
			p.setup("SET k " + quoted(strings.Repeat("a", n)))
			p.exchange("k", "string", true)
			p.setup("SET k " + quoted(strings.Repeat("abc", n)))
			p.exchange("k", "string", true)
		}
		for _, n := range []int{263, 264, 265, 266, 267, 280, 8192, 8193, 16383, 16384, 65536, 1 << 20} {
			p.setup("SET k " + strings.Repeat("a", n))
			p.exchange("k", "string", true)
		}
	})
}

func TestDump_List(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 61+uint64(p.proto)))
		for run := range 30 {
			p.setup("DEL k")
			for range 1 + rng.IntN([]int{3, 30, 300}[run%3]) {
				p.setup("RPUSH k " + quoted(texts(rng)))
			}
			p.exchange("k", "list", true)
		}
		// The lengths are near the limits of the encodings and of a list's
		// nodes.
		for _, n := range []int{0, 1, 20, 21, 63, 64, 126, 127, 128, 4095, 4096, 8000, 8170, 8171, 8172, 8173, 8174,
			8175, 8176, 8177, 8178, 8179, 8180, 8184, 8185, 8186, 8190, 16376, 16377, 16378, 16379, 16380, 2097140,
			2097141, 2097142, 2097143, 2097144, 2097145, 2097146, 2097147} {
			p.setup("DEL k", "RPUSH k "+quoted(strings.Repeat("y", n)), "RPUSH k b",
				"RPUSH k "+quoted(strings.Repeat("z", n)))
			p.exchange("k", "list", true)
		}
		for _, n := range []int64{0, 127, 128, 4095, 4096, 32767, 32768, 1<<23 - 1, 1 << 23, 1<<31 - 1, 1 << 31,
			1<<63 - 1} {
			p.setup("DEL k", fmt.Sprintf("RPUSH k %d %d %d -0 01 +1 9223372036854775808", n, -n, -n-1))
			p.exchange("k", "list", true)
		}
		p.setup("DEL k")
		for i := range 400 {
			p.setup(fmt.Sprintf("LPUSH k %d", i), "RPUSH k "+quoted(texts(rng)))
		}
		p.exchange("k", "list", false)
		p.setup("DEL k")
		for range 70 {
			p.setup("RPUSH k" + strings.Repeat(" 1", 1000))
		}
		p.exchange("k", "list", true)
	})
}

func TestDump_Set(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 62+uint64(p.proto)))
		for _, n := range []int{1, 2, 100, 511, 512, 513, 700} {
			for _, bits := range []int{16, 32, 64} {
				p.setup("DEL k")
				for range n {
					p.setup(fmt.Sprintf("SADD k %d", int64(rng.Uint64())>>(64-bits)))
				}
				p.exchange("k", "set", n <= 512)
			}
		}
		for range 10 {
			p.setup("DEL k")
			for range 1 + rng.IntN(100) {
				p.setup("SADD k " + quoted(texts(rng)))
			}
			p.exchange("k", "set", false)
		}
		p.setup("DEL k", `SADD k ""`)
		p.exchange("k", "set", true)
	})
}

func TestDump_Hash(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 63+uint64(p.proto)))
		for _, n := range []int{1, 2, 127, 128, 511, 512, 513, 700} {
			p.setup("DEL k")
			for i := range n {
				p.setup(fmt.Sprintf("HSET k f%d %d", i, int64(rng.Uint64())>>rng.IntN(64)))
			}
			p.exchange("k", "hash", n <= 512)
		}
		for _, n := range []int{0, 62, 63, 64, 65} {
			p.setup("DEL k", "HSET k f "+quoted(strings.Repeat("x", n))+" "+quoted(strings.Repeat("y", n))+" 1")
			p.exchange("k", "hash", n <= 64)
		}
		for range 20 {
			p.setup("DEL k")
			for range 1 + rng.IntN(100) {
				p.setup("HSET k " + quoted(texts(rng)) + " " + quoted(texts(rng)))
			}
			p.exchange("k", "hash", false)
		}
	})
}

func TestDump_Zset(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 64+uint64(p.proto)))
		score := func() string {
			switch rng.IntN(6) {
			case 0:
				return []string{"inf", "-inf", "0", "-0", "1e300", "5e-324", "4611686018427387904",
					"4611686018427388928", "-4611686018427387904", "-4611686018427388928", "9007199254740993", "1e17",
					"0.1"}[rng.IntN(13)]
			case 1, 2:
				return strconv.FormatFloat(rng.NormFloat64(), 'g', -1, 64)
			}
			return strconv.FormatInt(int64(rng.Uint64())>>rng.IntN(64), 10)
		}
		for _, n := range []int{1, 2, 63, 127, 128, 129, 400} {
			for range 4 {
				p.setup("DEL k")
				for i := range n {
					p.setup(fmt.Sprintf("ZADD k %s m%d", score(), i))
				}
				p.exchange("k", "zset", true)
			}
		}
		for _, n := range []int{0, 63, 64, 65, 5000} {
			p.setup("DEL k", "ZADD k 1 "+quoted(strings.Repeat("x", n))+" -0 b")
			p.exchange("k", "zset", true)
		}
	})
}

func TestDump_Stream(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 65+uint64(p.proto)))
		for run := range 24 {
			p.setup("DEL k")
			n := []int{0, 1, 10, 100, 101, 350}[run%6]
			p.Do("XGROUP CREATE k g 0 MKSTREAM", "XGROUP CREATE k h 0", "XGROUP CREATE k h1 $ ENTRIESREAD 7")
			for i := range n {
				id := fmt.Sprintf("%d-%d", i/3+1, i+1)
				if run%4 == 3 { // ids whose sequence numbers fall while their times rise
					id = fmt.Sprintf("%d-%d", i+1, 1000-i)
				}
				fields := " a " + quoted(texts(rng)) + " b " + strconv.Itoa(i)
				if rng.IntN(5) == 0 {
					fields = " " + quoted(texts(rng)) + " c"
				}
				p.Do("XADD k " + id + fields)
			}
			p.exchange("k", "stream", true)
			if n == 0 {
				continue
			}
			p.setup("XREADGROUP GROUP g alice COUNT 7 STREAMS k >", "XREADGROUP GROUP g bob COUNT 20 STREAMS k >",
				"XREADGROUP GROUP h carol COUNT 3 STREAMS k >", "XGROUP CREATECONSUMER k h dave")
			p.Do("XCLAIM k g bob 0 1-1 IDLE 600000 RETRYCOUNT 9 JUSTID",
				"XCLAIM k g bob 0 1-2 TIME 1600000000000 JUSTID")
			p.exchange("k", "stream", false)
			for range 5 {
				i := rng.IntN(n)
				p.Do(fmt.Sprintf("XDEL k %d-%d", i/3+1, i+1))
			}
			p.exchange("k", "stream", false)
			p.Do(fmt.Sprintf("XTRIM k MAXLEN %d", n/2))
			p.exchange("k", "stream", false)
			p.Do("XTRIM k MAXLEN 0")
			p.exchange("k", "stream", false)
			p.Do("RESTORE copy 0 "+quoted(bulk(t, p.first("DUMP k")))+" REPLACE", "XADD copy 999-1 f v")
			p.DoTimes("XREADGROUP GROUP g alice STREAMS copy >", "XREADGROUP GROUP g bob STREAMS copy 0",
				"XACK copy g 1-1", "XPENDING copy g", "XAUTOCLAIM copy g alice 100000 0")
			p.streamState("copy")
		}
	})
}

// first returns the reply of Redis to a line that both servers get.
func (p *pair) first(line string) string {
	redis, _ := p.ask(line)
	return redis[0]
}

// redisOnly sends a line to Redis and not to Holdfast.
func (p *pair) redisOnly(line string) {
	p.t.Helper()
	if raw, err := p.redis.do(respwire.Words(line)); err != nil || raw[0] != "+OK\r\n" {
		p.t.Fatalf("%s: %q, %v", line, raw, err)
	}
}

func TestRestore(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k value", "RPUSH l a")
		payload := quoted(bulk(t, p.first("DUMP k")))
		p.Do("DUMP nokey", "RESTORE k 0 "+payload, "RESTORE k 0 x", "RESTORE k x "+payload,
			"RESTORE k -1 "+payload+" REPLACE", "RESTORE n -1 "+payload, "RESTORE n x "+payload,
			"RESTORE n 1.5 "+payload, "RESTORE n 0 x", `RESTORE n 0 ""`, "RESTORE n -1 x", "EXISTS n")
		p.DoError("DUMP", "DUMP k l", "RESTORE", "RESTORE n 0", "RESTORE-ASKING n 0")
		for _, options := range []string{"REPLACE", "replace ABSTTL", "IDLETIME 5", "IDLETIME", "IDLETIME x",
			"IDLETIME -1", "IDLETIME 100 FREQ 1", "FREQ 1", "FREQ 0", "FREQ 255", "FREQ 256", "FREQ -1", "FREQ x",
			"FREQ", "FREQ 1 IDLETIME 1", "FREQ 1 FREQ 2", "IDLETIME 1 IDLETIME 2 REPLACE", "FOO", "REPLACE FOO",
			"IDLETIME -1 FOO", "ABSTTL ABSTTL", "IDLETIME 9223372036854775808"} {
			for _, ttl := range []string{"0", "100000", "-1", "99999999999999"} {
				p.Do("DEL n", "RESTORE n "+ttl+" "+payload+" "+options, "EXISTS n",
					"RESTORE l "+ttl+" "+payload+" "+options, "TYPE l", "DEL l", "RPUSH l a")
			}
		}
		for _, ttl := range []string{"1", "1000", "1600000000000", "9223372036854775807", "9223372036854775806"} {
			p.Do("DEL n", "RESTORE n "+ttl+" "+payload+" ABSTTL", "EXISTS n",
				"RESTORE l "+ttl+" "+payload+" REPLACE ABSTTL", "EXISTS l", "RPUSH l a", "DEL l")
		}
		for _, ttl := range []string{"9223372036854775807", "9223372036854775806"} {
			p.Do("RESTORE n "+ttl+" "+payload, "EXISTS n")
		}
		p.Do("RESTORE n 0 "+payload+" ABSTTL", "TTL n", "RESTORE n 100000 "+payload+" REPLACE", "TTL n",
			"RESTORE n 99999999999000 "+payload+" REPLACE ABSTTL", "EXPIRETIME n", "RESTORE n 0 "+payload+" REPLACE",
			"TTL n", "RESTORE n 0 "+payload+" REPLACE IDLETIME 1000")
		p.DoApprox(2, "OBJECT IDLETIME n")
		p.Do("RESTORE-ASKING a 0 "+payload, "GET a", "RESTORE-ASKING a 0 "+payload)
		p.Do("MULTI", "DUMP k", "RESTORE m 0 "+payload, "GET m", "EXEC",
			`EVAL "return redis.call('restore', KEYS[1], 0, redis.call('dump', KEYS[2]))" 2 s k`, "GET s",
			`EVAL_RO "return redis.call('dump', KEYS[1])" 1 k`,
			`EVAL_RO "return redis.call('restore', KEYS[1], 0, '')" 1 k`)
		p.Do("COMMAND GETKEYS DUMP k", "COMMAND GETKEYSANDFLAGS RESTORE k 0 x",
			"COMMAND GETKEYSANDFLAGS RESTORE-ASKING k 0 x")
	})
}

// TestRestore_Old restores dumps with the encodings of older versions, and dumps
// with errors that Redis finds.
func TestRestore_Old(t *testing.T) {
	both(t, func(p *pair) {
		p.redisOnly("CONFIG SET sanitize-dump-payload yes")
		defer p.redisOnly("CONFIG SET sanitize-dump-payload no")
		ziplist := func(elems ...string) string {
			body, prev, tail := "", 0, 10
			for _, e := range elems {
				tail = 10 + len(body)
				e = string(rune(prev)) + e
				body += e
				prev = len(e)
			}
			size := 10 + len(body) + 1
			return string([]byte{byte(size), byte(size >> 8), 0, 0, byte(tail), byte(tail >> 8), 0, 0, byte(len(elems)),
				0}) + body + "\xff"
		}
		blob := func(s string) string {
			return string([]byte{0x40 | byte(len(s)>>8), byte(len(s))}) + s
		}
		a, b, one, big := "\x01a", "\x02bc", "\xf2", "\xe0\x00\x00\x00\x00\x00\x00\x00\x01"
		kinds := map[string][]string{
			"list": {"\x01\x02\x01a\x02bc", "\x01\x00", "\x01\x22\x01a",
				"\x0a" + blob(ziplist(a, b, one, big, "\xc0\xff\xff", "\xd0\x01\x00\x00\x80", "\xf0\x00\x00\x80",
					"\xfe\x80", "\x40\x03xyz", "\x80\x00\x00\x00\x03xyz", "\xf1", "\xfd")), "\x0a" + blob(ziplist()),
				"\x0e\x02" + blob(ziplist(a, b)) + blob(ziplist(one)), "\x0e\x00",
				"\x0e\x02" + blob(ziplist(a)) + blob(ziplist()), "\x0a" + blob(ziplist("\xff")), "\x12\x01\x01\x03abc",
				"\x12\x01\x03\x03abc", "\x12\x00"},
			"set": {"\x02\x02\x01a\x01b", "\x02\x02\x01a\x01a", "\x02\x02\xc0\x05\x017", "\x02\x02\x017\x017",
				"\x02\x00", "\x0b" + blob("\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x02\x00"),
				"\x0b" + blob("\x02\x00\x00\x00\x00\x00\x00\x00"),
				"\x0b" + blob("\x03\x00\x00\x00\x01\x00\x00\x00abc")},
			"hash": {"\x04\x02\x01a\x01b\x01c\x01d", "\x04\x02\x01a\x01b\x01a\x01d", "\x04\x00",
				"\x0d" + blob(ziplist(a, b, one, big)), "\x0d" + blob(ziplist()),
				"\x09" + blob("\x02\x01a\x03\x02xyz  \x02bc\x00\x00\xff"), "\x09" + blob("\x00\xff"),
				"\x09" + blob("\x03\x01a\x01\x00z\xff")},
			"zset": {"\x03\x02\x01a\x031.5\x01b\xfe", "\x03\x02\x01a\x011\x01b\xff", "\x03\x01\x01a\xfd",
				"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x7f",
				"\x05\x02\x01a\x00\x00\x00\x00\x00\x00\xf0\x3f\x01b\x00\x00\x00\x00\x00\x00\x00\x80",
				"\x05\x02\x01a\x00\x00\x00\x00\x00\x00\xf0\x3f\x01a\x00\x00\x00\x00\x00\x00\x00\x00",
				"\x0c" + blob(ziplist(a, one, b, "\x031.5")), "\x0c" + blob(ziplist())},
			"string": {"\x00\x03abc", "\x00\xc0\x80", "\x00\xc1\x00\x80", "\x00\xc2\x00\x00\x00\x80",
				"\x00\x80\x00\x00\x00\x01a", "\x00\x81\x00\x00\x00\x00\x00\x00\x00\x01a",
				"\x00\xc3\x05\x19\x01aa\xe0\x0e", "\x00\xc3\x05\x08\x01aa\xc0\x00", "\x00\xc3\x02\x02\x01aa",
				"\x00\xc4", "\x06", "\x07", "\x08", "\x14", "\xff", "\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
				"\x00\xc3\x01\x81\x7f\xff\xff\xff\xff\xff\xff\xffa"},
		}
		for kind, bodies := range kinds {
			for _, body := range bodies {
				payload := quoted(seal(body, 10))
				p.Do("DEL k", "RESTORE k 0 "+payload, "EXISTS k")
				p.readBack("k", kind)
				for _, version := range []uint16{0, 1, 9, 11, 65535} {
					p.Do("RESTORE v 0 "+quoted(seal(body, version))+" REPLACE", "EXISTS v", "DEL v")
				}
			}
		}
	})
}

// TestRestore_Damaged changes bytes of dumps and corrects their checksums.
// Holdfast must refuse every dump that Redis refuses with
// sanitize-dump-payload. It may also refuse dumps that Redis accepts: those with
// data after the value, and those whose values are well-formed but contradictory.
func TestRestore_Damaged(t *testing.T) {
	p := newPair(t, 2)
	p.setup("FLUSHALL", "SELECT 0")
	p.redisOnly("CONFIG SET sanitize-dump-payload yes")
	defer p.redisOnly("CONFIG SET sanitize-dump-payload no")
	long := strings.Repeat("abc", 100)
	p.setup("SET str hello", "RPUSH list a 1 -1 300 70000 9999999999 -4097", "SADD ints 1 2 300",
		"SADD wide 1 -99999 99999999999", "SADD set a b c", "HSET hash a 1 b 2", "ZADD zset 1 a 1.5 b -inf c",
		"XADD stream 1-1 a 1 b 2", "XADD stream 1-2 a 3 b 4", "XADD stream 2-1 c 5", "XDEL stream 1-2",
		"XGROUP CREATE stream g 0", "XGROUP CREATE stream h 0 ENTRIESREAD 5",
		"XREADGROUP GROUP g alice COUNT 1 STREAMS stream >", "XREADGROUP GROUP g bob STREAMS stream >",
		"XGROUP CREATECONSUMER stream h carol",
		"SET long "+long, "RPUSH longlist "+long, "HSET longhash "+long+" a b "+long, "ZADD longzset 1 "+long+" 2.5 b")
	ziplist := "\x0a\x12\x12\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff"
	bodies := []string{"\x09\x0d\x02\x01a\x03\x02xyz  \x01b\x00\x00\xff", ziplist, "\x0c" + ziplist[1:],
		"\x0d" + ziplist[1:], "\x0e\x01" + ziplist[1:], "\x03\x02\x01a\x031.5\x01b\xfe",
		"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf0\x3f"}
	for _, key := range strings.Fields(
		"str list ints wide set hash zset stream stream stream long longlist longhash longzset") {
		payload := bulk(t, p.first("DUMP "+key))
		bodies = append(bodies, payload[:len(payload)-10])
	}
	rng := rand.New(rand.NewPCG(*randomSeed, 66))
	taken := 0
	for range *randomRuns * 50 {
		b := []byte(bodies[rng.IntN(len(bodies))])
		for range 1 + rng.IntN(2) {
			switch i := rng.IntN(len(b)); rng.IntN(3) {
			case 0:
				b[i] = byte(rng.Uint32())
			case 1:
				b[i] += byte(rng.IntN(3)) - 1
			default:
				b[i] ^= 1 << rng.IntN(8)
			}
		}
		line := "RESTORE k 0 " + quoted(seal(string(b), 10)) + " REPLACE"
		redis, holdfast := p.ask(line)
		switch {
		case holdfast[0] != "+OK\r\n" && holdfast[0] != "-ERR Bad data format\r\n", holdfast[0] == "+OK\r\n" &&
			redis[0] != holdfast[0]:
			t.Errorf("%s\n  redis    %q\n  holdfast %q", line, redis[0], holdfast[0])
		case holdfast[0] == "+OK\r\n":
			taken++
			p.Do("TYPE k", "OBJECT ENCODING k")
		}
	}
	if taken == 0 {
		t.Error("Holdfast accepted no dump")
	}
}
