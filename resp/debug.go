package resp

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var debugRows = []row{
	{run: debugCommand, cmd: &fsm.Command{
		Name: "debug", Arity: -2,
		Flags: fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
		Group: "server", Since: "1.0.0",
		Complexity: "Depends on subcommand.",
		Syntax:     "<SLEEP seconds | ERROR text | LOG text | PROTOCOL type | HELP>",
		Doc: "For tests of clients: delay this connection, return an error or a reply of a type, write " +
			"to the node's log; other subcommands are refused",
	}},
}

var debugHelp = []string{
	"DEBUG <subcommand> [<arg> ...]. Subcommands are:",
	"SLEEP <seconds>", "    Delay this connection, by at most a minute.",
	"ERROR <text>", "    Return an error.",
	"LOG <text>", "    Write a line to this node's log.",
	"PROTOCOL <type>", "    Return a value of a type: " + strings.ReplaceAll(debugTypes, "|", ", ") + ".",
	"HELP", "    Print this help.",
}

func debugCommand(c *conn, args [][]byte) fsm.Reply {
	word := strings.ToLower(string(args[1]))
	switch {
	case len(args) == 2 && word == "help":
		lines := make([]fsm.Reply, len(debugHelp))
		for i, line := range debugHelp {
			lines[i] = fsm.Simple(line)
		}
		return fsm.Array(lines)
	case len(args) != 3:
	case word == "sleep":
		return debugSleep(c, args[2])
	case word == "error": // an error reply must be one line
		return fsm.Error(strings.NewReplacer("\r", " ", "\n", " ").Replace(string(args[2])))
	case word == "log":
		c.srv.log.Warn("DEBUG LOG", "text", string(args[2]), "client", c.id)
		return fsm.OK
	case word == "protocol":
		return debugProtocol(c, strings.ToLower(string(args[2])))
	}
	return fsm.Error(msgWrongSubcommand("DEBUG", args[1]))
}

// debugSleep delays only this connection, for at most a minute. It returns
// early if the server stops.
func debugSleep(c *conn, arg []byte) fsm.Reply {
	seconds, err := strconv.ParseFloat(string(arg), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 {
		seconds = 0 // Redis also treats an invalid number as 0
	}
	c.srv.sleep(time.Duration(min(seconds, 60) * float64(time.Second)))
	return fsm.OK
}

// debugTypes are the types of DEBUG PROTOCOL.
const debugTypes = "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"

// debugProtocol returns a value of the given type, the same value as Redis
// returns.
func debugProtocol(c *conn, typ string) fsm.Reply {
	numbers := []fsm.Reply{fsm.Int(0), fsm.Int(1), fsm.Int(2)}
	const popularity = "|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n"
	const usage = ">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n"
	switch typ {
	case "string":
		return fsm.Bulk("Hello World")
	case "integer":
		return fsm.Int(12345)
	case "double":
		return fsm.Double(3.141)
	case "bignum":
		return fsm.BigNumber("1234567999999999999999999999999999999")
	case "null":
		return fsm.Null
	case "array":
		return fsm.Array(numbers)
	case "set":
		return fsm.Set(numbers)
	case "map":
		return fsm.Map([]fsm.Reply{
			fsm.Int(0), fsm.Boolean(false), fsm.Int(1), fsm.Boolean(true), fsm.Int(2), fsm.Boolean(false),
		})
	case "attrib":
		real := fsm.Bulk("Some real reply following the attribute")
		if c.proto == 2 {
			return real
		}
		return fsm.Raw(real.Append([]byte(popularity), c.proto))
	case "push":
		if c.proto == 2 {
			return fsm.Error("ERR RESP2 is not supported by this command")
		}
		return fsm.Raw(fsm.Bulk("Some real reply following the push reply").Append([]byte(usage), c.proto))
	case "verbatim":
		return fsm.Verbatim("This is a verbatim\nstring")
	case "true", "false":
		return fsm.Boolean(typ == "true")
	}
	return fsm.Error("ERR Wrong protocol type name. Please use one of the following: " + debugTypes)
}

// Tips of several commands.
var (
	tipsNodes  = []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"}
	tipsShards = []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"}
)

// diagnosticRows are commands that describe the server itself.
var diagnosticRows = []row{
	{run: lolwut, cmd: &fsm.Command{
		Name: "lolwut", Arity: -1,
		Flags: fsm.ReadOnly | fsm.Fast,
		Group: "server", Since: "5.0.0",
		Complexity: "O(1)",
		Syntax:     "[VERSION version]",
		Doc:        "Print the version",
	}},
	{cmd: &fsm.Command{
		Name: "module", Arity: -2,
		Group: "server", Since: "4.0.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about modules: there are none",
	}, sub: []row{
		{run: emptyArray, cmd: &fsm.Command{
			Name: "list", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript,
			Since:      "4.0.0",
			Complexity: "O(1)",
			Doc:        "List the loaded modules: there are none",
			Tips:       []string{"nondeterministic_output_order"},
		}},
		{run: moduleRefuse, cmd: &fsm.Command{
			Name: "load", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading,
			Since:      "4.0.0",
			Complexity: "O(1)",
			Syntax:     "path [arg [arg ...]]",
			Doc:        "Refused: modules cannot be loaded",
		}},
		{run: moduleRefuse, cmd: &fsm.Command{
			Name: "loadex", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading,
			Since:      "7.0.0",
			Complexity: "O(1)",
			Syntax:     "path [arg [arg ...]]",
			Doc:        "Refused: modules cannot be loaded",
		}},
		{run: moduleRefuse, cmd: &fsm.Command{
			Name: "unload", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.NoAsyncLoading,
			Since:      "4.0.0",
			Complexity: "O(1)",
			Syntax:     "name",
			Doc:        "Refused: modules cannot be loaded",
		}},
		helpRow("5.0.0"),
	}},
}

func emptyArray(c *conn, args [][]byte) fsm.Reply { return fsm.Array(nil) }

func lolwut(c *conn, args [][]byte) fsm.Reply {
	if len(args) > 2 && strings.EqualFold(string(args[1]), "version") {
		if _, refusal, ok := intArg(args[2]); !ok {
			return refusal
		}
	}
	return fsm.Verbatim("Redis ver. " + RedisVersion + "\n")
}

func moduleRefuse(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR MODULE command not allowed: modules cannot be loaded")
}
