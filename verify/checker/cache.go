package checker

import (
	"fmt"
	"time"
)

// CacheKind is the kind of a CacheEvent.
type CacheKind byte

const (
	// CacheFill means that the client read the key from the cluster and caches
	// it from then on.
	CacheFill CacheKind = iota
	// CacheUse means that the client read the key from its cache.
	CacheUse
	// CacheWrite means that a write on the client's connection was acknowledged,
	// and that the reply to a later command on that connection has arrived too.
	// Redis sends the invalidation between the two replies.
	CacheWrite
	// CacheFinal means that the value is still cached long after the last write
	// of the history, when every invalidation must have arrived.
	CacheFinal
)

// CacheEvent is an event in a client-side cache. The cache drops a key when it
// receives an invalidation of that key. The events of one client are in the
// order in which they happened on its connection. Each value except "" is written
// only once in the history.
type CacheEvent struct {
	Kind       CacheKind
	Client     int
	Node       string
	Key, Value string // Value is "" for an absent key
	At         time.Duration
}

// Caches checks the events of client-side caches. order contains the values of
// each key in the order in which the log wrote them. "" stands for an absent
// key and is older than all other values.
//
//   - A cached value is never older than the last acknowledged write of the
//     cache's own connection.
//   - A value read from the cluster is never older than a value that the client
//     has seen before. This holds even if the cache has dropped the key since,
//     because an invalidation means that a newer value exists.
//   - A value that is still cached at the end is the last value: no
//     invalidation was lost.
func Caches(events []CacheEvent, order map[string][]string) (checked int, bad []Violation) {
	at := make(map[string]map[string]int)
	for key, values := range order {
		at[key] = map[string]int{"": 0}
		for i, v := range values {
			at[key][v] = i + 1
		}
	}
	type cacheKey struct {
		client int
		key    string
	}
	newest := make(map[cacheKey]int) // newest position that a client has seen or written
	for _, e := range events {
		say := func(format string, args ...any) {
			bad = append(bad, Violation{"client-side cache", e.Key,
				fmt.Sprintf("client %d at %s: ", e.Client, e.Node) + fmt.Sprintf(format, args...), e.At, e.At})
		}
		checked++
		p := cacheKey{e.Client, e.Key}
		version, known := at[e.Key][e.Value]
		if !known && e.Value != "" {
			say("contains %s, which no entry of the log wrote", e.Value)
			continue
		}
		last := len(order[e.Key])
		switch {
		case e.Kind == CacheFinal && version != last:
			say("still contains version %d of %d long after the last write", version, last)
		case e.Kind != CacheFinal && e.Kind != CacheWrite && version < newest[p]:
			say("%s version %d after it had seen or written version %d",
				[...]string{"reads", "uses the cached"}[e.Kind], version, newest[p])
		}
		newest[p] = max(newest[p], version)
	}
	return checked, bad
}
