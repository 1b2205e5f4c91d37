package dashboard

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// previewBytes is how many bytes of a string the API shows.
const previewBytes = 100

// Keys is the answer of /api/v1/keys.
type Keys struct {
	Keys []Key `json:"keys"`
	// Cursor continues the list, "0" at its end.
	Cursor string `json:"cursor"`
}

// Key describes a key.
type Key struct {
	Key string `json:"key"`
	// KeyBase64 is the exact key if it is not valid UTF-8.
	KeyBase64 string `json:"key_base64,omitempty"`
	Type      string `json:"type,omitempty"`
	// TTL is the time to live in milliseconds, -1 for none.
	TTL int64 `json:"ttl_ms"`
	// Bytes is the approximate memory of the key and its value.
	Bytes int64 `json:"bytes,omitempty"`
	// Length is the length of a string in bytes, or the number of elements of a
	// collection.
	Length int64 `json:"length"`
	// Preview is the beginning of a string.
	Preview string `json:"preview,omitempty"`
	// Denied is set if the user may not read the key. Then only its name is
	// known.
	Denied bool `json:"denied,omitempty"`
}

// listKeys answers /api/v1/keys.
func (d *Dashboard) listKeys(r *http.Request) (any, error) {
	count, err := number(r, "count", pageSize, maxPage)
	if err != nil {
		return nil, err
	}
	answer := Keys{Keys: []Key{}}
	if answer.Cursor, err = cursor(r); err != nil {
		return nil, err
	}
	pattern := escapeGlob(r.FormValue("prefix")) + "*"
	err = d.read(r, func(ctx context.Context, c *connection) error {
		return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) error {
			names, next, err := scan(ctx, conn, answer.Cursor, pattern, count)
			if err != nil {
				return err
			}
			answer.Cursor = next
			answer.Keys, err = describeKeys(ctx, conn, names)
			return err
		})
	})
	return answer, err
}

// escapeGlob returns a pattern that matches exactly a text.
func escapeGlob(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(`*?[]\^-`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// scan returns at least one page of keys, unless a bound is reached before.
func scan(ctx context.Context, conn *redis.Conn, cursor, pattern string, count int) (names []string, next string,
	err error) {
	begun, step := time.Now(), visitStep
	if pattern == "*" {
		step = count
	}
	for visited := 0; visited < maxVisits && time.Since(begun) < visitTime && len(names) < count; visited += step {
		reply, err := conn.Do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", step).Slice()
		if err != nil {
			return nil, "", err
		}
		found, ok := []any(nil), len(reply) == 2
		if ok {
			cursor, ok = reply[0].(string)
			found, _ = reply[1].([]any)
		}
		if !ok {
			return nil, "", errors.New("SCAN returned another reply than a cursor and a list")
		}
		for _, f := range found {
			if name, ok := f.(string); ok {
				names = append(names, name)
			}
		}
		if cursor == "0" {
			break
		}
	}
	return names, cursor, nil
}

// lengthOf contains the command that returns the length of a type.
var lengthOf = map[string]string{
	"string": "STRLEN", "list": "LLEN", "hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN",
}

// describeKeys asks for the types, the times to live and the sizes of keys. It
// leaves out keys that no longer exist.
func describeKeys(ctx context.Context, conn *redis.Conn, names []string) ([]Key, error) {
	type asked struct {
		typ             *redis.StatusCmd
		ttl, size, long *redis.Cmd
		begin           *redis.StringCmd
	}
	all := make([]asked, len(names))
	if len(names) == 0 {
		return []Key{}, nil
	}
	// An error of a single command is read below; only a broken connection ends
	// the request.
	failed := func(_ []redis.Cmder, err error) error {
		if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
			return nil
		}
		return err
	}
	if err := failed(conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			all[i] = asked{typ: p.Type(ctx, name), ttl: p.Do(ctx, "PTTL", name),
				size: p.Do(ctx, "MEMORY", "USAGE", name)}
		}
		return nil
	})); err != nil {
		return nil, err
	}
	if err := failed(conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			if command, ok := lengthOf[all[i].typ.Val()]; ok {
				all[i].long = p.Do(ctx, command, name)
			}
			if all[i].typ.Val() == "string" {
				all[i].begin = p.GetRange(ctx, name, 0, previewBytes-1)
			}
		}
		return nil
	})); err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(names))
	for i, name := range names {
		a := all[i]
		if a.typ.Val() == "none" {
			continue
		}
		k := Key{Key: name, Type: a.typ.Val(), TTL: -1, Denied: denied(a.typ.Err())}
		if !utf8.ValidString(name) {
			k.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(name))
		}
		if ttl, err := a.ttl.Int64(); err == nil {
			k.TTL = ttl
		}
		k.Bytes, _ = a.size.Int64() // 0 if the user may not run MEMORY
		if a.long != nil {
			k.Length, _ = a.long.Int64() // 0 if the key has another type by now
		}
		if a.begin != nil {
			k.Preview = a.begin.Val()
			k.Denied = k.Denied || denied(a.begin.Err())
		}
		keys = append(keys, k)
	}
	return keys, nil
}
