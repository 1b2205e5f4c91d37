package resp

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
)

var transactionRows = []row{
	{cmd: fsm.Command{Name: "multi", Arity: 1, Flags: fsm.Fast | fsm.NoScript, Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Doc: "Mark the start of a transaction block"}, run: multiBegin, inMulti: true},
	{cmd: fsm.Command{Name: "exec", Arity: 1, Flags: fsm.NoScript, Group: "transactions", Since: "1.2.0", Complexity: "Depends on commands in the transaction", Doc: "Execute all commands issued after MULTI"}, run: multiExec, inMulti: true},
	{cmd: fsm.Command{Name: "discard", Arity: 1, Flags: fsm.Fast | fsm.NoScript, Group: "transactions", Since: "2.0.0", Complexity: "O(N), when N is the number of queued commands", Doc: "Discard all commands issued after MULTI"}, run: multiDiscard, inMulti: true},
	{cmd: fsm.Command{Name: "watch", Arity: -2, Flags: fsm.Fast | fsm.NoScript, Keys: fsm.Keys{First: 1, Last: -1, Step: 1}, Group: "transactions", Since: "2.2.0", Complexity: "O(1) for every key", Syntax: "key [key ...]", Doc: "Watch the given keys to determine execution of the MULTI/EXEC block"}, run: watchKeys, inMulti: true},
	{cmd: fsm.Command{Name: "unwatch", Arity: 1, Flags: fsm.Fast | fsm.NoScript, Group: "transactions", Since: "2.2.0", Complexity: "O(1)", Doc: "Forget about all watched keys"}, run: unwatch},
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
}

// maxMultiBytes bounds what one connection may queue: it becomes one entry.
const maxMultiBytes = 8 << 20

func (m *multi) queue(q queued) {
	for _, a := range q.args {
		m.bytes += len(a) + 16
	}
	if m.bytes > maxMultiBytes {
		m.dirty, m.cmds = true, nil
		return
	}
	if q.row != nil && q.row.cmd.Name == "select" {
		if n, err := strconv.Atoi(string(q.args[1])); err == nil && n >= 0 && n < fsm.Databases {
			m.db = n
		}
	}
	m.cmds = append(m.cmds, q)
}

func multiBegin(c *conn, args [][]byte) fsm.Reply {
	if c.multi != nil {
		return fsm.Error(msgNestedMulti)
	}
	c.multi = &multi{db: c.db}
	return fsm.OK
}

func multiDiscard(c *conn, args [][]byte) fsm.Reply {
	if c.multi == nil {
		return fsm.Error(msgNoMultiDisc)
	}
	c.multi, c.watch = nil, nil
	return fsm.OK
}

// multiExec runs the block as one operation. Session commands in it are run
// here, after the data commands took effect, and their replies put in place.
func multiExec(c *conn, args [][]byte) fsm.Reply {
	m, watch := c.multi, c.watch
	if m == nil {
		return fsm.Error(msgNoMultiExec)
	}
	c.multi, c.watch = nil, nil
	if m.dirty {
		return fsm.Error(msgExecAbort)
	}
	var data []fsm.Queued
	for _, q := range m.cmds {
		if q.cmd != nil {
			data = append(data, fsm.Queued{DB: q.db, Cmd: q.cmd, Args: q.args})
			c.cmds = append(c.cmds, q.cmd)
		}
	}
	c.group.Transaction(watch, data)
	out, err := c.exec.Do(&c.group, c.local)
	c.cmds = c.cmds[:0]
	if err != nil {
		c.group.Reset(c.proto, c.id)
		return fsm.Error(errorText(err))
	}
	out = bytes.Clone(out)
	proto := c.proto
	c.group.Reset(c.proto, c.id)
	if len(data) == len(m.cmds) || len(out) == 0 || out[0] != '*' || bytes.HasPrefix(out, []byte("*-1")) {
		return fsm.Raw(out) // nothing to weave in, or the watch was broken
	}
	return fsm.Raw(c.weave(m, out, proto))
}

// weave puts the replies of the block's session commands between those of its
// data commands, which out holds as one array.
func (c *conn) weave(m *multi, out []byte, proto int) []byte {
	_, rest, ok := bytes.Cut(out, []byte("\r\n"))
	woven := fsm.AppendHead(nil, '*', int64(len(m.cmds)))
	for _, q := range m.cmds {
		if q.row != nil {
			woven = q.row.run(c, q.args).Append(woven, proto)
			continue
		}
		n := replyLen(rest)
		if !ok || n == 0 {
			panic(fmt.Sprintf("resp: transaction of %d commands answered %q", len(m.cmds), out))
		}
		woven = append(woven, rest[:n]...)
		rest = rest[n:]
	}
	return woven
}

// replyLen returns the length of the first reply in b, 0 if it is not whole.
func replyLen(b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return 0
	}
	size := end + 2
	parts := 0
	switch b[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return size
	case '$', '=':
		n, err := strconv.Atoi(string(b[1:end]))
		if err != nil || n < 0 {
			return size
		}
		if len(b) < size+n+2 {
			return 0
		}
		return size + n + 2
	case '*', '~', '>', '%':
		n, err := strconv.Atoi(string(b[1:end]))
		if err != nil || n < 0 {
			return size
		}
		parts = n
		if b[0] == '%' {
			parts = 2 * n
		}
	default:
		return 0
	}
	for ; parts > 0; parts-- {
		n := replyLen(b[size:])
		if n == 0 {
			return 0
		}
		size += n
	}
	return size
}

func watchKeys(c *conn, args [][]byte) fsm.Reply {
	if c.multi != nil {
		return fsm.Error(msgWatchMulti)
	}
	version := c.srv.table.Find([]byte(fsm.VersionCommand))
	for _, key := range args[1:] {
		c.group.Command(version, c.db, [][]byte{[]byte(fsm.VersionCommand), key})
	}
	// Linearizable also on a READONLY connection: a transaction may follow.
	out, err := c.exec.Do(&c.group, false)
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
