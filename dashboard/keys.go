package dashboard

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

// previewBytes is the maximum length of Key.Preview in bytes.
const previewBytes = 100

// Keys is the answer of /api/v1/keys.
type Keys struct {
	Keys []Key `json:"keys"`
	// Cursor continues the list, "0" at its end.
	Cursor string `json:"cursor"`
	// Visited is the approximate number of keys that the request has visited.
	Visited int `json:"visited"`
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
	// Preview is the beginning of a string, or some elements of a collection that
	// is not large.
	Preview string `json:"preview,omitempty"`
	// Denied is set if the user may not run TYPE for the key, or GETRANGE for a
	// string. Then some of the other fields are missing.
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
	pattern := listing.EscapePattern(r.FormValue("prefix")) + "*"
	begin, step := answer.Cursor, visitStep
	if pattern == "*" {
		step = count
	}
	page := func() error {
		return d.keysPage(r, &answer, begin, pattern, count, step)
	}
	if err = page(); errors.Is(err, errTooLarge) {
		step = longKeys
		err = page()
	}
	return answer, err
}

// longKeys is the number of keys that one SCAN visits if the keys are long. A key
// has up to 512 KiB, so a page of pageBytes plus longKeys keys fits into
// replyBytes.
const longKeys = 8

// keysPage fills answer with the page of keys that begins at a cursor. Each
// SCAN visits step keys.
func (d *Dashboard) keysPage(r *http.Request, answer *Keys, from, pattern string, count, step int) error {
	return d.read(r, func(ctx context.Context, c *connection) error {
		return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) error {
			var names []string
			var err error
			names, answer.Cursor, answer.Visited, err = scan(ctx, conn, from, pattern, count, step)
			if err != nil {
				return err
			}
			answer.Keys, err = d.describeKeys(ctx, conn, cmp.Or(c.user, "default"), names)
			return err
		})
	})
}

// scan returns at least count keys, unless the list ends or scan reaches a bound
// first.
func scan(ctx context.Context, conn *redis.Conn, cursor, pattern string, count, step int) (names []string,
	next string, visited int, err error) {
	begun, size := time.Now(), 0
	for visited < maxVisits && time.Since(begun) < visitTime && len(names) < count &&
		size < pageBytes {
		reply, err := conn.Do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", step).Slice()
		if err != nil {
			return nil, "", visited, err
		}
		visited += step
		found, ok := []any(nil), len(reply) == 2
		if ok {
			var list bool
			cursor, ok = reply[0].(string)
			found, list = reply[1].([]any)
			ok = ok && list
		}
		if !ok {
			return nil, "", visited, errors.New("SCAN did not return a cursor and a list")
		}
		for _, f := range found {
			if name, ok := f.(string); ok {
				names, size = append(names, name), size+len(name)
			}
		}
		if cursor == "0" {
			break
		}
	}
	return names, cursor, visited, nil
}

// lengthOf contains, by type, the command that returns the length of a key.
var lengthOf = map[string]string{
	"string": "STRLEN", "list": "LLEN", "hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN",
}

// previewOf contains, by type, the command that returns some elements of a key:
// its name, and the arguments after the key.
var previewOf = map[string][]string{
	"list": {"LRANGE", "0", "9"}, "hash": {"HSCAN", "0", "COUNT", "10"}, "set": {"SSCAN", "0", "COUNT", "10"},
	"zset": {"ZRANGE", "0", "9"},
}

const (
	// maxPreviewed bounds the memory of a collection whose elements are shown,
	// because the node sends each element as a whole. allPreviewed bounds the total
	// memory of the collections whose elements an answer shows.
	maxPreviewed = 64 << 10
	allPreviewed = 2 << 20
)

// cutText returns the longest beginning of text that has at most limit bytes
// and does not end inside a UTF-8 character.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for i := limit; i > limit-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(text[i]) {
			return text[:i]
		}
	}
	return text[:limit] // not UTF-8
}

// preview returns the beginning of the elements in a reply to a command of
// previewOf.
func preview(typ string, reply any) string {
	list, _ := reply.([]any)
	if typ == "hash" || typ == "set" { // the reply is a cursor and the elements
		if len(list) != 2 {
			return ""
		}
		list, _ = list[1].([]any)
	}
	var b strings.Builder
	for i, e := range list {
		if b.Len() >= previewBytes {
			break
		}
		switch {
		case i == 0:
		case typ == "hash" && i%2 == 1:
			b.WriteString("=")
		default:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, e)
	}
	return cutText(b.String(), previewBytes)
}

// describeKeys asks for the types, the times to live and the sizes of keys. It
// sends no command that the user may not run, because the node would add each
// refusal to its ACL log. It leaves out keys that no longer exist.
func (d *Dashboard) describeKeys(ctx context.Context, conn *redis.Conn, user string, names []string) ([]Key, error) {
	type asked struct {
		typ             *redis.StatusCmd
		ttl, size, long *redis.Cmd
		begin           *redis.StringCmd
		elements        *redis.Cmd
	}
	all := make([]asked, len(names))
	// Only a broken connection ends the request. The code below reads the errors of
	// single commands.
	pipelined := func(f func(i int, name string, p redis.Pipeliner)) error {
		p := conn.Pipeline()
		for i, name := range names {
			f(i, name, p)
		}
		if p.Len() == 0 {
			return nil
		}
		_, err := p.Exec(ctx)
		if reply := redis.Error(nil); errors.As(err, &reply) {
			return nil
		}
		return err
	}
	// ask queues a command that the user may run.
	ask := func(p redis.Pipeliner, args ...string) *redis.Cmd {
		if !d.cfg.Permits(user, args...) {
			return nil
		}
		words := make([]any, len(args))
		for i, a := range args {
			words[i] = a
		}
		return p.Do(ctx, words...)
	}
	if err := pipelined(func(i int, name string, p redis.Pipeliner) {
		if d.cfg.Permits(user, "TYPE", name) {
			all[i].typ = p.Type(ctx, name)
		}
		all[i].ttl, all[i].size = ask(p, "PTTL", name), ask(p, "MEMORY", "USAGE", name)
	}); err != nil {
		return nil, err
	}
	room := int64(allPreviewed)
	if err := pipelined(func(i int, name string, p redis.Pipeliner) {
		if all[i].typ == nil {
			return
		}
		size, err := integer(all[i].size)
		if command := previewOf[all[i].typ.Val()]; command != nil && err == nil && size <= min(room, maxPreviewed) {
			room -= size
			all[i].elements = ask(p, append([]string{command[0], name}, command[1:]...)...)
		}
		if command, ok := lengthOf[all[i].typ.Val()]; ok {
			all[i].long = ask(p, command, name)
		}
		if all[i].typ.Val() == "string" && d.cfg.Permits(user, "GETRANGE", name, "0", "0") {
			// The byte after the preview tells whether the preview ends inside a
			// character.
			all[i].begin = p.GetRange(ctx, name, 0, previewBytes)
		}
	}); err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(names))
	for i, name := range names {
		a := all[i]
		k := Key{Key: name, TTL: -1, Denied: a.typ == nil || denied(a.typ.Err())}
		if a.typ != nil {
			k.Type = a.typ.Val()
		}
		if k.Type == "none" {
			continue
		}
		if !utf8.ValidString(name) {
			k.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(name))
		}
		if ttl, err := integer(a.ttl); err == nil {
			k.TTL = ttl
		}
		k.Bytes, _ = integer(a.size)  // 0 if the user may not run MEMORY
		k.Length, _ = integer(a.long) // 0 if the key has another type by now
		switch {
		case a.elements != nil:
			k.Preview = preview(k.Type, a.elements.Val())
		case a.begin != nil:
			k.Preview = cutText(a.begin.Val(), previewBytes)
			k.Denied = k.Denied || denied(a.begin.Err())
		case k.Type == "string":
			k.Denied = true
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// integer returns the integer in the reply to a command. cmd is nil if the user
// may not run the command.
func integer(cmd *redis.Cmd) (int64, error) {
	if cmd == nil {
		return 0, errors.New("not permitted")
	}
	return cmd.Int64()
}
