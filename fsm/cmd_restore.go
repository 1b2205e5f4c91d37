package fsm

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// maxIdle is the largest idle time in seconds that the clock of Redis can
// represent.
const maxIdle = 1<<24 - 1

// restoreOptions has the arguments of RESTORE after the payload. FREQ is parsed
// and ignored, because it is for an eviction policy that Holdfast does not
// have.
type restoreOptions struct {
	replace, absolute bool
	idle, freq        int64 // -1: not given
}

func parseRestore(args [][]byte) (p restoreOptions, fail Reply) {
	p.idle, p.freq = -1, -1
	for i := 0; i < len(args); i++ {
		more := i+1 < len(args)
		var ok bool
		switch {
		case fold(args[i], "REPLACE"):
			p.replace = true
		case fold(args[i], "ABSTTL"):
			p.absolute = true
		case fold(args[i], "IDLETIME") && more && p.freq == -1:
			i++
			if p.idle, ok = number.ParseInt(args[i]); !ok {
				return p, Error(msgNotInt)
			}
			if p.idle < 0 {
				return p, Error(msgRestoreLRU)
			}
		case fold(args[i], "FREQ") && more && p.idle == -1:
			i++
			if p.freq, ok = number.ParseInt(args[i]); !ok {
				return p, Error(msgNotInt)
			}
			if p.freq < 0 || p.freq > math.MaxUint8 {
				return p, Error(msgRestoreLFU)
			}
		default:
			return p, Error(msgSyntax)
		}
	}
	return p, Null
}

func restore(c *Ctx, args [][]byte) Reply {
	p, fail := parseRestore(args[4:])
	if fail.IsError() {
		return fail
	}
	old := c.lookup(args[1])
	if old != nil && !p.replace {
		return Error(msgBusyKey)
	}
	ttl, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return Error(msgNotInt)
	case ttl < 0:
		return Error(msgRestoreTTL)
	}
	body, ok := openPayload(args[3])
	if !ok {
		return Error(msgBadPayload)
	}
	n, fail := c.fromPayload(args[1], body)
	if fail.IsError() {
		return fail
	}
	l := c.restoredLife(ttl, p.absolute)
	switch {
	case !l.past:
	case old != nil:
		c.delete(old)
		return OK
	default:
		return OK
	}
	c.supplant(n.within(l))
	if p.idle >= 0 {
		n.touched = c.now - min(p.idle, maxIdle)*1e9
	}
	c.notify("g", "restore", n.key)
	return OK
}

// restoredLife returns the lifetime of a time to live in milliseconds. 0 means
// that the key does not expire.
func (c *Ctx) restoredLife(ttl int64, absolute bool) lifetime {
	switch {
	case ttl == 0:
		return lifetime{}
	case absolute:
		return c.lifetimeAt(ttl)
	case number.AddOverflows(ttl, c.wallMs()):
		return lifetime{past: true} // in Redis, the sum becomes negative
	}
	return c.lifetimeAt(ttl + c.wallMs())
}

// fromPayload returns an object for key with the value of a payload. It does
// not store the object.
func (c *Ctx) fromPayload(key, body []byte) (o *object, fail Reply) {
	r := rdbReader{b: body}
	kind := r.byte()
	if kind == rdbString {
		o = newObject(key, r.string())
	} else {
		o = newObject(key, nil)
		c.fill(o, kind, &r)
	}
	switch {
	case r.failed():
		return nil, Error(r.fail)
	case len(r.b) > 0, o.typ != typeString && o.typ != typeStream && o.coll.Len(o.typ) == 0:
		return nil, Error(msgBadData)
	}
	return o, Null
}

// fill reads a collection into o, which must be empty.
func (c *Ctx) fill(o *object, kind byte, r *rdbReader) {
	as := func(t typ) *collection {
		o.typ, o.coll = t, newCollection(t)
		return o.coll
	}
	switch kind {
	case rdbList:
		c.restoreStrings(r, as(typeList).addElement, 1)
	case rdbListZiplist:
		c.restorePacked(r, openZiplist, as(typeList).addElement, 1)
	case rdbListZiplists:
		v := as(typeList)
		for n := r.count(1); n > 0 && !r.failed(); n-- {
			c.restorePacked(r, openZiplist, v.addElement, 1)
		}
	case rdbListQuicklist:
		c.restoreQuicklist(r, as(typeList))
	case rdbSet:
		c.restoreStrings(r, as(typeSet).addMember, 1)
	case rdbSetIntset:
		c.restorePacked(r, openIntset, as(typeSet).addMember, 1)
	case rdbHash:
		c.restoreStrings(r, as(typeHash).addField, 2)
	case rdbHashZipmap:
		c.restorePacked(r, openZipmap, as(typeHash).addField, 2)
	case rdbHashZiplist:
		c.restorePacked(r, openZiplist, as(typeHash).addField, 2)
	case rdbHashListpack:
		c.restorePacked(r, openListpack, as(typeHash).addField, 2)
	case rdbZSetText, rdbZSet:
		c.restoreScores(r, as(typeZSet), kind)
	case rdbZSetZiplist:
		c.restorePacked(r, openZiplist, as(typeZSet).addScored, 2)
	case rdbZSetListpack:
		c.restorePacked(r, openListpack, as(typeZSet).addScored, 2)
	case rdbStreamOld, rdbStreamListpacks:
		s := streamReader{rdbReader: r, c: c, v: as(typeStream)}
		s.stream(kind == rdbStreamOld)
	default:
		r.bad()
	}
}

// adder adds an element to a collection: an element alone, a field with its
// value or a member with its score. It returns an error message if the element
// is not valid, and "" otherwise.
type adder func(o *container.Owner, name, value []byte) (fail string)

func (v *collection) addElement(o *container.Owner, elem, _ []byte) (fail string) {
	v.list.Insert(o, v.list.Len(), string(elem))
	return ""
}

func (v *collection) addMember(o *container.Owner, member, _ []byte) (fail string) {
	if !v.putMember(o, viewString(member)) {
		return msgBadData
	}
	return ""
}

func (v *collection) addField(o *container.Owner, field, value []byte) (fail string) {
	switch {
	case len(field) > MaxKeyBytes:
		return msgTooLong
	case !v.putField(o, viewString(field), string(value)):
		return msgBadData
	}
	return ""
}

func (v *collection) addScored(o *container.Owner, member, score []byte) (fail string) {
	f, ok := number.ParseFloat(score)
	if !ok {
		return msgBadData
	}
	return v.addScore(o, member, f)
}

func (v *collection) addScore(o *container.Owner, member []byte, score float64) (fail string) {
	if _, twice := v.score.Find(viewString(member)); twice || math.IsNaN(score) {
		return msgBadData
	}
	v.putScore(o, viewString(member), score)
	return ""
}

// add reads an element of width parts and passes it to an adder.
func (c *Ctx) add(r *rdbReader, to adder, width int, part func() []byte) {
	if !r.more(1) {
		return
	}
	name := part()
	var value []byte
	if width > 1 {
		name = bytes.Clone(name) // the next part may overwrite it
		value = part()
	}
	switch {
	case len(name) > MaxStringBytes || len(value) > MaxStringBytes:
		r.stop(msgTooLong)
		return
	case r.failed():
		return
	}
	if fail := to(c.m.owner, name, value); fail != "" {
		r.stop(fail)
	}
}

// restoreStrings reads a number of elements, each of width strings.
func (c *Ctx) restoreStrings(r *rdbReader, to adder, width int) {
	for n := r.count(width); n > 0 && !r.failed(); n-- {
		c.add(r, to, width, r.string)
	}
}

// restorePacked reads a blob and adds its elements. open parses the blob.
func (c *Ctx) restorePacked(r *rdbReader, open func([]byte) (packed, bool), to adder, width int) {
	blob := r.blob()
	if r.failed() {
		return
	}
	p, ok := open(blob)
	if !ok || p.n%width != 0 {
		r.bad()
		return
	}
	for p.n > 0 && !r.failed() {
		c.add(r, to, width, p.next)
	}
}

// restoreQuicklist reads the nodes of a list. Some of the nodes may be empty.
func (c *Ctx) restoreQuicklist(r *rdbReader, v *collection) {
	for n := r.count(2); n > 0 && !r.failed(); n-- {
		switch r.length() {
		case quicklistPlain:
			c.add(r, v.addElement, 1, r.string)
		case quicklistPacked:
			c.restorePacked(r, openListpack, v.addElement, 1)
		default:
			r.bad()
		}
	}
}

// restoreScores reads members with scores, which are doubles or texts depending
// on kind. It can choose the compact encoding only after it has read all
// members.
func (c *Ctx) restoreScores(r *rdbReader, v *collection, kind byte) {
	v.grow(c.m.owner, typeZSet)
	longest := 0
	for n := r.count(2); n > 0 && r.more(1); n-- {
		member := r.string()
		var score float64
		if kind == rdbZSet {
			score = math.Float64frombits(r.uint64())
		} else {
			score = r.score()
		}
		if r.failed() {
			return
		}
		if fail := v.addScore(c.m.owner, member, score); fail != "" {
			r.stop(fail)
		}
		longest = max(longest, len(member))
	}
	if v.order.Len() > compactMembers || longest > compactBytes {
		return
	}
	small := newCollection(typeZSet)
	v.order.Ascend(0, func(m *container.Scored) bool {
		small.putScore(c.m.owner, m.Member, m.Score)
		return true
	})
	*v = *small
}

// score reads a score that is a text with its size in front. The three largest
// sizes are not sizes; they stand for NaN and the infinities.
func (r *rdbReader) score() float64 {
	switch n := r.byte(); n {
	case 253: // not a number
		r.bad()
		return 0
	case 254:
		return math.Inf(1)
	case 255:
		return math.Inf(-1)
	default:
		f, ok := number.ParseFloat(r.take(uint64(n)))
		if !ok {
			r.bad()
		}
		return f
	}
}

// openIntset checks a whole array of integers, which must be in ascending
// order, and returns its content. ok is false if the array is not well-formed.
func openIntset(b []byte) (p packed, ok bool) {
	const head = 4 + 4
	if len(b) < head {
		return p, false
	}
	width := binary.LittleEndian.Uint32(b)
	n := binary.LittleEndian.Uint32(b[4:])
	p.b = b[head:]
	switch {
	case width != 2 && width != 4 && width != 8, uint64(n)*uint64(width) != uint64(len(p.b)):
		return p, false
	}
	p.n = int(n)
	size := int(width)
	p.decode = func(b []byte) (packedElement, int) {
		return packedElement{number: littleEndian(b[:size]), numeric: true}, size
	}
	for i := size; i < len(p.b); i += size {
		if littleEndian(p.b[i-size:i]) >= littleEndian(p.b[i:i+size]) {
			return p, false
		}
	}
	return p, true
}
