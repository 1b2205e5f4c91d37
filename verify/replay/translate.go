package replay

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// redisCommand is a command for the redis-server, with the reply that is
// expected.
type redisCommand struct {
	args []string
	// reply is the reply that the redis-server must return. If it is nil, every
	// reply except an error is correct.
	reply []byte
	fails bool // the redis-server must return an error; test/compat compares the errors
	// together says that this command and the next one run in one transaction.
	// It is false for the last command of a transaction.
	together bool
}

// translator translates the commands that the state machine executed. The
// translated commands have the same effect on a Redis in which no key has a time
// to live. Most writes stay as they are. These commands are changed:
//
//   - A command that would set a time to live: the translation sets none.
//     Shadow deletes the key when it expires in the state machine.
//   - A command that uses random numbers, reads the clock, or compares the idle
//     time of a pending entry: the translation contains the outcome.
//   - A command that waits: the translation takes the element that its client
//     received, and does not wait.
//   - A command that only Holdfast or a later Redis has: a script or another
//     command replaces it.
//   - A script that ran in its native form: see translator.native.
//   - A command on locks: see translator.lock and translator.reserved.
//   - FLUSHALL and FLUSHDB: the translation has no options.
//
// Reads are left out.
type translator struct {
	table  *fsm.Table
	script func(sha string) (text string, known bool)
	wall   int64 // wall clock of the entry, in milliseconds
	db     int   // database of the command
	// kind returns the type of a key of the state machine after the command.
	kind func(db int, key string) string
}

const (
	// scriptIfEqual runs a command if the string at KEYS[1] is ARGV[1].
	// scriptIfDifferent runs a command if it is not.
	scriptIfEqual = `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then return redis.call(unpack(ARGV, 2)) end
return false`
	scriptIfDifferent = `local v = redis.call('GET', KEYS[1])
if v ~= ARGV[1] then return redis.call(unpack(ARGV, 2)) end
return false`
)

// ran translates a command that was executed.
func (t *translator) ran(raw [][]byte, reply fsm.Reply, proto int) []redisCommand {
	row := t.table.Find(raw[0])
	if row == nil {
		return nil
	}
	row = row.Routed(raw)
	args := texts(raw)
	name := strings.ToLower(args[0])
	switch {
	case row.Group == "lock" || name == command.AcquireCommand:
		return t.lock(args, reply)
	case strings.HasPrefix(name, "_"): // internal command
		return nil
	case name == "eval" || name == "evalsha":
		return t.native(args, reply)
	case !row.IsWrite():
		return nil
	}
	switch row.Group {
	case "string", "generic", "hash", "list", "set", "sorted-set", "stream", "hyperloglog", "geo", "bitmap":
	case "server":
		if name != "flushall" && name != "flushdb" && name != "swapdb" {
			return nil
		}
	default: // scripts, functions, users, messages, settings
		return nil
	}
	// A command that waits changes nothing, even if its key has an element for
	// it. The reason can be that its client is behind the suspended waiters of
	// a node that is cut off.
	if row.Flags&fsm.Blocking != 0 && reply.Kind() == fsm.KindRaw {
		return nil
	}
	asIs := redisCommand{args: args}
	if proto == 2 {
		asIs.reply = reply.Append(nil, 2)
	}
	if reply.IsError() {
		if row.Flags&fsm.Blocking != 0 {
			return nil // the redis-server would wait if its state differed
		}
		if bytes.HasPrefix(reply.Append(nil, 2), []byte("-QUARANTINE ")) {
			return nil // a Redis has no quarantine
		}
		return []redisCommand{{args: args, fails: true}}
	}
	if t.reserved(name, args, reply) {
		return nil
	}
	if f := special[name]; f != nil {
		return f(t, args, reply, asIs)
	}
	if row.Flags&fsm.Blocking != 0 {
		return t.served(args, reply)
	}
	return []redisCommand{asIs}
}

// reserved reports whether a SET NX or SETNX found no key and still wrote none.
// In that case, the key is a free lock that a client waits for.
func (t *translator) reserved(name string, args []string, reply fsm.Reply) bool {
	refused := name == "setnx" && reply.Kind() == fsm.KindInt && reply.Int64() == 0 ||
		name == "set" && reply.Kind() == fsm.KindNull &&
			slices.ContainsFunc(args[3:], func(word string) bool { return is(word, "NX") }) &&
			!slices.ContainsFunc(args[3:], func(word string) bool { return is(word, "GET") })
	return refused && t.kind(t.db, args[1]) == "none"
}

// special contains the functions that translate certain commands if they
// succeeded, by the name of the command.
var special map[string]func(t *translator, args []string, reply fsm.Reply, asIs redisCommand) []redisCommand

func init() {
	special = map[string]func(t *translator, args []string, reply fsm.Reply, asIs redisCommand) []redisCommand{
		"set": (*translator).set, "setex": (*translator).setex, "psetex": (*translator).setex,
		"msetex": (*translator).msetex,
		"getex":  (*translator).getex, "expire": (*translator).expire, "pexpire": (*translator).expire,
		"expireat":  (*translator).expire,
		"pexpireat": (*translator).expire, "persist": (*translator).persist, "restore": (*translator).restore,
		"restore-asking": (*translator).restore,
		"delifeq":        (*translator).delifeq, "delex": (*translator).delex, "spop": (*translator).spop,
		"xadd":   (*translator).xadd,
		"xclaim": (*translator).xclaim, "xautoclaim": (*translator).xautoclaim, "xreadgroup": (*translator).xreadgroup,
		"sort":     (*translator).sort,
		"flushall": (*translator).flush, "flushdb": (*translator).flush,
	}
}

func texts(raw [][]byte) []string {
	args := make([]string, len(raw))
	for i, a := range raw {
		args[i] = string(a)
	}
	return args
}

// is reports whether an argument is one of the options, in any case.
func is(arg string, options ...string) bool {
	return slices.ContainsFunc(options, func(w string) bool { return strings.EqualFold(arg, w) })
}

// over reports whether a time to live had already ended when the command set
// it. The number is valid, because the state machine has accepted it.
func (t *translator) over(unit, number string) bool {
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		return false
	case is(unit, "EXAT"):
		return n <= t.wall/1000 && n*1000 <= t.wall
	case is(unit, "PXAT"):
		return n <= t.wall
	}
	return n <= 0
}

// withoutLife removes the options for the time to live from args[from:]. over is
// true if that time had already ended when the command set it.
func (t *translator) withoutLife(args []string, from int) (kept []string, over bool) {
	kept = slices.Clone(args[:from])
	for i := from; i < len(args); i++ {
		switch {
		case is(args[i], "EX", "PX", "EXAT", "PXAT") && i+1 < len(args):
			over = t.over(args[i], args[i+1])
			i++
		case is(args[i], "KEEPTTL"):
		case is(args[i], "IFEQ", "IFNE") && i+1 < len(args):
			kept = append(kept, args[i], args[i+1])
			i++
		default:
			kept = append(kept, args[i])
		}
	}
	return kept, over
}

func (t *translator) set(args []string, reply fsm.Reply, asIs redisCommand) []redisCommand {
	plain, over := t.withoutLife(args, 3)
	var script, want string
	wrote, get := reply.Kind() == fsm.KindSimple, false
	cmd := slices.Clone(plain[:3])
	old := reply.Kind() == fsm.KindBulk // the option GET
	cond := func(bool) bool { return true }
	for i := 3; i < len(plain); i++ {
		switch {
		case is(plain[i], "IFEQ"):
			script, want = scriptIfEqual, plain[i+1]
			cond = func(bool) bool { return old && reply.Text() == want }
			i++
		case is(plain[i], "IFNE"):
			script, want = scriptIfDifferent, plain[i+1]
			cond = func(bool) bool { return !old || reply.Text() != want }
			i++
		case is(plain[i], "GET"):
			get = true
			cmd = append(cmd, plain[i])
		default:
			if is(plain[i], "NX") {
				cond = func(bool) bool { return !old }
			} else if is(plain[i], "XX") {
				cond = func(bool) bool { return old }
			}
			cmd = append(cmd, plain[i])
		}
	}
	if get {
		wrote = cond(old)
	}
	out := redisCommand{args: cmd, reply: asIs.reply}
	if script != "" {
		out.args = append([]string{"EVAL", script, "1", args[1], want}, cmd...)
		if get {
			out.reply = nil // any reply is correct: the script returns null if it does not write
		}
	}
	if over && wrote {
		return []redisCommand{out, {args: []string{"DEL", args[1]}}}
	}
	return []redisCommand{out}
}

func (t *translator) setex(args []string, reply fsm.Reply, asIs redisCommand) []redisCommand {
	return []redisCommand{{args: []string{"SET", args[1], args[3]}, reply: asIs.reply}}
}

func (t *translator) msetex(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	if reply.Int64() != 1 {
		return nil
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return nil
	}
	pairs := args[2 : 2+2*n]
	cmds := []redisCommand{{args: append([]string{"MSET"}, pairs...)}}
	if _, over := t.withoutLife(args, 2+2*n); over {
		for i := 0; i < len(pairs); i += 2 {
			cmds = append(cmds, redisCommand{args: []string{"DEL", pairs[i]}})
		}
	}
	return cmds
}

func (t *translator) getex(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	if _, over := t.withoutLife(args, 2); over && reply.Kind() == fsm.KindBulk {
		return []redisCommand{{args: []string{"DEL", args[1]}}}
	}
	return nil
}

func (t *translator) expire(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	unit := map[string]string{"expire": "EX", "pexpire": "PX", "expireat": "EXAT",
		"pexpireat": "PXAT"}[strings.ToLower(args[0])]
	if reply.Int64() == 1 && t.over(unit, args[2]) {
		return []redisCommand{{args: []string{"DEL", args[1]}}}
	}
	return nil
}

func (t *translator) persist([]string, fsm.Reply, redisCommand) []redisCommand { return nil }

func (t *translator) restore(args []string, _ fsm.Reply, asIs redisCommand) []redisCommand {
	cmd := []string{"RESTORE", args[1], "0", args[3]}
	over := false
	for i := 4; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			cmd = append(cmd, args[i])
		case is(args[i], "ABSTTL"):
			over = args[2] != "0" && t.over("PXAT", args[2])
		case is(args[i], "IDLETIME", "FREQ"):
			i++
		}
	}
	cmds := []redisCommand{{args: cmd, reply: asIs.reply}}
	if over {
		cmds = append(cmds, redisCommand{args: []string{"DEL", args[1]}})
	}
	return cmds
}

func (t *translator) delifeq(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	return []redisCommand{{args: []string{"EVAL", scriptIfEqual, "1", args[1], args[2], "DEL", args[1]},
		reply: didDelete(reply)}}
}

// didDelete returns the reply of a script that runs DEL.
func didDelete(reply fsm.Reply) []byte {
	if reply.Int64() == 1 {
		return []byte(":1\r\n")
	}
	return []byte("$-1\r\n")
}

func (t *translator) delex(args []string, reply fsm.Reply, asIs redisCommand) []redisCommand {
	switch {
	case len(args) < 4:
		return []redisCommand{{args: []string{"DEL", args[1]}, reply: asIs.reply}}
	case is(args[2], "IFEQ"):
		return t.delifeq([]string{"", args[1], args[3]}, reply, asIs)
	case reply.Int64() == 1:
		return []redisCommand{{args: []string{"EVAL", scriptIfDifferent, "1", args[1], args[3], "DEL", args[1]},
			reply: []byte(":1\r\n")}}
	}
	// nothing is deleted
	return []redisCommand{{args: []string{"EVAL", scriptIfEqual, "1", args[1], args[3], "GET", args[1]}}}
}

func (t *translator) spop(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	var members []string
	if reply.Kind() == fsm.KindBulk {
		members = []string{reply.Text()}
	}
	for _, e := range reply.Elems() {
		members = append(members, e.Text())
	}
	if len(members) == 0 {
		return nil
	}
	return []redisCommand{{args: append([]string{"SREM", args[1]}, members...),
		reply: fsm.Int(int64(len(members))).Append(nil, 2)}}
}

func (t *translator) xadd(args []string, reply fsm.Reply, asIs redisCommand) []redisCommand {
	if reply.Kind() != fsm.KindBulk {
		return nil // the option NOMKSTREAM
	}
	cmd := slices.Clone(args)
	for i := 2; i < len(cmd); i++ {
		switch {
		case is(cmd[i], "NOMKSTREAM"):
		case is(cmd[i], "MAXLEN", "MINID"):
			i++
			if cmd[i] == "=" || cmd[i] == "~" {
				i++
			}
		case is(cmd[i], "LIMIT"):
			i++
		default:
			cmd[i] = reply.Text()
			return []redisCommand{{args: cmd, reply: asIs.reply}}
		}
	}
	return nil
}

// neverIdle is an idle time that no pending entry has. A claim with this idle
// time only drops the pending entries that are no longer in the stream.
const neverIdle = "9000000000000000"

// xclaim translates XCLAIM to two commands. The first one drops the entries that
// are no longer in the stream. The second one names the claimed entries, if
// there are any.
func (t *translator) xclaim(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	ids, last := args[5:], len(args)
	for i := 5; i < len(args); i++ {
		if !isStreamID(args[i]) {
			ids, last = args[5:i], i
			break
		}
	}
	claim := []string{"XCLAIM", args[1], args[2], args[3], "0"}
	claim = append(claim, claimed(reply)...)
	drop := append([]string{"XCLAIM", args[1], args[2], args[3], neverIdle}, ids...)
	for i := last; i < len(args); i++ {
		switch {
		case is(args[i], "IDLE", "TIME"):
			i++
		case is(args[i], "RETRYCOUNT"):
			claim = append(claim, args[i], args[i+1])
			i++
		case is(args[i], "LASTID"):
			claim, drop = append(claim, args[i], args[i+1]), append(drop, args[i], args[i+1])
			i++
		case is(args[i], "FORCE", "JUSTID"):
			claim = append(claim, args[i])
		}
	}
	if len(reply.Elems()) == 0 {
		return []redisCommand{{args: drop}}
	}
	return []redisCommand{{args: drop}, {args: claim}}
}

// claimed returns the ids in a reply that contains either entries or only ids.
func claimed(reply fsm.Reply) (ids []string) {
	for _, e := range reply.Elems() {
		if list := e.Elems(); len(list) > 0 {
			e = list[0]
		}
		ids = append(ids, e.Text())
	}
	return ids
}

func isStreamID(s string) bool {
	ms, seq, found := strings.Cut(s, "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	if found && err == nil {
		_, err = strconv.ParseUint(seq, 10, 64)
	}
	return err == nil
}

// xautoclaim translates XAUTOCLAIM to commands that name the claimed and the
// dropped entries.
func (t *translator) xautoclaim(args []string, reply fsm.Reply, _ redisCommand) []redisCommand {
	parts := reply.Elems()
	if len(parts) != 3 {
		return nil
	}
	var cmds []redisCommand
	if gone := claimed(parts[2]); len(gone) > 0 {
		claim := []string{"XCLAIM", args[1], args[2], args[3], neverIdle}
		cmds = append(cmds, redisCommand{args: append(claim, gone...)})
	}
	if ids := claimed(parts[1]); len(ids) > 0 {
		claim := append([]string{"XCLAIM", args[1], args[2], args[3], "0"}, ids...)
		if slices.ContainsFunc(args[6:], func(a string) bool { return is(a, "JUSTID") }) {
			claim = append(claim, "JUSTID")
		}
		cmds = append(cmds, redisCommand{args: claim})
	}
	return cmds
}

func (t *translator) xreadgroup(args []string, _ fsm.Reply, asIs redisCommand) []redisCommand {
	return []redisCommand{{args: withoutBlock(args), reply: asIs.reply}}
}

func withoutBlock(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if is(args[i], "STREAMS") {
			return append(out, args[i:]...)
		}
		if i > 3 && is(args[i], "BLOCK") { // BLOCK comes after GROUP, the group and the consumer
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

func (t *translator) sort(args []string, _ fsm.Reply, asIs redisCommand) []redisCommand {
	if !slices.ContainsFunc(args[2:], func(a string) bool { return is(a, "STORE") }) {
		return nil
	}
	return []redisCommand{asIs}
}

func (t *translator) flush(args []string, _ fsm.Reply, asIs redisCommand) []redisCommand {
	return []redisCommand{{args: args[:1], reply: asIs.reply}}
}

// native translates a script that the state machine ran in its native form. The
// translation lets the interpreter of the redis-server run the text of the
// script. In the same transaction, PERSIST removes the times to live that the
// script may have set.
func (t *translator) native(args []string, reply fsm.Reply) []redisCommand {
	if reply.IsError() {
		return nil // a native script that fails has written nothing: see fsm/nativescript.go
	}
	text := args[1]
	if strings.EqualFold(args[0], "evalsha") {
		known := false
		if text, known = t.script(strings.ToLower(args[1])); !known {
			return []redisCommand{{args: args}} // the redis-server replies with an error, so the comparison fails
		}
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n > len(args)-3 {
		return nil
	}
	cmds := []redisCommand{{args: append([]string{"EVAL", text}, args[2:]...), together: n > 0}}
	for i, key := range args[3 : 3+n] {
		cmds = append(cmds, redisCommand{args: []string{"PERSIST", key}, together: i < n-1})
	}
	return cmds
}

// served translates a blocking command that was served into a command that has
// the same effect and does not wait.
func (t *translator) served(args []string, reply fsm.Reply) []redisCommand {
	given := reply.Elems()
	key := func() string { return given[0].Text() }
	one := func(r fsm.Reply) []byte { return r.Append(nil, 2) }
	if reply.IsError() || reply.Kind() == fsm.KindNull || reply.Kind() == fsm.KindNullArray ||
		reply.Kind() == fsm.KindNone {
		return nil
	}
	switch strings.ToLower(args[0]) {
	case "lock", command.AcquireCommand:
		return t.lock(args, reply)
	case "blpop":
		return []redisCommand{{args: []string{"LPOP", key()}, reply: one(given[1])}}
	case "brpop":
		return []redisCommand{{args: []string{"RPOP", key()}, reply: one(given[1])}}
	case "blmove":
		return []redisCommand{{args: append([]string{"LMOVE"}, args[1:5]...), reply: one(reply)}}
	case "brpoplpush":
		return []redisCommand{{args: []string{"RPOPLPUSH", args[1], args[2]}, reply: one(reply)}}
	case "bzpopmin", "bzpopmax":
		return []redisCommand{{args: []string{args[0][1:], key()}, reply: one(fsm.Array(given[1:]))}}
	case "blmpop", "bzmpop":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return nil
		}
		return []redisCommand{{args: append([]string{args[0][1:], "1", key()}, args[3+n:]...)}}
	case "xreadgroup":
		return []redisCommand{{args: servedGroup(args, reply)}}
	}
	return nil
}

// servedGroup returns XREADGROUP for the streams that served an entry.
func servedGroup(args []string, reply fsm.Reply) []string {
	plain := withoutBlock(args)
	at := slices.IndexFunc(plain[4:], func(a string) bool { return is(a, "STREAMS") }) + 5
	keys := plain[at : at+(len(plain)-at)/2]
	ids := plain[at+len(keys):]
	gave := func(key string) bool {
		list := reply.Elems()
		if reply.Kind() == fsm.KindMap {
			for i := 0; i < len(list); i += 2 {
				if list[i].Text() == key {
					return true
				}
			}
			return false
		}
		return slices.ContainsFunc(list,
			func(e fsm.Reply) bool { return len(e.Elems()) > 0 && e.Elems()[0].Text() == key })
	}
	out := slices.Clone(plain[:at])
	var wanted []string
	for i, key := range keys {
		if gave(key) {
			out, wanted = append(out, key), append(wanted, ids[i])
		}
	}
	return append(out, wanted...)
}

// agrees reports whether the redis-server's reply agrees with the state
// machine's.
func (c redisCommand) agrees(v respwire.Value) bool {
	switch {
	case c.fails:
		return v.Err != ""
	case v.Err != "":
		return false
	}
	return c.reply == nil || bytes.Equal(c.reply, v.Raw)
}
