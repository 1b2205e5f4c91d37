package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

var transactionRows = []row{
	{run: multiBegin, cmd: &fsm.Command{
		Name: "multi", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.AllowBusy | fsm.RunsInMulti,
		Group: "transactions", Since: "1.2.0",
		Complexity: "O(1)",
		Doc:        "Start a transaction: queue the commands that follow",
		Categories: []string{"transaction"},
	}},
	{run: multiExec, hooks: hooks{refused: abortTransaction, answered: sendMessages}, cmd: &fsm.Command{
		Name: "exec", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.SkipSlowlog |
			fsm.RunsInMulti | fsm.PreviousProtocol,
		Group: "transactions", Since: "1.2.0",
		Complexity: "That of the queued commands",
		Doc:        "Execute the queued commands as one operation, if no watched key has changed",
		Categories: []string{"transaction"},
	}},
	{run: multiDiscard, cmd: &fsm.Command{
		Name: "discard", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.AllowBusy | fsm.RunsInMulti,
		Group: "transactions", Since: "2.0.0",
		Complexity: "O(N) where N is the number of queued commands",
		Doc:        "Forget the queued commands and the watched keys",
		Categories: []string{"transaction"},
	}},
	{run: watchKeys, cmd: &fsm.Command{
		Name: "watch", Arity: -2, Keys: fsm.Keys{First: 1, Last: -1, Step: 1},
		Flags:  fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.AllowBusy | fsm.RunsInMulti,
		Access: fsm.Access{Mode: "RO"},
		Group:  "transactions", Since: "2.2.0",
		Complexity: "O(1) for every key",
		Syntax:     "key [key ...]",
		Doc:        "Make the next transaction fail if one of the keys changes before it",
		Categories: []string{"transaction"},
	}},
	{run: unwatch, cmd: &fsm.Command{
		Name: "unwatch", Arity: 1,
		Flags: fsm.NoScript | fsm.Loading | fsm.Stale | fsm.Fast | fsm.AllowBusy,
		Group: "transactions", Since: "2.2.0",
		Complexity: "O(1)",
		Doc:        "Forget the watched keys",
		Categories: []string{"transaction"},
	}},
}

// transaction is the part of a connection's state that MULTI and WATCH use.
type transaction struct {
	multi *multi
	watch []fsm.Watch
	// interleaving is true while EXEC runs the connection commands of a
	// transaction whose other replies have not been written yet: see
	// interleave.
	interleaving bool
	// mem is the part of conn.mem for the queued commands.
	mem clientmem.Part
}

// multi is a transaction between MULTI and EXEC, while its commands are queued.
type multi struct {
	cmds  []queued
	db    int // the database after the queued SELECT commands
	dirty bool
	// unconfirmed is the error of a command that was refused because the users
	// could not be confirmed, or "".
	unconfirmed string
	bytes       int
	footprint   int64 // approximate memory in bytes of cmds
}

// memory returns the approximate memory of the queue in bytes, 0 outside of
// MULTI.
func (m *multi) memory() int64 {
	if m == nil {
		return 0
	}
	return m.footprint
}

// queued is a command that MULTI has queued for EXEC.
type queued struct {
	row  *row
	args [][]byte
	db   int // the database of a command on data
	// refused is the error that replaces the reply of a command that is not
	// allowed in a transaction, or is no longer allowed: see recheck.
	refused string
	// answer is the reply of a connection command that has already been executed:
	// see trackFirst.
	answer *fsm.Reply
}

// maxMultiBytes bounds the bytes of the arguments that one connection may queue,
// because all commands of a transaction are in one log entry. maxWatched bounds the
// number of keys that one connection may watch.
const (
	maxMultiBytes = 8 << 20
	maxWatched    = 64 << 10
)

// queuedBytes is the approximate memory of a queued command without its
// arguments.
const queuedBytes = 128

// len returns the number of queued commands as CLIENT LIST shows it: -1 outside
// of MULTI.
func (m *multi) len() int {
	if m == nil {
		return -1
	}
	return len(m.cmds)
}

// enqueue adds a command to the transaction. If this node leads and the data set
// is larger than maxmemory, enqueue refuses commands that add data, as Redis
// does. Unlike Redis, it accepts all other commands, because the transaction may
// release a lock.
func (c *conn) enqueue(r *row, args [][]byte) {
	if r.data && r.cmd.Grows(args) && c.srv.cluster.RefuseQueued() {
		c.refuse(r, fsm.MsgOOM)
		return
	}
	m, q := c.tx.multi, queued{row: r, args: args}
	if r.data {
		q.db = m.db
	}
	for _, a := range q.args {
		m.bytes += len(a) + 16
		m.footprint += int64(len(a)) + 40 // estimate for the slice header and for the frame of the argument
	}
	m.footprint += queuedBytes
	if m.bytes > maxMultiBytes {
		m.cmds, m.footprint = nil, 0
		c.setMulti(m)
		c.refuse(r, "ERR transaction is larger than 8 MiB")
		return
	}
	if r.queued != nil {
		r.queued(c, &q)
	}
	m.cmds = append(m.cmds, q)
	c.setMulti(m)
	c.reply(fsm.Simple("QUEUED"))
}

func multiBegin(c *conn, args [][]byte) fsm.Reply {
	if c.tx.multi != nil {
		return fsm.Error(msgNestedMulti)
	}
	c.setMulti(&multi{db: c.db})
	return fsm.OK
}

// sendMessages implements hooks.answered for EXEC: after the reply of EXEC, it
// sends the messages that the transaction caused.
func sendMessages(c *conn) { c.out.Drain() }

// abortTransaction implements hooks.refused for EXEC. It ends the transaction, so
// that no part of the transaction is ever executed.
func abortTransaction(c *conn, text string) string {
	c.setMulti(nil)
	c.tx.watch = nil
	return "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
}

func multiDiscard(c *conn, args [][]byte) fsm.Reply {
	if c.tx.multi == nil {
		return fsm.Error(msgNoMultiDisc)
	}
	c.setMulti(nil)
	c.tx.watch = nil
	return fsm.OK
}

// multiExec executes the transaction. Its commands on data are one operation of
// a group. After they have taken effect, the connection runs the connection
// commands of the transaction, except those that trackFirst has run already, and
// puts the replies in the right positions.
func multiExec(c *conn, args [][]byte) fsm.Reply {
	m, watch := c.tx.multi, c.tx.watch
	if m == nil {
		return fsm.Error(msgNoMultiExec)
	}
	c.tx.multi, c.tx.watch = nil, nil
	c.edit(func(i *clientInfo) { i.multi = -1 })
	defer c.tx.mem.Set(c.mem, 0) // the commands occupy memory until they have been executed
	if m.dirty {
		return fsm.Error(msgExecAbort)
	}
	if text := c.transactionRedirect(m); text != "" {
		return fsm.Error(text)
	}
	c.recheck(m)
	for i := range m.cmds {
		if q := &m.cmds[i]; q.refused == "" && q.row.check != nil {
			q.refused = q.row.check(c, q.args)
		}
	}
	tracking := c.tracking.On
	c.trackFirst(m)
	var data []fsm.Queued
	for _, q := range m.cmds {
		if q.row.data && q.refused == "" {
			cmd, args := c.forLog(q.row, q.args)
			data = append(data, fsm.Queued{DB: q.db, Cmd: cmd, Args: args})
			if c.tracking.Reads() {
				c.rememberReads(q.row.cmd, q.args)
			}
		}
	}
	if len(data) == 0 && len(watch) == 0 { // nothing to send to the cluster
		c.showTransaction(m)
		return fsm.Raw(c.interleave(m, []byte("*0\r\n")))
	}
	start := time.Now()
	c.group.Transaction(watch, data)
	tracked := c.track()
	if !c.group.Write {
		c.batch.front.Most = pieceBytes
		c.group.Front = &c.batch.front
	}
	out, err := c.do(c.local && len(watch) == 0)
	large := c.batch.front.Large
	c.batch.front.Large = nil
	if err == nil && c.group.Front.Cut() {
		if c.batch.front.Ops > 1 {
			panic("resp: a transaction is one operation")
		}
		c.trackedPieces(tracked)
	} else {
		out = c.tracked(tracked, out, err)
	}
	c.reset()
	c.auditTransaction(m, out, err)
	if err != nil {
		c.untrack(tracking)
		return fsm.Error(errorText(err))
	}
	if large != nil {
		return c.largeTransaction(m, large, start)
	}
	head, _, replies := wire.Head(out)
	if replies != len(data) || len(data) == 0 && out[0] != '*' || bytes.HasPrefix(out, []byte("*-1")) {
		c.untrack(tracking)
		return fsm.Raw(out) // a watched key has changed, or the cluster refused the transaction
	}
	c.showTransaction(m)
	for _, q := range m.cmds {
		if q.row.data {
			c.batch.rows = append(c.batch.rows, q.row)
		}
	}
	took := time.Since(start)
	c.srv.countGroup(c.batch.rows, took, out[head:])
	if len(m.cmds) > 0 {
		c.slow(m.cmds[0].row, m.cmds[0].args, len(m.cmds)-1, false, took)
	}
	c.batch.rows = c.batch.rows[:0]
	if len(data) == len(m.cmds) {
		return fsm.Raw(out) // there are no connection commands
	}
	return fsm.Raw(c.interleave(m, out))
}

// largeTransaction returns the reply to EXEC for a transaction of reads with large
// replies, without copying them.
func (c *conn) largeTransaction(m *multi, large *fsm.Reply, start time.Time) fsm.Reply {
	if large.IsError() {
		return *large
	}
	c.showTransaction(m)
	took := time.Since(start)
	data := large.Elems()
	interleaved := make([]fsm.Reply, 0, len(m.cmds))
	c.tx.interleaving = true
	defer func() { c.tx.interleaving = false }()
	for _, q := range m.cmds {
		switch {
		case q.refused != "":
			interleaved = append(interleaved, fsm.Error(q.refused))
		case q.answer != nil:
			interleaved = append(interleaved, *q.answer)
		case !q.row.data:
			interleaved = append(interleaved, c.run(q.row, q.args))
		default:
			c.srv.metrics.Command(q.row.stats, took, data[0])
			interleaved, data = append(interleaved, data[0]), data[1:]
		}
	}
	c.slow(m.cmds[0].row, m.cmds[0].args, len(m.cmds)-1, false, took)
	return fsm.Array(interleaved)
}

// trackFirst is called before a transaction is executed. It runs the commands
// of the transaction that turn on tracking: CLIENT TRACKING ON and CLIENT
// CACHING YES. Reads that precede them in the transaction are then tracked too.
// This may cause unneeded invalidations, but no invalidation is missed. CLIENT
// CACHING NO is run in its position, because invalidations could be missed if it
// were run earlier. If the transaction also turns tracking off, all these commands
// are run in their positions.
func (c *conn) trackFirst(m *multi) {
	var first []*queued
	for i := range m.cmds {
		q := &m.cmds[i]
		if q.row.tracks == nil || q.refused != "" {
			continue
		}
		switch q.row.tracks(q.args) {
		case trackingEnds:
			return
		case trackingStarts:
			first = append(first, q)
		}
	}
	for _, q := range first {
		answer := c.run(q.row, q.args)
		q.answer = &answer
	}
}

// untrack turns tracking off again after a transaction that failed, if
// trackFirst turned it on. before says whether the connection tracked keys
// before the transaction.
func (c *conn) untrack(before bool) {
	if !before {
		c.trackingOff()
	}
}

// interleave returns the reply to EXEC: the replies of the commands on data, which
// out contains as one array, with the replies of the connection commands in
// between. It runs the connection commands that trackFirst has not run.
func (c *conn) interleave(m *multi, out []byte) []byte {
	proto := c.proto // HELLO in the transaction takes effect after the transaction
	c.tx.interleaving = true
	defer func() { c.tx.interleaving = false }()
	head, _, _ := wire.Head(out)
	rest := bytes.Clone(out[head:]) // copied, because a connection command may use the executor too
	interleaved := fsm.AppendHead(nil, '*', int64(len(m.cmds)))
	for _, q := range m.cmds {
		if q.refused != "" {
			interleaved = fsm.Error(q.refused).Append(interleaved, proto)
			continue
		}
		if q.answer != nil {
			interleaved = q.answer.Append(interleaved, proto)
			continue
		}
		if !q.row.data {
			interleaved = c.run(q.row, q.args).Append(interleaved, proto)
			continue
		}
		n := wire.Len(rest)
		if n == 0 {
			panic(fmt.Sprintf("resp: transaction of %d commands answered %q", len(m.cmds), out))
		}
		interleaved = append(interleaved, rest[:n]...)
		rest = rest[n:]
	}
	return interleaved
}

func watchKeys(c *conn, args [][]byte) fsm.Reply {
	if c.tx.multi != nil {
		return fsm.Error(msgWatchMulti)
	}
	if len(c.tx.watch)+len(args)-1 > maxWatched {
		return fsm.Error("ERR too many watched keys")
	}
	version := c.srv.cmds.internal(fsm.VersionCommand)
	for _, key := range args[1:] {
		c.group.Command(version, c.db, [][]byte{[]byte(fsm.VersionCommand), key})
	}
	// This read is linearizable even on a READONLY connection, because a
	// transaction may follow.
	out, err := c.do(false)
	c.group.Reset(c.proto, c.id)
	if err != nil {
		return fsm.Error(errorText(err))
	}
	for _, key := range args[1:] {
		line, rest, ok := bytes.Cut(out, []byte("\r\n"))
		v, err := strconv.ParseUint(string(bytes.TrimPrefix(line, []byte(":"))), 10, 64)
		if !ok || err != nil {
			return fsm.Error(fmt.Sprintf("ERR cannot watch: unexpected reply %q", line))
		}
		c.tx.watch = append(c.tx.watch, fsm.Watch{DB: c.db, Key: string(key), Version: v})
		out = rest
	}
	return fsm.OK
}

func unwatch(c *conn, args [][]byte) fsm.Reply {
	c.tx.watch = nil
	return fsm.OK
}
