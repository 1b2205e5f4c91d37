package resp

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var feedRows = []row{
	{cmd: fsm.Command{Name: "monitor", Arity: 1, Group: "server", Since: "1.0.0", Complexity: "O(1)", Doc: "Show the commands of this node's connections as they run, save those of scripts and of administration"}, words: "admin noscript loading stale", run: monitorBegin},
}

// feed shows the commands of this node's connections to those that asked for them
// with MONITOR.
type feed struct {
	n atomic.Int32 // of readers: all that a command costs while there are none

	mu      sync.RWMutex
	readers map[*conn]struct{}
}

func (f *feed) join(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = make(map[*conn]struct{})
	}
	f.readers[c] = struct{}{}
	f.n.Store(int32(len(f.readers)))
}

func (f *feed) leave(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, c)
	f.n.Store(int32(len(f.readers)))
}

// send hands a line to all readers. One that does not take what it is sent is cut
// off by its outbox.
func (f *feed) send(line []byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for c := range f.readers {
		c.out.push(cause{}, func(int) []byte { return line })
	}
}

// show tells whoever listens of a command of the connection that runs in db.
// Commands of administration are not shown, as in Redis.
func (c *conn) show(cmd *fsm.Command, db int, args [][]byte) {
	if c.srv.feed.n.Load() == 0 || cmd.Routed(args).Flags&fsm.Admin != 0 {
		return
	}
	c.srv.feed.send(feedLine(time.Now(), db, c.net.RemoteAddr().String(), args))
}

// showBlock is show for the commands of a transaction that was run.
func (c *conn) showBlock(m *multi) {
	if c.srv.feed.n.Load() == 0 {
		return
	}
	for i := range m.cmds {
		q := &m.cmds[i]
		switch {
		case q.refused != "":
		case q.row != nil:
			c.show(&q.row.cmd, c.db, q.args)
		default:
			c.show(q.cmd, q.db, q.args)
		}
	}
}

// feedMost is about where a line of the feed is cut short, in bytes: without it one
// large value would cut off all readers.
const feedMost = 1 << 20

// feedLine is what MONITOR shows of a command.
func feedLine(now time.Time, db int, addr string, args [][]byte) []byte {
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
	for i, arg := range redacted(args) {
		if len(b) > feedMost {
			b = append(b, " \"... ("...)
			b = strconv.AppendInt(b, int64(len(args)-i), 10)
			b = append(b, " more arguments)\""...)
			break
		}
		b = append(b, ' ')
		b = appendRepr(b, clipped(arg, feedMost/4))
	}
	return append(b, "\r\n"...)
}

// clipped is an argument of at most n bytes, which tells of those that are left out.
func clipped(arg []byte, n int) []byte {
	if len(arg) <= n {
		return arg
	}
	return append(append(make([]byte, 0, n+32), arg[:n]...), "... ("+strconv.Itoa(len(arg)-n)+" more bytes)"...)
}

// appendRepr quotes a string as Redis prints them for people.
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

// redacted is a command as others may see it: without passwords.
func redacted(args [][]byte) [][]byte {
	word := func(i int) string {
		if i >= len(args) || len(args[i]) > 32 {
			return ""
		}
		return strings.ToLower(string(args[i]))
	}
	var out [][]byte
	hide := func(i int) {
		if out == nil {
			out = append(out, args...)
		}
		if i < len(out) {
			out[i] = []byte("(redacted)")
		}
	}
	switch word(0) {
	case "auth":
		for i := range args[1:] {
			hide(i + 1)
		}
	case "acl":
		if word(1) == "setuser" {
			for i := 2; i < len(args); i++ {
				hide(i)
			}
		}
	case "config":
		for i := 2; i+1 < len(args) && word(1) == "set"; i += 2 {
			if word(i) == "requirepass" {
				hide(i + 1)
			}
		}
	case "hello", "migrate":
		for i := 1; i < len(args); i++ {
			switch word(i) {
			case "setname":
				i++ // a name, even if it is one of these words
			case "auth":
				hide(i + 1)
				if i++; word(0) == "hello" {
					i++
					hide(i)
				}
			case "auth2":
				hide(i + 1)
				hide(i + 2)
				i += 2
			}
		}
	}
	if out == nil {
		return args
	}
	return out
}

const msgMonitorData = "ERR Replica can't interact with the keyspace"

// monitorBegin is answered once: who listens already gets no answer, as in Redis.
func monitorBegin(c *conn, args [][]byte) fsm.Reply {
	if c.info.monitor {
		return fsm.None
	}
	c.edit(func(i *clientInfo) { i.monitor = true })
	c.srv.feed.join(c)
	return fsm.OK
}

// monitorEnd has the connection shown nothing any more.
func (c *conn) monitorEnd() {
	if c.info.monitor {
		c.edit(func(i *clientInfo) { i.monitor = false })
		c.srv.feed.leave(c)
	}
}

// listens reports whether the connection may not run a command because it is shown
// those of others.
func (c *conn) listens(cmd *fsm.Command, args [][]byte) bool {
	return c.info.monitor && cmd.Routed(args).Flags&(fsm.Write|fsm.MayWrite|fsm.ReadOnly) != 0
}
