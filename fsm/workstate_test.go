package fsm_test

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// workState is a state that is larger than the cache of a processor, and makes
// names for commands on it.
type workState struct {
	*metered
	n    int // number of keys of each kind, and of elements of each large collection
	made int // number of names and ids that were made so far
}

// fillLarge makes n keys of some kinds and collections of n elements. n must be a
// multiple of 1000.
func (s *workState) fillLarge() {
	for from := 0; from < s.n; from += 1000 {
		var list, set, hash, zset, geo, strs []string
		var others [][]string
		for i := from; i < from+1000; i++ {
			e, at := "e"+strconv.Itoa(i), strconv.Itoa(i)
			list, set, hash = append(list, e), append(set, e), append(hash, e, at)
			zset, strs = append(zset, at, e), append(strs, "s"+at, at)
			geo = append(geo, fmt.Sprint(float64(i%1000)/100), fmt.Sprint(float64(i/1000)/10), e)
			others = append(others,
				[]string{"set", "x" + at, "v", "PX", strconv.Itoa(100_000_000 + i)},
				[]string{"set", "k" + at, "owner", "NX", "PX", "100000000"},
				[]string{"xadd", "stream", at + "-1", "f", e},
				[]string{"sadd", "S" + at, "a", "b"}, []string{"rpush", "L" + at, "a", "b", "c"},
				[]string{"hset", "H" + at, "a", "1"}, []string{"zadd", "Z" + at, "1", "a", "2", "b"})
		}
		if from == 0 {
			others = append(others[3:], others[:2]...) // an id of a stream is not 0-0
		}
		s.apply(append([]string{"rpush", "list"}, list...), append([]string{"sadd", "set"}, set...),
			append([]string{"hset", "hash"}, hash...), append([]string{"zadd", "zset"}, zset...),
			append([]string{"geoadd", "geo"}, geo...), append([]string{"mset"}, strs...))
		s.apply(others...)
	}
	s.apply([]string{"xgroup", "create", "stream", "g", "0"}, []string{"xgroup", "create", "stream", "g2", "0"},
		[]string{"xreadgroup", "group", "g", "c", "streams", "stream", ">"})
}

// at returns the position with which the i-th command works: successive commands
// use positions that are far from each other.
func (s *workState) at(i int) string { return strconv.Itoa(1 + i*7919*31%(s.n-1)) }

// other returns the name of a new key or element.
func (s *workState) other() string {
	s.made++
	return "new" + strconv.Itoa(s.made*7919%1_000_003) + "-" + strconv.Itoa(s.made)
}

// id returns an id that is larger than all ids of the stream.
func (s *workState) id() string {
	s.made++
	return strconv.Itoa(1_000_000+s.made) + "-1"
}

// ms returns a time to live, a different one for each i.
func ms(i int) string { return strconv.Itoa(1_000_000 + i*977%100_000) }

// several returns a command with ten times the arguments that more returns.
func several(words []string, more func(j int) []string) []string {
	for j := range 10 {
		words = append(words, more(j)...)
	}
	return words
}

// example returns the i-th command of a transaction of ordinary writes.
type example func(i int) []string

// examples returns ordinary writes, by a name that begins with the name of the
// command.
func (s *workState) examples() map[string]example {
	all := s.strings()
	for _, more := range []map[string]example{s.lists(), s.hashes(), s.streams()} {
		maps.Copy(all, more)
	}
	return all
}

// words returns its arguments.
func words(w ...string) []string { return w }

// always returns an example whose commands are all equal.
func always(w ...string) example { return func(int) []string { return w } }

// strings returns examples of writes to strings, and of commands for keys of any type.
func (s *workState) strings() map[string]example {
	at, other := s.at, s.other
	return map[string]example{
		"set":        func(int) []string { return words("set", other(), "v") },
		"set old":    func(i int) []string { return words("set", "s"+at(i), "v") },
		"set px":     func(i int) []string { return words("set", other(), "v", "px", ms(i)) },
		"set nx px":  func(i int) []string { return words("set", other(), "v", "nx", "px", ms(i)) },
		"set px old": func(i int) []string { return words("set", "x"+at(i), "v", "px", ms(i)) },
		"set 1k":     func(int) []string { return words("set", other(), strings.Repeat("x", 1000)) },
		"set 16k":    func(int) []string { return words("set", other(), strings.Repeat("x", 16_000)) },
		"set 256k":   func(int) []string { return words("set", other(), strings.Repeat("x", 256_000)) },
		"setex":      func(int) []string { return words("setex", other(), "1000", "v") },
		"psetex":     func(i int) []string { return words("psetex", other(), ms(i), "v") },
		"setnx":      func(int) []string { return words("setnx", other(), "v") },
		"getset":     func(i int) []string { return words("getset", "s"+at(i), "v") },
		"getdel":     func(i int) []string { return words("getdel", "s"+at(i)) },
		"getex":      func(i int) []string { return words("getex", "s"+at(i), "px", ms(i)) },
		"append":     func(i int) []string { return words("append", "s"+at(i), "1") },
		"setrange":   func(i int) []string { return words("setrange", "s"+at(i), "3", "123") },
		"setbit":     func(i int) []string { return words("setbit", "bits"+at(i), "100", "1") },
		"bitfield":   func(i int) []string { return words("bitfield", "field"+at(i), "incrby", "u8", "3", "1") },
		"bitop":      func(i int) []string { return words("bitop", "or", other(), "s"+at(i), "s"+at(i+1)) },
		"mset": func(int) []string {
			return several(words("mset"), func(int) []string { return words(other(), "v") })
		},
		"msetnx": func(int) []string {
			return several(words("msetnx"), func(int) []string { return words(other(), "v") })
		},
		"msetex": func(int) []string {
			return append(several(words("msetex", "10"), func(int) []string { return words(other(), "v") }), "ex", "100")
		},
		"incr":        func(i int) []string { return words("incr", "n"+at(i)) },
		"decr":        func(i int) []string { return words("decr", "n"+at(i)) },
		"incrby":      func(i int) []string { return words("incrby", "n"+at(i), "2") },
		"decrby":      func(i int) []string { return words("decrby", "n"+at(i), "2") },
		"incrbyfloat": func(i int) []string { return words("incrbyfloat", "n"+at(i), "1.5") },
		"expire":      func(i int) []string { return words("expire", "x"+at(i), ms(i)) },
		"pexpire":     func(i int) []string { return words("pexpire", "x"+at(i), ms(i)) },
		"pexpire new": func(i int) []string { return words("pexpire", "s"+at(i), ms(i)) },
		"expireat":    func(i int) []string { return words("expireat", "x"+at(i), "9"+ms(i)+"00") },
		"pexpireat":   func(i int) []string { return words("pexpireat", "x"+at(i), "9"+ms(i)+"00000") },
		"persist":     func(i int) []string { return words("persist", "x"+at(i)) },
		"del":         func(i int) []string { return words("del", "x"+at(i)) },
		"del 10": func(i int) []string {
			return several(words("del"), func(j int) []string { return words("k" + at(10*i+j)) })
		},
		"unlink": func(i int) []string {
			return several(words("unlink"), func(j int) []string { return words("s" + at(10*i+j)) })
		},
		"delex":    func(i int) []string { return words("delex", "k"+at(i), "ifeq", "owner") },
		"delifeq":  func(i int) []string { return words("delifeq", "k"+at(i), "owner") },
		"rename":   func(i int) []string { return words("rename", "H"+at(i), other()) },
		"renamenx": func(i int) []string { return words("renamenx", "S"+at(i), other()) },
		"copy":     func(i int) []string { return words("copy", "x"+at(i), other()) },
		"move":     func(i int) []string { return words("move", "x"+at(i), "3") },
		"restore":  func(int) []string { return words("restore", other(), "0", s.dumped("s0")) },
	}
}

// lists returns examples of writes to lists and sets.
func (s *workState) lists() map[string]example {
	at, other := s.at, s.other
	return map[string]example{
		"lpush":       always("lpush", "list", "v"),
		"lpush small": func(i int) []string { return words("lpush", "L"+at(i), "v") },
		"lpush new":   func(int) []string { return words("lpush", other(), "v") },
		"lpushx":      func(i int) []string { return words("lpushx", "L"+at(i), "v") },
		"rpush":       always("rpush", "list", "v"),
		"rpush 10": func(int) []string {
			return several(words("rpush", "list"), func(int) []string { return words(other()) })
		},
		"rpushx":     func(i int) []string { return words("rpushx", "L"+at(i), "v") },
		"lset":       func(i int) []string { return words("lset", "list", at(i/2), "v") },
		"lset small": func(i int) []string { return words("lset", "L"+at(i), "0", "v") },
		"linsert":    func(i int) []string { return words("linsert", "L"+at(i), "before", "a", "q") },
		"lrem":       func(i int) []string { return words("lrem", "L"+at(i), "0", "b") },
		"ltrim":      func(i int) []string { return words("ltrim", "L"+at(i), "0", "1") },
		"lpop":       always("lpop", "list"),
		"lpop small": func(i int) []string { return words("lpop", "L"+at(i)) },
		"rpop":       func(i int) []string { return words("rpop", "L"+at(i)) },
		"lmpop":      func(i int) []string { return words("lmpop", "1", "L"+at(i), "left") },
		"lmove":      func(i int) []string { return words("lmove", "L"+at(i), "L"+at(i+1), "left", "right") },
		"rpoplpush":  func(i int) []string { return words("rpoplpush", "L"+at(i), "L"+at(i+1)) },
		"sort":       func(i int) []string { return words("sort", "L"+at(i), "alpha", "store", other()) },
		"sadd":       func(int) []string { return words("sadd", "set", other()) },
		"sadd 10": func(int) []string {
			return several(words("sadd", "set"), func(int) []string { return words(other()) })
		},
		"sadd small": func(i int) []string { return words("sadd", "S"+at(i), "c") },
		"sadd new":   func(int) []string { return words("sadd", other(), "a") },
		"srem":       func(i int) []string { return words("srem", "set", "e"+at(i)) },
		"srem 10": func(i int) []string {
			return several(words("srem", "set"), func(j int) []string { return words("e" + at(10*i+j)) })
		},
		"smove":       func(i int) []string { return words("smove", "set", "set2", "e"+at(i)) },
		"spop":        always("spop", "set"),
		"spop small":  func(i int) []string { return words("spop", "S"+at(i)) },
		"sunionstore": func(i int) []string { return words("sunionstore", other(), "S"+at(i), "S"+at(i+1)) },
		"sinterstore": func(i int) []string { return words("sinterstore", other(), "S"+at(i), "S"+at(i+1)) },
		"sdiffstore":  func(i int) []string { return words("sdiffstore", other(), "S"+at(i), "S"+at(i+1)) },
	}
}

// hashes returns examples of writes to hashes, sorted sets and HyperLogLogs.
func (s *workState) hashes() map[string]example {
	at, other := s.at, s.other
	return map[string]example{
		"hset": func(i int) []string { return words("hset", "hash", "e"+at(i), "v") },
		"hset 10": func(int) []string {
			return several(words("hset", "hash"), func(int) []string { return words(other(), "v") })
		},
		"hset small": func(i int) []string { return words("hset", "H"+at(i), "b", "v") },
		"hset new":   func(int) []string { return words("hset", other(), "a", "v") },
		"hmset":      func(int) []string { return words("hmset", "hash", other(), "v", other(), "v") },
		"hsetnx":     func(int) []string { return words("hsetnx", "hash", other(), "v") },
		"hdel":       func(i int) []string { return words("hdel", "hash", "e"+at(i)) },
		"hdel 10": func(i int) []string {
			return several(words("hdel", "hash"), func(j int) []string { return words("e" + at(10*i+j)) })
		},
		"hincrby":      func(i int) []string { return words("hincrby", "hash2", at(i), "1") },
		"hincrbyfloat": func(i int) []string { return words("hincrbyfloat", "hash2", at(i), "1.5") },
		"zadd":         func(i int) []string { return words("zadd", "zset", at(i), other()) },
		"zadd old":     func(i int) []string { return words("zadd", "zset", at(i+5), "e"+at(i)) },
		"zadd 10": func(i int) []string {
			return several(words("zadd", "zset"), func(j int) []string { return words(at(10*i+j), other()) })
		},
		"zadd small": func(i int) []string { return words("zadd", "Z"+at(i), "7", "q") },
		"zadd new":   func(int) []string { return words("zadd", other(), "1", "a") },
		"zincrby":    func(i int) []string { return words("zincrby", "zset", "1000", "e"+at(i)) },
		"zrem":       func(i int) []string { return words("zrem", "zset", "e"+at(i)) },
		"zrem 10": func(i int) []string {
			return several(words("zrem", "zset"), func(j int) []string { return words("e" + at(10*i+j)) })
		},
		"zpopmin":     always("zpopmin", "zset"),
		"zpopmax":     func(i int) []string { return words("zpopmax", "Z"+at(i)) },
		"zmpop":       func(i int) []string { return words("zmpop", "1", "Z"+at(i), "min") },
		"zrangestore": func(i int) []string { return words("zrangestore", other(), "Z"+at(i), "0", "-1") },
		"zunionstore": func(i int) []string { return words("zunionstore", other(), "2", "Z"+at(i), "Z"+at(i+1)) },
		"zinterstore": func(i int) []string { return words("zinterstore", other(), "2", "Z"+at(i), "Z"+at(i+1)) },
		"zdiffstore":  func(i int) []string { return words("zdiffstore", other(), "2", "Z"+at(i), "Z"+at(i+1)) },
		"geoadd":      func(i int) []string { return words("geoadd", "geo", at(i)[:1], "7."+at(i), other()) },
		"geoadd 10": func(i int) []string {
			return several(words("geoadd", "geo"), func(j int) []string { return words(at(i)[:1], "7."+at(10*i+j), other()) })
		},
		"geosearchstore": func(i int) []string {
			return words("geosearchstore", other(), "G"+at(i), "fromlonlat", "1", "1", "byradius", "1", "km")
		},
		"georadius": func(i int) []string {
			return words("georadius", "G"+at(i), "1", "1", "1", "km", "store", other())
		},
		"zremrangebyrank":  func(i int) []string { return words("zremrangebyrank", "Z"+at(i), "0", "0") },
		"zremrangebyscore": func(i int) []string { return words("zremrangebyscore", "zset", at(i), at(i)) },
		"zremrangebylex":   func(i int) []string { return words("zremrangebylex", "Z"+at(i), "-", "[a") },
		"pfadd":            func(int) []string { return words("pfadd", "hll", other()) },
		"pfadd 10": func(i int) []string {
			return several(words("pfadd", "hll"+at(i%50)), func(int) []string { return words(other()) })
		},
		"pfmerge": func(i int) []string { return words("pfmerge", "merged"+strconv.Itoa(i%20), "hll") },
		"pfdebug": always("pfdebug", "getreg", "hll"),
	}
}

// streams returns examples of writes to streams and locks, and of commands that
// may wait, read or publish.
func (s *workState) streams() map[string]example {
	at, other := s.at, s.other
	return map[string]example{
		"xadd": func(int) []string { return words("xadd", "stream", s.id(), "f", "v") },
		"xadd 10": func(int) []string {
			return several(words("xadd", "stream", s.id()), func(int) []string { return words(other(), "v") })
		},
		"xadd new": func(int) []string { return words("xadd", other(), "1-1", "f", "v") },
		"xdel":     func(i int) []string { return words("xdel", "stream", at(i)+"-1") },
		"xdel 10": func(i int) []string {
			return several(words("xdel", "stream"), func(j int) []string { return words(at(10*i+j) + "-1") })
		},
		"xtrim":  always("xtrim", "stream", "maxlen", "10000000"),
		"xsetid": func(int) []string { return words("xsetid", "stream", s.id()) },
		"xack":   func(i int) []string { return words("xack", "stream", "g", at(i)+"-1") },
		"xack 10": func(i int) []string {
			return several(words("xack", "stream", "g"), func(j int) []string { return words(at(10*i+j) + "-1") })
		},
		"xclaim": func(i int) []string { return words("xclaim", "stream", "g", "c2", "0", at(i)+"-1") },
		"xclaim 10": func(i int) []string {
			return several(words("xclaim", "stream", "g", "c3", "0"), func(j int) []string { return words(at(10*i+j) + "-1") })
		},
		"xautoclaim": func(i int) []string {
			return words("xautoclaim", "stream", "g", "c4", "0", at(i)+"-1", "count", "1")
		},
		"xreadgroup":    always("xreadgroup", "group", "g2", "c", "count", "1", "streams", "stream", ">"),
		"xgroup create": func(int) []string { return words("xgroup", "create", "stream", other(), "0") },
		"xgroup createconsumer": func(int) []string {
			return words("xgroup", "createconsumer", "stream", "g", other())
		},
		"xgroup delconsumer": func(int) []string {
			return words("xgroup", "delconsumer", "stream", "g2", other())
		},
		"xgroup destroy": func(int) []string { return words("xgroup", "destroy", "stream", other()) },
		"xgroup setid":   func(int) []string { return words("xgroup", "setid", "stream", "g2", "0") },
		"lock acquire": func(i int) []string {
			return words("lock", "acquire", other(), "o", "px", ms(i))
		},
		"lock renew": func(i int) []string {
			return words("lock", "renew", "k"+at(i), "owner", "px", ms(i))
		},
		"lock release": func(i int) []string { return words("lock", "release", "k"+at(i), "owner") },
		"lock break":   func(i int) []string { return words("lock", "break", "k"+at(i)) },
		"blpop":        func(i int) []string { return words("blpop", "L"+at(i), "0") },
		"blmove": func(i int) []string {
			return words("blmove", "L"+at(i), "L"+at(i+1), "left", "right", "0")
		},
		"bzpopmin": func(i int) []string { return words("bzpopmin", "Z"+at(i), "0") },
		"get":      func(i int) []string { return words("get", "s"+at(i)) },
		"hget":     func(i int) []string { return words("hget", "hash", "e"+at(i)) },
		"publish":  always("publish", "channel", "message"),
	}
}

// perStep applies the largest transaction of such commands that needs at most
// limit steps. It returns the processor time for one step, in nanoseconds.
func (s *workState) perStep(from, limit int, command example) (perStep float64, ops int) {
	one, err := s.m.GroupWork(s.group(command(from)).Bytes())
	if err != nil {
		s.t.Fatal(err)
	}
	commands := make([][]string, max(limit/one, 1))
	for i := range commands {
		commands[i] = command(from + i)
	}
	var body []byte
	var steps int
	for {
		body = s.group(commands...).Bytes()
		if steps, err = s.m.GroupWork(body); err != nil {
			s.t.Fatal(err)
		}
		if steps <= limit || len(commands) == 1 {
			break
		}
		commands = commands[:len(commands)*limit/steps] // the commands make a key grow
	}
	var b fsm.BatchBuilder
	s.seq++
	b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, s.seq, s.seq, body)
	index := s.m.Applied() + 1
	entry := b.Encode(fsm.Header{Term: 1, Stamp: int64(index), Wall: 1, Seed: 1})
	start := threadTime(s.t)
	if _, err := s.m.Apply(index, 1, entry); err != nil {
		s.t.Fatal(err)
	}
	return float64(threadTime(s.t)-start) / float64(steps), len(commands)
}

// TestWork_LargeState: no entry takes much longer than the estimate of its work. The test
// applies, for each write command, a transaction that takes a quarter of the time
// that the leader accepts, in a state that does not fit into the processor's cache, and compares
// the times for one step. A command whose estimate is too low stands out, because
// a step of the command takes longer than a step of most other commands.
func TestWork_LargeState(t *testing.T) {
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	s := &workState{metered: newMetered(t), n: 80_000}
	s.fillLarge()
	commands := s.examples()
	for _, name := range untried(s.table, commands) {
		t.Errorf("%s: no example tests the time that an entry takes", name)
	}
	names := slices.Sorted(maps.Keys(commands))
	least := make(map[string]float64)
	ops := make(map[string]int)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	from := 0
	for range 3 {
		for i, name := range names {
			if i%40 == 0 {
				runtime.GC()
			}
			per, n := s.perStep(from, maxWrite/4, commands[name])
			from += n
			if had, ok := least[name]; !ok || per < had {
				least[name], ops[name] = per, n
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(least[b], least[a]) })
	usual := least[names[len(names)/2]]
	for _, name := range names {
		text := fmt.Sprintf("%s: %.1f ns a step, %.1f usually; %d commands take %.1f ms",
			name, least[name], usual, 4*ops[name], least[name]*float64(maxWrite)/1e6)
		if t.Log(text); least[name] > 2.5*usual {
			t.Errorf("%s; want at most 2.5 times the usual time", text)
		}
	}
}

// maxWrite is the default of --max-write-time, in steps.
const maxWrite = int(6 * time.Millisecond / time.Nanosecond / fsm.StepNanos)

// untried returns the names of the write commands for which there is no example.
// Other tests measure the commands that a client cannot send, and scripts.
func untried(table *fsm.Table, examples map[string]example) (names []string) {
	tried := make(map[string]bool)
	for example := range examples {
		words := append(strings.Fields(example), "")
		tried[words[0]], tried[words[0]+" "+words[1]] = true, true
	}
	alike := []string{"brpop", "brpoplpush", "blmpop", "bzpopmax", "bzmpop", "georadiusbymember", "restore-asking",
		"flushall", "flushdb", "swapdb"}
	for _, cmd := range table.Rows() {
		if cmd.Flags&fsm.Write != 0 && cmd.Name[0] != '_' && !tried[cmd.Name] && !slices.Contains(alike, cmd.Name) {
			names = append(names, cmd.Name)
		}
		for _, sub := range cmd.Sub {
			if name := cmd.Name + " " + sub.Name; sub.Flags&fsm.Write != 0 && !tried[name] && cmd.Name != "function" {
				names = append(names, name)
			}
		}
	}
	return names
}
