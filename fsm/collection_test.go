package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// collections returns commands that create values of all types except stream and
// lock. The collections have all encodings.
func collections() []string {
	lines := []string{
		"HSET h a 1 b 2 a 3", `HSET "" "" ""`, "RPUSH l a b c", `LPUSH l "\x00\xff"`, "SADD ints 3 -1 2", "SADD s x y 1",
		"ZADD z 1 a -inf b inf c 0.1 d -0 e", "HSET h2 f " + strings.Repeat("v", 65), "SADD was x 1", "SREM was x",
		"EXPIRE h 100", "ZADD zbig 1 " + strings.Repeat("m", 65), "ZREM zbig nothing", "COPY z z DB 3",
		"ZADD zbig -0 zero", "APPEND plain text",
	}
	for i := range 600 {
		lines = append(lines, fmt.Sprintf("HSET many f%d %d", i, i), fmt.Sprintf("SADD numbers %d", i*7),
			fmt.Sprintf("ZADD scores %d.5 m%d", i%50, i), fmt.Sprintf("RPUSH long %d", i))
	}
	return lines
}

func TestCollections_Snapshot(t *testing.T) {
	f := newFeed(t)
	f.do(collections()...)
	f.continues("HGETALL h", "HGETALL many", "LRANGE long 0 -1", "SMEMBERS numbers", "SMEMBERS ints",
		"ZRANGE scores 0 -1 WITHSCORES", "ZRANGE zbig 0 -1 WITHSCORES", "OBJECT ENCODING was", "OBJECT ENCODING h",
		"OBJECT ENCODING h2", "OBJECT ENCODING many", "OBJECT ENCODING zbig", "TTL h", "ZRANK scores m77",
		"SPOP numbers 5", "SRANDMEMBER numbers 5", "HRANDFIELD many 5", "ZRANDMEMBER scores 5", "HSCAN many 0",
		"LPOP long 3", "ZPOPMAX scores 3")
}

// TestCollections_Large checks a snapshot with collections that span several
// blocks, and with elements of the maximum length.
func TestCollections_Large(t *testing.T) {
	f := newFeed(t)
	field, longest := strings.Repeat("f", fsm.MaxKeyBytes), strings.Repeat("v", fsm.MaxStringBytes)
	for _, words := range [][]string{{"HSET", "h", field, longest}, {"RPUSH", "l", "a", longest, "b", longest},
		{"SADD", "s", longest}, {"ZADD", "z", "1", longest}, {"HSET", field, field, longest}} {
		f.group.Reset(2, 1)
		f.add(words...)
		if got := f.send(); got[0] != ':' {
			t.Fatalf("%s: %q, want an integer", words[0], got)
		}
	}
	for i := range 300 {
		f.do(fmt.Sprintf("RPUSH long %s", strings.Repeat("x", 10_000)),
			fmt.Sprintf("HSET wide f%d %s", i, strings.Repeat("y", 5000)))
	}
	whole := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("the restored machine differs from the original")
	}
}

func TestCollections_Limits(t *testing.T) {
	f := newFeed(t)
	f.do("HSET h f v", "ZADD z 1 m", "RPUSH l a")
	const refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
	longField, longVal, longKey := strings.Repeat("f", fsm.MaxKeyBytes+1), strings.Repeat("v", fsm.MaxStringBytes+1),
		strings.Repeat("k", fsm.MaxKeyBytes+1)
	for _, words := range [][]string{
		{"HSET", "h", longField, "v"}, {"HSETNX", "h", longField, "v"}, {"HMSET", "h", longField, "v"},
		{"HINCRBY", "h", longField, "1"}, {"HINCRBYFLOAT", "h", longField, "1"}, {"HSET", "h", "f", longVal},
		{"RPUSH", "l", longVal}, {"LSET", "l", "0", longVal}, {"LINSERT", "l", "BEFORE", "a", longVal},
		{"SADD", "s", longVal}, {"ZADD", "z", "1", longVal}, {"ZINCRBY", "z", "1", longVal}, {"SADD", longKey, "a"},
		{"LMOVE", "l", longKey, "LEFT", "LEFT"}, {"SUNIONSTORE", longKey, "s"}, {"ZUNIONSTORE", longKey, "1", "z"},
		{"ZRANGESTORE", longKey, "z", "0", "1"},
	} {
		f.group.Reset(2, 1)
		f.add(words...)
		if got := f.send(); got != refused {
			t.Errorf("%s: %.100q, want a refusal", words[0], got)
		}
	}
	words := make([]string, fsm.MaxArguments+1)
	for i := range words {
		words[i] = "x"
	}
	words[0] = "RPUSH"
	f.group.Reset(2, 1)
	f.add(words...)
	if got, want := f.send(), "-ERR command has too many arguments\r\n"; got != want {
		t.Errorf("%d arguments: %.100q, want %q", len(words), got, want)
	}
	f.group.Reset(2, 1)
	f.add(words[:fsm.MaxArguments]...)
	if got, want := f.send(), fmt.Sprintf(":%d\r\n", fsm.MaxArguments-2); got != want {
		t.Errorf("%d arguments: %.100q, want %q", fsm.MaxArguments, got, want)
	}
}

// TestCollections_ReplyTooLarge checks that a command whose reply is too large
// takes no elements.
func TestCollections_ReplyTooLarge(t *testing.T) {
	f := newFeed(t)
	for i := range 8 {
		elem := strings.Repeat(string(rune('a'+i)), 7<<20)
		for _, words := range [][]string{{"RPUSH", "l", elem}, {"SADD", "s", elem}, {"ZADD", "z", "1", elem},
			{"HSET", "h", fmt.Sprint(i), elem}} {
			f.group.Reset(2, 1)
			f.add(words...)
			f.send()
		}
	}
	for _, line := range []string{"LRANGE l 0 -1", "LPOP l 8", "RPOP l 8", "SPOP s 8", "SPOP s 7", "SMEMBERS s",
		"SUNION s s", "SRANDMEMBER s -200000", "ZPOPMIN z 8", "ZPOPMAX z 8", "ZRANGE z 0 -1", "HGETALL h", "HVALS h",
		"HRANDFIELD h -200000 WITHVALUES", "ZRANDMEMBER z 9", "HSCAN h 0", "ZSCAN z 0", "SSCAN s 0",
		"GEOSEARCH z FROMLONLAT -180 -85 BYRADIUS 100 km", "GEORADIUS z -180 -85 100 km WITHCOORD WITHDIST COUNT 7"} {
		if got, want := f.do(line), "-"+fsm.ReplyTooLarge+"\r\n"; got != want {
			t.Errorf("%s: %.100q, want a refusal", line, got)
		}
	}
	if got, want := f.do("LLEN l", "SCARD s", "ZCARD z", "HLEN h"), strings.Repeat(":8\r\n", 4); got != want {
		t.Errorf("sizes are %q, want %q", got, want)
	}
}

// TestCollections_Clones checks that a clone does not change when the machine
// or another clone changes, even if COPY makes keys share tree nodes.
func TestCollections_Clones(t *testing.T) {
	f := newFeed(t)
	f.do(collections()...)
	rng := rand.New(rand.NewPCG(11, 11))
	type kept struct {
		m    *fsm.Machine
		want []byte
	}
	var clones []kept
	change := func() string {
		n := rng.IntN(700)
		switch rng.IntN(12) {
		case 0:
			return fmt.Sprintf("HSET many f%d new", n)
		case 1:
			return fmt.Sprintf("HDEL many f%d", n)
		case 2:
			return fmt.Sprintf("SADD numbers %d x%d", n, n)
		case 3:
			return fmt.Sprintf("SREM numbers %d", n*7)
		case 4:
			return fmt.Sprintf("ZADD scores %d m%d", n%60, n)
		case 5:
			return fmt.Sprintf("ZREM scores m%d", n)
		case 6:
			return fmt.Sprintf("LINSERT long BEFORE %d new", n)
		case 7:
			return fmt.Sprintf("LREM long 1 %d", n)
		case 8:
			return "LMOVE long long LEFT RIGHT"
		case 9:
			return "SPOP numbers"
		case 10:
			return "ZPOPMIN scores"
		}
		return "COPY " + []string{"many copy", "long copy", "scores copy", "copy many", "copy long", "copy scores",
			"numbers copy"}[rng.IntN(7)] + " REPLACE"
	}
	for range 40 {
		clone := f.m.Clone()
		clones = append(clones, kept{clone, snapshotOf(t, clone)})
		other := f.m.Clone() // a clone that is changed independently
		for range 30 {
			f.do(change())
			if _, err := fsm.RunOn(other, f.group.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, k := range clones {
		if !bytes.Equal(snapshotOf(t, k.m), k.want) {
			t.Fatalf("clone %d changed", i)
		}
	}
	whole := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("the restored machine differs from the original")
	}
}

// TestCollections_Copies checks that a copy and its original are independent.
func TestCollections_Copies(t *testing.T) {
	f := newFeed(t)
	f.do(collections()...)
	for _, c := range []struct{ key, change, look string }{
		{"h", "HSET h a changed", "HGETALL "}, {"many", "HDEL many f3 f4", "HLEN "},
		{"many", "HSET many f5 changed", "HGET copy f5 "}, {"l", "LSET l 0 changed", "LRANGE copy 0 -1 "},
		{"long", "LPOP long 20", "LLEN "}, {"ints", "SADD ints 9", "SMEMBERS "}, {"numbers", "SREM numbers 7", "SCARD "},
		{"z", "ZINCRBY z 5 a", "ZRANGE copy 0 -1 "}, {"scores", "ZREMRANGEBYRANK scores 5 50", "ZCARD "},
	} {
		look := c.look + "copy"
		if strings.Contains(c.look, "copy") {
			look = strings.TrimSpace(c.look)
		}
		f.do("COPY " + c.key + " copy REPLACE")
		want := f.do(look)
		f.do(c.change)
		if got := f.do(look); got != want {
			t.Errorf("%s changed the copy: %.200q, was %.200q", c.change, got, want)
		}
		original := f.do(strings.Replace(look, "copy", c.key, 1))
		f.do("COPY "+c.key+" copy REPLACE", strings.Replace(c.change, c.key, "copy", 1), "HSET many f5 again")
		if c.change != "HSET many f5 changed" {
			if got := f.do(strings.Replace(look, "copy", c.key, 1)); got != original {
				t.Errorf("%s on the copy changed the original: %.200q, was %.200q", c.change, got, original)
			}
		}
	}
}

func TestCollections_CorruptSnapshot(t *testing.T) {
	f := newFeed(t)
	f.do(collections()[:16]...)
	whole := snapshotOf(t, f.m)
	readDamaged(t, whole)
	// Exactly the elements of an object must follow the record of the object.
	refuse(t, whole, map[string]replacement{
		"elements of nothing":  {"O\x00\x03", "C\x01\x00"},
		"an element is short":  {"C\x02\x01a", "C\x01\x01a"},
		"an element too many":  {"C\x02\x01a", "C\x03\x01a"},
		"no elements at all":   {"C\x02\x01a", "C\x00\x01a"},
		"the same field twice": {"\x013\x01b\x012", "\x013\x01a\x012"},
		"an unknown type":      {"O\x00\x04\x00\x01h", "O\x00\x05\x00\x01h"},
		"an unknown flag":      {"O\x00\x04\x00\x01h", "O\x00\x04\x01\x01h"},
		"a wrong encoding":     {"O\x00\x04\x02", "O\x00\x04\x00"},
	}, fsm.ErrFormat, fsm.ErrVersion)
}

// TestCollections_Golden checks that the format of collections in a snapshot
// does not change.
func TestCollections_Golden(t *testing.T) {
	f := newFeed(t)
	f.do(collections()...)
	f.golden("testdata/golden-collections-v1")
}

// TestCollections_Memory checks the memory estimates of collections of ten
// elements, of a string, and of an absent key.
func TestCollections_Memory(t *testing.T) {
	f := newFeed(t)
	f.do("HSET h f 12345", "RPUSH l 123456", "SADD s 123456", "ZADD z 1 123456", "SET k 123456")
	for i := range 9 {
		f.do(fmt.Sprintf("HSET h %d 12345", i), fmt.Sprintf("RPUSH l 12345%d", i), fmt.Sprintf("SADD s 12345%d", i),
			fmt.Sprintf("ZADD z 1 12345%d", i))
	}
	for key, want := range map[string]string{"h": ":540\r\n", "l": ":540\r\n", "s": ":486\r\n", "z": ":918\r\n",
		"k": ":6\r\n", "nokey": "$-1\r\n"} {
		if got, _ := f.read(0, fsm.MemoryCommand+" "+key); got != want {
			t.Errorf("%s takes %q, want %q", key, got, want)
		}
	}
}

func BenchmarkCollections(b *testing.B) {
	const size = 1_000_000
	for _, c := range []struct{ name, fill, change string }{
		{"HSET", "HSET k field:%d value", "HSET k field:%d changed"},
		{"SADD", "SADD k member:%d", "SADD k member:%d:new"},
		{"ZADD", "ZADD k %d member", "ZADD k 5 member:%d"},
		{"RPUSH", "RPUSH k %d", "RPUSH k %d"},
		{"LPOP", "RPUSH k %d", "LPOP k"},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := newFeed(b)
			for i := 0; i < size; {
				f.group.Reset(2, 1)
				for range 1000 {
					words := strings.Fields(fmt.Sprintf(c.fill, i))
					if c.name == "ZADD" {
						words[3] += fmt.Sprintf(":%d", i)
					}
					f.add(words...)
					i++
				}
				f.send()
			}
			i := 0
			for _, clones := range []bool{false, true} {
				name := "alone"
				if clones {
					name = "clone before each"
				}
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						i++
						if clones {
							f.m.Clone()
						}
						line := c.change
						if strings.Contains(line, "%") {
							line = fmt.Sprintf(line, i*7919%size)
						}
						f.group.Reset(2, 1)
						f.add(strings.Fields(line)...)
						f.send()
					}
				})
			}
		})
	}
}
