package resp

import (
	"context"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var adminRows = []row{
	{
		cmd: fsm.Command{
			Name: "holdfast", Arity: -2, Flags: fsm.Admin | fsm.Dangerous | fsm.NoScript,
			Group: "server", Since: "holdfast",
			Complexity: "O(N) where N is the number of members",
			Syntax:     "STATUS [LOCAL] | ADD node address | REMOVE node [FORCE] | TRANSFER [node] | SNAPSHOT",
			Doc:        "Inspect and change the cluster",
		},
		run: admin,
	},
}

// admin runs an operator's request. It may take up to 10 seconds and delays
// only this connection.
func admin(c *conn, args [][]byte) fsm.Reply {
	words := make([]string, 0, len(args)-1)
	for _, a := range args[1:] {
		words = append(words, string(a))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := c.srv.cluster.Admin(ctx, words)
	if err != nil {
		return fsm.Error(errorText(err))
	}
	return fsm.Bulk(text)
}
