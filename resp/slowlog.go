package resp

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var slowlogRows = []row{
	{cmd: fsm.Command{Name: "slowlog", Arity: -2, Group: "server", Since: "2.2.12", Complexity: "Depends on subcommand.", Doc: "The log of this node's slow commands"}, sub: []row{
		{cmd: fsm.Command{Name: "get", Arity: -2, Since: "2.2.12", Complexity: "O(N) where N is the number of entries returned", Syntax: "[count]", Doc: "Entries of the log, the newest first"}, words: "admin loading stale", tips: "request_policy:all_nodes nondeterministic_output", run: slowlogGet},
		{cmd: fsm.Command{Name: "len", Arity: 2, Since: "2.2.12", Complexity: "O(1)", Doc: "Length of the log"}, words: "admin loading stale", tips: "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", run: slowlogLen},
		{cmd: fsm.Command{Name: "reset", Arity: 2, Since: "2.2.12", Complexity: "O(N) where N is the number of entries in the log", Doc: "Clear the log"}, words: "admin loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", run: slowlogReset},
		helpRow("6.2.0"),
	}},
}

// Limits of an entry, as in Redis: what is beyond them is counted.
const (
	slowArgs     = 32
	slowArgBytes = 128
)

// slowlog keeps the commands that took long on this node, as far as its clients saw
// it: writes with the log's way to a majority of disks.
type slowlog struct {
	than atomic.Int64 // microseconds that are slow; negative for none

	mu      sync.Mutex
	max     int
	next    int64 // id of the next entry
	entries []slowEntry
}

// slowEntry is one entry, the newest being the last.
type slowEntry struct {
	id         int64
	at         time.Time
	took       time.Duration
	args       []string
	addr, name string
}

// slow notes that a command took d, if that is long. more is how many others were
// run with it, in one group, and took as long.
func (c *conn) slow(args [][]byte, more int, fast bool, d time.Duration) {
	c.srv.spikes.note(fast, d)
	than := c.srv.slowlog.than.Load()
	if than < 0 || d.Microseconds() < than || len(args) == 0 {
		return
	}
	e := slowEntry{at: time.Now(), took: d, args: slowWords(redacted(args)), addr: c.net.RemoteAddr().String(), name: c.info.name}
	if more > 0 {
		e.args = append(e.args, "... ("+strconv.Itoa(more)+" more commands of the pipeline)")
	}
	c.srv.slowlog.add(e)
}

func slowWords(args [][]byte) []string {
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
		return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try SLOWLOG HELP.")
	}
	count := int64(10)
	if len(args) == 3 {
		var ok bool
		if count, ok = fsm.ParseInt(args[2]); !ok || count < -1 {
			return fsm.Error("ERR count should be greater than or equal to -1")
		}
	}
	l := &c.srv.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fsm.Reply
	for i := len(l.entries) - 1; i >= 0 && (count < 0 || int64(len(out)) < count); i-- {
		e := &l.entries[i]
		out = append(out, fsm.Array([]fsm.Reply{
			fsm.Int(e.id), fsm.Int(e.at.Unix()), fsm.Int(e.took.Microseconds()), fsm.Strings(e.args...), fsm.Bulk(e.addr), fsm.Bulk(e.name),
		}))
	}
	return fsm.Array(out)
}

func slowlogLen(c *conn, args [][]byte) fsm.Reply {
	l := &c.srv.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	return fsm.Int(int64(len(l.entries)))
}

func slowlogReset(c *conn, args [][]byte) fsm.Reply {
	l := &c.srv.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
	return fsm.OK
}

// Settings of what is measured: their bounds and values at the start.
const (
	maxSlowlog      = 100_000 // slowlog-max-len
	startSlowlog    = 128
	startSlowerThan = 10_000
)

// bounded is a setting of this node that is a whole number.
type bounded struct {
	low, high int64
	get       func(s *Server) int64
	set       func(s *Server, n int64)
}

var boundedSettings = map[string]bounded{
	"acllog-max-len": {0, maxACLLog, func(s *Server) int64 { return int64(s.acllog.limit()) }, func(s *Server, n int64) { s.acllog.setLimit(int(n)) }},
	"latency-monitor-threshold": {0, maxThreshold, func(s *Server) int64 { return s.spikes.threshold.Load() },
		func(s *Server, n int64) { s.spikes.threshold.Store(n) }},
	"slowlog-log-slower-than": {-1, maxThreshold, func(s *Server) int64 { return s.slowlog.than.Load() }, func(s *Server, n int64) { s.slowlog.than.Store(n) }},
	"slowlog-max-len":         {0, maxSlowlog, func(s *Server) int64 { return int64(s.slowlog.limit()) }, func(s *Server, n int64) { s.slowlog.setLimit(int(n)) }},
}

// maxThreshold is Redis' bound of thresholds.
const maxThreshold = 1<<63 - 1

// check reads a value, or says in Redis' words what is wrong with it.
func (b bounded) check(value string) (n int64, wrong string) {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case err != nil:
		return 0, "argument couldn't be parsed into an integer"
	case n < b.low || n > b.high:
		return 0, "argument must be between " + strconv.FormatInt(b.low, 10) + " and " + strconv.FormatInt(b.high, 10) + " inclusive"
	}
	return n, ""
}
