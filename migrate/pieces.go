package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// Every node executes a command as a whole, and serves no other client while it
// does. So the cluster refuses commands that write too much. An import
// therefore writes a large value with many commands to a temporary key, and
// then renames that key.
const (
	// The import writes a collection with one RESTORE if it has at most
	// wholeElements elements and wholeBytes bytes. Such a RESTORE takes less
	// time than the smallest value of --max-write-time.
	wholeElements = 2500
	wholeBytes    = 512 << 10
	// pieceElements and pieceBytes bound a command. A command writes at most
	// pieceElements elements, and is larger than pieceBytes only if it writes a
	// single element.
	pieceElements = 1000
	pieceBytes    = 256 << 10
	// pipelineBytes and pipelineCommands bound the size of a pipeline of such
	// commands.
	pipelineBytes    = 1 << 20
	pipelineCommands = 1000
	// temporaryTTL is the time to live of a temporary key. Each pipeline renews
	// this time. If the import is killed, the cluster removes the key after
	// this time.
	temporaryTTL = 10 * time.Minute
)

// pieceLimits bound a value that is written in pieces. They are high, because
// this process reads the whole value, while the cluster only gets the pieces.
var pieceLimits = rdb.Limits{String: largestValue, Unfolded: 4 * largestValue, Elements: largestValue}

// divided reports whether a payload is written in pieces, because it is a large
// collection.
func divided(payload []byte) bool {
	body, ok := rdb.Open(payload)
	if !ok {
		return false
	}
	if t := rdb.NewReader(body, pieceLimits).Type(); t == rdb.String || t == rdb.Unknown {
		return false
	}
	w := rdb.Weigh(body, pieceLimits)
	return w.Elements > wholeElements || w.Bytes > wholeBytes
}

// temporaryKey returns a new name for a temporary key. In a cluster with slots,
// the new key is in the same slot as key, unless key is empty, or contains a
// closing brace but no hash tag.
func temporaryKey(key string) string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if in, _, closed := strings.Cut(rest, "}"); closed && in != "" {
			tag = in
		}
	}
	return "holdfast:import:" + rand.Text() + "{" + tag + "}"
}

// refused is the reason why a value cannot be imported.
type refused string

func (r refused) Error() string { return string(r) }

// pieces writes a value to a temporary key.
type pieces struct {
	ctx context.Context
	to  *target
	db  int
	key string // the temporary key

	piece    []any // the command that is being built; nil while it has no element
	size     int   // size of piece in bytes
	pipeline [][]any
	bytes    int // size of the pipeline in bytes
}

// add appends an element, which consists of parts, to the current command. If
// there is no current command, or if it is full, add begins a new command with
// name and the temporary key.
func (p *pieces) add(name string, parts ...any) error {
	size := 0
	for _, part := range parts {
		n := len(fmt.Sprint(part))
		if s, ok := part.(string); ok {
			n = len(s)
		}
		if n > p.to.maxBulk {
			return refused(fmt.Sprintf("an element of the value has %d bytes, and the cluster accepts %d", n,
				p.to.maxBulk))
		}
		size += n
	}
	if p.piece != nil && (len(p.piece) >= 2+pieceElements*len(parts) || p.size+size > pieceBytes) {
		if err := p.endPiece(); err != nil {
			return err
		}
	}
	if p.piece == nil {
		p.piece = command(name, p.key)
	}
	p.piece = append(p.piece, parts...)
	p.size += size
	return nil
}

// endPiece moves the command into the pipeline.
func (p *pieces) endPiece() error {
	if p.piece == nil {
		return nil
	}
	c, size := p.piece, p.size
	p.piece, p.size = nil, 0
	return p.do(size, c...)
}

// do adds a command of about size bytes to the pipeline. If the pipeline is
// then full, do sends it.
func (p *pieces) do(size int, words ...any) error {
	p.pipeline = append(p.pipeline, words)
	if p.bytes += size; p.bytes < pipelineBytes && len(p.pipeline) < pipelineCommands {
		return nil
	}
	return p.flush()
}

// flush sends the pipeline.
func (p *pieces) flush() error {
	if err := p.endPiece(); err != nil || len(p.pipeline) == 0 {
		return err
	}
	commands := append(p.pipeline, command("PEXPIRE", p.key, temporaryTTL.Milliseconds()))
	p.pipeline, p.bytes = nil, 0
	replies, err := p.to.link.once(p.ctx, p.db, commands...)
	if err != nil {
		return err
	}
	for _, r := range replies {
		if err := r.failed(); err != nil {
			return p.to.refusal(err)
		}
	}
	return nil
}

// refusal converts an error of the target to refused if the error concerns only
// the value. It returns any other error unchanged.
func (t *target) refusal(err error) error {
	if isTemporary(err) || stops(err) {
		return err
	}
	return refused("the cluster refuses it: " + err.Error())
}

// counters contains, for each type, the command that returns the number of
// elements.
var counters = map[rdb.Type]string{
	rdb.List: "LLEN", rdb.Set: "SCARD", rdb.Hash: "HLEN", rdb.SortedSet: "ZCARD", rdb.Stream: "XLEN",
}

// write writes the value of a payload. If it fails, the temporary key may be absent
// or contain a part of the value.
func (p *pieces) write(payload []byte) error {
	body, ok := rdb.Open(payload)
	if !ok {
		return errDamaged
	}
	r := rdb.NewReader(body, pieceLimits)
	n := 0
	each := func(name string, width int) func(a, b []byte) error {
		return func(a, b []byte) error {
			n++
			if width == 1 {
				return p.add(name, string(a))
			}
			return p.add(name, string(a), string(b))
		}
	}
	t := r.Type()
	switch t {
	case rdb.List:
		r.Elements(each("RPUSH", 1))
	case rdb.Set:
		r.Elements(each("SADD", 1))
	case rdb.Hash:
		r.Elements(each("HSET", 2))
	case rdb.SortedSet:
		r.Scores(func(member []byte, score float64) error {
			n++
			return p.add("ZADD", strconv.FormatFloat(score, 'g', -1, 64), string(member))
		})
	default:
		var err error
		if n, err = p.stream(r); err != nil {
			return err
		}
	}
	switch err := r.Err(); {
	case err == rdb.ErrFormat || err == nil && r.Len() > 0:
		return errDamaged
	case err != nil:
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	replies, err := p.to.link.once(p.ctx, p.db, command(counters[t], p.key))
	if err != nil {
		return err
	}
	switch {
	case replies[0].failed() != nil:
		return p.to.refusal(replies[0].err)
	case replies[0].number() != int64(n):
		return errDamaged
	}
	return nil
}

const errDamaged = refused("the source sent a damaged value")

// divide imports a large value.
func (t *target) divide(ctx context.Context, db int, it item, clock targetClock) (res result, err error) {
	end := it.life.at(clock)
	if !t.replace {
		exists, same := false, false
		err := t.link.repeat(ctx, func() (err error) {
			exists, same, err = t.holds(ctx, db, it)
			return err
		})
		if exists || err != nil {
			return result{existing: !same}, err
		}
	}
	err = t.link.repeat(ctx, func() (err error) {
		// Each attempt writes to a new temporary key, because the target may still
		// execute a command of an earlier attempt after the connection was lost.
		p := &pieces{ctx: ctx, to: t, db: db, key: temporaryKey(it.key)}
		if err = p.write(it.payload); err == nil {
			res, err = p.rename(it, end)
		}
		if isRefused := new(refused); res.existing || errors.As(err, isRefused) {
			// If this fails, the temporary key remains for temporaryTTL.
			_, _ = t.link.once(ctx, db, command("DEL", p.key))
		}
		return err
	})
	if why := refused(""); errors.As(err, &why) {
		return result{skipped: string(why)}, nil
	}
	return res, err
}

// expire deletes the key of an item that has expired, if the import replaces keys.
func (t *target) expire(ctx context.Context, db int, key string) error {
	if !t.replace {
		return nil
	}
	replies, err := t.link.once(ctx, db, command("DEL", key))
	if err != nil {
		return err
	}
	return replies[0].failed()
}

// holds returns two results for the key of an item. exists says whether the
// target has the key. same says whether the key has the value of the item, and
// has a time to live if and only if the item has one.
func (t *target) holds(ctx context.Context, db int, it item) (exists, same bool, err error) {
	replies, err := t.link.once(ctx, db, command("DUMP", it.key), command("PTTL", it.key))
	if err == nil {
		err = temporary(replies)
	}
	if err != nil || replies[0].isNil() {
		return false, false, err
	}
	return true, it.isSame(replies[0], replies[1]), nil
}

// rename gives the temporary key the time to live and the name of the item. If
// the target already has a key of that name, rename compares the two values.
func (p *pieces) rename(it item, end int64) (result, error) {
	life, rename := command("PERSIST", p.key), "RENAMENX"
	if end != 0 {
		life = command("PEXPIREAT", p.key, end)
	}
	if p.to.replace {
		rename = "RENAME"
	}
	replies, err := p.to.link.once(p.ctx, p.db, command("MULTI"), life, command(rename, p.key, it.key),
		command("EXEC"))
	if err != nil {
		return result{}, err
	}
	for _, r := range replies {
		if err := r.failed(); err != nil {
			return result{}, p.to.refusal(err)
		}
	}
	done, ok := replies[3].value.([]any)
	if !ok || len(done) != 2 {
		return result{}, fmt.Errorf("%s: unexpected reply to EXEC", p.to.link.addr())
	}
	if failed, ok := done[1].(error); ok {
		if end != 0 && strings.Contains(failed.Error(), "no such key") {
			return result{expired: true}, p.to.expire(p.ctx, p.db, it.key)
		}
		return result{}, p.to.refusal(failed)
	}
	if done[1] != int64(0) {
		return result{}, nil
	}
	_, same, err := p.to.holds(p.ctx, p.db, it)
	return result{existing: !same}, err
}
