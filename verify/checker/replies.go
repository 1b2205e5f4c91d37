package checker

import (
	"fmt"
	"strings"
	"time"
)

// ValueFor returns the value for a write. The value begins with its key, so that
// Replies recognizes a reply to another request.
func ValueFor(key string, client, n int) string { return fmt.Sprintf("%s|%d.%d", key, client, n) }

// Replies checks that each read returned a value of the requested key. It skips
// counters, because a number does not name its key.
func Replies(ops []Op) (checked int, bad []Violation) {
	for i := range ops {
		o := &ops[i]
		reads := o.Kind == Get || o.Kind == GetSet || o.Kind == GetDel || o.Kind == Set && o.Get
		if o.Outcome != Done || !reads || o.Reply.Null || !strings.Contains(o.Reply.Text, "|") {
			continue
		}
		checked++
		if key, _, _ := strings.Cut(o.Reply.Text, "|"); key != o.Key {
			bad = append(bad, Violation{"reply order", o.Key,
				fmt.Sprintf("client %d asked for %s and got a value of %s", o.Client, o.Key, key), o.Call, o.Return})
		}
	}
	return checked, bad
}

// Batch is a pipeline of INCR on a counter that only this client writes. The
// replies must be consecutive numbers. Otherwise the replies are out of order,
// or a command was executed twice.
type Batch struct {
	Client       int
	Key          string
	Call, Return time.Duration
	Sent         int     // number of commands
	Numbers      []int64 // the replies
	// Unknown contains, for each of Numbers, how many commands of unknown outcome
	// are directly before it in the pipeline. It may be shorter than Numbers: the
	// missing counts are 0.
	Unknown []int
	// Errors contains the error replies of commands that were executed. INCR of a
	// counter must not get such a reply.
	Errors []string
}

// Batches checks the pipelines of a history. If replies of one pipeline are
// missing, there may be a gap before the next pipeline of the same counter. The
// gap has at most as many numbers as there are commands without a reply. The
// same is true for commands of unknown outcome within a pipeline.
func Batches(batches []Batch) []Violation {
	var bad []Violation
	next := make(map[string]int64) // last number of each counter; the next one is higher
	open := make(map[string]int64) // number of earlier commands that got no number, by counter
	for _, b := range batches {
		say := func(format string, args ...any) {
			bad = append(bad, Violation{"reply order", b.Key, fmt.Sprintf(format, args...), b.Call, b.Return})
		}
		// The variable left first counts all commands that got no number. The
		// loop subtracts those before a number. After the loop, left counts those
		// at the end of the pipeline.
		left := b.Sent - len(b.Numbers)
		for i, n := range b.Numbers {
			low := next[b.Key] + 1
			gap := int64(0)
			if i < len(b.Unknown) {
				gap = int64(b.Unknown[i])
				open[b.Key] += gap
				left -= b.Unknown[i]
			}
			switch {
			case i > 0 && (n < low || n > low+gap):
				say("reply %d of client %d's pipeline is %d, want %d to %d", i, b.Client, n, low, low+gap)
			case i == 0 && (n < low || n > low+open[b.Key]):
				say("client %d's pipeline begins with %d, want %d to %d", b.Client, n, low, low+open[b.Key])
			}
			next[b.Key], open[b.Key] = n, max(open[b.Key]-(n-low), 0)
		}
		for _, text := range b.Errors {
			say("client %d's pipeline got an error that no rule explains: %s", b.Client, text)
		}
		open[b.Key] += int64(left)
	}
	return bad
}

// Chain is a point of a replica's hash chain. The same log index must have the
// same hash on all replicas.
type Chain struct {
	Node  string
	At    time.Duration
	Index uint64
	Hash  string
}

// Chains compares the replicas at each log index at which two of them were
// seen.
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
			bad = append(bad, Violation{"replica equality", "", fmt.Sprintf("at index %d the state of %s has hash "+
				"%s, that of %s %s", p.Index, other.Node, other.Hash, p.Node, p.Hash), other.At, p.At})
		}
	}
	return compared, bad
}

// Recovery is the recovery of one node after faults. Healed is when the faults
// ended. Served is when a client's write through the node was acknowledged,
// Forever if never.
type Recovery struct {
	Node           string
	Healed, Served time.Duration
}

// Recoveries checks that all nodes served a client within limit.
func Recoveries(all []Recovery, limit time.Duration) []Violation {
	var bad []Violation
	for _, r := range all {
		switch {
		case r.Served == Forever:
			bad = append(bad, Violation{"recovery", "", fmt.Sprintf("no write through %s was acknowledged after the "+
				"faults had ended at %v", r.Node, r.Healed), r.Healed, r.Healed + limit})
		case r.Served-r.Healed > limit:
			bad = append(bad, Violation{"recovery", "", fmt.Sprintf("the first write through %s was acknowledged %v "+
				"after the faults had ended, want %v at most", r.Node, r.Served-r.Healed, limit), r.Healed, r.Served})
		}
	}
	return bad
}
