package fsm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// call executes one command and returns its reply.
func (f *feed) call(words ...string) string {
	f.t.Helper()
	f.group.Reset(2, f.origin)
	f.add(words...)
	return f.send()
}

// dump returns the payload of a key.
func (f *feed) dump(key string) string {
	f.t.Helper()
	_, rest, _ := strings.Cut(f.call("DUMP", key), "\r\n")
	return strings.TrimSuffix(rest, "\r\n")
}

// variety returns a feed and the keys of its state machine, which have values
// of every type that DUMP accepts.
func variety(t testing.TB) (f *feed, keys []string) {
	f = newFeed(t)
	f.do("SET str hello", "SET num 12345", "SET neg -70000", "RPUSH list a 1 -1 300 70000 9999999999 -4097",
		"SADD ints 1 2 300", "SADD wide 1 -99999 99999999999", "SADD set a b c", "HSET hash a 1 b 2",
		"ZADD zset 1 a 1.5 b -inf c", "XADD stream 1-1 a 1 b 2", "XADD stream 1-2 a 3 b 4", "XADD stream 2-1 c 5",
		"XDEL stream 1-2")
	f.do("XGROUP CREATE stream g 0", "XGROUP CREATE stream h 0 ENTRIESREAD 5",
		"XREADGROUP GROUP g alice COUNT 1 STREAMS stream >", "XREADGROUP GROUP g bob STREAMS stream >",
		"XGROUP CREATECONSUMER stream h carol", "XGROUP CREATE empty g 0 MKSTREAM")
	long := strings.Repeat("abc", 100)
	f.call("SET", "long", long)
	f.call("RPUSH", "longlist", long, strings.Repeat("x", 9000), "y")
	f.call("SADD", "longset", long, "a")
	f.call("HSET", "longhash", long, "a", "b", long)
	f.call("ZADD", "longzset", "1", long, "-0", "b", "1e300", "c")
	f.call("XADD", "longstream", "5-5", long, long)
	f.call("XADD", "longstream", "6-1", long, "b")
	f.call("XADD", "longstream", "6-2", "a", strings.Repeat("y", 5000))
	return f, []string{"str", "num", "neg", "list", "ints", "wide", "set", "hash", "zset", "stream", "empty", "long",
		"longlist", "longset", "longhash", "longzset", "longstream"}
}

// oldBodies returns payloads without their trailers. Most of them have formats
// of older Redis versions.
func oldBodies() []string {
	ziplist := "\x0a\x12\x12\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff"
	return []string{
		"\x01\x02\x01a\x02bc", "\x02\x02\x01a\xc0\x05", "\x03\x02\x01a\x031.5\x01b\xfe", "\x04\x02\x01a\x01b\x01c\x01d",
		"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf0\x3f",
		"\x09\x0d\x02\x01a\x03\x02xyz  \x01b\x00\x00\xff", ziplist, "\x0c" + ziplist[1:], "\x0d" + ziplist[1:],
		"\x0e\x01" + ziplist[1:],
		"\x00\xc3\x05\x19\x01aa\xe0\x0e", "\x00\xc2\x00\x00\x00\x80", "\x12\x01\x01\x03abc",
		"\x05\x02\xc3\x0eA,\x03abca\xe0\xff\x02\xe1\x15\a\x01bc\x00\x00\x00\x00\x00\x00\xf0\x3f\x01b\x00\x00\x00\x00\x00\x00\x00\x80", "\x0f\x00\x00\x00\x00\x01\x01g\x00\x00\x00\x00",
	}
}

// TestDump_RoundTrip checks that RESTORE recreates the value of a payload that
// DUMP returned, and that RESTORE refuses the payload if it is truncated or has
// an extra byte.
func TestDump_RoundTrip(t *testing.T) {
	t.Parallel()
	f, keys := variety(t)
	for _, key := range keys {
		payload := f.dump(key)
		if got := f.call("RESTORE", "copy", "0", payload, "REPLACE"); got != "+OK\r\n" {
			t.Errorf("RESTORE of %s: %q, want OK", key, got)
			continue
		}
		if again := f.dump("copy"); again != payload {
			t.Errorf("%s: DUMP returned %q, and %q after RESTORE", key, payload, again)
		}
		body := payload[:len(payload)-10]
		for n := range len(body) {
			if got := f.call("RESTORE", "part", "0",
				string(rdb.Seal([]byte(body[:n])))); got != "-ERR Bad data format\r\n" {
				t.Errorf("RESTORE of %d of %d bytes of %s: %q, want an error", n, len(body), key, got)
			}
		}
		if got := f.call("RESTORE", "part", "0",
			string(rdb.Seal([]byte(body+"\x00")))); got != "-ERR Bad data format\r\n" {
			t.Errorf("RESTORE of %s with a byte more: %q, want an error", key, got)
		}
	}
	if snap := snapshotOf(t, f.m); !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
		t.Error("the restored machine differs from the original")
	}
}

// TestRestore_Hostile checks that RESTORE refuses invalid payloads, for example
// with sizes that exceed the payload, or with values that a snapshot cannot
// contain. After each RESTORE, a snapshot of the machine must be readable.
func TestRestore_Hostile(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	huge := "\x81\x7f\xff\xff\xff\xff\xff\xff\xff"
	listpack := func(elems string, n int) string {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(elems)+7))
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		return string(b) + elems + "\xff"
	}
	blob := func(s string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0x80}, uint32(len(s)))) + s
	}
	key := "\x10" + strings.Repeat("\x00", 16)
	id := strings.Repeat("\x00", 15) + "\x01"
	entry := func(flags, ms, seq, fields byte) string {
		return string([]byte{flags, 1, ms, 1, seq, 1, fields, 1}) + "\x81a\x02\x81b\x02\x06\x01"
	}
	node := func(count byte, entries string, n int) string {
		return listpack(string([]byte{count, 1, 0, 1, 1, 1})+"\x81f\x02\x00\x01"+entries, 5+n)
	}
	stream := func(node, tail string) string { return "\x13\x01" + key + blob(node) + tail }
	one := "\x01\x05\x05\x00\x01\x00\x00\x01" // length, last, first, deleted, added
	group := func(pending, consumers string) string { return "\x01\x01g\x00\x00\x00" + pending + consumers }
	pending := id + strings.Repeat("\x00", 8) + "\x01"
	at := strings.Repeat("\x00", 8)
	good := node(1, entry(0, 0, 1, 1), 7)
	for name, c := range map[string]struct{ body, want string }{
		"whole stream":               {stream(good, one+group("\x01"+pending, "\x01\x01c"+at+"\x01"+id)), "+OK"},
		"string":                     {"\x00" + huge + "a", ""},
		"list":                       {"\x01" + huge + "\x01a", ""},
		"set":                        {"\x02" + huge + "\x01a", ""},
		"hash":                       {"\x04" + huge + "\x01a\x01b", ""},
		"zset":                       {"\x05" + huge + "\x01a" + at, ""},
		"quicklist":                  {"\x12" + huge, ""},
		"stream":                     {"\x13" + huge, ""},
		"groups":                     {stream(good, one+huge), ""},
		"pending":                    {stream(good, one+"\x01\x01g\x00\x00\x00"+huge), ""},
		"consumers":                  {stream(good, one+group("\x00", huge)), ""},
		"compressed":                 {"\x00\xc3\x01" + huge + "a", ""},
		"compressed too much":        {"\x00\xc3\x03\x80\x02\xff\xff\xff\xe0\xff\x00", ""},
		"refers to before the start": {"\x00\xc3\x04\x08\x00a\x80\x01", ""},
		"listpack, size":             {"\x12\x01\x02" + blob("\x08\x00\x00\x00\x01\x00\x01\x01\xff"), ""},
		"listpack, count":            {"\x12\x01\x02" + blob(listpack("\x01\x01", 2)), ""},
		"listpack, back":             {"\x12\x01\x02" + blob(listpack("\x01\x02", 1)), ""},
		"listpack, end inside":       {"\x12\x01\x02" + blob(listpack("\xff\x01", 1)), ""},
		"listpack, overlap":          {"\x12\x01\x02" + blob(listpack("\x83ab", 1)), ""},
		"listpack, odd":              {"\x10" + blob(listpack("\x01\x01", 1)), ""},
		"listpack, twice":            {"\x10" + blob(listpack("\x01\x01\x02\x01\x01\x01\x02\x01", 4)), ""},
		"zset, twice":                {"\x11" + blob(listpack("\x01\x01\x02\x01\x01\x01\x02\x01", 4)), ""},
		"zset, no score":             {"\x11" + blob(listpack("\x01\x01\x81x\x02", 2)), ""},
		"zset, nan":                  {"\x11" + blob(listpack("\x01\x01\x83nan\x04", 2)), ""},
		"intset, order":              {"\x0b" + blob("\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x01\x00"), ""},
		"intset, twice":              {"\x0b" + blob("\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x01\x00"), ""},
		"stream, no entry":           {stream(node(1, "", 0), one+"\x00"), ""},
		"stream, flags":              {stream(node(1, entry(4, 0, 1, 1), 7), one+"\x00"), ""},
		"stream, no ID":              {stream(node(1, entry(0, 0, 0, 1), 7), one+"\x00"), ""},
		"stream, fields":             {stream(node(1, entry(0, 0, 1, 9), 7), one+"\x00"), ""},
		"stream, ID after all":       {stream(node(1, entry(0, 9, 1, 1), 7), one+"\x00"), ""},
		"stream, twice": {stream(node(2, entry(0, 0, 1, 1)+entry(0, 0, 1, 1), 14),
			"\x02\x05\x05\x00\x01\x00\x00\x02\x00"), ""},
		"stream, length":          {stream(good, "\x02\x05\x05\x00\x01\x00\x00\x02\x00"), ""},
		"stream, added":           {stream(good, "\x01\x05\x05\x00\x01\x00\x00\x00\x00"), ""},
		"group twice":             {stream(good, one+"\x02\x01g\x00\x00\x00\x00\x00\x01g\x00\x00\x00\x00\x00"), ""},
		"pending twice":           {stream(good, one+group("\x02"+pending+pending, "\x01\x01c"+at+"\x01"+id)), ""},
		"pending for no consumer": {stream(good, one+group("\x01"+pending, "\x00")), ""},
		"not pending":             {stream(good, one+group("\x00", "\x01\x01c"+at+"\x01"+id)), ""},
		"pending for two":         {stream(good, one+group("\x01"+pending, "\x02\x01c"+at+"\x01"+id+"\x01d"+at+"\x01"+id)), ""},
		"long field": {"\x04\x01" + blob(strings.Repeat("f", fsm.MaxKeyBytes+1)) + "\x01v",
			"-ERR string exceeds maximum allowed size (proto-max-bulk-len)"},
	} {
		want := c.want
		if want == "" {
			want = "-ERR Bad data format"
		}
		if got := f.call("RESTORE", "k", "0", string(rdb.Seal([]byte(c.body))), "REPLACE"); got != want+"\r\n" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if snap := snapshotOf(t, f.m); !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
			t.Errorf("%s: the restored machine differs from the original", name)
		}
	}
}

// TestLimits_Restore checks that RESTORE refuses a small payload that unfolds
// to a very large value, and that the largest values that it accepts do not
// take long.
func TestLimits_Restore(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	zeros := strings.Repeat("\x00", fsm.MaxStringBytes)
	f.call("SET", "k", zeros)
	whole := f.dump("k")
	packed := whole[1 : len(whole)-10] // the value as a compressed string
	begun := time.Now()
	check := func(what, body, want string) {
		t.Helper()
		if len(body) > fsm.MaxStringBytes {
			t.Fatalf("%s: the payload has %d bytes, more than a string may have", what, len(body))
		}
		if got := f.call("RESTORE", "l", "0", string(rdb.Seal([]byte(body))), "REPLACE"); got != want+"\r\n" {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const tooLong = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	const tooMany = "-ERR collection exceeds maximum allowed size"
	n := fsm.MaxUnfolded / fsm.MaxStringBytes
	check("as much as may be", fmt.Sprintf("\x01%c", n)+strings.Repeat(packed, n), "+OK")
	check("too much", fmt.Sprintf("\x01%c", n+1)+strings.Repeat(packed, n+1), tooLong)
	count := func(n int) string { return string(binary.BigEndian.AppendUint32([]byte{0x80}, uint32(n))) }
	check("many elements", "\x01"+count(fsm.MaxRestored)+strings.Repeat("\x01a", fsm.MaxRestored), "+OK")
	check("too many elements", "\x01"+count(fsm.MaxRestored+1)+strings.Repeat("\x01a", fsm.MaxRestored+1), tooMany)
	// The next payloads are the largest possible intset and sorted set.
	intset := binary.LittleEndian.AppendUint32(nil, 4)
	intset = binary.LittleEndian.AppendUint32(intset, fsm.MaxRestored)
	zset := []byte("\x05" + count(fsm.MaxRestored/2))
	for i := range fsm.MaxRestored {
		intset = binary.LittleEndian.AppendUint32(intset, uint32(i))
		if i < fsm.MaxRestored/2 {
			zset = append(zset, "\x03"+
				string([]byte{byte(i), byte(i >> 8), byte(i >> 16)})+"\x00\x00\x00\x00\x00\x00\xf0\x3f"...)
		}
	}
	check("numbers", "\x0b"+count(len(intset))+string(intset), "+OK")
	check("scores", string(zset), "+OK")
	// These stream entries repeat a long field name.
	name := strings.Repeat("n", 1<<20)
	var s bytes.Buffer
	s.WriteString("\x00\x01\x3c\x01\x01\x01\xf0")
	s.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(name))))
	s.WriteString(name)
	s.WriteString("\x40\x80\x85\x00\x01") // the length of the name's element, and the 0 that ends the list of field names
	for range 60 {
		s.WriteString("\x03\x01\x01\x01\x01\x01\x01\x01\x04\x01")
	}
	lp := binary.LittleEndian.AppendUint32(nil, uint32(s.Len()+7))
	lp = append(append(binary.LittleEndian.AppendUint16(lp, 0xffff), s.Bytes()...), 0xff)
	check("names", "\x13\x01\x10"+strings.Repeat("\x00", 16)+count(len(lp))+string(lp), tooLong)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("all calls of RESTORE took %v, want at most a minute", took)
	} else {
		t.Logf("all calls of RESTORE took %v", took)
	}
	// DUMP returns no more than a reply may hold, even if the value compresses
	// well.
	f.do("DEL k", "DEL l")
	for i := range 7 {
		f.call("HSET", "h", fmt.Sprint(i), zeros)
	}
	if got := f.call("DUMP", "h"); got != "-"+fsm.ReplyTooLarge+"\r\n" {
		t.Errorf("DUMP of a value of %d MiB: %.100q, want an error", 7*fsm.MaxStringBytes>>20, got)
	}
}

// FuzzRestore checks the values that RESTORE accepts. A snapshot can contain such
// a value, and DUMP returns the same payload after one RESTORE and after two.
func FuzzRestore(f *testing.F) {
	rich, keys := variety(f)
	for _, key := range keys {
		payload := rich.dump(key)
		f.Add([]byte(payload[:len(payload)-10]))
	}
	for _, body := range oldBodies() {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := newFeed(t)
		if got := m.call("RESTORE", "k", "0", string(rdb.Seal(body))); got != "+OK\r\n" {
			if got[0] != '-' || m.call("EXISTS", "k") != ":0\r\n" {
				t.Fatalf("RESTORE returned %q, want OK, or an error and no key", got)
			}
			return
		}
		snap := snapshotOf(t, m.m)
		if !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
			t.Fatal("the restored machine differs from the original")
		}
		payload := m.dump("k")
		if got := m.call("RESTORE", "l", "0", payload); got != "+OK\r\n" {
			t.Fatalf("RESTORE of the dumped payload: %q, want OK", got)
		}
		if again := m.dump("l"); again != payload {
			t.Fatalf("DUMP returned %q, and %q after RESTORE", payload, again)
		}
		if m.call("TYPE", "k") == "+stream\r\n" {
			m.do("XINFO STREAM k FULL", "XINFO GROUPS k", "XADD k * f v", "XREADGROUP GROUP g c STREAMS k >",
				"XTRIM k MAXLEN 1", "XPENDING k g - + 10", "XAUTOCLAIM k g d 0 0", "XGROUP DELCONSUMER k g c")
		} else {
			m.do("DEL k")
		}
		snap = snapshotOf(t, m.m)
		if !bytes.Equal(snapshotOf(t, restore(t, snap)), snap) {
			t.Fatal("after more commands, the restored machine differs from the original")
		}
	})
}
