package resp

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

var monitorRows = []row{
	{run: monitorBegin, hooks: hooks{queued: refuseMonitorInMulti}, cmd: &fsm.Command{
		Name: "monitor", Arity: 1,
		Flags: fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Doc: "Show the commands of this node's connections as they run, except those called by scripts " +
			"and administrative ones",
	}},
}

// monitorStream sends the commands of this node's connections to the clients in
// MONITOR mode. It is safe for concurrent use.
type monitorStream struct {
	n atomic.Int32 // number of readers; while n is 0, reading n is the only cost of MONITOR for a command

	mu      sync.RWMutex
	readers map[*conn]struct{}
}

func (f *monitorStream) join(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = make(map[*conn]struct{})
	}
	f.readers[c] = struct{}{}
	f.n.Store(int32(len(f.readers)))
}

func (f *monitorStream) leave(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, c)
	f.n.Store(int32(len(f.readers)))
}

// send sends a line to all readers. If the client of a reader does not read,
// the outbox of this reader closes the connection.
func (f *monitorStream) send(line []byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p := pubsub.NewPayload(line)
	for c := range f.readers {
		c.out.Push(pubsub.Cause{}, func(int) *pubsub.Payload { return p })
	}
}

// show sends a command of the connection, executed in database db, to the
// clients in MONITOR mode. As in Redis, it does not send administrative
// commands.
func (c *conn) show(r *row, db int, args [][]byte) {
	if c.srv.diag.monitors.n.Load() == 0 || r.cmd.Routed(args).Flags&fsm.Admin != 0 {
		return
	}
	c.srv.diag.monitors.send(monitorLine(time.Now(), db, c.net.RemoteAddr().String(), r.redacted(args)))
}

// showTransaction is like show, for the commands of a transaction that was
// executed.
func (c *conn) showTransaction(m *multi) {
	if c.srv.diag.monitors.n.Load() == 0 {
		return
	}
	for i := range m.cmds {
		q := &m.cmds[i]
		switch {
		case q.refused != "":
		case q.row.data:
			c.show(q.row, q.db, q.args)
		default:
			c.show(q.row, c.db, q.args)
		}
	}
}

// maxMonitorLine is the approximate length in bytes at which a line is truncated.
// Without this limit, one large value would disconnect all readers.
const maxMonitorLine = 1 << 20

// monitorLine returns the line for a command in the MONITOR stream. args contain
// no passwords.
func monitorLine(now time.Time, db int, addr string, args [][]byte) []byte {
	b := append(make([]byte, 0, 128), '+')
	b = strconv.AppendInt(b, now.Unix(), 10)
	b = append(b, '.')
	micros := strconv.Itoa(1_000_000 + now.Nanosecond()/1000)
	b = append(b, micros[1:]...)
	b = append(b, " ["...)
	b = strconv.AppendInt(b, int64(db), 10)
	b = append(b, ' ')
	b = append(b, addr...)
	b = append(b, ']')
	for i, arg := range args {
		if len(b) > maxMonitorLine {
			b = append(b, " \"... ("...)
			b = strconv.AppendInt(b, int64(len(args)-i), 10)
			b = append(b, " more arguments)\""...)
			break
		}
		b = append(b, ' ')
		b = appendRepr(b, clipped(arg, maxMonitorLine/4))
	}
	return append(b, "\r\n"...)
}

// clipped returns arg, truncated to n bytes with a note of how many bytes are
// missing.
func clipped(arg []byte, n int) []byte {
	if len(arg) <= n {
		return arg
	}
	return append(append(make([]byte, 0, n+32), arg[:n]...), "... ("+strconv.Itoa(len(arg)-n)+" more bytes)"...)
}

// appendRepr appends s, quoted as Redis quotes text in output for people.
func appendRepr(b, s []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, ch := range s {
		if i := strings.IndexByte("\n\r\t\a\b\\\"", ch); i >= 0 {
			b = append(b, '\\', `nrtab\"`[i])
			continue
		}
		if ch < ' ' || ch > '~' {
			b = append(b, '\\', 'x', hex[ch>>4], hex[ch&15])
			continue
		}
		b = append(b, ch)
	}
	return append(b, '"')
}

// redacted returns the arguments of a command without passwords.
func (r *row) redacted(args [][]byte) [][]byte {
	if r.secrets == nil {
		return args
	}
	shown := slices.Clone(args)
	r.secrets(args, func(i int) {
		if i < len(shown) {
			shown[i] = []byte("(redacted)")
		}
	})
	return shown
}

const msgMonitorData = "ERR Replica can't interact with the keyspace"

// monitorBegin starts MONITOR mode. As in Redis, there is no reply if the
// connection is already in that mode.
func monitorBegin(c *conn, args [][]byte) fsm.Reply {
	if c.info.monitor {
		return fsm.None
	}
	c.edit(func(i *clientInfo) { i.monitor = true })
	c.srv.diag.monitors.join(c)
	return fsm.OK
}

// refuseMonitorInMulti implements hooks.queued for MONITOR: MULTI queues the
// command, but its reply in the transaction is an error.
func refuseMonitorInMulti(_ *conn, q *queued) {
	q.refused = "ERR MONITOR isn't allowed for DENY BLOCKING client"
}

// monitorEnd ends MONITOR mode.
func (c *conn) monitorEnd() {
	if c.info.monitor {
		c.edit(func(i *clientInfo) { i.monitor = false })
		c.srv.diag.monitors.leave(c)
	}
}

// monitorForbids reports whether the connection may not run a command because
// it is in MONITOR mode.
func (c *conn) monitorForbids(cmd *fsm.Command, args [][]byte) bool {
	return c.info.monitor && cmd.Routed(args).Flags&(fsm.Write|fsm.MayWrite|fsm.ReadOnly) != 0
}
