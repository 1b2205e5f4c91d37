package fsm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// These texts are the parts of random commands. worldLines are templates of
// commands, in which $ stands for a key, # for a number, and ~ for a space in an
// argument. worldWords are arguments; a $ in worldWords stands for itself.
var (
	worldKeys  = []string{"a", "b", "l", "m", "s", "z", "h", "x", "y"}
	worldWords = strings.Fields("a b l m s z h x y a b l m s z h x y 0 1 2 -1 5 10 1.5 inf -inf 9223372036854775807 v NX XX GT LT GET EX PX EXAT PXAT KEEPTTL PERSIST IFEQ IFNE DB REPLACE MATCH COUNT TYPE * [a-b] string ENCODING IDLETIME REFCOUNT 1700000050 ASYNC BEFORE AFTER LEFT RIGHT RANK MAXLEN LIMIT CH INCR BYSCORE BYLEX REV WITHSCORES WITHVALUES WEIGHTS AGGREGATE MAX MIN - + [a (b (1 ~ MINID 1-1 $ > g c1 GROUP STREAMS BLOCK STORE FORCE JUSTID IDLE FIELDS u8 i5 SET INCRBY OVERFLOW FAIL 13.4 52.5 km FROMLONLAT BYRADIUS ANY CREATE MKSTREAM DESTROY BY ALPHA DESC AND OR NOT 100 " + strings.Repeat("a", 70))
	worldLines = strings.Split(`SET $ #
SET $ # PX 300
SET $ # NX GET
INCR $
APPEND $ x
DEL $
DEL $ $
UNLINK $
GETDEL $
PEXPIRE $ 100
PERSIST $
RENAME $ $
RENAMENX $ $
COPY $ $ REPLACE
COPY $ $ DB 1 REPLACE
MOVE $ 1
MOVE $ 0
SWAPDB 0 1
FLUSHDB
FLUSHALL
MSET $ 1 $ 2
MSETEX 2 $ 1 $ 2 PX 100
SETRANGE $ 3 x
SETBIT $ 9 1
BITOP OR $ $ $
BITFIELD $ INCRBY u8 0 200
PFADD $ a b #
PFMERGE $ $ $
RPUSH $ # w
RPUSH $ #
LPUSH $ # w
LPOP $
LMPOP 1 $ LEFT COUNT 2
LMOVE $ $ LEFT RIGHT
LTRIM $ 0 #
LREM $ 0 #
SADD $ 1 2 3 4 #
SADD $ a b c
SPOP $
SPOP $ 2
SMOVE $ $ a
SUNIONSTORE $ $ $
SINTERSTORE $ $ $
HSET $ f # g v
HDEL $ f g
HINCRBY $ f #
ZADD $ 1 a 2 b # c
ZADD $ # a
ZINCRBY $ 5 a
ZPOPMIN $
ZRANGESTORE $ $ 0 -1
ZUNIONSTORE $ 2 $ $
ZREMRANGEBYRANK $ 0 0
GEOADD $ 13.4 52.5 m
GEOSEARCHSTORE $ $ FROMLONLAT 13 52 BYRADIUS 100 km
SORT $ ALPHA STORE $
XADD $ * f v
XADD $ * f v
XADD $ MAXLEN 3 * f v
XGROUP CREATE $ g 0 MKSTREAM
XGROUP CREATE x g $ MKSTREAM
XREADGROUP GROUP g c1 COUNT 2 STREAMS $ >
XREADGROUP GROUP g c2 STREAMS x 0
XREADGROUP GROUP g c2 NOACK STREAMS x >
XACK $ g 1-1
XAUTOCLAIM $ g c1 0 0
XCLAIM $ g c2 0 1-1 FORCE
XGROUP DELCONSUMER $ g c1
XGROUP DESTROY $ g
XGROUP SETID $ g 0
XTRIM $ MAXLEN #
XSETID $ 9999999999999-1
BLPOP $ $ 0
BLPOP $ 0
BRPOP $ 0
BLMOVE $ $ LEFT RIGHT 0
BRPOPLPUSH $ $ 0
BLMPOP 0 2 $ $ LEFT COUNT 2
BZPOPMIN $ 0
BZPOPMAX $ $ 0
BZMPOP 0 1 $ MAX COUNT 2
XREAD BLOCK 0 STREAMS $ $
XREAD BLOCK 0 STREAMS x 0
XREADGROUP GROUP g c1 BLOCK 0 STREAMS $ >
XREADGROUP GROUP g c2 BLOCK 0 STREAMS x y > >
PUBLISH $ #
SPUBLISH $ #
_setsetting notify-keyspace-events KEA
_setsettings lock-idempotent a
_setsettings lock-delay h~90~a~30~b~200
_setsettings lock-delay [ac]~60~h~0
LOCK BREAK a
LOCK BREAK $
RANDOMKEY
LRANGE $ 0 -1
SUNION $ $
ZRANGE $ 0 -1 WITHSCORES
HGETALL $
LCS $ $
LOCK TOKEN $
LOCK ACQUIRE a o1 PX 300
LOCK ACQUIRE $ o1 PX 300 META m
LOCK ACQUIRE $ # PX 1000 WAIT 5
LOCK ACQUIRE a o1 PX 30000 WAIT 0
LOCK ACQUIRE a o2 PX 3000 WAIT 0
LOCK ACQUIRE b o3 PX 30000 WAIT 0 META m
LOCK ACQUIRE b o4 PX 300 WAIT 10
LOCK ACQUIRE h o1 PX 300 SHARED
LOCK ACQUIRE h o2 PX 900 SHARED META m
LOCK ACQUIRE h # PX 600 SHARED WAIT 5
LOCK ACQUIRE h o3 PX 30000 WAIT 0 SHARED
LOCK ACQUIRE h o4 PX 3000
LOCK ACQUIRE h o4 PX 3000
LOCK ACQUIRE h o5 PX 3000 WAIT 0
LOCK ACQUIRE h # PX 9000 WAIT 0 SHARED
LOCK ACQUIRE h # PX 9000 WAIT 0 SHARED
LOCK ACQUIRE h # PX 9000 WAIT 0 SHARED
LOCK ACQUIRE h o5 PX 900 WAIT 0 SHARED
LOCK ACQUIRE y o1 PX 300 LIMIT 2
LOCK ACQUIRE y # PX 30000 WAIT 0 LIMIT 2
LOCK ACQUIRE y # PX 300 LIMIT 2 WAIT 10
LOCK ACQUIRE y o2 PX 900 WAIT 0 SHARED
LOCK ACQUIRE $ # PX 500 LIMIT 3
LOCK RELEASE h o1
LOCK RELEASE h o2
LOCK RELEASE h o3
LOCK RELEASE h o4
LOCK RELEASE y #
LOCK RELEASE y #
LOCK RENEW h o2 PX 1500
LOCK BREAK h
LOCK BREAK h
LOCK BREAK y
LOCK INFO h
LOCK TOKEN h o1
DEL h
DEL y
COPY h y REPLACE
RENAME y h
PEXPIRE h 100
DUMP h
LOCK RENEW $ o1 PX 500
LOCK RELEASE a o1
LOCK RELEASE a o1
LOCK BREAK a
LOCK BREAK b
DEL a
GETDEL b
LOCK ACQUIRE a o5 PX 30000 WAIT 0
LOCK ACQUIRE b o6 PX 30000 WAIT 0
LOCK RELEASE a o2
LOCK RELEASE b o3
LOCK RELEASE $ #
LOCK BREAK $
LOCK BREAK a
LOCK INFO $
LOCK LIST WAITED
SET a # NX PX 300
SETNX b #
GET $
TYPE $
SCAN 0
KEYS *
DBSIZE`, "\n")
	worldBodies = []string{"fail", "result no", "resp3", "readonly", "long", "long without end", "may set", "dup 100"}
)

// blocking draws a command that may wait.
func (w *world) blocking() (*fsm.Command, [][]byte) {
	w.t.Helper()
	var lines []string
	for _, line := range worldLines {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		if cmd := w.table.Find(args[0]); cmd != nil && w.table.Waits(cmd, args) != nil {
			lines = append(lines, line)
		}
	}
	return w.row(w.fill(w.pick(lines)))
}

// command draws a command.
func (w *world) command(id fsm.SessionID) (*fsm.Command, [][]byte) {
	w.t.Helper()
	var words []string
	switch {
	case w.one(8):
		words = w.script(id)
	case w.one(9):
		words = w.internal(id)
	case w.one(3):
		words = w.anything()
	default:
		words = w.line()
	}
	return w.row(words)
}

// row returns the row of the command table for a command, as a connection
// chooses it, and the arguments.
func (w *world) row(words []string) (*fsm.Command, [][]byte) {
	w.t.Helper()
	args := respwire.Args(words...)
	cmd := w.table.Find(args[0])
	if cmd == nil || !cmd.ArityOK(len(args)) {
		w.fatalf("no such command: %q", words)
	}
	if waits := w.table.Waits(cmd, args); waits != nil {
		cmd = waits
	}
	return cmd, args
}

// line draws a command that is likely to have an effect.
func (w *world) line() []string { return w.fill(w.pick(worldLines)) }

// fill replaces the placeholders of a line with keys and numbers. The keys usually
// have values of the type that the command is for.
func (w *world) fill(line string) []string {
	words := strings.Fields(line)
	for i, word := range words {
		switch {
		case i == 0:
		case word == "$" && !w.one(5):
			words[i] = w.pick(keysOfFamily(words[0]))
		case word == "$":
			words[i] = w.pick(worldKeys)
		case word == "#":
			words[i] = strconv.Itoa(w.draws.IntN(9))
		default:
			words[i] = strings.ReplaceAll(word, "~", " ")
		}
	}
	return words
}

// keysOfFamily returns the keys that fill usually chooses for a command.
func keysOfFamily(name string) []string {
	switch {
	case strings.HasPrefix(name, "Z"), strings.HasPrefix(name, "BZ"), strings.HasPrefix(name, "GEO"):
		return []string{"z"}
	case strings.HasPrefix(name, "X"):
		return []string{"x", "x", "y"}
	case strings.HasPrefix(name, "BL"), strings.HasPrefix(name, "BR"), strings.HasPrefix(name, "L"), strings.HasPrefix(name, "RPUSH"):
		return []string{"l", "l", "m"}
	case strings.HasPrefix(name, "H"):
		return []string{"h"}
	case strings.HasPrefix(name, "S") && name != "SET":
		return []string{"s", "l"}
	}
	return worldKeys
}

// anything draws any command of the table, with arguments that are sometimes
// valid. It draws TIME instead of a flush, PFSELFTEST or FeaturesCommand.
func (w *world) anything() []string {
	rows := w.table.Rows()
	row := rows[w.draws.IntN(len(rows))]
	if row.Name == fsm.FeaturesCommand || row.Name == "pfselftest" || strings.HasPrefix(row.Name, "flush") {
		return []string{"TIME"}
	}
	words, arity := []string{row.Name}, row.Arity
	if len(row.Sub) > 0 {
		sub := row.Sub[w.draws.IntN(len(row.Sub))]
		words, arity = append(words, sub.Name), sub.Arity
	}
	if arity < 0 {
		arity = -arity + w.draws.IntN(5)
	}
	for len(words) < arity {
		if len(words) < 3 && !w.one(3) {
			words = append(words, w.pick(worldKeys))
		} else {
			words = append(words, w.pick(worldWords))
		}
	}
	return words
}

// script draws a command that calls or loads a script, loads a library, or calls
// a function of the library.
func (w *world) script(id fsm.SessionID) []string {
	w.t.Helper()
	var body []string
	for range w.draws.IntN(5) {
		line := strings.Join(w.line(), " ")
		if w.one(6) {
			line = w.pick(worldBodies)
		} else if w.one(2) {
			line = "try " + line
		}
		body = append(body, line)
	}
	text := strings.Join(body, "\n")
	switch w.draws.IntN(9) {
	case 0:
		return []string{"FUNCTION", "LOAD", "REPLACE", "#!lua name=lib\nregister f\n" + text + "\nregister g no-writes\nGET a"}
	case 1:
		return []string{w.pick([]string{"FCALL", "FCALL_RO"}), w.pick([]string{"f", "g"}), "1", w.pick(worldKeys), "#"}
	case 2:
		return []string{"EVAL_RO", text, "0"}
	case 3:
		return []string{"EVALSHA", fsm.SHA1([]byte(text)), "0"}
	case 4:
		return []string{"SCRIPT", "LOAD", text}
	case 5: // runs natively
		return []string{"EVAL", `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`, "1", w.pick(worldKeys), strconv.Itoa(w.draws.IntN(9))}
	}
	return []string{"EVAL", text, "0"}
}

// part returns the names of some waiters of a session, as the leader chooses
// them. Sometimes it returns names of waiters that do not exist, or names with a
// wrong position.
func (w *world) part(id fsm.SessionID) (words []string) {
	list, _, _ := w.machine.EndList(id, uint64(w.draws.IntN(3)), w.one(2), w.draws.IntN(600))
	for _, n := range list {
		pos := uint64(n.Pos)
		if w.one(8) {
			pos--
		}
		words = append(words, fmt.Sprint(n.Origin), fmt.Sprint(pos))
	}
	if len(words) == 0 || w.one(8) {
		words = append(words, fmt.Sprint(w.draws.IntN(6)), "7")
	}
	return words
}

// internal draws an internal command that a node or a leader sends.
func (w *world) internal(id fsm.SessionID) []string {
	switch w.draws.IntN(10) {
	case 0, 1, 2:
		n := w.nodes[w.draws.IntN(len(w.nodes))]
		boot := n.starts[len(n.starts)-1].id.Boot
		if w.one(4) {
			boot = n.starts[w.draws.IntN(len(n.starts))].id.Boot
		}
		term := w.term
		if w.one(5) {
			term--
		}
		words := []string{fsm.SuspendCommand, fmt.Sprint(term), n.id, fmt.Sprint(boot), w.pick([]string{fsm.SuspendOff, fsm.SuspendOff, fsm.SuspendOff, fsm.SuspendOn, fsm.SuspendPass, fsm.SuspendEnd, fsm.SuspendDrop})}
		if w.machine.Features() >= fsm.FeatureParts && w.one(2) {
			return append(words, w.part(fsm.SessionID{NodeID: n.id, Boot: boot})...)
		}
		return words
	case 8:
		key, token := fsm.NewestGrant(w.machine)
		return []string{fsm.UndeliveredCommand, key, fmt.Sprint(uint64(token))}
	case 3, 4, 5, 9:
		name := w.pick([]string{fsm.UnwaitCommand, fsm.UnwaitCommand, fsm.UnwaitCommand, fsm.WaitedCommand})
		list := w.machine.WaitersOf(id)
		if served := slices.DeleteFunc(slices.Clone(list), func(n fsm.WaiterInfo) bool { return !n.Served }); len(served) > 0 && !w.one(4) {
			list = served
		}
		if len(list) > 0 {
			n := list[w.draws.IntN(len(list))]
			return []string{name, fmt.Sprint(n.Origin), fmt.Sprint(uint64(n.Pos))}
		}
		return []string{name, fmt.Sprint(1 + w.draws.IntN(4)), "7"}
	case 6:
		if !w.one(4) {
			version := uint64(0)
			if u := w.machine.Users().Find("u"); u != nil && !w.one(4) {
				version = uint64(u.Version)
			}
			return []string{fsm.SetuserCommand, "u", fmt.Sprint(version), w.pick([]string{"on +@all ~*", "off"})}
		}
		return []string{fsm.FeaturesCommand, fmt.Sprint(w.term), fmt.Sprint(w.draws.IntN(fsm.MaxFeatures + 1))}
	}
	return []string{fsm.VersionCommand, w.pick(worldKeys)}
}
