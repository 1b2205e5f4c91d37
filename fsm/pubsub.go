package fsm

// PublishCommand and SpublishCommand are PUBLISH and SPUBLISH as the nodes write
// them into the log: with the number of receivers that the publisher's node had
// when it took the command. Subscribers are no part of the state, and a reply
// that each node counted for itself would differ from node to node; so the
// number travels with the command and is the same in every reply that is kept.
const (
	PublishCommand  = "_publish"
	SpublishCommand = "_spublish"
)

var pubsubCommands = []Command{
	{Name: "publish", Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast, Group: "pubsub", Since: "2.0.0", Complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).", Syntax: "channel message", Doc: "Post a message to a channel", Run: publish},
	{Name: "spublish", Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "not_key"}, Group: "pubsub", Since: "7.0.0", Complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.", Syntax: "shardchannel message", Doc: "Post a message to a shard channel", Run: spublish},
	{Name: PublishCommand, Arity: 4, Flags: Internal | MayWrite | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "channel message receivers", Doc: "PUBLISH with the number of receivers", Run: publish},
	{Name: SpublishCommand, Arity: 4, Flags: Internal | MayWrite | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "channel message receivers", Doc: "SPUBLISH with the number of receivers", Run: spublish},
}

func publish(c *Ctx, args [][]byte) Reply  { return c.send(args, false) }
func spublish(c *Ctx, args [][]byte) Reply { return c.send(args, true) }

// send publishes a message. Without a number of receivers, as in a script, which
// does not run on the publisher's node, it answers 0.
func (c *Ctx) send(args [][]byte, sharded bool) Reply {
	c.publish(args[1], args[2], sharded)
	if len(args) < 4 {
		return Zero
	}
	n, ok := parseInt(args[3])
	if !ok {
		return Error(msgNotInt)
	}
	return Int(n)
}
