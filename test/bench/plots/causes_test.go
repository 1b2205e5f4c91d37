package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// TestCauseOf classifies stacks like those in profiles of nodes. A stack begins
// with its innermost function.
func TestCauseOf(t *testing.T) {
	const raft = "github.com/hashicorp/raft."
	for _, tt := range []struct {
		rules []rule
		stack string
		want  string
	}{
		{cpuRules, "internal/runtime/syscall/linux.Syscall6 syscall.read net.(*conn).Read " + ours +
			"resp/guard.(*Conn).fill github.com/tidwall/redcon.handle", "system calls: read from clients"},
		{cpuRules, "internal/runtime/syscall/linux.Syscall6 syscall.write net.(*conn).Write " + ours +
			"rpc.(*sealedConn).Write " + raft + "sendRPC", "system calls: write to nodes"},
		// The forwarder of a follower writes a reply to a client in the
		// goroutine that has read the reply from the leader.
		{cpuRules, "syscall.write " + ours + "resp/output.(*Writer).sendEarly " + ours + "cluster.answer " + ours +
			"rpc.(*Conn).read", "system calls: write to clients"},
		{cpuRules, "internal/runtime/syscall/linux.Syscall6 syscall.Fsync internal/poll.(*FD).Fsync os.(*File).Sync " +
			"github.com/hashicorp/raft-wal.(*WAL).StoreLogs", "log: fsync"},
		{cpuRules, "hash/crc32.Update github.com/hashicorp/raft-wal/segment.(*Writer).Append " + raft +
			"(*LogCache).StoreLogs", "log: encode, write"},
		{cpuRules, "runtime.futex runtime.notewakeup runtime.startm runtime.wakep", "system calls: futex"},
		{cpuRules, "internal/runtime/syscall/linux.EpollWait runtime.netpoll runtime.findRunnable runtime.schedule " +
			"runtime.mcall", "system calls: epoll"},
		{cpuRules, "runtime.casgstatus runtime.schedule runtime.park_m runtime.mcall",
			"Go scheduler, channels, locks"},
		{cpuRules, "runtime.gopark runtime.chanrecv " + ours + "cluster.(*Session).Do",
			"Go scheduler, channels, locks"},
		{cpuRules, "runtime.mallocgc runtime.gcAssistAlloc " + ours + "fsm.(*Machine).Apply", "garbage collector"},
		{cpuRules, "runtime.mallocgc runtime.makeslice github.com/tidwall/redcon.(*Reader).readCommands",
			"RESP: parse and reply"},
		{cpuRules, ours + "fsm/container.Hash " + ours + "cluster/machine.(*Machine).ApplyBatch " + raft +
			"(*Raft).runFSM", "apply: state machine"},
		{cpuRules, "runtime.memmove " + raft + "(*Raft).replicateTo", "raft and its messages"},
		{cpuRules, ours + "cluster.(*leadership).propose", "groups: sessions, proposals, results"},
		{cpuRules, "net/http.(*conn).serve", otherCause},
		{cpuRules, "", otherCause},
		{heapRules, "internal/bytealg.MakeNoZero strings.(*Builder).grow " + ours + "fsm/keyspace.NewObject",
			"key and value"},
		{heapRules, ours + "fsm/keyspace.NewObject " + ours + "fsm/command.put", "object of the key"},
		{heapRules, "github.com/tidwall/btree.(*BTreeG[go.shape.struct {}]).nodeSet " + ours +
			"fsm/keyspace.(*ExpiryIndex).Add " + ours + "fsm.(*Ctx).store", "expiry index"},
		{heapRules, ours + "fsm/keyspace.(*DB).set " + ours + "fsm.(*Ctx).store", "tree of the keys"},
		{heapRules, ours + "fsm.(*BatchBuilder).Encode " + ours + "cluster.(*leadership).propose",
			"recent log entries"},
	} {
		if got := causeOf(tt.rules, strings.Fields(tt.stack)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.stack, got, tt.want)
		}
	}
}

// testProfile writes a profile with two samples. In the second sample, the
// innermost function is inlined.
func testProfile(t *testing.T, path string) {
	t.Helper()
	var functions []*profile.Function
	function := func(name string) profile.Line {
		f := &profile.Function{ID: uint64(len(functions) + 1), Name: name}
		functions = append(functions, f)
		return profile.Line{Function: f}
	}
	locations := []*profile.Location{
		{ID: 1, Line: []profile.Line{function("internal/poll.(*FD).Fsync")}},
		{ID: 2, Line: []profile.Line{function("strings.Index"), function(ours + "fsm.(*Machine).Apply")}},
		{ID: 3, Line: []profile.Line{function(ours + "cluster.(*leadership).propose")}},
	}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Sample: []*profile.Sample{
			{Location: []*profile.Location{locations[0], locations[2]}, Value: []int64{1, 100}},
			{Location: []*profile.Location{locations[1], locations[2]}, Value: []int64{3, 300}},
		},
		Location: locations, Function: functions,
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.Write(f); err != nil {
		t.Fatal(err)
	}
}

func TestDivision_Shares(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.pprof")
	testProfile(t, path)
	cost := divisions[0]
	shares, err := cost.shares(path)
	if err != nil {
		t.Fatal(err)
	}
	var causes []string
	found := make(map[string]float64)
	for _, s := range shares {
		causes = append(causes, s.Cause)
		if s.Value > 0 {
			found[s.Cause] = s.Value
		}
	}
	if !reflect.DeepEqual(causes, cost.causes()) {
		t.Errorf("causes %q, want %q", causes, cost.causes())
	}
	if want := map[string]float64{"log: fsync": 100, "apply: state machine": 300}; !reflect.DeepEqual(found, want) {
		t.Errorf("shares %v, want %v", found, want)
	}
	if shares, err := divisions[1].shares(path); err == nil {
		t.Errorf("a CPU profile as a heap profile: %v", shares)
	}
	if err := os.WriteFile(path, []byte("no profile"), 0o600); err != nil {
		t.Fatal(err)
	}
	if shares, err := cost.shares(path); err == nil {
		t.Errorf("no profile: %v", shares)
	}
}

func TestCostTable(t *testing.T) {
	d := division{rules: []rule{{cause: "fsync"}, {cause: "raft"}}}
	rows := []record.Profile{
		{Row: "GET", System: record.Redis, Count: 1000, Total: 0.01},
		// 40 µs per command, three quarters of them for raft
		{Row: "GET", System: record.Leader, Count: 1000, Total: 0.04,
			Shares: []record.Share{{Cause: "fsync"}, {Cause: "raft", Value: 3}, {Cause: otherCause, Value: 1}}},
	}
	want := `| cause | GET: leader |
|---|---|
| fsync | |
| raft | 30.0 µs (75 %) |
| other | 10.0 µs (25 %) |
| all | 40.0 µs |
| Redis, all | 10.0 µs |
`
	if got := costTable(d, rows); got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}

func TestMemoryTable(t *testing.T) {
	d := division{rules: []rule{{cause: "keys"}}}
	rows := []record.Profile{
		{System: record.Redis, Count: 10, Total: 500},
		{System: record.Leader, Count: 10, Total: 2000,
			Shares: []record.Share{{Cause: "keys", Value: 800}, {Cause: otherCause, Value: 200}}},
	}
	want := `| cause | leader, per lock |
|---|---|
| keys | 80 B (80 %) |
| other | 20 B (20 %) |
| live memory | 100 B (100 %) |
| resident memory | 200 B |
| Redis, resident memory | 50 B |
`
	if got := memoryTable(d, rows); got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}
