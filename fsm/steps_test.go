package fsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// metered is a machine for tests of budgets.
type metered struct {
	t     *testing.T
	table *fsm.Table
	m     *fsm.Machine
	seq   uint64
}

func newMetered(t *testing.T) *metered {
	table := command.NewTable()
	w := &metered{t: t, table: table, m: fsm.New(table)}
	if _, err := w.m.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1, Stamp: 1, Wall: 1}, fsm.TermStart{NodeID: "n", Boot: 1, ClusterID: "c", Features: fsm.MaxFeatures})); err != nil {
		t.Fatal(err)
	}
	return w
}

// group encodes commands, each given as its arguments.
func (w *metered) group(commands ...[]string) *fsm.Group {
	w.t.Helper()
	g := &fsm.Group{}
	g.Reset(2, 1)
	for _, words := range commands {
		args := respwire.Args(words...)
		cmd := w.table.Find(args[0])
		if cmd == nil {
			w.t.Fatalf("there is no command %q", words[0])
		}
		g.Command(cmd, 0, args)
	}
	return g
}

// apply logs commands as one entry.
func (w *metered) apply(commands ...[]string) *fsm.Result {
	w.t.Helper()
	w.seq++
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, w.seq, w.seq, w.group(commands...).Bytes())
	index := w.m.Applied() + 1
	res, err := w.m.Apply(index, 1, b.Encode(fsm.Header{Term: 1, Stamp: int64(index), Wall: 1, Seed: 1}))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range res.Groups {
		if strings.HasPrefix(string(g.Reply), "-") {
			w.t.Fatalf("%.100q: %s, want no error", commands, g.Reply)
		}
	}
	return res
}

// fill makes values of all types except lock. The collections have at least n
// elements each, and n must be a multiple of 500.
func (w *metered) fill(n int) {
	w.t.Helper()
	text := strings.Repeat("abcdefghij", n/10)
	w.apply([]string{"set", "a", text}, []string{"set", "b", strings.Repeat("jihgfedcba", n/10)})
	for from := 0; from < n; from += 500 {
		var list, set, other, hash, zset, geo []string
		var stream, keys [][]string
		for i := from; i < from+500; i++ {
			e := fmt.Sprintf("e%d", i)
			list, set, other = append(list, e), append(set, e), append(other, e+"x", e)
			hash, zset = append(hash, e, e), append(zset, fmt.Sprint(i), e)
			geo = append(geo, fmt.Sprint(float64(i%100)/100), fmt.Sprint(float64(i/100)/100), e)
			stream = append(stream, []string{"xadd", "stream", fmt.Sprintf("%d-1", i+1), "f", e})
			keys = append(keys, []string{"set", "key:" + e, e})
		}
		w.apply(append([]string{"rpush", "list"}, list...), append([]string{"sadd", "set"}, set...), append([]string{"sadd", "other"}, other...),
			append([]string{"hset", "hash"}, hash...), append([]string{"zadd", "zset"}, zset...), append([]string{"geoadd", "geo"}, geo...))
		w.apply(stream...)
		w.apply(keys...)
	}
	w.apply([]string{"pfadd", "hll", "a", "b"}, []string{"setbit", "zeros", fmt.Sprint(16 * n), "1"})
	w.apply([]string{"xgroup", "create", "stream", "g", "0"})
	w.apply([]string{"xreadgroup", "group", "g", "c", "streams", "stream", ">"})
}

// read runs commands as a read, within a budget.
func (w *metered) read(b *fsm.Budget, commands ...[]string) (string, error) {
	w.t.Helper()
	reply, _, err := w.m.Read(nil, fsm.ReadRequest{Body: w.group(commands...).Bytes(), Seed: 1, Budget: b})
	return string(reply), err
}

// dumped returns the payload of DUMP.
func (w *metered) dumped(key string) string {
	w.t.Helper()
	reply, err := w.read(nil, []string{"dump", key})
	if err != nil {
		w.t.Fatal(err)
	}
	_, payload, _ := strings.Cut(strings.TrimSuffix(reply, "\r\n"), "\r\n")
	return payload
}

// TestBudget: a read that visits elements charges for them, and stops when its
// steps are used up. Without a budget it completes.
func TestBudget(t *testing.T) {
	const elements, budget = 20_000, 2000
	w := newMetered(t)
	w.fill(elements)
	many := func(name, key string) []string {
		words := []string{name}
		for range 1000 {
			words = append(words, key)
		}
		return words
	}
	for _, words := range [][]string{
		{"lcs", "a", "key:e1", "len"}, {"lcs", "key:e1", "a"}, {"lcs", "a", "key:e1", "idx"}, {"bitcount", "a"}, {"bitpos", "zeros", "1"}, {"keys", "*"}, {"keys", "*nothing*"}, {"scan", "0", "count", "10000"}, {"scan", "0", "count", "10000", "match", "*x*y*z*"},
		many("mget", "a"), many("exists", "a"), many("pfcount", "hll"),
		{"lrange", "list", "0", "-1"}, {"lpos", "list", "nothing"}, {"lpos", "list", "e1", "count", "0", "rank", "-1"},
		{"smembers", "set"}, {"sinter", "set", "other"}, {"sintercard", "2", "set", "other"}, {"sunion", "set", "other"}, {"sdiff", "set", "other"}, {"srandmember", "set", "-20000"}, {"srandmember", "set", "19999"}, {"sscan", "set", "0", "count", "10000"},
		{"hgetall", "hash"}, {"hkeys", "hash"}, {"hvals", "hash"}, {"hrandfield", "hash", "-20000"}, {"hscan", "hash", "0", "count", "10000"}, many("hmget", "hash"),
		{"zrange", "zset", "0", "-1"}, {"zrangebyscore", "zset", "-inf", "inf", "withscores"}, {"zrevrange", "zset", "0", "-1"}, {"zunion", "2", "zset", "set"}, {"zinter", "2", "zset", "set"}, {"zdiff", "2", "zset", "other"}, {"zintercard", "2", "zset", "set"}, {"zrandmember", "zset", "-20000"}, {"zscan", "zset", "0", "count", "10000"}, many("zmscore", "zset"),
		{"geosearch", "geo", "fromlonlat", "0", "0", "byradius", "1000", "km"},
		{"xrange", "stream", "-", "+"}, {"xrevrange", "stream", "+", "-"}, {"xread", "streams", "stream", "0"}, {"xpending", "stream", "g", "-", "+", "20000"}, {"xpending", "stream", "g", "-", "+", "20000", "c"}, {"xinfo", "stream", "stream", "full", "count", "0"},
		{"sort_ro", "list", "alpha"}, {"sort_ro", "list", "by", "nosort", "get", "key:*"},
		{"dump", "list"}, {"dump", "set"}, {"dump", "hash"}, {"dump", "zset"}, {"dump", "stream"}, {"dump", "a"},
		{"pfselftest"},
	} {
		name := strings.Join(words[:min(len(words), 4)], " ")
		free := fsm.Budget{Steps: 1 << 40}
		want, err := w.read(nil, words)
		if err != nil {
			t.Fatalf("%s without a budget: %v", name, err)
		}
		if got, err := w.read(&free, words); err != nil || got != want {
			t.Errorf("%s with a large budget: error %v, %d bytes, want %d", name, err, len(got), len(want))
		}
		if got, err := w.read(&fsm.Budget{Steps: budget}, words); !errors.Is(err, fsm.ErrSteps) || got != "" {
			t.Errorf("%s with %d steps: error %v, %d bytes, want ErrSteps and no bytes", name, budget, err, len(got))
		}
		// A read charges its steps while it visits the elements, not at the
		// end.
		asked, errStop := 0, errors.New("stop")
		if _, err := w.read(&fsm.Budget{Stop: func() error { asked++; return errStop }}, words); asked != 1 || len(want) > 1<<18 && !errors.Is(err, errStop) {
			if !(asked == 0 && err == nil) { // unless the read takes fewer steps than StepsPerStop
				t.Errorf("%s: Stop was called %d times, error %v, want one call and its error", name, asked, err)
			}
		}
	}
}

// TestBudget_Group: the operations of a pipeline share one budget.
func TestBudget_Group(t *testing.T) {
	w := newMetered(t)
	w.fill(1000)
	one := []string{"bitcount", "a"}
	if _, err := w.read(&fsm.Budget{Steps: 1000}, one); err != nil {
		t.Fatal(err)
	}
	var many [][]string
	for range 300 {
		many = append(many, one)
	}
	if _, err := w.read(&fsm.Budget{Steps: 1000}, many...); !errors.Is(err, fsm.ErrSteps) {
		t.Errorf("300 reads within one budget: %v, want ErrSteps", err)
	}
}

// TestBudget_Hold: a read calls Budget.Hold for the memory that it needs, and stops
// if Hold returns an error.
func TestBudget_Hold(t *testing.T) {
	const elements = 20_000
	w := newMetered(t)
	w.fill(elements)
	w.apply([]string{"set", "long", strings.Repeat("x", 1<<20)})
	repeated := []string{"mget"}
	for range 40 {
		repeated = append(repeated, "long")
	}
	for _, c := range []struct {
		words []string
		least int // bytes
	}{
		{[]string{"smembers", "set"}, 64 * elements},
		{[]string{"sunion", "set", "other"}, 64 * elements},
		{[]string{"zunion", "2", "zset", "set"}, 128 * elements},
		{[]string{"sort_ro", "list", "alpha"}, 96 * elements},
		{[]string{"keys", "*"}, 64 * elements},
		{[]string{"xrange", "stream", "-", "+"}, 128 * elements},
		{[]string{"lcs", "a", "b"}, elements * elements / 8},
		{repeated, 40 << 20},
	} {
		held := 0
		if c.words[0] == "lcs" { // within maxLcsCells
			w.apply([]string{"set", "a", strings.Repeat("ab", 2000)}, []string{"set", "b", strings.Repeat("ba", 2000)})
			c.least = 4000 * 4000 / 8
		}
		if _, err := w.read(&fsm.Budget{Hold: func(n int) error { held += n; return nil }}, c.words); err != nil || held < c.least || held > 8*c.least {
			t.Errorf("%.40q holds %d bytes (%v), want about %d", c.words, held, err, c.least)
		}
		errFull := errors.New("full")
		asked := 0
		if _, err := w.read(&fsm.Budget{Hold: func(n int) error { asked++; return errFull }}, c.words); !errors.Is(err, errFull) || asked != 1 {
			t.Errorf("%.40q: error %v after %d calls of Hold, want errFull after 1", c.words, err, asked)
		}
	}
}

// TestBudget_Script: if a command of a script exceeds the budget, the whole
// group ends with an error. The script cannot continue, although it catches
// errors of commands.
func TestBudget_Script(t *testing.T) {
	w := newMetered(t)
	w.fill(2000)
	runner := &lines{}
	script := []string{"eval_ro", "try smembers set\nget a", "0"}
	w.apply([]string{"_script", script[1]})
	body := w.group(script).Bytes()
	_, _, err := w.m.Read(nil, fsm.ReadRequest{Body: body, Runner: runner, Budget: &fsm.Budget{Steps: 500}})
	if !errors.Is(err, fsm.ErrSteps) || runner.runs != 1 {
		t.Errorf("error %v after %d runs, want ErrSteps after 1", err, runner.runs)
	}
}

// TestSteps: applying an entry counts its steps. Entries complete, however many
// steps they take.
func TestSteps(t *testing.T) {
	w := newMetered(t)
	w.fill(5000)
	small := w.apply([]string{"set", "z", "1"}).Steps
	large := w.apply([]string{"sunionstore", "sum", "set", "other"}).Steps
	if small == 0 || small > 100 || large < 5000*10 {
		t.Errorf("SET takes %d steps, SUNIONSTORE %d, want at most 100 and at least 50000", small, large)
	}
	if got, _ := w.read(nil, []string{"scard", "sum"}); got != ":10000\r\n" {
		t.Errorf("SCARD: %q, want 10000", got)
	}
}
