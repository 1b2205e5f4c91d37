package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

const cachedKeys = 4

// cacher is a client with a cache of its own. CLIENT TRACKING keeps the cache
// consistent with the cluster.
type cacher struct {
	*remote
	held map[string]string // value by key, "" for an absent key
	n    int
}

// cacheUser runs a client that reads keys through its cache and writes them.
func (c *remote) cacheUser() {
	u := &cacher{remote: c, held: make(map[string]string)}
	c.h.served.mu.Lock()
	c.h.served.caches = append(c.h.served.caches, u)
	c.h.served.mu.Unlock()
	c.stays = true
	c.setup = []command{{"hello", "3"}, {"client", "tracking", "on"}}
	c.pushed = u.invalidated
	c.dropped = func() { clear(u.held) }
	for c.think() && c.connect() {
		key := number("cached", c.r.IntN(cachedKeys))
		switch c.r.IntN(5) {
		case 0:
			u.write(key)
		case 1:
			u.drain()
		default:
			u.read(key)
		}
		if c.r.IntN(60) == 0 {
			c.leave()
		}
	}
}

// invalidated removes from the cache the keys that the server reports as
// changed.
func (u *cacher) invalidated(v value) {
	switch {
	case len(v.Array) != 2 || v.Array[0].Text != "invalidate":
		u.h.w.audit.violate("client %d received %+v", u.id, v)
	case v.Array[1].Null:
		clear(u.held)
	default:
		for _, key := range v.Array[1].Array {
			delete(u.held, key.Text)
		}
	}
}

func (u *cacher) event(kind checker.CacheKind, key, val string) {
	u.h.served.mu.Lock()
	defer u.h.served.mu.Unlock()
	u.h.served.cached = append(u.h.served.cached,
		checker.CacheEvent{Kind: kind, Client: u.id, Node: u.home, Key: key, Value: val, At: u.h.w.elapsed()})
}

// read reads a key from the cache. If the key is not cached, the client reads
// it from the cluster and caches it.
func (u *cacher) read(key string) {
	if val, ok := u.held[key]; ok {
		u.event(checker.CacheUse, key, val)
		return
	}
	x := u.do(command{"get", key})
	if x.outcome != checker.Done || u.conn == nil {
		return
	}
	u.held[key] = x.first().Text
	u.event(checker.CacheFill, key, x.first().Text)
}

// write writes a key, and then reads the key through the cache. The read comes
// after the reply to a second command, because only that reply proves that the
// invalidation caused by the write has arrived.
func (u *cacher) write(key string) {
	u.n++
	val := fmt.Sprintf("%d.%d", u.id, u.n)
	other := number("uncached", u.r.IntN(cachedKeys))
	if x := u.do(command{"set", key, val}); x.outcome != checker.Done || u.conn == nil {
		return
	}
	if x := u.do(command{"get", other}); x.outcome != checker.Done || u.conn == nil {
		return // the invalidation of the write may not have arrived
	}
	u.event(checker.CacheWrite, key, val)
	u.read(key)
}

// drain receives the pushes that have arrived since the last command.
func (u *cacher) drain() {
	u.do(command{"ping"})
}

// finish records the keys that are still cached at the end.
func (u *cacher) finish() {
	if u.conn == nil {
		return
	}
	<-time.After(100 * time.Millisecond)
	if x := u.do(command{"get", "uncached0"}); x.outcome == checker.Done {
		for _, key := range slices.Sorted(maps.Keys(u.held)) {
			u.event(checker.CacheFinal, key, u.held[key])
		}
	}
	u.close()
}
