package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// rule assigns a cause to a sample of a profile. A pattern is the beginning of
// the name of a function, with its package.
type rule struct {
	cause string
	// anywhere contains patterns, each of which must match some function of the
	// stack.
	anywhere []string
	// nearest contains patterns, one of which must match. causeOf tries the
	// rules that have such patterns for the innermost function of the stack
	// first, then for its caller, and so on.
	nearest []string
}

// otherCause is the cause of the samples that no rule matches.
const otherCause = "other"

const ours = "github.com/holdfast-kv/holdfast/"

// division is a measurement whose totals are divided by cause, with profiles.
type division struct {
	name  string
	value string // type of the sample values
	rules []rule
	table func(d division, rows []record.Profile) string
}

// divisions lists the measurements that are divided with profiles.
var divisions = []division{
	{"cost", "cpu", cpuRules, costTable},
	{"memory", "inuse_space", heapRules, memoryTable},
}

// cpuRules assigns processor time. Time in the kernel is part of the system call
// that needed it.
var cpuRules = []rule{
	{cause: "garbage collector", anywhere: []string{"runtime.gcBgMarkWorker"}},
	{cause: "garbage collector", anywhere: []string{"runtime.gcAssistAlloc"}},
	{cause: "garbage collector", anywhere: []string{"runtime.bgsweep"}},
	{cause: "garbage collector", anywhere: []string{"runtime.bgscavenge"}},
	{cause: "garbage collector", anywhere: []string{"runtime.gcStart"}},
	{cause: "log: fsync", anywhere: []string{"internal/poll.(*FD).Fsync"}},
	{cause: "log: fsync", anywhere: []string{"syscall.Fdatasync"}},
	{cause: "log: encode, write", anywhere: []string{"internal/poll.(*FD).Pwrite"}},
	{cause: "system calls: epoll", anywhere: []string{"runtime.netpoll"}},
	{cause: "system calls: futex", anywhere: []string{"runtime.futex"}},
	{cause: "system calls: read from clients", anywhere: []string{"syscall.read"}, nearest: []string{ours + "resp"}},
	{cause: "system calls: read from nodes", anywhere: []string{"syscall.read"}, nearest: []string{ours + "rpc."}},
	{cause: "system calls: write to clients", anywhere: []string{"syscall.write"}, nearest: []string{ours + "resp"}},
	{cause: "system calls: write to nodes", anywhere: []string{"syscall.write"}, nearest: []string{ours + "rpc."}},

	{cause: "Go scheduler, channels, locks", nearest: []string{
		"runtime.mcall", "runtime.mstart", "runtime.schedule", "runtime.gopark", "runtime.goready", "runtime.ready",
		"runtime.chan", "runtime.selectgo", "runtime.closechan", "runtime.sem", "runtime.sysmon", "runtime.goexit0",
		"runtime.newproc", "runtime.wakep", "runtime.goschedImpl", "runtime.exitsyscall", "runtime.entersyscall",
		"runtime.reentersyscall", "sync.", "internal/sync.", "time.(*Timer)", "time.newTimer", "time.stopTimer",
		"time.resetTimer"}},
	{cause: "log: encode, write", nearest: []string{
		"github.com/hashicorp/raft-wal", ours + "cluster/raftlog", ours + "cluster/storage",
		"github.com/hashicorp/raft.(*LogCache)"}},
	{cause: "raft and its messages", nearest: []string{
		"github.com/hashicorp/raft.", "github.com/hashicorp/go-msgpack", ours + "cluster/transport", ours + "rpc."}},
	{cause: "apply: state machine", nearest: []string{
		ours + "fsm", ours + "cluster/machine", "github.com/tidwall/btree"}},
	{cause: "RESP: parse and reply", nearest: []string{ours + "resp", "github.com/tidwall/redcon"}},
	{cause: "groups: sessions, proposals, results", nearest: []string{ours + "cluster"}},
}

// heapRules assigns live memory.
var heapRules = []rule{
	{cause: "key and value", anywhere: []string{"strings.(*Builder).grow", ours + "fsm/keyspace.NewObject"}},
	{cause: "object of the key", nearest: []string{ours + "fsm/keyspace.NewObject"}},
	{cause: "tree of the keys", nearest: []string{ours + "fsm/keyspace.(*DB)"}},
	{cause: "expiry index", anywhere: []string{ours + "fsm/keyspace.(*ExpiryIndex)"}},
	{cause: "lock history and lock metrics", nearest: []string{ours + "cluster/history", ours + "cluster/metrics"}},
	{cause: "recent log entries", nearest: []string{
		ours + "fsm.(*BatchBuilder)", "github.com/hashicorp/raft", ours + "cluster/raftlog", ours + "cluster/storage",
		ours + "cluster/transport", ours + "rpc."}},
}

// shares reads a profile and divides its samples by cause. The result has the
// causes in the order of the rules, including those without samples.
func (d division) shares(path string) ([]record.Share, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	shares, err := d.divide(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return shares, nil
}

// causes lists the causes of the rules, without repetitions, and otherCause.
func (d division) causes() []string {
	var causes []string
	for _, r := range d.rules {
		if !slices.Contains(causes, r.cause) {
			causes = append(causes, r.cause)
		}
	}
	return append(causes, otherCause)
}

// divide divides the samples of a profile by cause.
func (d division) divide(p *profile.Profile) ([]record.Share, error) {
	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == d.value })
	if index < 0 {
		return nil, fmt.Errorf("the profile has no values of type %s", d.value)
	}
	values := make(map[string]float64)
	for _, s := range p.Sample {
		values[causeOf(d.rules, stack(s))] += float64(s.Value[index])
	}
	var shares []record.Share
	for _, cause := range d.causes() {
		shares = append(shares, record.Share{Cause: cause, Value: values[cause]})
	}
	return shares, nil
}

// stack returns the functions of a sample, beginning at the innermost.
func stack(s *profile.Sample) []string {
	var names []string
	for _, l := range s.Location {
		for _, line := range l.Line { // the first line is the innermost of inlined functions
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// causeOf returns the cause of a stack. It first tries the rules that have no
// patterns in nearest, in their order. Then it tries the other rules for the
// innermost function, for the caller of that function, and so on.
func causeOf(rules []rule, stack []string) string {
	everywhere := func(r rule) bool {
		return !slices.ContainsFunc(r.anywhere, func(pattern string) bool {
			return !slices.ContainsFunc(stack, func(name string) bool { return strings.HasPrefix(name, pattern) })
		})
	}
	for _, r := range rules {
		if r.nearest == nil && everywhere(r) {
			return r.cause
		}
	}
	for _, name := range stack {
		for _, r := range rules {
			begins := func(pattern string) bool { return strings.HasPrefix(name, pattern) }
			if everywhere(r) && slices.ContainsFunc(r.nearest, begins) {
				return r.cause
			}
		}
	}
	return otherCause
}
