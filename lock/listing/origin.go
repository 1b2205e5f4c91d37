package listing

import (
	"context"
	"sync"
	"time"
)

const (
	// maxOriginKey is the maximum length, in bytes, of a key that Add asks for.
	maxOriginKey = 1024
	// MaxOriginAsks is the maximum number of keys that one call of Add asks for.
	MaxOriginAsks = 100
	// missAgain is the time after which Add again looks up a grant that the
	// history did not contain. A grant appears in the history a little later
	// than in LOCK LIST.
	missAgain = 10 * time.Second
	// maxOrigins is the maximum number of grants that Origins remembers. Each
	// grant takes a few hundred bytes of memory, and more if its key is long.
	maxOrigins = 2000
)

// Scope contains the user for whom the history was read, and the database of
// the keys. A user sees only the history of keys that this user may read.
type Scope struct{ User, DB string }

// Origins remembers which client took each lock, and when. Add reads these facts
// about the current grants from the history of locks. The facts about a grant do
// not change while the grant lasts. Origins is safe for concurrent use. Its zero
// value is ready for use.
type Origins struct {
	mu  sync.Mutex
	all map[grant]origin
}

// grant identifies a grant.
type grant struct {
	scope Scope
	key   string
	token int64
}

type origin struct {
	acquired int64 // milliseconds since 1970, 0 if the history does not have the grant
	node     string
	id       int64
	asked    time.Time
}

func (o *Origins) get(g grant) (found origin, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, known = o.all[g]
	return found, known && (found.acquired > 0 || time.Since(found.asked) < missAgain)
}

func (o *Origins) put(g grant, found origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = make(map[grant]origin)
	}
	for old := range o.all { // remove arbitrary grants
		if len(o.all) < maxOrigins {
			break
		}
		delete(o.all, old)
	}
	o.all[g] = found
}

// NeedsOrigin reports whether only the history says which client took the lock,
// and when. LOCK LIST and LOCK INFO contain neither for a lock that was taken
// without LOCK ACQUIRE. For a key longer than maxOriginKey, NeedsOrigin returns
// false.
func (l Lock) NeedsOrigin() bool {
	return l.Int("token") != 0 && l.Int("acquired-ms") == 0 && len(l.Holders()) == 0 &&
		len(l.Text("key")) <= maxOriginKey
}

// Add looks up the locks for which NeedsOrigin is true. If the history of the
// node contains the grant of a lock, Add adds the time and the client to the
// lock. ask gets up to MaxOriginAsks keys, and returns the replies to LOCK
// HISTORY key COUNT 1, in the order of the keys. A nil reply means that the
// node returned an error for the key: Add looks up that key again after
// missAgain. ask may return fewer replies than keys: the next call of Add then
// looks up the other keys.
func (o *Origins) Add(scope Scope, locks []Lock, ask func(keys []string) ([]any, error)) error {
	var unknown []grant
	var keys []string
	var missing []Lock
	for _, l := range locks {
		if !l.NeedsOrigin() {
			continue
		}
		missing = append(missing, l)
		g := grant{scope, l.Text("key"), l.Int("token")}
		if _, known := o.get(g); !known && len(keys) < MaxOriginAsks {
			unknown, keys = append(unknown, g), append(keys, g.key)
		}
	}
	if len(keys) > 0 {
		replies, err := ask(keys)
		if err != nil {
			return err
		}
		for i, reply := range replies {
			if reply == nil {
				o.put(unknown[i], origin{asked: time.Now()})
				continue
			}
			found, err := originOf(reply, unknown[i].token)
			if err != nil {
				return err
			}
			o.put(unknown[i], found)
		}
	}
	now := time.Now().UnixMilli()
	for _, l := range missing {
		found, known := o.get(grant{scope, l.Text("key"), l.Int("token")})
		if known && found.acquired > 0 {
			l["acquired-ms"], l["held-ms"] = found.acquired, max(now-found.acquired, 0)
			l["node"], l["client-id"] = found.node, found.id
		}
	}
	return nil
}

// AskHistory asks a node for the history of keys, one after another, and returns
// the replies in the form that Add needs. It stops at the first error, because a
// node records each refused command in its ACL log. It then returns the error and
// the earlier replies.
func AskHistory(ctx context.Context, d Doer, keys []string) (replies []any, err error) {
	for _, key := range keys {
		reply, err := d.Do(ctx, "LOCK", "HISTORY", key, "COUNT", 1).Result()
		if err != nil {
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// originOf returns the origin of the grant with the given token, as a reply to
// LOCK HISTORY describes it.
func originOf(reply any, token int64) (origin, error) {
	found := origin{asked: time.Now()}
	history, err := Describe(reply)
	if err != nil {
		return found, err
	}
	grants, _ := history["grants"].([]Lock)
	for _, g := range grants {
		if g.Int("token") == token {
			found.acquired, found.node, found.id = g.Int("acquired-ms"), g.Text("node"), g.Int("client-id")
		}
	}
	return found, nil
}
