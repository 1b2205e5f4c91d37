package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestLimits_Reply: the replies of a group are bounded. An operation whose
// reply would exceed the bound returns an error instead, and the next
// operations are executed.
func TestLimits_Reply(t *testing.T) {
	f := newFeed(t)
	const size = 7 << 20
	f.do(fmt.Sprintf("SETRANGE k %d x", size-1))
	f.group.Reset(2, 1)
	for range 8 {
		f.add("GET", "k")
	}
	f.add("STRLEN", "k")
	whole := fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("\x00", size-1)+"x")
	got, expiryPending, err := f.m.Read([]byte("before"), fsm.ReadRequest{Body: f.group.Bytes()})
	if err != nil || expiryPending {
		t.Fatal(err, expiryPending)
	}
	want := "before" + strings.Repeat(whole, 6) + "-" + fsm.ReplyTooLarge + "\r\n" + "-" + fsm.ReplyTooLarge + "\r\n" + fmt.Sprintf(":%d\r\n", size)
	if string(got) != want {
		t.Errorf("got %d bytes, want %d; the end is %q", len(got), len(want), got[max(len(got)-200, 0):])
	}
	// The replies are the same through the log. The session does not keep them,
	// because they are too large.
	if got := f.send(); got != want[len("before"):] {
		t.Errorf("through the log: %d bytes, want %d", len(got), len(want))
	}
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, f.seq, f.group.Bytes())
	if g := f.apply(b.Encode(fsm.Header{Term: 1, Stamp: f.stamp})).Groups[0]; g.Status != fsm.StatusReplyLost {
		t.Errorf("repeated: status %v, want StatusReplyLost", g.Status)
	}
	// The reply of a transaction has the same bound.
	f.group.Reset(2, 1)
	get := f.m.Table().Find([]byte("GET"))
	queued := make([]fsm.Queued, 8)
	for i := range queued {
		queued[i] = fsm.Queued{Cmd: get, Args: [][]byte{[]byte("get"), []byte("k")}}
	}
	f.group.Transaction(nil, queued)
	if got, want := f.send(), "-"+fsm.ReplyTooLarge+"\r\n"; got != want {
		t.Errorf("transaction: reply of %d bytes, want the error for a large reply", len(got))
	}
}

// TestLimits_ReplyMemory: a refused reply must not be built. Each of these
// replies would take 800 GB, for which the process has no memory.
func TestLimits_ReplyMemory(t *testing.T) {
	f := newFeed(t)
	f.do(fmt.Sprintf("SETRANGE k %d x", fsm.MaxStringBytes-1))
	words := []string{"MGET"}
	get := f.m.Table().Find([]byte("GET"))
	var queued []fsm.Queued
	for range 100_000 {
		words = append(words, "k")
		queued = append(queued, fsm.Queued{Cmd: get, Args: [][]byte{[]byte("get"), []byte("k")}})
	}
	f.group.Reset(2, 1)
	f.add(words...)
	f.add("STRLEN", "k")
	f.group.Transaction(nil, queued)
	f.add("STRLEN", "k")
	const refused = "-" + fsm.ReplyTooLarge + "\r\n"
	strlen := fmt.Sprintf(":%d\r\n", fsm.MaxStringBytes)
	if got := f.send(); got != refused+strlen+refused+strlen {
		t.Errorf("got %d bytes that begin with %.200q, want an error in place of each large reply", len(got), got)
	}
}

// TestLimits_Arguments: write commands refuse keys and values that a snapshot
// cannot contain.
func TestLimits_Arguments(t *testing.T) {
	f := newFeed(t)
	const refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
	key, val := strings.Repeat("k", fsm.MaxKeyBytes), strings.Repeat("v", fsm.MaxStringBytes)
	longKey, longVal := key+"k", val+"v"
	f.do("SET k v")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"SET", key, val}, "+OK\r\n"},
		{[]string{"SET", longKey, "v"}, refused},
		{[]string{"SET", "k", longVal}, refused},
		{[]string{"SETNX", longKey, "v"}, refused},
		{[]string{"SETEX", "k", "10", longVal}, refused},
		{[]string{"PSETEX", longKey, "10", "v"}, refused},
		{[]string{"GETSET", "k", longVal}, refused},
		{[]string{"MSET", "a", "1", longKey, "2"}, refused},
		{[]string{"MSETNX", "a", longVal}, refused},
		{[]string{"MSETEX", "1", longKey, "1"}, refused},
		{[]string{"MSETEX", "1", "k", longVal}, refused},
		{[]string{"INCR", longKey}, refused},
		{[]string{"INCRBYFLOAT", longKey, "1"}, refused},
		{[]string{"APPEND", longKey, "v"}, refused},
		{[]string{"APPEND", "new", longVal}, refused},
		{[]string{"APPEND", "k", val}, refused},
		{[]string{"SETRANGE", "k", "1", val}, refused},
		{[]string{"SETRANGE", longKey, "0", "v"}, refused},
		{[]string{"RENAME", "k", longKey}, refused},
		{[]string{"COPY", "k", longKey}, refused},
		{[]string{"PFADD", longKey, "a"}, refused},
		{[]string{"PFADD", "h", longVal}, refused},
		{[]string{"PFMERGE", longKey, "h"}, refused},
		{[]string{"GEOADD", longKey, "1", "1", "a"}, refused},
		{[]string{"GEOADD", "g", "1", "1", longVal}, refused},
		{[]string{"GEORADIUS", "g", "1", "1", "1", "km", "STORE", longKey}, refused},
		{[]string{"GEORADIUSBYMEMBER", "g", "a", "1", "km", "STOREDIST", longKey}, refused},
		{[]string{"GEOSEARCHSTORE", longKey, "g", "FROMLONLAT", "1", "1", "BYRADIUS", "1", "km"}, refused},
		{[]string{"MSET", "k", longKey}, "+OK\r\n"}, // a value of that length is fine
		{[]string{"EXISTS", longKey}, ":0\r\n"},
	} {
		f.group.Reset(2, 1)
		f.add(c.args...)
		if got := f.send(); got != c.want {
			t.Errorf("%s with %d bytes: %q, want %q", c.args[0], len(strings.Join(c.args, "")), got, c.want)
		}
	}
}

// TestRead_Writes: a command that changes the state cannot be executed as a
// read.
func TestRead_Writes(t *testing.T) {
	f := newFeed(t)
	for _, cmd := range f.m.Table().Rows() {
		n := max(cmd.Arity, -cmd.Arity)
		args := make([][]byte, n)
		for i := range args {
			args[i] = []byte("1")
		}
		f.group.Reset(2, 1)
		f.group.Command(cmd, 0, args)
		_, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes()})
		if cmd.IsWrite() != (err != nil) {
			t.Errorf("%s as a read: %v, want an error only for a write", cmd.Name, err)
		}
		if check := f.m.Table().Check(f.group.Bytes(), true); (check != nil) != (err != nil) {
			t.Errorf("%s: Check returned %v, and Read %v, want both or neither to fail", cmd.Name, check, err)
		}
		if f.group.Write != cmd.IsWrite() || f.group.Slow != (cmd.Flags&fsm.Slow != 0) {
			t.Errorf("%s: the group has Write %v and Slow %v, contrary to the flags of the command",
				cmd.Name, f.group.Write, f.group.Slow)
		}
	}
}

// TestRead_Concurrent: reads may run concurrently. The race detector checks
// that they do not interfere.
func TestRead_Concurrent(t *testing.T) {
	f := furnished(t)
	f.group.Reset(2, 1)
	for _, line := range []string{"GET a", "MGET a b nokey", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "TTL b", "OBJECT ENCODING raw"} {
		f.add(respwire.Words(line)...)
	}
	want, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	before := snapshotOf(t, f.m)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				got, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Seed: 1})
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %q, %v, want %q", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if !bytes.Equal(snapshotOf(t, f.m), before) {
		t.Error("reads changed the state")
	}
}

// TestLimits_RepeatedKeys: a command that names a key very often costs little
// more than a command that names it once, or it is refused. If each mention cost
// a full operation, the test would run for hours.
func TestLimits_RepeatedKeys(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	const times, members = 100_000, 20_000
	f.do(fmt.Sprintf("SETRANGE bits %d x", 4<<20-1), "SET odd abc")
	for _, add := range [][]string{{"SADD", "s"}, {"SADD", "t"}, {"ZADD", "z"}} {
		f.group.Reset(2, 1)
		for i := range members {
			if add[0] == "ZADD" {
				add = append(add, "1")
			}
			add = append(add, fmt.Sprintf("%s%d", add[1], i))
		}
		f.add(add...)
		f.send()
	}
	size, refused := fmt.Sprintf(":%d\r\n", members), "-ERR collection exceeds maximum allowed size\r\n"
	for _, c := range []struct {
		words  []string // words of the command before the keys
		repeat []string
		want   string
		after  string // a second command, executed after the first
		result string // expected reply to after
	}{
		{[]string{"BITOP", "AND", "d", "odd"}, []string{"bits"}, ":4194304\r\n", "GETRANGE d 0 2", "$3\r\n\x00\x00\x00\r\n"},
		{[]string{"BITOP", "OR", "d", "odd"}, []string{"bits"}, ":4194304\r\n", "GETRANGE d 0 2", "$3\r\nabc\r\n"},
		{[]string{"BITOP", "XOR", "d", "odd"}, []string{"bits"}, ":4194304\r\n", "GETRANGE d 4194303 4194303", "$1\r\n\x00\r\n"},
		{[]string{"BITOP", "XOR", "d", "bits", "odd"}, []string{"bits"}, ":4194304\r\n", "GETRANGE d 4194303 4194303", "$1\r\nx\r\n"},
		{[]string{"SUNIONSTORE", "d"}, []string{"s", "t"}, fmt.Sprintf(":%d\r\n", 2*members), "SCARD s", size},
		{[]string{"SINTERSTORE", "d"}, []string{"s"}, size, "SCARD s", size},
		{[]string{"SDIFFSTORE", "d", "s"}, []string{"t"}, size, "SCARD s", size},
		{[]string{"SDIFFSTORE", "d", "s"}, []string{"s"}, ":0\r\n", "SCARD s", size},
		{[]string{"ZUNIONSTORE", "d", fmt.Sprint(times)}, []string{"z"}, refused, "ZCARD d", ":0\r\n"},
		{[]string{"ZINTERSTORE", "d", fmt.Sprint(times)}, []string{"z"}, refused, "ZCARD d", ":0\r\n"},
		{[]string{"ZINTERCARD", fmt.Sprint(times)}, []string{"z"}, size, "ZCARD d", ":0\r\n"},
		{[]string{"ZDIFFSTORE", "d", fmt.Sprint(times + 1), "z"}, []string{"s", "none"}, size, "ZCARD d", size},
		{[]string{"ZUNIONSTORE", "d", "3001"}, []string{"z"}, size, "ZSCORE d z1", "$4\r\n3001\r\n"},
		{[]string{"ZINTERSTORE", "d", "3001"}, []string{"z"}, size, "ZSCORE d z1", "$4\r\n3001\r\n"},
	} {
		words, n := c.words, times
		if words[len(words)-1] == "3001" {
			n = 3001
		}
		for i := range n {
			words = append(words, c.repeat[i%len(c.repeat)])
		}
		f.group.Reset(2, 1)
		f.add(words...)
		if got := f.send(); got != c.want {
			t.Errorf("%v: %.80q, want %q", c.words, got, c.want)
		}
		if got := f.do(c.after); got != c.result {
			t.Errorf("%v, then %s: %.80q, want %q", c.words, c.after, got, c.result)
		}
	}
}

// TestLimits_Entry: XADD refuses a stream entry with more strings than a snapshot
// can contain, and a snapshot with the largest stream entry can be read.
func TestLimits_Entry(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	add := func(key string, strs, length int) string {
		f.group.Reset(2, 1)
		f.add(slices.Concat([]string{"XADD", key, "*"}, slices.Repeat([]string{strings.Repeat("v", length)}, strs))...)
		return f.send()
	}
	add("s", 2, 130<<10) // fills a block of the snapshot
	const refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
	if got := add("s", 1_000_000, 6); got != refused {
		t.Errorf("a million strings: %.100q, want an error", got)
	}
	if got := add("s", fsm.MaxStringBytes/132, 128); strings.HasPrefix(got, "-") {
		t.Errorf("the largest number of strings: %.100q, want no error", got)
	}
	ask := func(words ...string) {
		f.group.Reset(2, 1)
		f.add(words...)
		f.send()
	}
	large := strings.Repeat("v", fsm.MaxStringBytes)
	ask("HSET", "h", "first", large[:255<<10])
	ask("HSET", "h", large, large)
	whole := snapshotOf(t, f.m)
	if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
		t.Error("the restored machine differs from the original")
	}
}

// TestLimits_Sort: the values that a SORT looks up, and the bytes that it stores,
// are bounded.
func TestLimits_Sort(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	ask := func(words ...string) string {
		f.group.Reset(2, 1)
		f.add(words...)
		return f.send()
	}
	words := []string{"RPUSH", "l"}
	for i := range 1000 {
		words = append(words, fmt.Sprint(i))
	}
	ask(words...)
	var gets []string
	for range 20_000 {
		gets = append(gets, "GET", "w_*")
	}
	const refused = "-ERR SORT looks up more than it may, ask for fewer elements or patterns at a time\r\n"
	if got := ask(append([]string{"SORT_RO", "l"}, gets...)...); got != refused {
		t.Errorf("20 million lookups: %.100q, want an error", got)
	}
	if got := ask("SORT", "l", "BY", strings.Repeat("w", fsm.MaxKeyBytes)+"*"); got != refused {
		t.Errorf("long keys: %.100q, want an error", got)
	}
	f.do(fmt.Sprintf("SETRANGE large %d x", 1<<20))
	// SORT looks up the same large value as the weight of each element, so the
	// value counts once for each element.
	f.group.Reset(2, 1)
	f.add("SET", "number1", "1."+strings.Repeat("0", fsm.MaxStringBytes-2))
	f.send()
	ask(append([]string{"RPUSH", "ones"}, slices.Repeat([]string{"1"}, 500)...)...)
	for _, alpha := range [][]string{nil, {"ALPHA"}} {
		if got := ask(append([]string{"SORT", "ones", "BY", "number*", "STORE", "out"}, alpha...)...); got != refused {
			t.Errorf("SORT by a large value, %v: %.100q, want an error", alpha, got)
		}
	}
	if got, want := ask("SORT", "l", "BY", "nosort", "GET", "larg*", "GET", "large*", "STORE", "out"), ":2000\r\n"; got != want {
		t.Errorf("SORT that finds no value: %.100q, want 2000 elements", got)
	}
	f.do("RPUSH e e e e e e e e e e e")
	if got, want := ask("SORT", "e", "BY", "nosort", "GET", "larg*", "GET", "larg*", "GET", "larg*", "GET", "larg*", "GET", "larg*", "STORE", "out"), "-ERR SORT stores more than 50331648 bytes\r\n"; got != want {
		t.Errorf("SORT that stores 50 MiB: %.100q, want an error", got)
	}
}

// TestLimits_Errors: the number of elements that SORT sorts is limited. So is
// the memory of the commands of waiting clients.
func TestLimits_Errors(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	numbers := make([]string, 1<<16)
	for i := range numbers {
		numbers[i] = "1"
	}
	for range 17 {
		f.call(append([]string{"RPUSH", "l"}, numbers...)...)
	}
	if got, want := f.call("SORT", "l", "LIMIT", "0", "1"), "-ERR SORT of more than 1048576 elements\r\n"; got != want {
		t.Errorf("SORT of %s elements: %q, want an error", f.call("LLEN", "l"), got)
	}
	const size = 500 << 10
	waits := 0
	for {
		f.origin++
		got := f.call("BLPOP", strings.Repeat("k", size), "0")
		if got == "-ERR too many clients wait in blocking commands\r\n" {
			break
		}
		if waits++; strings.HasPrefix(got, "-") || waits*size > 64<<20 {
			t.Fatalf("wait %d: %.100q, want a wait or the error for too many waits", waits, got)
		}
	}
	if waits < 120 {
		t.Errorf("%d clients may wait, want at least 120", waits)
	}
}
