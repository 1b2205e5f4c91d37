package dashboard

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

// Bounds of one request that iterates over locks or keys. When a request reaches a
// bound, it returns the locks or keys that it has found so far.
const (
	pageSize  = 50
	maxPage   = 500
	visitStep = 500 // locks or keys that one command visits
	maxVisits = 20_000
	visitTime = 300 * time.Millisecond
	pageBytes = 1 << 20 // bytes of keys and owners
)

// Locks is the answer of /api/v1/locks. Its field Locks contains the maps that
// "holdfast locks --json" prints.
type Locks struct {
	Locks []listing.Lock `json:"locks"`
	// Cursor continues the list, "0" at its end.
	Cursor string `json:"cursor"`
	// Visited is the approximate number of locks that the request has visited.
	Visited int `json:"visited"`
	// Took is how long the node has searched, in milliseconds.
	Took int64 `json:"took_ms"`
}

// listLocks answers /api/v1/locks.
func (d *Dashboard) listLocks(r *http.Request) (any, error) {
	q := listing.Query{Match: r.FormValue("match"), Owner: r.FormValue("owner"), Waited: r.FormValue("waited") == "1"}
	count, err := number(r, "count", pageSize, maxPage)
	if err != nil {
		return nil, err
	}
	answer := Locks{Locks: []listing.Lock{}}
	if answer.Cursor, err = cursor(r); err != nil {
		return nil, err
	}
	err = d.read(r, func(ctx context.Context, c *connection) error {
		return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) error {
			begun, size := time.Now(), 0
			for answer.Visited < maxVisits && time.Since(begun) < visitTime && size < pageBytes {
				q.Count = count - len(answer.Locks)
				if q.Waited { // COUNT bounds the locks that are visited, whether they match or not
					q.Count = visitStep
				}
				found, next, err := listing.List(ctx, conn, q, answer.Cursor)
				if err != nil {
					return err
				}
				answer.Visited += q.Count
				answer.Locks, answer.Cursor = append(answer.Locks, found...), next
				size += textBytes(found)
				// A page that is not full has reached the limit of LOCK LIST in
				// bytes, unless the request has the filter waited.
				if next == "0" || len(answer.Locks) >= count || !q.Waited && len(found) > 0 {
					break
				}
			}
			answer.Took = time.Since(begun).Milliseconds()
			return d.addHistory(ctx, conn, cmp.Or(c.user, "default"), r.FormValue("db"), answer.Locks)
		})
	})
	for _, l := range answer.Locks {
		markBinary(l)
	}
	return answer, err
}

// textBytes returns the length of the texts that describe locks.
func textBytes(locks []listing.Lock) (n int) {
	for _, l := range locks {
		for _, value := range l {
			if text, ok := value.(string); ok {
				n += len(text)
			}
		}
		n += textBytes(l.Holders()) + textBytes(l.Waiters())
	}
	return n
}

// addHistory adds the client and the time of the grant to locks that were not
// acquired with LOCK ACQUIRE, because LOCK LIST and LOCK INFO do not have these
// fields for such locks. It reads the fields from the history of the node. If
// the node has no history of that time, the fields stay missing.
func (d *Dashboard) addHistory(ctx context.Context, conn *redis.Conn, user, db string, locks []listing.Lock) error {
	var visible []listing.Lock
	for _, l := range locks {
		if l.NeedsOrigin() && d.cfg.Permits(user, "LOCK", "HISTORY", l.Text("key")) {
			visible = append(visible, l)
		}
	}
	return d.origins.Add(listing.Scope{User: user, DB: db}, visible, func(keys []string) ([]any, error) {
		p := conn.Pipeline()
		for _, key := range keys {
			p.Do(ctx, "LOCK", "HISTORY", key, "COUNT", 1)
		}
		cmds, err := p.Exec(ctx)
		if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
			return nil, err
		}
		replies := make([]any, len(cmds))
		for i, cmd := range cmds {
			// An error means that the node keeps no history, or is busy.
			if reply, err := cmd.(*redis.Cmd).Result(); err == nil {
				replies[i] = reply
			}
		}
		return replies, nil
	})
}

// markBinary adds the exact bytes of keys, owners and META texts that are not
// valid UTF-8, which JSON cannot contain.
func markBinary(l listing.Lock) {
	for _, name := range []string{"key", "owner", "meta"} {
		if text := l.Text(name); !utf8.ValidString(text) {
			l[name+"_base64"] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	for _, inner := range append(l.Holders(), l.Waiters()...) {
		markBinary(inner)
	}
}

// Lock is the answer of /api/v1/lock.
type Lock struct {
	// Lock is null if the lock is free, no client waits for it, and no lock delay
	// is in effect.
	Lock listing.Lock `json:"lock"`
}

// keyOf returns the key that a request names, as text or in base64.
func keyOf(r *http.Request) (string, error) {
	if text := r.FormValue("key_base64"); text != "" {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "", badRequest("key_base64 is not base64")
		}
		return string(key), nil
	}
	if !r.Form.Has("key") {
		return "", badRequest("the parameter key is missing")
	}
	return r.FormValue("key"), nil
}

// lockInfo answers /api/v1/lock.
func (d *Dashboard) lockInfo(r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	var answer Lock
	err = d.read(r, func(ctx context.Context, c *connection) error {
		return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) (err error) {
			if answer.Lock, err = listing.Info(ctx, conn, key); err != nil || answer.Lock == nil {
				return err
			}
			return d.addHistory(ctx, conn, cmp.Or(c.user, "default"), r.FormValue("db"), []listing.Lock{answer.Lock})
		})
	})
	if answer.Lock != nil {
		markBinary(answer.Lock)
	}
	return answer, err
}

// inDatabase calls f after it has selected the database of a request.
func (c *connection) inDatabase(ctx context.Context, r *http.Request,
	f func(context.Context, *redis.Conn) error) error {
	db, err := database(r)
	if err != nil {
		return err
	}
	return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
		if db != c.db {
			// If no reply arrives, the selected database is not known.
			before := c.db
			c.db = -1
			err := conn.Do(ctx, "SELECT", db).Err()
			if reply := redis.Error(nil); errors.As(err, &reply) {
				c.db = before
			}
			if err != nil {
				return err
			}
			c.db = db
		}
		return f(ctx, conn)
	})
}

// database returns the parameter db, 0 if it is missing.
func database(r *http.Request) (int, error) {
	text := r.FormValue("db")
	if text == "" {
		return 0, nil
	}
	db, err := strconv.Atoi(text)
	if err != nil || db < 0 || db > 15 {
		return 0, badRequest("db is not a number from 0 to 15")
	}
	return db, nil
}

// breakLock takes the grants with the given tokens away from their owners. It
// returns how many of them existed.
func (c *connection) breakLock(ctx context.Context, r *http.Request, key string, tokens []int64) (broken int,
	err error) {
	err = c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) error {
		for _, token := range tokens {
			n, err := conn.Do(ctx, "LOCK", "BREAK", key, token).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			broken += n
		}
		return nil
	})
	return broken, err
}
