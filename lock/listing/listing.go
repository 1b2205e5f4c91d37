// Package listing reads the replies to LOCK LIST, LOCK INFO and LOCK HISTORY
// for the command line and the dashboard, so that both show the same names and
// values.
package listing

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Doer sends a command on a connection with RESP3.
type Doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Lock contains the names and values of a map in a reply to LOCK LIST, LOCK INFO
// or LOCK HISTORY. The map describes a lock, an owner that shares the lock, a
// client that waits for it, the history of the lock, or one grant in that
// history.
type Lock map[string]any

// Query selects locks.
type Query struct {
	Match  string // pattern as in SCAN, "" for all keys
	Owner  string // "" for all owners
	Waited bool   // only locks for which clients wait
	Count  int    // maximum number of locks that one call returns or, with Waited, visits
}

// List sends one LOCK LIST. It returns up to q.Count locks that match q, starting
// at cursor, and the next cursor, which is "0" after the last lock. With q.Waited,
// LOCK LIST visits up to q.Count locks, and List returns those that match q.
func List(ctx context.Context, d Doer, q Query, cursor string) (found []Lock, next string, err error) {
	args := []any{"LOCK", "LIST", "COUNT", q.Count, "CURSOR", cursor}
	if q.Match != "" {
		args = append(args, "MATCH", q.Match)
	}
	if q.Owner != "" {
		args = append(args, "OWNER", q.Owner)
	}
	if q.Waited {
		args = append(args, "WAITED")
	}
	reply, err := d.Do(ctx, args...).Slice()
	if err != nil {
		return nil, "", err
	}
	if len(reply) != 2 {
		return nil, "", fmt.Errorf("LOCK LIST returned %d values instead of 2", len(reply))
	}
	list, ok := reply[1].([]any)
	if !ok {
		return nil, "", fmt.Errorf("LOCK LIST returned a second value of type %T instead of a list", reply[1])
	}
	for _, f := range list {
		l, err := Describe(f)
		if err != nil {
			return nil, "", err
		}
		found = append(found, l)
	}
	return found, fmt.Sprint(reply[0]), nil
}

// Info asks for one lock. It returns nil if the lock is free, no client waits, and
// no lock delay is in effect.
func Info(ctx context.Context, d Doer, key string) (Lock, error) {
	reply, err := d.Do(ctx, "LOCK", "INFO", key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return Describe(reply)
}

// Describe converts a RESP3 map that describes a lock or the history of a lock. It
// also converts the maps in the lists that the map contains.
func Describe(reply any) (Lock, error) {
	m, ok := reply.(map[any]any)
	if !ok {
		return nil, fmt.Errorf("a lock is described by a %T instead of a map", reply)
	}
	l := make(Lock, len(m))
	for k, v := range m {
		if list, ok := v.([]any); ok {
			inner := make([]Lock, 0, len(list))
			for _, e := range list {
				w, err := Describe(e)
				if err != nil {
					return nil, err
				}
				inner = append(inner, w)
			}
			v = inner
		}
		l[fmt.Sprint(k)] = v
	}
	return l, nil
}

// Text returns the value of a text field, or "" if there is no such field.
func (l Lock) Text(name string) string {
	s, _ := l[name].(string)
	return s
}

// Int returns the value of an integer field, or 0 if there is no such field.
func (l Lock) Int(name string) int64 {
	n, _ := l[name].(int64)
	return n
}

// Holders returns the owners that share a lock.
func (l Lock) Holders() []Lock {
	list, _ := l["holders"].([]Lock)
	return list
}

// Waiters returns the clients that wait, in the order of the queue.
func (l Lock) Waiters() []Lock {
	list, _ := l["waiters"].([]Lock)
	return list
}

// Tokens returns the tokens of the current grants of a lock.
func (l Lock) Tokens() []int64 {
	var all []int64
	for _, h := range l.Holders() {
		all = append(all, h.Int("token"))
	}
	if token := l.Int("token"); token != 0 && all == nil {
		all = append(all, token)
	}
	return all
}

// Mode returns the mode of a lock, or the mode that a waiting client has asked for.
func (l Lock) Mode() string {
	if n := l.Int("limit"); n > 0 {
		return fmt.Sprintf("limit %d", n)
	}
	return l.Text("mode")
}

// EscapePattern returns a pattern for SCAN and LOCK LIST that matches only the
// given text.
func EscapePattern(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(`*?[]\^-`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
