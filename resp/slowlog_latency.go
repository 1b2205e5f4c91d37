package resp

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/resp/slow"
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

var latencyRows = []row{
	{cmd: &fsm.Command{
		Name: "latency", Arity: -2,
		Group: "server", Since: "2.8.13",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about the latency of this node's commands and its latency events",
	}, sub: []row{
		{run: latencyLatest, cmd: &fsm.Command{
			Name: "latest", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Doc: "Return the last sample of each latency event: its second, its milliseconds, and the " +
				"maximum ever",
			Tips: tipsNodes,
		}},
		{run: latencyHistory, cmd: &fsm.Command{
			Name: "history", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "event",
			Doc:        "Return the samples of a latency event: the second and the milliseconds of each",
			Tips:       tipsNodes,
		}},
		{run: latencyReset, cmd: &fsm.Command{
			Name: "reset", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "[event [event ...]]",
			Doc:        "Delete the samples of latency events",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		}},
		{run: latencyGraph, cmd: &fsm.Command{
			Name: "graph", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "event",
			Doc:        "Draw the samples of a latency event",
			Tips:       tipsNodes,
		}},
		{run: latencyDoctor, cmd: &fsm.Command{
			Name: "doctor", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Doc:        "Explain the latency events and where to look for their causes",
			Tips:       tipsNodes,
		}},
		{run: latencyHistogram, cmd: &fsm.Command{
			Name: "histogram", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of commands",
			Syntax:     "[command [command ...]]",
			Doc:        "Return the distribution of the latency of commands",
			Tips:       tipsNodes,
		}},
		helpRow("2.8.13"),
	}},
}

// OwnConn is a connection whose client is the node itself, such as a connection of
// the dashboard. The slow log leaves out the commands of these connections: an open
// page of the dashboard repeats its commands, which would displace the commands of
// clients.
type OwnConn interface{ OwnNode() }

// fromOwnNode reports whether c is an OwnConn, or contains one.
func fromOwnNode(c net.Conn) bool {
	for {
		if _, ok := c.(OwnConn); ok {
			return true
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		c = outer.NetConn()
	}
}

// slow records a command that took the time d: as a latency event if d reaches
// the threshold for latency events, and in the slow log if d reaches the
// threshold of the slow log. more is the number of other commands that ran in
// the same group and took the same time.
func (c *conn) slow(r *row, args [][]byte, more int, fast bool, d time.Duration) {
	c.srv.diag.latency.Record(fast, d)
	if !c.srv.diag.slowlog.Wants(d) || len(args) == 0 || fromOwnNode(c.net) {
		return
	}
	e := slow.Entry{
		At: time.Now(), Took: d, Args: slowCommand(r.redacted(args)),
		Addr: c.net.RemoteAddr().String(), Name: c.info.name,
	}
	if more > 0 {
		e.Args = append(e.Args, "... ("+strconv.Itoa(more)+" more commands of the pipeline)")
	}
	c.srv.diag.slowlog.Add(e)
}

// An entry of the slow log contains at most slowArgs words of a command, and at
// most slowArgBytes bytes of each word, as in Redis. The entry says how much it
// omits.
const (
	slowArgs     = 32
	slowArgBytes = 128
)

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
	var out []fsm.Reply
	for _, e := range c.srv.diag.slowlog.Newest(count) {
		out = append(out, fsm.Array([]fsm.Reply{
			fsm.Int(e.ID), fsm.Int(e.At.Unix()), fsm.Int(e.Took.Microseconds()),
			fsm.Strings(e.Args...), fsm.Bulk(e.Addr), fsm.Bulk(e.Name),
		}))
	}
	return fsm.Array(out)
}

// SlowLog returns the newest entries of the slow log.
func (s *Server) SlowLog(count int) []slow.Entry { return s.diag.slowlog.Newest(int64(count)) }

func slowlogLen(c *conn, args [][]byte) fsm.Reply { return fsm.Int(int64(c.srv.diag.slowlog.Len())) }

func slowlogReset(c *conn, args [][]byte) fsm.Reply {
	c.srv.diag.slowlog.Reset()
	return fsm.OK
}

func latencyLatest(c *conn, args [][]byte) fsm.Reply {
	var out []fsm.Reply
	for _, e := range c.srv.diag.latency.Events() {
		last := e.Samples[len(e.Samples)-1]
		out = append(out, fsm.Array([]fsm.Reply{
			fsm.Bulk(e.Name), fsm.Int(last.Second), fsm.Int(last.Millis), fsm.Int(e.Most),
		}))
	}
	return fsm.Array(out)
}

func latencyHistory(c *conn, args [][]byte) fsm.Reply {
	var out []fsm.Reply
	if e, ok := c.srv.diag.latency.Event(string(args[2])); ok {
		for _, p := range e.Samples {
			out = append(out, fsm.Array([]fsm.Reply{fsm.Int(p.Second), fsm.Int(p.Millis)}))
		}
	}
	return fsm.Array(out)
}

func latencyReset(c *conn, args [][]byte) fsm.Reply {
	names := make([]string, 0, len(args)-2)
	for _, name := range args[2:] {
		names = append(names, string(name))
	}
	return fsm.Int(int64(c.srv.diag.latency.Reset(names)))
}

func latencyGraph(c *conn, args [][]byte) fsm.Reply {
	e, ok := c.srv.diag.latency.Event(string(args[2]))
	if !ok {
		return fsm.Error("ERR No samples available for event '" + string(args[2]) + "'")
	}
	return fsm.Verbatim(e.Graph(time.Now()))
}

func latencyDoctor(c *conn, args [][]byte) fsm.Reply {
	return fsm.Verbatim(c.srv.diag.latency.Report() + "A write waits for the disks of a majority: " +
		"see SLOWLOG GET, LATENCY HISTOGRAM, and holdfast_command_seconds on the HTTP port.\n")
}

func latencyHistogram(c *conn, args [][]byte) fsm.Reply {
	t, _ := c.srv.metrics.SinceReset()
	var wanted []string
	for name := range t.Series {
		container, _, _ := strings.Cut(name, "|")
		if len(args) == 2 || slices.ContainsFunc(args[2:], func(a []byte) bool {
			return strings.EqualFold(string(a), name) || strings.EqualFold(string(a), container)
		}) {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	var out []fsm.Reply
	for _, name := range wanted {
		s := t.Series[name]
		var buckets []fsm.Reply
		for _, b := range s.Buckets() {
			buckets = append(buckets, fsm.Int(b.Bound.Microseconds()), fsm.Int(int64(b.Calls)))
		}
		if len(buckets) == 0 {
			continue // all calls were rejected
		}
		out = append(out, fsm.Bulk(name), fsm.Map([]fsm.Reply{
			fsm.Bulk("calls"), fsm.Int(int64(s.Calls)),
			fsm.Bulk("histogram_usec"), fsm.Map(buckets),
		}))
	}
	return fsm.Map(out)
}

// These are the bounds and the initial values of the settings of the slow log.
// startSlowerThan is in microseconds.
const (
	maxSlowlog      = 100_000 // maximum of slowlog-max-len
	startSlowlog    = 128
	startSlowerThan = 10_000
)
