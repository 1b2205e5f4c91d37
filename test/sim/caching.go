package sim

import (
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

const cachedKeys = 4

// cacher is a client with a cache of its own that CLIENT TRACKING keeps true.
type cacher struct {
	*remote
	held map[string]string // "" for an absent key
	n    int
}

// cacheUser reads keys through its cache and writes them.
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

// invalidated drops what the server says has changed.
func (u *cacher) invalidated(v value) {
	switch {
	case len(v.Array) != 2 || v.Array[0].Text != "invalidate":
		u.h.w.audit.violate("client %d was sent %+v", u.id, v)
	case v.Array[1].Null:
		clear(u.held)
	default:
		for _, key := range v.Array[1].Array {
			delete(u.held, key.Text)
		}
	}
}

func (u *cacher) event(kind oracle.CacheKind, key, val string) {
	u.h.served.mu.Lock()
	defer u.h.served.mu.Unlock()
	u.h.served.cached = append(u.h.served.cached, oracle.CacheEvent{Kind: kind, Client: u.id, Node: u.home, Key: key, Value: val, At: u.h.w.elapsed()})
}

// read reads a key from the cache, or from the cluster into it.
func (u *cacher) read(key string) {
	if val, ok := u.held[key]; ok {
		u.event(oracle.CacheUse, key, val)
		return
	}
	x := u.do(command{"get", key})
	if x.outcome != oracle.Done || u.conn == nil {
		return
	}
	u.held[key] = x.first().Text
	u.event(oracle.CacheFill, key, x.first().Text)
}

// write writes a key, and reads its own write through the cache once the reply to
// another command has come behind that of the write.
func (u *cacher) write(key string) {
	u.n++
	val := fmt.Sprintf("%d.%d", u.id, u.n)
	other := number("uncached", u.r.IntN(cachedKeys))
	if x := u.do(command{"set", key, val}); x.outcome != oracle.Done || u.conn == nil {
		return
	}
	if x := u.do(command{"get", other}); x.outcome != oracle.Done || u.conn == nil {
		return // the invalidation need not have come
	}
	u.event(oracle.CacheWrite, key, val)
	u.read(key)
}

// drain takes what has been pushed meanwhile.
func (u *cacher) drain() {
	u.do(command{"ping"})
}

// finish notes what is still cached at the end.
func (u *cacher) finish() {
	if u.conn == nil {
		return
	}
	<-time.After(100 * time.Millisecond)
	if x := u.do(command{"get", "uncached0"}); x.outcome == oracle.Done {
		for _, key := range sortedKeys(u.held) {
			u.event(oracle.CacheHeld, key, u.held[key])
		}
	}
	u.close()
}
