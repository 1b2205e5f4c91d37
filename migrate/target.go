package migrate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultBulk is the maximum size in bytes of an argument that an import sends
// if the cluster does not report its limit (proto-max-bulk-len). It is the
// default of --max-bulk-bytes.
const defaultBulk = 1 << 20

// target writes items into the cluster.
type target struct {
	link    *link
	replace bool
	maxBulk int
	cluster string // id of the cluster
}

// open checks that the cluster answers and has a leader.
func (t *target) open(ctx context.Context) error {
	if err := t.link.check(ctx); err != nil {
		return err
	}
	// A read needs a leader. The node waits for a leader before it answers.
	replies, err := t.link.once(ctx, 0, command("EXISTS", "holdfast:import"), command("INFO", "holdfast"),
		command("CONFIG", "GET", "proto-max-bulk-len"))
	if err != nil {
		return t.link.explain(err)
	}
	for _, r := range replies[:2] {
		if r.err != nil {
			return t.link.explain(r.err)
		}
	}
	t.cluster = infoField(replies[1].text(), "cluster_id")
	if t.cluster == "" {
		return fmt.Errorf("%s %s is not a node of Holdfast: --addr names the cluster that receives the data",
			t.link.end.Name, t.link.addr())
	}
	t.maxBulk = defaultBulk
	if pair, ok := replies[2].value.([]any); ok && len(pair) == 2 {
		if text, ok := pair[1].(string); ok {
			if n, err := strconv.Atoi(text); err == nil {
				t.maxBulk = n
			}
		}
	}
	return nil
}

// infoField returns a field of the reply to INFO, "" if it has none.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// clock asks for the wall clock that the cluster uses for absolute times.
func (t *target) clock(ctx context.Context) (targetClock, error) {
	var c targetClock
	replies, err := t.link.sendNew(ctx, 0, func() [][]any {
		c.asked = time.Now()
		return [][]any{command("TIME")}
	})
	if err != nil {
		return c, err
	}
	pair, ok := replies[0].value.([]any)
	if !ok || len(pair) != 2 {
		return c, fmt.Errorf("%s: unexpected reply to TIME", t.link.addr())
	}
	seconds, err1 := strconv.ParseInt(fmt.Sprint(pair[0]), 10, 64)
	micros, err2 := strconv.ParseInt(fmt.Sprint(pair[1]), 10, 64)
	if err1 != nil || err2 != nil {
		return c, fmt.Errorf("%s: unexpected reply to TIME", t.link.addr())
	}
	c.unixMs = seconds*1000 + (micros+999)/1000
	return c, nil
}

// write imports items of one database. It calls outcome for each item.
func (t *target) write(ctx context.Context, db int, items []item, outcome func(item, result)) error {
	clock, err := t.clock(ctx)
	if err != nil {
		return err
	}
	var sent []item
	var commands [][]any
	for _, it := range items {
		end := it.life.at(clock)
		switch {
		case it.reason != "":
			outcome(it, result{skipped: it.reason})
			continue
		case end != 0 && end <= clock.now() && !t.replace:
			outcome(it, result{expired: true})
			continue
		case divided(it.payload):
			res, err := t.divide(ctx, db, it, clock)
			if err != nil {
				return err
			}
			outcome(it, res)
			continue
		case len(it.payload) > t.maxBulk:
			outcome(it, result{skipped: tooLarge(len(it.payload), "the cluster", t.maxBulk)})
			continue
		}
		c := command("RESTORE", it.key, end, it.payload, "ABSTTL")
		if t.replace {
			c = append(c, "REPLACE")
		}
		sent, commands = append(sent, it), append(commands, c)
	}
	if len(sent) == 0 {
		return nil
	}
	replies, err := t.link.send(ctx, db, commands...)
	if err != nil {
		return err
	}
	results := make([]result, len(sent))
	var busy []int
	for i, r := range replies {
		if results[i], err = t.result(sent[i], r, clock); err != nil {
			return err
		}
		if results[i].existing {
			busy = append(busy, i)
		}
	}
	if err := t.compare(ctx, db, sent, busy, results); err != nil {
		return err
	}
	for i, it := range sent {
		outcome(it, results[i])
	}
	return nil
}

// result is the outcome of writing an item.
type result struct {
	expired  bool
	existing bool   // the target has the key with another value
	skipped  string // why the item was not imported, or ""
}

// stopErrors contains the beginnings of errors that concern the target as a whole,
// and not only one key.
var stopErrors = []string{"OOM", "NOPERM", "NOAUTH", "READONLY", "MISCONF", "DISKFULL", "QUARANTINE"}

// result returns the result for a reply to RESTORE. If the key exists, result
// assumes that it has another value; compare corrects this.
func (t *target) result(it item, r reply, c targetClock) (result, error) {
	err := r.failed()
	switch {
	case err == nil:
		end := it.life.at(c)
		return result{expired: end != 0 && end <= c.now()}, nil
	case strings.HasPrefix(err.Error(), "BUSYKEY"):
		return result{existing: true}, nil
	}
	if stops(err) {
		return result{}, t.link.explain(err)
	}
	return result{skipped: "the cluster refuses it: " + err.Error()}, nil
}

// stops reports whether an error concerns the target as a whole, so that the import
// must stop.
func stops(err error) bool {
	return slices.ContainsFunc(stopErrors, func(code string) bool { return strings.HasPrefix(err.Error(), code) })
}

// compare corrects the results of the items with the given indexes, whose keys
// the target already has. Such an item counts as imported if the key in the
// target has the value of the item, and has a time to live if and only if the
// item has one.
func (t *target) compare(ctx context.Context, db int, items []item, indexes []int, results []result) error {
	if len(indexes) == 0 {
		return nil
	}
	var commands [][]any
	for _, i := range indexes {
		commands = append(commands, command("DUMP", items[i].key), command("PTTL", items[i].key))
	}
	replies, err := t.link.send(ctx, db, commands...)
	if err != nil {
		return err
	}
	for n, i := range indexes {
		results[i].existing = !items[i].isSame(replies[2*n], replies[2*n+1])
	}
	return nil
}

// isSame reports whether the replies to DUMP and PTTL contain the value of the
// item, and a time to live if and only if the item has one. If DUMP failed, for
// instance because the value is too large, isSame returns false.
func (it item) isSame(dump, ttl reply) bool {
	if dump.err != nil || ttl.failed() != nil || (ttl.number() >= 0) != it.life.volatile {
		return false
	}
	// Compare the bytes first. They are almost always equal if the import
	// continues after an interruption.
	return dump.text() == string(it.payload) || sameValue([]byte(dump.text()), it.payload)
}

// missing returns the keys that the target does not have.
func (t *target) missing(ctx context.Context, db int, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	all := command("EXISTS")
	for _, k := range keys {
		all = append(all, k)
	}
	replies, err := t.link.send(ctx, db, all)
	if err != nil {
		return nil, err
	}
	if replies[0].failed() == nil && replies[0].number() == int64(len(keys)) {
		return nil, nil
	}
	var each [][]any
	for _, k := range keys {
		each = append(each, command("EXISTS", k))
	}
	if replies, err = t.link.send(ctx, db, each...); err != nil {
		return nil, err
	}
	var lost []string
	for i, r := range replies {
		if err := r.failed(); err != nil {
			return nil, t.link.explain(err)
		}
		if r.number() == 0 {
			lost = append(lost, keys[i])
		}
	}
	return lost, nil
}

// function loads a library of functions.
func (t *target) function(ctx context.Context, code string) (result, error) {
	c := command("FUNCTION", "LOAD", code)
	if t.replace {
		c = command("FUNCTION", "LOAD", "REPLACE", code)
	}
	replies, err := t.link.send(ctx, 0, c)
	if err != nil {
		return result{}, err
	}
	err = replies[0].failed()
	if err == nil {
		return result{}, nil
	}
	if !strings.Contains(err.Error(), "already exists") {
		return result{skipped: "the cluster refuses it: " + err.Error()}, nil
	}
	same, err := t.hasFunction(ctx, code)
	return result{existing: !same}, err
}

// hasFunction reports whether the target has a library with the same code.
func (t *target) hasFunction(ctx context.Context, code string) (bool, error) {
	replies, err := t.link.send(ctx, 0, command("FUNCTION", "LIST", "LIBRARYNAME", libraryName(code), "WITHCODE"))
	if err != nil {
		return false, err
	}
	libraries, _ := replies[0].value.([]any)
	for _, l := range libraries {
		fields, _ := l.([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "library_code" && fields[i+1] == code {
				return true, nil
			}
		}
	}
	return false, nil
}

// libraryName returns the name in the first line of a library's code, which is
// #!lua name=NAME.
func libraryName(code string) string {
	line, _, _ := strings.Cut(code, "\n")
	for word := range strings.FieldsSeq(line) {
		if name, ok := strings.CutPrefix(word, "name="); ok {
			return name
		}
	}
	return ""
}
