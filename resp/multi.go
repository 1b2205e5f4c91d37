package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var transactionRows = []row{
	{cmd: fsm.Command{Name: "multi", Arity: 1, Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Doc: "Start a transaction: queue the commands that follow"}, words: "noscript loading stale fast allow_busy", acl: "transaction", run: multiBegin, inMulti: true},
	{cmd: fsm.Command{Name: "exec", Arity: 1, Group: "transactions", Since: "1.2.0", Complexity: "That of the queued commands", Doc: "Run the queued commands as one, if no watched key has changed"}, words: "noscript loading stale skip_slowlog", acl: "transaction", run: multiExec, inMulti: true},
	{cmd: fsm.Command{Name: "discard", Arity: 1, Group: "transactions", Since: "2.0.0", Complexity: "O(N) where N is the number of queued commands", Doc: "Forget the queued commands and the watched keys"}, words: "noscript loading stale fast allow_busy", acl: "transaction", run: multiDiscard, inMulti: true},
	{cmd: fsm.Command{Name: "watch", Arity: -2, Keys: fsm.Keys{First: 1, Last: -1, Step: 1}, Access: fsm.Access{Mode: "RO"}, Group: "transactions", Since: "2.2.0", Complexity: "O(1) for every key", Syntax: "key [key ...]", Doc: "Make the next transaction depend on keys staying as they are"}, words: "noscript loading stale fast allow_busy", acl: "transaction", run: watchKeys, inMulti: true},
	{cmd: fsm.Command{Name: "unwatch", Arity: 1, Group: "transactions", Since: "2.2.0", Complexity: "O(1)", Doc: "Forget the watched keys"}, words: "noscript loading stale fast allow_busy", acl: "transaction", run: unwatch},
}

// multi is a transaction being queued.
type multi struct {
	cmds  []queued
	db    int // as SELECTs in the queue will have left it
	dirty bool
	bytes int
}

// queued is a data command or a session command.
type queued struct {
	cmd  *fsm.Command
	db   int
	row  *row
	args [][]byte
	// refused is the error that stands in for the reply of a command that is not
	// allowed in a transaction, or no longer at all: see recheck.
	refused string
	// answer is that of a session command which has been run already: see
	// trackFirst.
	answer *fsm.Reply
}

// Limits of what one connection may queue and watch: it becomes one entry.
const (
	maxMultiBytes = 8 << 20
	maxWatched    = 64 << 10
)

// len is the number of queued commands, -1 outside of MULTI, as CLIENT LIST
// shows it.
func (m *multi) len() int {
	if m == nil {
		return -1
	}
	return len(m.cmds)
}

// enqueue puts a command into the transaction.
func (c *conn) enqueue(q queued, stats *series) {
	m := c.multi
	for _, a := range q.args {
		m.bytes += len(a) + 16
	}
	if m.bytes > maxMultiBytes {
		m.cmds = nil
		c.refuse(stats, "ERR transaction is larger than 8 MiB")
		return
	}
	if q.row != nil && q.row.cmd.Name == "select" {
		if n, ok := fsm.ParseInt(q.args[1]); ok && n >= 0 && n < int64(c.srv.databases()) {
			m.db = int(n)
		}
	}
	if q.row != nil && q.row.cmd.Name == "ssubscribe" {
		q.refused = msgShardMulti
	}
	m.cmds = append(m.cmds, q)
	c.setMulti(m)
	c.reply(fsm.Simple("QUEUED"))
}

func multiBegin(c *conn, args [][]byte) fsm.Reply {
	if c.multi != nil {
		return fsm.Error(msgNestedMulti)
	}
	c.setMulti(&multi{db: c.db})
	return fsm.OK
}

func multiDiscard(c *conn, args [][]byte) fsm.Reply {
	if c.multi == nil {
		return fsm.Error(msgNoMultiDisc)
	}
	c.setMulti(nil)
	c.watch = nil
	return fsm.OK
}

// multiExec runs the block as one operation. Session commands in it are run
// here, after the data commands took effect, and their replies put in place.
func multiExec(c *conn, args [][]byte) fsm.Reply {
	m, watch := c.multi, c.watch
	if m == nil {
		return fsm.Error(msgNoMultiExec)
	}
	c.setMulti(nil)
	c.watch = nil
	if m.dirty {
		return fsm.Error(msgExecAbort)
	}
	if text := c.blockElsewhere(m); text != "" {
		return fsm.Error(text)
	}
	c.recheck(m)
	for i := range m.cmds {
		switch q := &m.cmds[i]; {
		case q.refused != "":
		case q.cmd != nil:
			q.refused = c.patternRefused(q.cmd, q.args)
		case q.row.cmd.Name == "monitor":
			q.refused = "ERR MONITOR isn't allowed for DENY BLOCKING client"
		}
	}
	tracking := c.tracking.on
	c.trackFirst(m)
	var data []fsm.Queued
	for _, q := range m.cmds {
		if q.cmd != nil && q.refused == "" {
			cmd, args := c.forLog(q.cmd, q.args)
			data = append(data, fsm.Queued{DB: q.db, Cmd: cmd, Args: args})
			if c.tracking.reads() {
				c.noteReads(q.cmd, q.args)
			}
		}
	}
	if len(data) == 0 && len(watch) == 0 { // no need of the cluster
		c.showBlock(m)
		return fsm.Raw(c.weave(m, []byte("*0\r\n")))
	}
	start := time.Now()
	c.group.Transaction(watch, data)
	tracked := c.track()
	out, err := c.do(c.local && len(watch) == 0)
	out = c.tracked(tracked, out, err)
	c.reset()
	if err != nil {
		c.untrack(tracking)
		return fsm.Error(errorText(err))
	}
	head, _, replies := replyHead(out)
	if replies != len(data) || len(data) == 0 && out[0] != '*' || bytes.HasPrefix(out, []byte("*-1")) {
		c.untrack(tracking)
		return fsm.Raw(out) // the watch was broken
	}
	c.showBlock(m)
	for _, q := range m.cmds {
		if q.cmd != nil {
			c.cmds = append(c.cmds, q.cmd)
		}
	}
	took := time.Since(start)
	c.srv.metrics.group(c.cmds, took, out[head:])
	if len(m.cmds) > 0 {
		c.slow(m.cmds[0].args, len(m.cmds)-1, false, took)
	}
	c.cmds = c.cmds[:0]
	if len(data) == len(m.cmds) {
		return fsm.Raw(out) // nothing to weave in
	}
	return fsm.Raw(c.weave(m, out))
}

// trackFirst runs what has the reads of the block tracked before the block: CLIENT
// TRACKING ON and CLIENT CACHING YES. Reads that stand before them are tracked too,
// which means news that nobody needs, but none that is missing. CACHING NO is left
// in its place for the same reason, and so is everything if the block turns tracking
// off as well.
func (c *conn) trackFirst(m *multi) {
	var first []*queued
	for i := range m.cmds {
		q := &m.cmds[i]
		if q.row == nil || q.refused != "" {
			continue
		}
		name := q.row.fullName()
		switch {
		case name == "client|tracking" && strings.EqualFold(string(q.args[2]), "off"):
			return
		case name == "client|tracking", name == "client|caching" && strings.EqualFold(string(q.args[2]), "yes"):
			first = append(first, q)
		}
	}
	for _, q := range first {
		answer := c.run(q.row, q.args)
		q.answer = &answer
	}
}

// untrack takes back what trackFirst did for a block that was not run: before was
// whether the connection tracked.
func (c *conn) untrack(before bool) {
	if !before {
		c.trackingOff()
	}
}

// weave puts the replies of the block's session commands between those of its
// data commands, which out holds as one array.
func (c *conn) weave(m *multi, out []byte) []byte {
	proto := c.proto // HELLO in the block speaks for what follows the block
	c.weaving = true
	defer func() { c.weaving = false }()
	head, _, _ := replyHead(out)
	rest := bytes.Clone(out[head:]) // a session command may use the executor too
	woven := fsm.AppendHead(nil, '*', int64(len(m.cmds)))
	for _, q := range m.cmds {
		if q.refused != "" {
			woven = fsm.Error(q.refused).Append(woven, proto)
			continue
		}
		if q.answer != nil {
			woven = q.answer.Append(woven, proto)
			continue
		}
		if q.row != nil {
			woven = c.run(q.row, q.args).Append(woven, proto)
			continue
		}
		n := replyLen(rest)
		if n == 0 {
			panic(fmt.Sprintf("resp: transaction of %d commands answered %q", len(m.cmds), out))
		}
		woven = append(woven, rest[:n]...)
		rest = rest[n:]
	}
	return woven
}

func watchKeys(c *conn, args [][]byte) fsm.Reply {
	if c.multi != nil {
		return fsm.Error(msgWatchMulti)
	}
	if len(c.watch)+len(args)-1 > maxWatched {
		return fsm.Error("ERR too many watched keys")
	}
	version := c.srv.table.Find([]byte(fsm.VersionCommand))
	for _, key := range args[1:] {
		c.group.Command(version, c.db, [][]byte{[]byte(fsm.VersionCommand), key})
	}
	// Linearizable also on a READONLY connection: a transaction may follow.
	out, err := c.do(false)
	c.group.Reset(c.proto, c.id)
	if err != nil {
		return fsm.Error(errorText(err))
	}
	for _, key := range args[1:] {
		line, rest, ok := bytes.Cut(out, []byte("\r\n"))
		v, err := strconv.ParseUint(string(bytes.TrimPrefix(line, []byte(":"))), 10, 64)
		if !ok || err != nil {
			return fsm.Error(fmt.Sprintf("ERR cannot watch: unexpected answer %q", line))
		}
		c.watch = append(c.watch, fsm.Watch{DB: c.db, Key: string(key), Version: v})
		out = rest
	}
	return fsm.OK
}

func unwatch(c *conn, args [][]byte) fsm.Reply {
	c.watch = nil
	return fsm.OK
}
