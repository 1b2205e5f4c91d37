package oracle

import (
	"fmt"
	"strings"
	"time"
)

// ValueFor makes the value of a write: it begins with its key, so that a reply
// that was meant for another request shows it.
func ValueFor(key string, client, n int) string { return fmt.Sprintf("%s|%d.%d", key, client, n) }

// Replies checks that values that were read belong to the key that was asked
// for. Counters are numbers and say nothing.
func Replies(ops []Op) (checked int, bad []Violation) {
	for i := range ops {
		o := &ops[i]
		reads := o.Kind == Get || o.Kind == GetSet || o.Kind == GetDel || o.Kind == Set && o.Get
		if o.Outcome != Done || !reads || o.Reply.Null || !strings.Contains(o.Reply.Text, "|") {
			continue
		}
		checked++
		if key, _, _ := strings.Cut(o.Reply.Text, "|"); key != o.Key {
			bad = append(bad, Violation{"reply order", o.Key, fmt.Sprintf("client %d asked for %s and got a value of %s", o.Client, o.Key, key), o.Call, o.Return})
		}
	}
	return checked, bad
}

// Batch is a pipeline of INCR on a counter that only this client writes: its
// replies are numbers that follow each other, or the replies are not in order, or
// a command ran twice.
type Batch struct {
	Client       int
	Key          string
	Call, Return time.Duration
	Sent         int     // commands
	Numbers      []int64 // replies
}

// Batches checks the pipelines of a history. Between two pipelines of a counter
// there may be a gap, if replies of the one before are missing: as many numbers
// as commands without a reply.
func Batches(batches []Batch) []Violation {
	var bad []Violation
	next := make(map[string]int64) // lowest number that may come next
	open := make(map[string]int64) // commands without a reply before
	for _, b := range batches {
		say := func(format string, args ...any) {
			bad = append(bad, Violation{"reply order", b.Key, fmt.Sprintf(format, args...), b.Call, b.Return})
		}
		for i, n := range b.Numbers {
			low := next[b.Key] + 1
			switch {
			case i > 0 && n != low:
				say("reply %d of client %d's pipeline is %d, want %d", i, b.Client, n, low)
			case i == 0 && (n < low || n > low+open[b.Key]):
				say("client %d's pipeline begins with %d, want %d to %d", b.Client, n, low, low+open[b.Key])
			}
			next[b.Key], open[b.Key] = n, max(open[b.Key]-(n-low), 0)
		}
		open[b.Key] += int64(b.Sent - len(b.Numbers))
	}
	return bad
}

// Chain is a point of a replica's hash chain: the same index must mean the same
// hash on all of them.
type Chain struct {
	Node  string
	At    time.Duration
	Index uint64
	Hash  string
}

// Chains compares the replicas wherever two were seen at the same index.
func Chains(points []Chain) (compared int, bad []Violation) {
	first := make(map[uint64]Chain)
	for _, p := range points {
		other, ok := first[p.Index]
		if !ok {
			first[p.Index] = p
			continue
		}
		if other.Node != p.Node {
			compared++
		}
		if other.Hash != p.Hash {
			bad = append(bad, Violation{"replica equality", "", fmt.Sprintf("at index %d the state of %s has hash %s, that of %s %s", p.Index, other.Node, other.Hash, p.Node, p.Hash), other.At, p.At})
		}
	}
	return compared, bad
}

// Recovery is how long after the last fault of an episode a client was served
// through a node: Served is when its write was acknowledged, Forever if never.
type Recovery struct {
	Node           string
	Healed, Served time.Duration
}

// Recoveries checks that all were served within limit.
func Recoveries(all []Recovery, limit time.Duration) []Violation {
	var bad []Violation
	for _, r := range all {
		switch {
		case r.Served == Forever:
			bad = append(bad, Violation{"recovery", "", fmt.Sprintf("no write through %s was acknowledged after the faults had ended at %v", r.Node, r.Healed), r.Healed, r.Healed + limit})
		case r.Served-r.Healed > limit:
			bad = append(bad, Violation{"recovery", "", fmt.Sprintf("the first write through %s was acknowledged %v after the faults had ended, want %v at most", r.Node, r.Served-r.Healed, limit), r.Healed, r.Served})
		}
	}
	return bad
}
