package resp

import (
	"bytes"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

const tipsNodes = "nondeterministic_output request_policy:all_nodes response_policy:special"
const tipsShards = "nondeterministic_output request_policy:all_shards response_policy:special"

// diagnosticRows look into the server. Slow commands and latency spikes are not
// recorded here (/metrics has the latency of every command): their logs are
// empty, which is what a Redis with nothing to report answers.
var diagnosticRows = []row{
	{cmd: fsm.Command{Name: "debug", Arity: -2, Group: "server", Since: "1.0.0", Complexity: "Depends on subcommand.", Syntax: "SLEEP seconds", Doc: "SLEEP holds up this connection; the rest of DEBUG is refused"}, words: "admin noscript loading stale", run: debugCommand},
	{cmd: fsm.Command{Name: "lolwut", Arity: -1, Group: "server", Since: "5.0.0", Complexity: "O(1)", Syntax: "[VERSION version]", Doc: "Print the version"}, words: "readonly fast", run: lolwut},
	{cmd: fsm.Command{Name: "memory", Arity: -2, Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.", Doc: "Commands about memory"}, sub: []row{
		{cmd: fsm.Command{Name: "usage", Arity: -3, Keys: fsm.Keys{First: 2, Last: 2, Step: 1}, Access: fsm.Access{Mode: "RO"}, Since: "4.0.0", Complexity: "O(N) where N is the size of the value", Syntax: "key [SAMPLES count]", Doc: "Estimate the memory that a string takes"}, words: "readonly", run: memoryUsage},
		{cmd: fsm.Command{Name: "doctor", Arity: 2, Since: "4.0.0", Complexity: "O(1)", Doc: "Say where to look for memory problems"}, tips: tipsShards, run: memoryDoctor},
		{cmd: fsm.Command{Name: "purge", Arity: 2, Since: "4.0.0", Complexity: "O(N) where N is the size of the heap", Doc: "Give free memory back to the system"}, tips: "request_policy:all_shards response_policy:all_succeeded", run: memoryPurge},
		helpRow("4.0.0"),
	}},
	{cmd: fsm.Command{Name: "slowlog", Arity: -2, Group: "server", Since: "2.2.12", Complexity: "Depends on subcommand.", Doc: "The log of slow commands: always empty"}, sub: []row{
		{cmd: fsm.Command{Name: "get", Arity: -2, Since: "2.2.12", Complexity: "O(1)", Syntax: "[count]", Doc: "Entries of the log: none"}, words: "admin loading stale", tips: "request_policy:all_nodes nondeterministic_output", run: slowlogGet},
		{cmd: fsm.Command{Name: "len", Arity: 2, Since: "2.2.12", Complexity: "O(1)", Doc: "Length of the log: 0"}, words: "admin loading stale", tips: "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", run: answerZero},
		{cmd: fsm.Command{Name: "reset", Arity: 2, Since: "2.2.12", Complexity: "O(1)", Doc: "Clear the log"}, words: "admin loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", run: answerOK},
		helpRow("6.2.0"),
	}},
	{cmd: fsm.Command{Name: "latency", Arity: -2, Group: "server", Since: "2.8.13", Complexity: "Depends on subcommand.", Doc: "Latency of commands; spikes are not recorded"}, sub: []row{
		{cmd: fsm.Command{Name: "latest", Arity: 2, Since: "2.8.13", Complexity: "O(1)", Doc: "The last spikes: none"}, words: "admin noscript loading stale", tips: tipsNodes, run: answerEmpty},
		{cmd: fsm.Command{Name: "history", Arity: 3, Since: "2.8.13", Complexity: "O(1)", Syntax: "event", Doc: "Spikes of an event: none"}, words: "admin noscript loading stale", tips: tipsNodes, run: answerEmpty},
		{cmd: fsm.Command{Name: "reset", Arity: -2, Since: "2.8.13", Complexity: "O(1)", Syntax: "[event [event ...]]", Doc: "Forget the spikes"}, words: "admin noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", run: answerZero},
		{cmd: fsm.Command{Name: "graph", Arity: 3, Since: "2.8.13", Complexity: "O(1)", Syntax: "event", Doc: "Draw the spikes of an event: there are none"}, words: "admin noscript loading stale", tips: tipsNodes, run: latencyGraph},
		{cmd: fsm.Command{Name: "doctor", Arity: 2, Since: "2.8.13", Complexity: "O(1)", Doc: "Say where to look for latency"}, words: "admin noscript loading stale", tips: tipsNodes, run: latencyDoctor},
		{cmd: fsm.Command{Name: "histogram", Arity: -2, Since: "7.0.0", Complexity: "O(N) where N is the number of commands", Syntax: "[command [command ...]]", Doc: "Distribution of the latency of commands"}, words: "admin noscript loading stale", tips: tipsNodes, run: latencyHistogram},
		helpRow("2.8.13"),
	}},
	{cmd: fsm.Command{Name: "module", Arity: -2, Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.", Doc: "Modules: there are none"}, sub: []row{
		{cmd: fsm.Command{Name: "list", Arity: 2, Since: "4.0.0", Complexity: "O(1)", Doc: "The loaded modules: none"}, words: "admin noscript", tips: "nondeterministic_output_order", run: answerEmpty},
		{cmd: fsm.Command{Name: "load", Arity: -3, Since: "4.0.0", Complexity: "O(1)", Syntax: "path [arg [arg ...]]", Doc: "Refused: modules cannot be loaded"}, words: "admin noscript no_async_loading", run: moduleRefuse},
		{cmd: fsm.Command{Name: "loadex", Arity: -3, Since: "7.0.0", Complexity: "O(1)", Syntax: "path [arg [arg ...]]", Doc: "Refused: modules cannot be loaded"}, words: "admin noscript no_async_loading", run: moduleRefuse},
		{cmd: fsm.Command{Name: "unload", Arity: 3, Since: "4.0.0", Complexity: "O(1)", Syntax: "name", Doc: "Refused: modules cannot be loaded"}, words: "admin noscript no_async_loading", run: moduleRefuse},
		helpRow("5.0.0"),
	}},
}

func answerOK(c *conn, args [][]byte) fsm.Reply    { return fsm.OK }
func answerZero(c *conn, args [][]byte) fsm.Reply  { return fsm.Zero }
func answerEmpty(c *conn, args [][]byte) fsm.Reply { return fsm.Array(nil) }

// debugCommand runs DEBUG SLEEP, which holds up this connection only, at most a
// minute at a time, and not a stopping server.
func debugCommand(c *conn, args [][]byte) fsm.Reply {
	if len(args) != 3 || !strings.EqualFold(string(args[1]), "sleep") {
		return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try DEBUG HELP.")
	}
	seconds, err := strconv.ParseFloat(string(args[2]), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 {
		seconds = 0 // what Redis makes of it
	}
	c.srv.sleep(time.Duration(min(seconds, 60) * float64(time.Second)))
	return fsm.OK
}

func lolwut(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 2 && strings.EqualFold(string(args[1]), "version") {
		if _, refusal, ok := intArg(args[2]); !ok {
			return refusal
		}
	}
	return fsm.Verbatim("Redis ver. " + RedisVersion + "\n")
}

// keyOverhead is about what a key takes beside its bytes and its value's: the object,
// its place in the tree, and what the allocator rounds up.
const keyOverhead = 160

func memoryUsage(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 3:
	case 5:
		if !strings.EqualFold(string(args[3]), "samples") {
			return fsm.Error(msgSyntax)
		}
		if n, refusal, ok := intArg(args[4]); !ok {
			return refusal
		} else if n < 0 {
			return fsm.Error(msgSyntax)
		}
	default:
		return fsm.Error(msgSyntax)
	}
	cmd := c.srv.table.Find([]byte(fsm.MemoryCommand))
	if cmd == nil {
		return fsm.Error("ERR MEMORY USAGE is not supported")
	}
	c.group.Command(cmd, c.db, [][]byte{[]byte(cmd.Name), args[2]})
	out, err := c.do(c.local)
	c.group.Reset(c.proto, c.id)
	if err != nil {
		return fsm.Error(errorText(err))
	}
	size, isSize := bytes.CutPrefix(out, []byte(":"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(size)))
	switch {
	case bytes.HasPrefix(out, []byte("-")), isSize && err != nil:
		return fsm.Error("ERR unexpected answer to MEMORY USAGE")
	case !isSize:
		return fsm.Null
	}
	return fsm.Int(int64(keyOverhead + len(args[2]) + n))
}

func memoryDoctor(c *conn, args [][]byte) fsm.Reply {
	return fsm.Verbatim("No memory problem is looked for here: see INFO memory and the go_memstats metrics of the HTTP port.\n")
}

func memoryPurge(c *conn, args [][]byte) fsm.Reply {
	debug.FreeOSMemory()
	return fsm.OK
}

func slowlogGet(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 3 {
		return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try SLOWLOG HELP.")
	}
	if len(args) == 3 {
		if n, err := strconv.ParseInt(string(args[2]), 10, 64); err != nil || n < -1 {
			return fsm.Error("ERR count should be greater than or equal to -1")
		}
	}
	return fsm.Array(nil)
}

func latencyGraph(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR No samples available for event '" + string(args[2]) + "'")
}

func latencyDoctor(c *conn, args [][]byte) fsm.Reply {
	return fsm.Verbatim("Latency spikes are not recorded here: see LATENCY HISTOGRAM, and holdfast_command_seconds on the HTTP port.\n")
}

func latencyHistogram(c *conn, args [][]byte) fsm.Reply {
	t, _ := c.srv.metrics.sinceReset()
	var wanted []string
	for name := range t.series {
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
		s := t.series[name]
		var buckets []fsm.Reply
		n := uint64(0)
		for i, in := range s.buckets {
			if n += in; in > 0 {
				buckets = append(buckets, fsm.Int(bucketBound(i).Microseconds()), fsm.Int(int64(n)))
			}
		}
		if n == 0 {
			continue // only ever refused
		}
		out = append(out, fsm.Bulk(name), fsm.Map([]fsm.Reply{
			fsm.Bulk("calls"), fsm.Int(int64(s.calls)),
			fsm.Bulk("histogram_usec"), fsm.Map(buckets),
		}))
	}
	return fsm.Map(out)
}

func moduleRefuse(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR MODULE command not allowed: modules cannot be loaded")
}
