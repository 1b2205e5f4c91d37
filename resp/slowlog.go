package resp

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var slowlogRows = []row{
	{cmd: &fsm.Command{
		Name: "slowlog", Arity: -2,
		Group: "server", Since: "2.2.12",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about the log of this node's slow commands",
	}, sub: []row{
		{run: slowlogGet, cmd: &fsm.Command{
			Name: "get", Arity: -2,
			Flags:      fsm.Admin | fsm.Loading | fsm.Stale,
			Since:      "2.2.12",
			Complexity: "O(N) where N is the number of entries returned",
			Syntax:     "[count]",
			Doc:        "Return entries of the log, the newest first",
			Tips:       []string{"request_policy:all_nodes", "nondeterministic_output"},
		}},
		{run: slowlogLen, cmd: &fsm.Command{
			Name: "len", Arity: 2,
			Flags:      fsm.Admin | fsm.Loading | fsm.Stale,
			Since:      "2.2.12",
			Complexity: "O(1)",
			Doc:        "Return the length of the log",
			Tips:       []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
		}},
		{run: slowlogReset, cmd: &fsm.Command{
			Name: "reset", Arity: 2,
			Flags:      fsm.Admin | fsm.Loading | fsm.Stale,
			Since:      "2.2.12",
			Complexity: "O(N) where N is the number of entries in the log",
			Doc:        "Clear the log",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		}},
		helpRow("6.2.0"),
	}},
}

// An entry contains at most slowArgs arguments, and at most slowArgBytes bytes of
// each, as in Redis. It says how many arguments and bytes it omits.
const (
	slowArgs     = 32
	slowArgBytes = 128
)

// slowlog keeps the slow commands of this node's clients. The time of a write
// includes the time until a majority has it on disk.
type slowlog struct {
	threshold atomic.Int64 // in microseconds; negative to log nothing

	mu      sync.Mutex
	max     int
	next    int64 // id of the next entry
	entries []slowEntry
}

// slowEntry is an entry of the slow log. The newest is the last in
// slowlog.entries.
type slowEntry struct {
	id         int64
	at         time.Time
	took       time.Duration
	args       []string
	addr, name string
}

// slow adds a command that took d to the slow log, if d reaches the threshold.
// more is the number of other commands that ran in the same group and took the
// same time.
func (c *conn) slow(r *row, args [][]byte, more int, fast bool, d time.Duration) {
	c.srv.diag.latency.record(fast, d)
	threshold := c.srv.diag.slowlog.threshold.Load()
	if threshold < 0 || d.Microseconds() < threshold || len(args) == 0 {
		return
	}
	e := slowEntry{
		at: time.Now(), took: d, args: slowCommand(r.redacted(args)),
		addr: c.net.RemoteAddr().String(), name: c.info.name,
	}
	if more > 0 {
		e.args = append(e.args, "... ("+strconv.Itoa(more)+" more commands of the pipeline)")
	}
	c.srv.diag.slowlog.add(e)
}

func slowCommand(args [][]byte) []string {
	words := make([]string, 0, min(len(args), slowArgs)+1)
	for i, arg := range args {
		if i == slowArgs-1 && len(args) > slowArgs {
			return append(words, "... ("+strconv.Itoa(len(args)-i)+" more arguments)")
		}
		words = append(words, string(clipped(arg, slowArgBytes)))
	}
	return words
}

func (l *slowlog) add(e slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trimLocked()
}

func (l *slowlog) trimLocked() {
	if n := len(l.entries) - l.max; n > 0 {
		l.entries = append(l.entries[:0], l.entries[n:]...)
	}
}

func (l *slowlog) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}

func (l *slowlog) setLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = n
	l.trimLocked()
}

func slowlogGet(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 3 {
		return fsm.Error(msgWrongSubcommand("SLOWLOG", args[1]))
	}
	count := int64(10)
	if len(args) == 3 {
		var ok bool
		if count, ok = number.ParseInt(args[2]); !ok || count < -1 {
			return fsm.Error("ERR count should be greater than or equal to -1")
		}
	}
	l := &c.srv.diag.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fsm.Reply
	for i := len(l.entries) - 1; i >= 0 && (count < 0 || int64(len(out)) < count); i-- {
		e := &l.entries[i]
		out = append(out, fsm.Array([]fsm.Reply{
			fsm.Int(e.id), fsm.Int(e.at.Unix()), fsm.Int(e.took.Microseconds()),
			fsm.Strings(e.args...), fsm.Bulk(e.addr), fsm.Bulk(e.name),
		}))
	}
	return fsm.Array(out)
}

func slowlogLen(c *conn, args [][]byte) fsm.Reply {
	l := &c.srv.diag.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	return fsm.Int(int64(len(l.entries)))
}

func slowlogReset(c *conn, args [][]byte) fsm.Reply {
	l := &c.srv.diag.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
	return fsm.OK
}

// Settings of the slow log: bounds and initial values.
const (
	maxSlowlog      = 100_000 // slowlog-max-len
	startSlowlog    = 128
	startSlowerThan = 10_000
)
