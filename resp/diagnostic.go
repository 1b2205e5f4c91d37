package resp

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

const tipsNodes = "nondeterministic_output request_policy:all_nodes response_policy:special"
const tipsShards = "nondeterministic_output request_policy:all_shards response_policy:special"

// diagnosticRows are commands that describe the server itself.
var diagnosticRows = []row{
	{
		cmd: fsm.Command{
			Name: "lolwut", Arity: -1,
			Group: "server", Since: "5.0.0",
			Complexity: "O(1)",
			Syntax:     "[VERSION version]",
			Doc:        "Print the version",
		},
		run: lolwut, words: "readonly fast",
	},
	{cmd: fsm.Command{Name: "module", Arity: -2, Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.", Doc: "Commands about modules: there are none"}, sub: []row{
		{
			cmd: fsm.Command{
				Name: "list", Arity: 2, Since: "4.0.0",
				Complexity: "O(1)",
				Doc:        "List the loaded modules: there are none",
			},
			run: answerEmpty, words: "admin noscript", tips: "nondeterministic_output_order",
		},
		{
			cmd: fsm.Command{
				Name: "load", Arity: -3, Since: "4.0.0",
				Complexity: "O(1)",
				Syntax:     "path [arg [arg ...]]",
				Doc:        "Refused: modules cannot be loaded",
			},
			run: moduleRefuse, words: "admin noscript no_async_loading",
		},
		{
			cmd: fsm.Command{
				Name: "loadex", Arity: -3, Since: "7.0.0",
				Complexity: "O(1)",
				Syntax:     "path [arg [arg ...]]",
				Doc:        "Refused: modules cannot be loaded",
			},
			run: moduleRefuse, words: "admin noscript no_async_loading",
		},
		{
			cmd: fsm.Command{
				Name: "unload", Arity: 3, Since: "4.0.0",
				Complexity: "O(1)",
				Syntax:     "name",
				Doc:        "Refused: modules cannot be loaded",
			},
			run: moduleRefuse, words: "admin noscript no_async_loading",
		},
		helpRow("5.0.0"),
	}},
}

func answerEmpty(c *conn, args [][]byte) fsm.Reply { return fsm.Array(nil) }

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
