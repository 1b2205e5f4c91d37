package replay

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// needRedis starts a redis-server, or skips the test.
func needRedis(t testing.TB) *Redis {
	t.Helper()
	r, err := StartRedis()
	if errors.Is(err, ErrNoRedis) && !RequireRedis() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// family generates commands on a few keys, for every type. Some of the keys
// have the wrong type.
type family struct {
	rng *rand.Rand
	n   int
}

func (f *family) key() string {
	return []string{"a", "b", "c", "d", "e"}[f.rng.IntN(5)]
}
func (f *family) of(kind string) string {
	if f.rng.IntN(25) == 0 {
		return f.key() + ":" + []string{"str", "list", "set", "hash", "zset", "stream", "hll", "geo"}[f.rng.IntN(8)]
	}
	return f.key() + ":" + kind
}
func (f *family) num(n int) string { return strconv.Itoa(f.rng.IntN(n)) }
func (f *family) val() string {
	f.n++
	switch f.rng.IntN(8) {
	case 0:
		return strings.Repeat("x", 60+f.rng.IntN(30)) + f.num(100)
	case 1, 2:
		return f.num(40)
	case 3:
		return "\x00\xff" + f.num(30)
	}
	return "v" + f.num(60)
}
func (f *family) pick(words ...string) string { return words[f.rng.IntN(len(words))] }
func (f *family) some(prefix []string, n int, each func() []string) []string {
	for range 1 + f.rng.IntN(n) {
		prefix = append(prefix, each()...)
	}
	return prefix
}
func (f *family) id() string { return f.num(12) + "-" + f.num(5) }

// score returns a random score for sorted sets.
func (f *family) score() string {
	return f.pick(f.num(20), "-"+f.num(20), f.num(9)+"."+f.num(99), "inf", "1e"+f.num(15))
}

// draw returns one random command.
func (f *family) draw() []string {
	switch f.rng.IntN(12) {
	case 11:
		return f.locks()
	case 0, 1:
		return f.strings()
	case 2:
		return f.lists()
	case 3:
		return f.sets()
	case 4:
		return f.hashes()
	case 5, 6:
		return f.zsets()
	case 7, 8:
		return f.streams()
	case 9:
		return f.keys()
	}
	return f.others()
}

func (f *family) strings() []string {
	k := f.of("str")
	if strings.HasSuffix(k, ":hll") {
		k = f.key() + ":str" // the effect of overwriting a part of a HyperLogLog is undefined
	}
	switch f.rng.IntN(20) {
	case 0, 1, 2:
		return []string{"set", k, f.val()}
	case 3:
		return []string{"set", k, f.val(), "PX", strconv.Itoa(1 + f.rng.IntN(200)), f.pick("NX", "XX", "GET")}
	case 4:
		return []string{"set", k, f.val(), f.pick("IFEQ", "IFNE"), f.val()}
	case 5:
		return []string{"set", k, f.val(), "GET", f.pick("IFEQ", "IFNE"), f.val(), "KEEPTTL"}
	case 6:
		return []string{"append", k, f.val()}
	case 7:
		return []string{f.pick("incrby", "decrby"), f.of("str"), f.num(1000)}
	case 8:
		return []string{"incrbyfloat", k, f.pick("0.1", "1.5", "-2.25", "3e3", "0.333333333")}
	case 9:
		return []string{"setrange", k, f.num(40), f.val()}
	case 10:
		return []string{"setbit", k, f.num(300), f.num(2)}
	case 11:
		return []string{"bitfield", k, "OVERFLOW", f.pick("WRAP", "SAT", "FAIL"), "INCRBY", f.pick("u8", "i5", "u33"), f.num(64), f.num(100)}
	case 12:
		return []string{"bitop", f.pick("AND", "OR", "XOR"), f.of("str"), f.of("str"), f.of("str")}
	case 13:
		return []string{"mset", f.of("str"), f.val(), f.of("str"), f.val()}
	case 14:
		return []string{"msetnx", f.of("str"), f.val(), f.of("str"), f.val()}
	case 15:
		return []string{"getdel", k}
	case 16:
		return []string{"getex", k, f.pick("PX", "EX"), strconv.Itoa(1 + f.rng.IntN(100))}
	case 17:
		return []string{f.pick("delifeq", "getset", "setnx"), k, f.val()}
	case 18:
		return []string{"delex", k, f.pick("IFEQ", "IFNE"), f.val()}
	}
	return []string{"psetex", k, strconv.Itoa(1 + f.rng.IntN(300)), f.val()}
}

func (f *family) lists() []string {
	k := f.of("list")
	switch f.rng.IntN(14) {
	case 0, 1, 2, 3:
		return f.some([]string{f.pick("rpush", "lpush", "rpushx", "lpushx"), k}, 8, func() []string { return []string{f.val()} })
	case 4:
		return []string{f.pick("lpop", "rpop"), k, f.num(4)}
	case 5:
		return []string{"linsert", k, f.pick("BEFORE", "AFTER"), f.val(), f.val()}
	case 6:
		return []string{"lset", k, f.pick("-", "") + f.num(5), f.val()}
	case 7:
		return []string{"lrem", k, f.pick("-2", "0", "1"), f.val()}
	case 8:
		return []string{"ltrim", k, f.num(3), f.pick("-1", "-2", "30")}
	case 9:
		return []string{"lmove", k, f.of("list"), f.pick("LEFT", "RIGHT"), f.pick("LEFT", "RIGHT")}
	case 10:
		return []string{"rpoplpush", k, f.of("list")}
	case 11:
		return []string{f.pick("blpop", "brpop"), k, f.of("list"), "0"}
	case 12:
		return []string{"blmove", k, f.of("list"), f.pick("LEFT", "RIGHT"), f.pick("LEFT", "RIGHT"), "0"}
	}
	return []string{"blmpop", "0", "2", k, f.of("list"), f.pick("LEFT", "RIGHT"), "COUNT", strconv.Itoa(1 + f.rng.IntN(3))}
}

// locks returns a command on locks. No other commands use its keys, because the
// redis-server has a sorted set in place of a lock with several owners.
func (f *family) locks() []string {
	k, owner, px := "lock"+f.num(3), "owner"+f.num(4), strconv.Itoa(15+f.rng.IntN(2000))
	switch f.rng.IntN(16) {
	case 0, 1, 2:
		return []string{"lock", "acquire", k, owner, "px", px}
	case 3, 4:
		return []string{"lock", "acquire", k, owner, "px", px, "wait", "0"}
	case 5, 6:
		return []string{"lock", "acquire", k, owner, "px", px, "shared", "wait", "0"}[:7+f.rng.IntN(2)*2]
	case 7, 8, 9:
		return []string{"lock", "release", k, owner}
	case 10:
		return []string{"lock", "break", k}
	case 11:
		return []string{"lock", "renew", k, owner, "px", px}
	case 12:
		return []string{"set", k, owner, "nx", "px", px}
	case 13:
		return []string{"delifeq", k, owner}
	case 14:
		return []string{"get", k}
	}
	return []string{"del", k}
}

func (f *family) sets() []string {
	k := f.of("set")
	switch f.rng.IntN(9) {
	case 0, 1, 2, 3:
		return f.some([]string{"sadd", k}, 10, func() []string { return []string{f.val()} })
	case 4:
		return []string{"srem", k, f.val(), f.val()}
	case 5:
		return []string{"spop", k}
	case 6:
		return []string{"spop", k, f.num(4)}
	case 7:
		return []string{"smove", k, f.of("set"), f.val()}
	}
	return []string{f.pick("sinterstore", "sunionstore", "sdiffstore"), k, f.of("set"), f.of("set")}
}

func (f *family) hashes() []string {
	k := f.of("hash")
	switch f.rng.IntN(8) {
	case 0, 1, 2:
		return f.some([]string{"hset", k}, 8, func() []string { return []string{f.val(), f.val()} })
	case 3:
		return []string{"hdel", k, f.val(), f.val()}
	case 4:
		return []string{"hincrby", k, f.val(), f.num(50)}
	case 5:
		return []string{"hincrbyfloat", k, f.val(), f.pick("0.5", "-1.25", "10")}
	case 6:
		return []string{"hsetnx", k, f.val(), f.val()}
	}
	return f.some([]string{"hset", k}, 150, func() []string { return []string{"f" + f.num(400), f.val()} })
}

func (f *family) zsets() []string {
	k := f.of("zset")
	switch f.rng.IntN(14) {
	case 0, 1, 2:
		return f.some([]string{"zadd", k}, 6, func() []string { return []string{f.score(), f.val()} })
	case 3:
		return f.some([]string{"zadd", k, f.pick("NX", "XX", "GT", "LT"), "CH"}, 4, func() []string { return []string{f.score(), f.val()} })
	case 4:
		return []string{"zincrby", k, f.score(), f.val()}
	case 5:
		return []string{"zrem", k, f.val(), f.val()}
	case 6:
		return []string{f.pick("zpopmin", "zpopmax"), k, f.num(3)}
	case 7:
		return []string{"zremrangebyrank", k, f.num(3), f.num(5)}
	case 8:
		return []string{"zremrangebyscore", k, "-5", f.num(5)}
	case 9:
		return []string{f.pick("zunionstore", "zinterstore"), k, "2", f.of("zset"), f.of("set"), "WEIGHTS", f.num(4), "2", "AGGREGATE", f.pick("SUM", "MIN", "MAX")}
	case 10:
		return []string{"zdiffstore", k, "2", f.of("zset"), f.of("zset")}
	case 11:
		return []string{"zrangestore", k, f.of("zset"), f.num(3), f.num(10)}
	case 12:
		return []string{f.pick("bzpopmin", "bzpopmax"), k, f.of("zset"), "0"}
	}
	return []string{"bzmpop", "0", "2", k, f.of("zset"), f.pick("MIN", "MAX"), "COUNT", strconv.Itoa(1 + f.rng.IntN(3))}
}

func (f *family) streams() []string {
	k, g, c := f.of("stream"), f.pick("g1", "g2"), f.pick("c1", "c2", "c3")
	switch f.rng.IntN(20) {
	case 0, 1, 2, 3:
		return []string{"xadd", k, "*", f.val(), f.val()}
	case 4:
		return []string{"xadd", k, "MAXLEN", f.pick("=", "~"), f.num(30), "*", f.val(), f.val(), "f", f.val()}
	case 5:
		return []string{"xadd", k, f.pick("NOMKSTREAM", "MAXLEN"), f.pick("5", "*"), f.id(), "f", f.val()}
	case 6:
		return []string{"xtrim", k, f.pick("MAXLEN", "MINID"), f.num(10)}
	case 7:
		return []string{"xgroup", f.pick("create", "create", "createconsumer", "delconsumer", "destroy"), k, g, f.pick("$", "0")}
	case 8:
		return []string{"xgroup", "create", k, g, f.pick("$", "0"), "MKSTREAM"}
	case 9:
		return []string{"xgroup", "setid", k, g, f.pick("$", "0")}
	case 10, 11, 12:
		return []string{"xreadgroup", "GROUP", g, c, "COUNT", strconv.Itoa(1 + f.rng.IntN(4)), "STREAMS", k, ">"}
	case 13:
		return []string{"xreadgroup", "GROUP", g, c, "BLOCK", "0", "STREAMS", k, f.of("stream"), ">", ">"}
	case 14:
		return []string{"xreadgroup", "GROUP", g, c, "NOACK", "STREAMS", k, ">"}
	case 15:
		return []string{"xautoclaim", k, g, c, f.num(200), "0", "COUNT", "3"}
	case 16:
		return []string{"xautoclaim", k, g, c, "0", "0", "JUSTID"}
	case 17:
		return []string{"xack", k, g, f.lastID(), f.lastID()}
	case 18:
		return f.some([]string{"xclaim", k, g, c, f.num(100), f.lastID(), f.lastID()}, 1, func() []string {
			return [][]string{{"JUSTID"}, {"FORCE"}, {"RETRYCOUNT", "7"}, {"IDLE", "50"}, {"LASTID", "5-0"}}[f.rng.IntN(5)]
		})
	}
	return []string{"xdel", k, f.lastID(), f.lastID()}
}

// lastID returns the id of a stream entry that may exist. The state machine
// computes the id "*" from the clock of the log entry, which writer.entry sets.
func (f *family) lastID() string {
	return strconv.Itoa(10*f.rng.IntN(max(f.n, 1))+wallStart) + "-0"
}

func (f *family) keys() []string {
	a, b := f.of(f.pick("str", "list", "set", "hash", "zset", "stream")), f.of(f.pick("str", "list", "set", "hash", "zset", "stream"))
	switch f.rng.IntN(12) {
	case 0:
		return []string{"del", a, b}
	case 1:
		return []string{"rename", a, b}
	case 2:
		return []string{"renamenx", a, b}
	case 3:
		return []string{"copy", a, b, "DB", f.num(2), f.pick("REPLACE", "replace")}
	case 4:
		return []string{"move", a, "1"}
	case 5, 6:
		return []string{"pexpire", a, f.pick("50", "100", "200", "-1")}
	case 7:
		return []string{"pexpireat", a, strconv.Itoa(wallStart + 10*f.n - 300 + f.rng.IntN(600)), f.pick("NX", "GT", "LT", "XX")}
	case 8:
		return []string{"persist", a}
	case 9:
		return []string{"sort", f.of("list"), "ALPHA", "STORE", f.of("list")}
	case 10:
		return []string{f.pick("swapdb", "swapdb", "unlink"), "0", "1"}
	}
	if f.rng.IntN(20) == 0 {
		return []string{f.pick("flushdb", "flushall")}
	}
	return []string{"unlink", a}
}

func (f *family) others() []string {
	switch f.rng.IntN(6) {
	case 0, 1:
		return f.some([]string{"pfadd", f.of("hll")}, 30, func() []string { return []string{f.val() + f.num(1000)} })
	case 2:
		return []string{"pfmerge", f.of("hll"), f.of("hll"), f.of("hll")}
	case 3:
		return []string{"geoadd", f.of("geo"), f.num(180) + "." + f.num(99), f.num(80) + "." + f.num(99), f.val()}
	case 4:
		return []string{"geosearchstore", f.of("geo"), f.of("geo"), "FROMLONLAT", f.num(90), f.num(60), "BYRADIUS", f.num(5000), "km", "ASC"}
	}
	return []string{"eval", "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end", "1", f.of("str"), f.val()}
}

// wallStart is the wall clock of the first entry, in milliseconds.
const wallStart = 1_000_000

// writer writes groups of commands of all families into the log. Some groups
// contain transactions, and some commands wait.
type writer struct {
	*recorder
	family
	origin uint64
}

// entry appends an entry of a few groups.
func (w *writer) entry() {
	w.t.Helper()
	w.now += 10 * time.Millisecond
	w.stamp += int64(10 * time.Millisecond)
	var b fsm.BatchBuilder
	for range 1 + w.rng.IntN(3) {
		var g fsm.Group
		w.origin++ // a new connection for each group: a connection that waits sends nothing
		g.Reset(2+w.rng.IntN(2), w.origin)
		db := w.rng.IntN(8) / 7
		for range 1 + w.rng.IntN(3) {
			if w.rng.IntN(6) > 0 {
				if cmd, args := w.command(); cmd.Flags&fsm.Blocking == 0 || g.Ops() == 0 {
					g.Command(cmd, db, args)
					if cmd.Flags&fsm.Blocking != 0 {
						break // the command may wait
					}
				}
				continue
			}
			var queued []fsm.Queued
			for range 1 + w.rng.IntN(4) {
				cmd, args := w.command()
				queued = append(queued, fsm.Queued{DB: db, Cmd: cmd, Args: args})
			}
			var watches []fsm.Watch
			if w.rng.IntN(4) == 0 {
				watches = append(watches, fsm.Watch{DB: db, Key: w.of("str"), Version: 0})
			}
			g.Transaction(watches, queued)
		}
		if g.Ops() == 0 {
			continue
		}
		w.seq++
		b.Add(fsm.SessionID{NodeID: "n1@i", Boot: 1}, 0, w.seq, bytes.Clone(g.Bytes()))
	}
	index, hash := w.machine.Hash()
	data := b.Encode(fsm.Header{Term: 1, Stamp: w.stamp, Wall: int64(wallStart+w.now.Milliseconds()) * 1000, Seed: w.rng.Uint64(), HashIndex: index, Hash: hash})
	for _, g := range w.append(data).Groups {
		if g.Status != fsm.StatusDone {
			w.t.Fatalf("group %d is %v", g.Seq, g.Status)
		}
	}
}

func (w *writer) command() (*fsm.Command, [][]byte) {
	args := w.draw()
	cmd := w.table.Find([]byte(args[0]))
	if cmd == nil {
		w.t.Fatalf("no command %q", args)
	}
	raw := respwire.Args(args...)
	if !cmd.ArityOK(len(raw)) {
		w.t.Fatalf("command %q", args)
	}
	return cmd, raw
}

func newWriter(t *testing.T, seed uint64) *writer {
	w := &writer{recorder: newRecorder(t), family: family{rng: rand.New(rand.NewPCG(seed, 12))}}
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(w.table.Find([]byte(fsm.FeaturesCommand)), 0, [][]byte{[]byte(fsm.FeaturesCommand), []byte("1"), []byte(strconv.Itoa(fsm.MaxFeatures))})
	w.seq++
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "n1@i", Boot: 1}, 0, w.seq, g.Bytes())
	w.append(b.Encode(fsm.Header{Term: 1, Stamp: w.stamp}))
	return w
}

// TestRedis_FromSnapshot checks that the replay of a log without its beginning
// starts from a snapshot.
func TestRedis_FromSnapshot(t *testing.T) {
	redis := needRedis(t)
	w := newWriter(t, 100)
	for range 300 {
		w.entry()
	}
	var base bytes.Buffer
	if err := w.machine.WriteSnapshot(&base, w.machine.Sessions()); err != nil {
		t.Fatal(err)
	}
	log := Log{Base: base.Bytes(), BaseIndex: w.machine.Applied()}
	for range 300 {
		w.entry()
	}
	log.Entries = w.log.Entries[log.BaseIndex-20:] // the snapshot also contains the first 20 of these entries
	res, err := CheckRedis(log, redis, w.rng)
	if err != nil || len(res.Violations) > 0 || res.Entries != 300 || res.Compared == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	log.Entries = w.log.Entries[log.BaseIndex+1:]
	if _, err := CheckRedis(log, redis, w.rng); err == nil {
		t.Error("a gap between snapshot and log is not noticed")
	}
}

// TestRedis_Finds replaces the implementation of a command in the state machine
// by that of another command. The comparison with Redis must find this bug by
// the command's reply or by the state after it.
func TestRedis_Finds(t *testing.T) {
	redis := needRedis(t)
	for _, tc := range []struct{ name, by string }{{"rpush", "lpush"}, {"smove", "sismember"}, {"zincrby", "zrank"}, {"xack", "xdel"}, {"expire", "exists"}} {
		w := newWriter(t, 7)
		table := command.NewTable()
		table.Find([]byte(tc.name)).Run = table.Find([]byte(tc.by)).Run
		if tc.name == "expire" { // a key must outlive its time to live
			table.Find([]byte("del")).Run = table.Find([]byte("exists")).Run
		}
		s, err := NewShadow(redis, fsm.New(table))
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			w.entry()
		}
		for _, e := range w.log.Entries {
			if s.done() {
				break
			}
			if err := s.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Compare(); err != nil {
			t.Fatal(err)
		}
		if bad, err := s.Violations(); err != nil || len(bad) == 0 {
			t.Errorf("%s does what %s does: %v, %v", tc.name, tc.by, bad, err)
		}
	}
}

// TestRedis_RandomCommands checks that random commands of all families have the
// same effect on a real Redis as on the state machine.
func TestRedis_RandomCommands(t *testing.T) {
	redis := needRedis(t)
	seeds := uint64(6)
	if s := os.Getenv("REPLAY_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	total := RedisResult{}
	for seed := range seeds {
		w := newWriter(t, seed)
		for range 700 {
			w.entry()
		}
		res, err := CheckRedis(w.log, redis, w.rng)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, v := range res.Violations {
			t.Errorf("seed %d: %s %q", seed, v.Text, v.Key)
		}
		total.Entries += res.Entries
		total.Commands += res.Commands
		total.Compared += res.Compared
		total.Equal += res.Equal
	}
	t.Logf("%d entries, %d commands, %d keys compared, %d of them equal to the byte", total.Entries, total.Commands, total.Compared, total.Equal)
	if total.Commands < 700*int(seeds) || total.Compared < 30*int(seeds) {
		t.Errorf("too little was compared: %+v", total)
	}
}
