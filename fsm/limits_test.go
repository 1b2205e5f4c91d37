package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestLimits_Reply: what a group answers is bounded; operations beyond it answer
// an error in their place, and those after them go on.
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
	got, overdue, err := f.m.Read([]byte("before"), fsm.ReadRequest{Body: f.group.Bytes()})
	if err != nil || overdue {
		t.Fatal(err, overdue)
	}
	want := "before" + strings.Repeat(whole, 6) + "-" + fsm.ReplyTooLarge + "\r\n" + "-" + fsm.ReplyTooLarge + "\r\n" + fmt.Sprintf(":%d\r\n", size)
	if string(got) != want {
		t.Errorf("got %d bytes, want %d; the end is %q", len(got), len(want), got[max(len(got)-200, 0):])
	}
	// The same through the log; so large a reply is not kept for a repetition.
	if got := f.send(); got != want[len("before"):] {
		t.Errorf("through the log: %d bytes, want %d", len(got), len(want))
	}
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, f.seq, f.group.Bytes())
	if g := f.apply(b.Encode(fsm.Header{Term: 1, Stamp: f.stamp})).Groups[0]; g.Status != fsm.StatusReplyLost {
		t.Errorf("repeated: status %v, want reply lost", g.Status)
	}
	// One command alone, and a transaction.
	f.group.Reset(2, 1)
	get := f.m.Table().Find([]byte("GET"))
	queued := make([]fsm.Queued, 8)
	for i := range queued {
		queued[i] = fsm.Queued{Cmd: get, Args: [][]byte{[]byte("get"), []byte("k")}}
	}
	f.group.Transaction(nil, queued)
	if got, want := f.send(), "-"+fsm.ReplyTooLarge+"\r\n"; got != want {
		t.Errorf("transaction: %d bytes", len(got))
	}
}

// TestLimits_ReplyMemory: a reply that is refused must not be built first; these
// would take 800 GB and end the process.
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
		t.Errorf("got %d bytes that begin with %.200q", len(got), got)
	}
}

// TestLimits_Arguments: every write command refuses keys and values that a
// snapshot could not hold.
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

// TestRead_Writes: what would change the state cannot be run as a read.
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
			t.Errorf("%s as a read: %v", cmd.Name, err)
		}
		if check := f.m.Table().Check(f.group.Bytes(), true); (check != nil) != (err != nil) {
			t.Errorf("%s: Check says %v, Read says %v", cmd.Name, check, err)
		}
		if f.group.Write != cmd.IsWrite() || f.group.Slow != (cmd.Flags&fsm.Slow != 0) {
			t.Errorf("%s: group says write %v, slow %v", cmd.Name, f.group.Write, f.group.Slow)
		}
	}
}

// TestRead_Concurrent: reads may run beside each other (the race detector looks).
func TestRead_Concurrent(t *testing.T) {
	f := furnished(t)
	f.group.Reset(2, 1)
	for _, line := range []string{"GET a", "MGET a b nokey", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "TTL b", "OBJECT ENCODING raw"} {
		f.add(split(t, line)...)
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
