package oracle

import (
	"fmt"
	"time"
)

// CacheKind is what happened to one key in a client-side cache.
type CacheKind byte

const (
	// CacheFill: the key was read from the cluster and is cached from then on.
	CacheFill CacheKind = iota
	// CacheUse: the key was read from the cache.
	CacheUse
	// CacheWrite: this connection's own write was acknowledged, and the reply to a
	// later command of the connection has come as well. A Redis sends the
	// invalidation between the two.
	CacheWrite
	// CacheHeld: the value is still cached long after the last write of the history.
	CacheHeld
)

// CacheEvent is one thing that happened to a client-side cache, which drops a key
// when it is told to. Those of one client stand in the order of its connection.
// Each value is unique in the history.
type CacheEvent struct {
	Kind       CacheKind
	Client     int
	Node       string
	Key, Value string // Value is "" for an absent key
	At         time.Duration
}

// Caches checks the events of client-side caches. order holds the values of each
// key in the order in which the log wrote them; "" stands for an absent key and is
// older than all.
//
//   - What the cache holds is never older than the last acknowledged write of its
//     own connection.
//   - What is read from the cluster is never older than what the client has seen
//     before, be it cached since or not: an invalidation says that something newer
//     is there.
//   - What is still cached at the end is the last value: no invalidation was lost.
func Caches(events []CacheEvent, order map[string][]string) (checked int, bad []Violation) {
	at := make(map[string]map[string]int)
	for key, values := range order {
		at[key] = map[string]int{"": 0}
		for i, v := range values {
			at[key][v] = i + 1
		}
	}
	type place struct {
		client int
		key    string
	}
	newest := make(map[place]int) // that a client has seen or written
	for _, e := range events {
		say := func(format string, args ...any) {
			bad = append(bad, Violation{"client-side cache", e.Key, fmt.Sprintf("client %d at %s: ", e.Client, e.Node) + fmt.Sprintf(format, args...), e.At, e.At})
		}
		checked++
		p := place{e.Client, e.Key}
		version, known := at[e.Key][e.Value]
		if !known && e.Value != "" {
			say("holds %s, which the log never wrote", e.Value)
			continue
		}
		last := len(order[e.Key])
		switch {
		case e.Kind == CacheHeld && version != last:
			say("still holds version %d of %d long after the last write", version, last)
		case e.Kind != CacheHeld && e.Kind != CacheWrite && version < newest[p]:
			say("%s version %d after it had seen or written version %d", [...]string{"reads", "uses the cached"}[e.Kind], version, newest[p])
		}
		newest[p] = max(newest[p], version)
	}
	return checked, bad
}
