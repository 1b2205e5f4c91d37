package fsm_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// mostWork is a limit that no work reaches.
const mostWork = 1 << 50

// divide divides a batch of groups. It returns the groups for the first entry,
// the other groups, and the number of refused operations.
func (w *metered) divide(limits fsm.WorkLimits, bodies ...[]byte) (out, rest *fsm.BatchBuilder, refused int) {
	w.t.Helper()
	var b fsm.BatchBuilder
	for i, body := range bodies {
		b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, w.seq, w.seq+uint64(i)+1, body)
	}
	out, rest = &fsm.BatchBuilder{}, &fsm.BatchBuilder{}
	refused, err := w.m.Divide(&b, out, rest, limits)
	if err != nil {
		w.t.Fatal(err)
	}
	return out, rest, refused
}

// propose applies a batch and returns the replies of its groups.
func (w *metered) propose(b *fsm.BatchBuilder) (res *fsm.Result, replies []string) {
	w.t.Helper()
	index := w.m.Applied() + 1
	res, err := w.m.Apply(index, 1, b.Encode(fsm.Header{Term: 1, Stamp: int64(index), Wall: 1, Seed: 1}))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range res.Groups {
		w.seq++
		replies = append(replies, string(g.Reply))
	}
	return res, replies
}

// heavy returns commands whose work depends on the data in the databases. It
// also returns COPY, RENAME and MOVE, whose work does not depend on it.
func heavy() [][]string {
	return [][]string{
		{"append", "a", "x"}, {"setrange", "a", "3", "x"}, {"setbit", "a", "3", "1"}, {"setrange", "new", "300000", "x"}, {"setbit", "new2", "3000000", "1"},
		{"bitfield", "new3", "set", "u8", "#300000", "1"}, {"bitfield", "a", "incrby", "u8", "3", "1"},
		{"getex", "a"}, {"getset", "b", "x"}, {"set", "new", "x", "get"}, {"getdel", "new2"}, {"hget", "hash", "e1"},
		{"bitop", "not", "not", "a"}, {"bitop", "and", "and", "a", "zeros"}, {"pfadd", "hll", "x"}, {"pfmerge", "hll2", "hll"}, {"pfdebug", "getreg", "hll"},
		{"sort", "list", "alpha"}, {"sort", "list", "alpha", "store", "sorted"}, {"sort", "list", "by", "key:*", "get", "#", "alpha", "store", "sorted"},
		{"lrem", "list", "0", "e1"}, {"linsert", "list", "before", "e4000", "x"}, {"ltrim", "sorted", "0", "2000"}, {"lpop", "list", "2000"}, {"rpop", "list"}, {"lmpop", "2", "nothing", "sorted", "left", "count", "1000"}, {"lmove", "list", "sorted", "left", "left"},
		{"sunionstore", "union", "set", "other"}, {"sinterstore", "inter", "set", "other"}, {"sdiffstore", "diff", "set", "other"}, {"sdiffstore", "diff", "other", "set", "diff"},
		{"zunionstore", "zunion", "2", "zset", "set"}, {"zinterstore", "zinter", "2", "zset", "set"}, {"zdiffstore", "zdiff", "2", "zset", "other"}, {"zrangestore", "zrange", "zset", "0", "-1"}, {"zrangestore", "zrange", "zset", "-inf", "+inf", "byscore", "limit", "0", "100"},
		{"zremrangebyrank", "zunion", "0", "2000"}, {"zremrangebyscore", "zinter", "0", "2000"}, {"zremrangebylex", "zrange", "-", "+"}, {"zpopmin", "zset", "2000"}, {"zmpop", "1", "zset", "max", "count", "1000"}, {"spop", "union", "2000"}, {"spop", "union"},
		{"geosearchstore", "found", "geo", "fromlonlat", "0", "0", "byradius", "1000", "km"}, {"georadius", "geo", "0", "0", "1000", "km", "store", "found"},
		{"xreadgroup", "group", "g", "c", "streams", "stream", "0"}, {"xautoclaim", "stream", "g", "c2", "0", "0", "count", "3000"}, {"xgroup", "delconsumer", "stream", "g", "c2"}, {"xreadgroup", "group", "g2", "c", "streams", "stream", ">"},
		{"blpop", "list", "0"}, {"blmpop", "0", "2", "nothing", "sorted", "left", "count", "500"}, {"bzmpop", "0", "1", "zset", "min", "count", "500"},
		{"xtrim", "stream", "maxlen", "3000"}, {"xtrim", "stream", "minid", "3500-1"}, {"xadd", "stream", "limit", "1000", "nomkstream", "maxlen", "~", "1500", "*", "f", "v"}, {"xadd", "stream", "maxlen", "500", "*", "f", "v"},
		{"swapdb", "1", "2"}, {"copy", "set", "copied"}, {"copy", "set", "moved"}, {"move", "moved", "1"}, {"rename", "copied", "renamed"}, {"flushdb"}, {"flushall"},
	}
}

// TestWork compares the estimate for a command with the steps that the command is
// charged. The estimate must be at least half of these steps, and at most 20
// times as many plus 80,000.
func TestWork(t *testing.T) {
	w := newMetered(t)
	w.fill(5000)
	w.apply([]string{"xgroup", "create", "stream", "g2", "0"})
	payload := w.dumped("list")
	tried := make(map[string]bool)
	for _, words := range append([][]string{{"restore", "restored", "0", payload}}, heavy()...) {
		tried[words[0]] = true
		body := w.group(words).Bytes()
		plain, depends := w.table.Weigh(body)
		steps, err := w.m.GroupWork(body)
		if err != nil {
			t.Fatal(err)
		}
		if light := words[0] == "copy" || words[0] == "rename" || words[0] == "move"; depends == light || plain > 2000 || steps > plain && light {
			t.Errorf("%q: %d steps estimated from its arguments, %d in all, depends on its keys: %v",
				words, plain, steps, depends)
		}
		charged := int(w.apply(words).Steps)
		if steps < charged/2 || steps > 20*charged+80_000 {
			t.Errorf("%q: %d steps estimated, %d charged", words, steps, charged)
		}
	}
	// TestDivide_EndedWaits and TestWaitParts_Work have examples of the first
	// three of these commands. The others are estimated like some of the commands
	// above.
	for _, name := range []string{fsm.UnwaitCommand, fsm.WaitedCommand, fsm.SuspendCommand, "mget", "get", "hmget", "renamenx", "rpoplpush", "zpopmax", "georadiusbymember", "brpop", "blmove", "brpoplpush", "restore-asking"} {
		tried[name] = true
	}
	for _, cmd := range w.table.Rows() {
		if w.table.Estimated(cmd.Name) && !tried[cmd.Name] {
			t.Errorf("the work of %s is estimated, but no example tests the estimate", cmd.Name)
		}
	}
}

// TestWork_Invalid: a command with an invalid offset copies nothing, so that the
// reply is about the offset even if --max-write-time is short.
func TestWork_Invalid(t *testing.T) {
	w := newMetered(t)
	w.fill(100)
	for _, words := range [][]string{
		{"setrange", "s", "8388608", "x"}, {"setrange", "s", "-1", "x"}, {"setrange", "s", "8388607", ""},
		{"setbit", "s", "67108864", "1"}, {"setbit", "s", "-1", "1"},
		{"bitfield", "s", "set", "u8", "67108864", "1"}, {"bitfield", "s", "set", "u8", "60000000", "1", "set", "u65", "0", "1"},
	} {
		steps, err := w.m.GroupWork(w.group(words).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if steps > 1000 {
			t.Errorf("%q: %d steps estimated, want at most 1000", words, steps)
		}
	}
}

// TestWork_LargeMembers: the estimate of a command that takes elements includes the
// bytes of its reply.
func TestWork_LargeMembers(t *testing.T) {
	const size, n = 1 << 20, 20
	w := newMetered(t)
	for i := range n {
		large := fmt.Sprint(i) + strings.Repeat("x", size)
		w.apply([]string{"sadd", "set", large}, []string{"zadd", "zset", "1", large}, []string{"rpush", "list", large})
	}
	for _, words := range [][]string{
		{"spop", "set", "10"}, {"spop", "set"}, {"zpopmin", "zset", "10"}, {"zpopmax", "zset"}, {"lpop", "list", "10"},
		{"zmpop", "1", "zset", "max", "count", "10"}, {"lmpop", "1", "list", "left"},
	} {
		steps, err := w.m.GroupWork(w.group(words).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		reply := len(w.apply(words).Groups[0].Reply)
		if least := reply / 16; steps < least || reply < size {
			t.Errorf("%q: %d steps estimated for a reply of %d bytes, want at least %d", words, steps, reply, least)
		}
	}
}

// TestWork_Repeated: a set that is named several times counts once.
func TestWork_Repeated(t *testing.T) {
	w := newMetered(t)
	w.fill(5000)
	for _, name := range []string{"sunionstore", "sinterstore", "sdiffstore"} {
		var steps [2]int
		for i, words := range [][]string{{name, "x", "set", "other"}, {name, "x", "set", "other", "set", "other", "other"}} {
			var err error
			if steps[i], err = w.m.GroupWork(w.group(words).Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		if steps[1] > steps[0]+100 {
			t.Errorf("%s: %d steps estimated, %d with repeated keys, want about the same", name, steps[0], steps[1])
		}
	}
}

// TestWork_Grown: an estimate includes the elements that earlier commands of
// the same group add.
func TestWork_Grown(t *testing.T) {
	w := newMetered(t)
	w.fill(5000)
	for _, c := range []struct {
		first, second []string
		grows         bool
	}{
		{[]string{"copy", "set", "new"}, []string{"sunionstore", "x", "new"}, true},
		{[]string{"rename", "set", "new"}, []string{"sunionstore", "x", "new"}, true},
		{[]string{"sunionstore", "new", "set"}, []string{"sunionstore", "x", "new", "nothing"}, true},
		{append([]string{"sadd", "new"}, strings.Fields(strings.Repeat("x ", 5000))...), []string{"sunionstore", "x", "new"}, true},
		{[]string{"sort", "list", "by", "nosort", "store", "new"}, []string{"lrem", "new", "0", "x"}, true},
		{[]string{"zrangestore", "new", "zset", "0", "-1"}, []string{"zpopmin", "new", "10000"}, true},
		{[]string{"setrange", "new", "1000000", "x"}, []string{"append", "new", "x"}, true},
		{[]string{"setbit", "new", "8000000", "1"}, []string{"getex", "new"}, true},
		{[]string{"set", "new", strings.Repeat("x", 1<<20)}, []string{"getset", "new", "y"}, true},
		{[]string{"copy", "set", "new", "db", "1"}, []string{"sunionstore", "x", "new"}, true},
		{[]string{"move", "set", "1"}, []string{"sunionstore", "x", "set", "nothing"}, true},
		{[]string{"copy", "zset", "new"}, []string{"zremrangebyscore", "new", "0", "+inf"}, true},
		{[]string{"copy", "stream", "new"}, []string{"xtrim", "new", "minid", "9999-1"}, true},
		// A command that may fail does not reduce the estimates of later commands.
		{[]string{"lpop", "zset", "5000"}, []string{"zunionstore", "x", "1", "zset"}, true},
		{[]string{"ltrim", "list", "x", "0"}, []string{"lrem", "list", "0", "x"}, true},
		{[]string{"zremrangebyrank", "zset", "0", "-1", "x"}, []string{"zunionstore", "x", "1", "zset"}, true},
		// The estimate for adding an element covers its removal.
		{append([]string{"rpush", "new"}, strings.Fields(strings.Repeat("x ", 5000))...), []string{"ltrim", "new", "1", "0"}, false},
		{[]string{"xadd", "stream", "maxlen", "5000", "*", "f", "v"}, []string{"xadd", "stream", "maxlen", "5000", "*", "f", "v"}, false},
		{[]string{"zadd", "zset", "1", "x"}, []string{"zremrangebyscore", "zset", "-inf", "3"}, false},
	} {
		work := func(commands ...[]string) int {
			steps, err := w.m.GroupWork(w.group(commands...).Bytes())
			if err != nil {
				t.Fatal(err)
			}
			return steps
		}
		added := work(c.first, c.second) - work(c.first)
		if c.grows && added < 10_000 || !c.grows && added > 1000 {
			t.Errorf("%.60q after %.60q: the estimate adds %d steps", c.second, c.first, added)
		}
	}
}

// TestWork_Restore checks the estimate for RESTORE with values of all kinds, and
// with payloads that are small because they are compressed.
func TestWork_Restore(t *testing.T) {
	f, keys := variety(t)
	for _, c := range []struct{ key, head, format string }{
		{"small elements", "rpush k", "x"},
		{"numbers", "rpush k", "1"},
		{"members", "sadd k", "m%d"},
		{"integers", "sadd k", "%d"},
		{"scores", "zadd k", "1 m%d"},
		{"fields", "hset k", "f%d v"},
		{"long elements", "rpush k", strings.Repeat("%d", 60)},
	} {
		for from := 0; from < 40_000; from += 1000 {
			words := strings.Fields(c.head)
			words[1] = c.key
			for i := from; i < from+1000; i++ {
				words = append(words, strings.Fields(strings.ReplaceAll(c.format, "%d", fmt.Sprint(i)))...)
			}
			f.call(words...)
		}
		keys = append(keys, c.key)
	}
	for i := range 20_000 {
		f.call("xadd", "stream of many", fmt.Sprint(i+1), "f", "v")
	}
	var payloads []string
	for _, key := range append(keys, "stream of many") {
		payloads = append(payloads, f.dump(key))
	}
	w := newMetered(t)
	for _, body := range oldBodies() { // some of them are not valid
		payload := string(rdb.Seal([]byte(body)))
		if steps, err := w.m.GroupWork(w.group([]string{"restore", "k", "0", payload}).Bytes()); err != nil || steps > 5000 {
			t.Errorf("%q: %d steps estimated, want at most 5000, error %v", body, steps, err)
		}
	}
	for _, payload := range payloads {
		words := []string{"restore", "restored", "0", payload, "replace"}
		body := w.group(words).Bytes()
		if _, depends := w.table.Weigh(body); !depends {
			t.Error("Weigh reports that the arguments alone determine the work of RESTORE")
		}
		estimate, err := w.m.GroupWork(body)
		if err != nil {
			t.Fatal(err)
		}
		if charged := int(w.apply(words).Steps); estimate < charged || estimate > 6*charged+2000 {
			t.Errorf("payload of %d bytes, %.20q: %d steps estimated, %d charged",
				len(payload), payload, estimate, charged)
		}
	}
	for n := range 200 { // damaged payloads
		cut := payloads[n%len(payloads)]
		rdb.Weigh([]byte(cut[:len(cut)*n/200]), rdb.Limits{String: 1 << 20, Unfolded: 1 << 20, Elements: 1 << 20})
	}
}

// TestWork_ManyKeys checks that the estimate for a command with many keys takes
// little memory for each key. The proposer computes the estimate while the
// writes of all clients wait.
func TestWork_ManyKeys(t *testing.T) {
	w := newMetered(t)
	names := strings.Fields(strings.Repeat("x ", 200_000))
	for _, words := range [][]string{append([]string{"del"}, names...), append([]string{"mset"}, names...)} {
		body := w.group(words).Bytes()
		var steps int
		one := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				var err error
				if steps, err = w.m.GroupWork(body); err != nil {
					b.Fatal(err)
				}
			}
		})
		// Each argument takes 24 bytes. The position of a key takes 8 bytes,
		// and append may reserve more. The race detector adds some bytes too.
		if most := int64(160 * len(words)); one.AllocedBytesPerOp() > most {
			t.Errorf("%s: the estimate allocates %d bytes, want at most %d", words[0], one.AllocedBytesPerOp(), most)
		}
		if least := 16 * len(words); steps < least {
			t.Errorf("%s: %d steps, want at least %d", words[0], steps, least)
		}
	}
}

// TestWork_Time: a step of a command with very many arguments takes at most twice
// as long as a step of SUNIONSTORE. The test measures times and compares them.
// TestWork cannot find a wrong number of steps if the same code estimates and
// charges the steps.
func TestWork_Time(t *testing.T) {
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	const n = 60_000
	names, pairs, scored := []string{}, []string{}, []string{}
	for i := range n {
		name := fmt.Sprintf("m%d", i*7919%n)
		names, pairs, scored = append(names, name), append(pairs, name, "v"), append(scored, fmt.Sprint(i), name)
	}
	perStep := func(command []string, before ...[]string) float64 {
		least := math.Inf(1)
		for range 3 {
			w := newMetered(t)
			for _, words := range before {
				if len(words) > 0 {
					w.apply(words)
				}
			}
			steps, err := w.m.GroupWork(w.group(command).Bytes())
			if err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			start := threadTime(t)
			w.apply(command)
			least = min(least, float64(threadTime(t)-start)/float64(steps))
		}
		return least
	}
	set, other := append([]string{"sadd", "set"}, names...), append([]string{"sadd", "other"}, pairs...)
	usual := perStep([]string{"sunionstore", "union", "set", "other"}, set, other)
	for _, test := range []struct{ words, before []string }{
		{words: set},
		{words: append([]string{"zadd", "zset"}, scored...)},
		{words: append([]string{"hset", "hash"}, pairs...)},
		{words: append([]string{"rpush", "list"}, names...)},
		{words: append([]string{"pfadd", "hll"}, names...)},
		{words: append([]string{"mset"}, pairs...)},
		{words: []string{"setrange", "new", "8388607", "x"}},
		{words: []string{"setbit", "new", "67108863", "1"}},
		{words: []string{"append", "s", "x"}, before: []string{"setrange", "s", "8388606", "x"}},
		{words: []string{"bitfield", "s", "set", "u8", "0", "1"}, before: []string{"setrange", "s", "8388607", "x"}},
		{words: []string{"bitop", "not", "new", "s"}, before: []string{"setrange", "s", "8388607", "x"}},
		{words: append([]string{"srem", "set"}, names...), before: set},
		{words: append([]string{"zrem", "zset"}, names...), before: append([]string{"zadd", "zset"}, scored...)},
		{words: append([]string{"hdel", "hash"}, names...), before: append([]string{"hset", "hash"}, pairs...)},
		{words: append([]string{"del"}, names...), before: append([]string{"mset"}, pairs...)},
	} {
		took := perStep(test.words, test.before)
		t.Logf("%s: %.1f ns a step, %.1f usually", test.words[0], took, usual)
		if took > 2*usual {
			t.Errorf("%s: %.1f ns a step, want at most twice the usual %.1f ns", test.words[0], took, usual)
		}
	}
}

// TestWork_Waits: a blocking command is charged for each key that it waits for.
// If the command names so many keys that executing it takes longer than an
// entry may, it is executed only if it has a slot in a lane of the leader. If
// it exceeds the limit for an operation, it is refused.
func TestWork_Waits(t *testing.T) {
	w := newMetered(t)
	many := func(words ...string) []byte {
		for i := range 5000 {
			words = append(words, fmt.Sprintf("absent%d", i))
		}
		return w.group(append(words, "0")).Bytes()
	}
	limits := fsm.WorkLimits{Entry: 400_000, Operation: 100_000_000}
	for _, name := range []string{"blpop", "brpop", "bzpopmin", "bzpopmax"} {
		body := many(name)
		if steps, _ := w.table.Weigh(body); steps < 5000*fsm.StepsPerWait {
			t.Errorf("%s: %d steps by its arguments, want StepsPerWait for each key", name, steps)
		}
		out, _, refused := w.divide(limits, body)
		if _, replies := w.propose(out); refused != 0 || replies[0] != "\x00" {
			t.Errorf("%s: %q, %d refused, want a group that is too long", name, replies, refused)
		}
		fsm.SetScriptBudget(body, fsm.DryRunPassed)
		out, _, refused = w.divide(limits, body)
		if _, replies := w.propose(out); refused != 0 || !strings.HasPrefix(replies[0], "@") {
			t.Errorf("%s in a slot: %q, %d refused, want a wait", name, replies, refused)
		}
		out, _, refused = w.divide(fsm.WorkLimits{Entry: 400_000, Operation: 900_000}, body)
		if _, replies := w.propose(out); refused != 1 || !strings.HasPrefix(replies[0], "-BUSY ") {
			t.Errorf("%s: %q, %d refused, want BUSY", name, replies, refused)
		}
	}
}

// TestDivide_EndedWaits: the ends of waits with many keys are divided over
// several entries. Such waits of three clients may time out at the same time, or
// the clients may disconnect at the same time. The work of a command that names all
// three waits is that of the three commands together.
func TestDivide_EndedWaits(t *testing.T) {
	for _, name := range []string{fsm.UnwaitCommand, fsm.WaitedCommand} {
		t.Run(name, func(t *testing.T) { testEndedWaits(t, name) })
	}
}

func testEndedWaits(t *testing.T, name string) {
	w := newMetered(t)
	from := func(origin uint64, words ...string) []byte {
		g := &fsm.Group{}
		g.Reset(2, origin)
		var args [][]byte
		for _, word := range words {
			args = append(args, []byte(word))
		}
		g.Command(w.table.Find(args[0]), 0, args)
		return g.Bytes()
	}
	limits := fsm.WorkLimits{Entry: 400_000, Operation: mostWork}
	var ends [][]byte
	all := []string{name}
	for origin := range uint64(3) {
		words := []string{"blpop"}
		for i := range 3000 {
			words = append(words, fmt.Sprintf("absent%d", i))
		}
		wait := from(origin+1, append(words, "0")...)
		fsm.SetScriptBudget(wait, fsm.DryRunPassed)
		out, _, _ := w.divide(limits, wait)
		_, replies := w.propose(out)
		pos, _, ok := fsm.Waiting([]byte(replies[0]))
		if !ok {
			t.Fatalf("%.100q, want a wait", replies[0])
		}
		end := []string{fmt.Sprint(origin + 1), fmt.Sprint(pos)}
		ends, all = append(ends, from(origin+1, append([]string{name}, end...)...)), append(all, end...)
	}
	if name == fsm.WaitedCommand {
		for limit, want := range map[int]int{800_000: 1, 900_000: 2} { // the three waits need 864,000 steps
			out, _, _ := w.divide(fsm.WorkLimits{Entry: limit, Operation: mostWork}, from(1, all...), from(4, "get", "k"))
			if n, _ := out.Len(); n != want {
				t.Errorf("limit of %d steps: an entry ends the three waits and contains %d groups, want %d", limit, n, want)
			}
		}
	}
	if _, depends := w.table.Weigh(ends[0]); !depends {
		t.Error("Weigh reports that the arguments alone determine the work of ending a wait")
	}
	out, rest, _ := w.divide(limits, ends...)
	if n, _ := out.Len(); n != 1 {
		t.Errorf("%d of the waits end in the first entry, want 1", n)
	}
	for n := 3; n > 0; n-- {
		if got := w.m.Waiting(); got != n {
			t.Fatalf("%d clients wait, want %d", got, n)
		}
		w.propose(out)
		next := &fsm.BatchBuilder{}
		if out, next = next, (&fsm.BatchBuilder{}); n > 1 {
			if _, err := w.m.Divide(rest, out, next, limits); err != nil {
				t.Fatal(err)
			}
			rest = next
		}
	}
}

// TestDivide: the groups of one entry stay within the limit for an entry. A
// pipeline that exceeds the limit is answered with TooLong, and a single
// operation that exceeds its own limit is refused.
func TestDivide(t *testing.T) {
	w := newMetered(t)
	w.fill(5000)
	union := []string{"zunionstore", "sum", "1", "set"} // about 540,000 steps
	incr := []string{"incr", "n"}
	group := func(commands ...[]string) []byte { return w.group(commands...).Bytes() }
	limits := fsm.WorkLimits{Entry: 1_700_000, Operation: mostWork}

	out, rest, refused := w.divide(limits, group(union), group(incr), group(union, union), group(incr), group(union), group(incr))
	if n, _ := out.Len(); n != 4 || refused != 0 || out.Depends() {
		t.Fatalf("%d groups fit, %d refused, want 4 and 0", n, refused)
	}
	if n, _ := rest.Len(); n != 2 || !rest.Depends() {
		t.Fatalf("%d groups are left, want 2 whose work depends on their keys", n)
	}
	res, replies := w.propose(out)
	if want := ":5000\r\n,:1\r\n,:5000\r\n:5000\r\n,:2\r\n"; strings.Join(replies, ",") != want || res.Steps > uint64(limits.Entry) {
		t.Errorf("replies %q, %d steps, want the replies of four groups within the limit of steps", replies, res.Steps)
	}
	if _, replies = w.propose(rest); strings.Join(replies, ",") != ":5000\r\n,:3\r\n" {
		t.Errorf("replies of the rest: %q, want those of two groups", replies)
	}

	// The estimate for a group includes the elements that earlier groups add.
	copied := []string{"zunionstore", "sum", "1", "new"}
	out, _, _ = w.divide(limits, group([]string{"copy", "set", "new"}), group(copied), group(copied), group(copied), group(copied))
	if n, _ := out.Len(); n != 4 {
		t.Errorf("%d groups fit, want 4: a COPY and three unions of the set that it creates", n)
	}

	limits = fsm.WorkLimits{Entry: 200_000, Operation: 600_000}
	tried := group(union)
	fsm.SetScriptBudget(tried, fsm.DryRunPassed)
	tooMuch := []string{"zunionstore", "sum", "2", "set", "other"}
	refusal := group(incr, tooMuch, incr)
	triedTooMuch := group(tooMuch)
	fsm.SetScriptBudget(triedTooMuch, fsm.DryRunPassed)
	want := []string{"\x00", "\x00", ":5000\r\n", "-BUSY the command or transaction would take about ", ":4\r\n-BUSY the command or transaction would take about "}
	for i, body := range [][]byte{group(incr, union), group(union), tried, triedTooMuch, refusal} {
		out, rest, refused := w.divide(limits, body)
		if n, _ := rest.Len(); n != 0 || refused != i/3 {
			t.Errorf("group %d: %d groups are left, %d refused, want 0 left, and only operations over the limit "+
				"refused", i, n, refused)
		}
		if _, replies := w.propose(out); !strings.HasPrefix(replies[0], want[i]) {
			t.Errorf("group %d: %q, want %q", i, replies[0], want[i])
		}
	}
	if got, _ := w.read(nil, []string{"get", "n"}); got != "$1\r\n5\r\n" {
		t.Errorf("n after INCR before and after the refused command: %q, want 5", got)
	}
	// A database can always be emptied.
	flush := group([]string{"flushall"})
	fsm.SetScriptBudget(flush, fsm.DryRunPassed)
	out, _, refused = w.divide(fsm.WorkLimits{Entry: 1, Operation: 1}, flush)
	if _, replies := w.propose(out); refused != 0 || replies[0] != "+OK\r\n" || w.m.Len() != 0 {
		t.Errorf("FLUSHALL: %q, %d refused, %d keys, want OK, 0 and 0", replies, refused, w.m.Len())
	}
}

// bounded is a runner that bounds the work of the writes of scripts.
type bounded struct {
	*lines
	steps int
}

// MostWork implements fsm.WorkBound.
func (b bounded) MostWork() int { return b.steps }

// TestDivide_Script: a script is aborted before the write with which its writes
// would exceed the limit, and all of its writes are rolled back.
func TestDivide_Script(t *testing.T) {
	s := newStage(t)
	var members strings.Builder
	for i := range 1000 { // 66,000 steps for a union
		fmt.Fprintf(&members, "|m%d", i)
	}
	s.group("SADD|set" + members.String())
	s.commit()
	s.runner = bounded{&s.lines, 100_000}
	s.group("EVAL|sunionstore a set|0")
	s.want("one union", ":1000 ")
	s.group("EVAL|set k v\nsunionstore a set\nsunionstore b a\nset l v|0")
	s.group("EVAL|set n v|0", "EXISTS|k|b|l|n")
	s.want("two unions", "-BUSY the writes of the script would take longer than --max-write-time on every node: nothing of it was done, divide it / +OK :1 ")
}

// TestDivide_BehindScript: the estimates for the commands and groups after a
// script include the elements that the script has added.
func TestDivide_BehindScript(t *testing.T) {
	s := newStage(t)
	var members strings.Builder
	for i := range 1000 { // 66,000 steps for a union
		fmt.Fprintf(&members, "|m%d", i)
	}
	s.group("SADD|set" + members.String())
	s.commit()
	s.runner = bounded{&s.lines, 100_000}
	s.group("EVAL|sunionstore a set|0", "SUNIONSTORE|b|a", "EXISTS|a|b")
	s.want("same group", ":1000 -BUSY the writes of the pipeline or transaction would take longer than --max-write-time on every node: this command was not executed, divide it :1 ")

	s.group("EVAL|sunionstore a set|0")
	for range 3 {
		s.group("SUNIONSTORE|b|a")
		s.group("INCR|n")
	}
	if got := strings.Join(s.entry(), "/ "); got != ":1000 / :1000 / :1 " {
		t.Errorf("replies of the first entry: %q, want those of the script and the two groups after it", got)
	}
	s.want("the rest", ":1000 / :2 / :1000 / :3 ")
}
