package fsm

import "github.com/holdfast-kv/holdfast/fsm/number"

// PublishCommand and SpublishCommand are PUBLISH and SPUBLISH in the form in
// which nodes write them to the log: with the number of receivers on the
// publisher's node at the time when that node received the command. Subscribers
// are not part of the state. If each node counted its own receivers, the
// replies would differ from node to node. With the number in the command, every
// stored reply has the same number.
const (
	PublishCommand  = "_publish"
	SpublishCommand = "_spublish"
)

var pubsubCommands = []Command{
	{
		Name: "publish", Run: publish, Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
		Syntax:     "channel message",
		Doc:        "Post a message to a channel",
	},
	{
		Name: "spublish", Run: spublish, Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "not_key"},
		Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
		Syntax:     "shardchannel message",
		Doc:        "Post a message to a shard channel",
	},
	{
		Name: PublishCommand, Run: publish, Arity: 4, Flags: Internal | MayWrite | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "channel message receivers",
		Doc:        "PUBLISH with the number of receivers",
	},
	{
		Name: SpublishCommand, Run: spublish, Arity: 4, Flags: Internal | MayWrite | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "channel message receivers",
		Doc:        "SPUBLISH with the number of receivers",
	},
}

func publish(c *Ctx, args [][]byte) Reply  { return c.send(args, false) }
func spublish(c *Ctx, args [][]byte) Reply { return c.send(args, true) }

// send publishes a message. If the command has no number of receivers, send
// returns 0. This is the case in a script, which does not run on the
// publisher's node.
func (c *Ctx) send(args [][]byte, sharded bool) Reply {
	c.publish(args[1], args[2], sharded)
	if len(args) < 4 {
		return Zero
	}
	n, ok := number.ParseInt(args[3])
	if !ok {
		return Error(msgNotInt)
	}
	return Int(n)
}
