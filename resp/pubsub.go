package resp

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
)

var pubsubRows = []row{
	{cmd: fsm.Command{Name: "subscribe", Arity: -2, Group: "pubsub", Since: "2.0.0", Complexity: "O(N) where N is the number of channels to subscribe to", Syntax: "channel [channel ...]", Doc: "Receive the messages of channels"}, words: "pubsub noscript loading stale", run: subscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "unsubscribe", Arity: -1, Group: "pubsub", Since: "2.0.0", Complexity: "O(N) where N is the number of channels to leave", Syntax: "[channel [channel ...]]", Doc: "Receive the messages of channels, or of any channel, no longer"}, words: "pubsub noscript loading stale", run: unsubscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "psubscribe", Arity: -2, Group: "pubsub", Since: "2.0.0", Complexity: "O(N) where N is the number of patterns", Syntax: "pattern [pattern ...]", Doc: "Receive the messages of channels whose names match patterns"}, words: "pubsub noscript loading stale", run: psubscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "punsubscribe", Arity: -1, Group: "pubsub", Since: "2.0.0", Complexity: "O(N) where N is the number of patterns", Syntax: "[pattern [pattern ...]]", Doc: "Take PSUBSCRIBE back, for patterns or for all"}, words: "pubsub noscript loading stale", run: punsubscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "ssubscribe", Arity: -2, Keys: fsm.Keys{First: 1, Last: -1, Step: 1}, Access: fsm.Access{Mode: "not_key"}, Group: "pubsub", Since: "7.0.0", Complexity: "O(N) where N is the number of shard channels to subscribe to", Syntax: "shardchannel [shardchannel ...]", Doc: "Receive the messages of shard channels"}, words: "pubsub noscript loading stale", run: ssubscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "sunsubscribe", Arity: -1, Keys: fsm.Keys{First: 1, Last: -1, Step: 1}, Access: fsm.Access{Mode: "not_key"}, Group: "pubsub", Since: "7.0.0", Complexity: "O(N) where N is the number of shard channels to leave", Syntax: "[shardchannel [shardchannel ...]]", Doc: "Take SSUBSCRIBE back, for shard channels or for all"}, words: "pubsub noscript loading stale", run: sunsubscribe, loud: true, subscribed: true},
	{cmd: fsm.Command{Name: "pubsub", Arity: -2, Group: "pubsub", Since: "2.8.0", Complexity: "Depends on subcommand.", Doc: "Commands about the subscriptions of this node's clients"}, sub: []row{
		{cmd: fsm.Command{Name: "channels", Arity: -2, Since: "2.8.0", Complexity: "O(N) where N is the number of channels with subscribers", Syntax: "[pattern]", Doc: "Channels that clients of this node have subscribed to"}, words: "pubsub loading stale", run: pubsubChannels},
		{cmd: fsm.Command{Name: "numsub", Arity: -2, Since: "2.8.0", Complexity: "O(N) where N is the number of channels asked for", Syntax: "[channel [channel ...]]", Doc: "Number of subscribers that channels have on this node"}, words: "pubsub loading stale", run: pubsubNumsub},
		{cmd: fsm.Command{Name: "numpat", Arity: 2, Since: "2.8.0", Complexity: "O(1)", Doc: "Number of patterns that clients of this node have subscribed to"}, words: "pubsub loading stale", run: pubsubNumpat},
		{cmd: fsm.Command{Name: "shardchannels", Arity: -2, Since: "7.0.0", Complexity: "O(N) where N is the number of shard channels with subscribers", Syntax: "[pattern]", Doc: "Shard channels that clients of this node have subscribed to"}, words: "pubsub loading stale", run: pubsubShardchannels},
		{cmd: fsm.Command{Name: "shardnumsub", Arity: -2, Since: "7.0.0", Complexity: "O(N) where N is the number of shard channels asked for", Syntax: "[shardchannel [shardchannel ...]]", Doc: "Number of subscribers that shard channels have on this node"}, words: "pubsub loading stale", run: pubsubShardnumsub},
		helpRow("6.2.0"),
	}},
}

// Words of the confirmations, by kind.
var (
	subscribeWords   = [...]string{"subscribe", "psubscribe", "ssubscribe"}
	unsubscribeWords = [...]string{"unsubscribe", "punsubscribe", "sunsubscribe"}
)

func subscribe(c *conn, args [][]byte) fsm.Reply    { return c.subscribe(channels, args[1:]) }
func psubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(patterns, args[1:]) }
func ssubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(shardChannels, args[1:]) }
func unsubscribe(c *conn, args [][]byte) fsm.Reply  { return c.unsubscribe(channels, args[1:]) }
func punsubscribe(c *conn, args [][]byte) fsm.Reply { return c.unsubscribe(patterns, args[1:]) }
func sunsubscribe(c *conn, args [][]byte) fsm.Reply { return c.unsubscribe(shardChannels, args[1:]) }

// maxTopics bounds what one connection may subscribe to.
const maxTopics = 1 << 20

// subscribe is linearizable: messages published before it are not delivered, even
// if this node has not applied them yet, and those published after its answer are,
// through whichever node.
func (c *conn) subscribe(kind topicKind, names [][]byte) fsm.Reply {
	if c.subscriptions()+len(names) > maxTopics {
		return fsm.Error("ERR too many subscriptions")
	}
	hub := c.srv.hub
	defer hub.expect()()
	since, err := c.position()
	if err != nil {
		return fsm.Error(errorText(err))
	}
	var out []byte
	for _, b := range names {
		name := string(b)
		if _, ok := c.subscribedTo[kind][name]; !ok {
			if c.subscribedTo[kind] == nil {
				c.subscribedTo[kind] = make(map[string]struct{})
			}
			c.subscribedTo[kind][name] = struct{}{}
			hub.subscribe(c, kind, name, since)
			if !c.allowsChannel(name, kind == patterns) { // the rules have changed meanwhile
				c.done = true
			}
		}
		c.showSubscriptions()
		out = c.appendConfirmation(out, subscribeWords[kind], fsm.Bulk(name), kind)
	}
	return fsm.Raw(out)
}

// unsubscribe leaves topics, all of a kind if none are named. It is linearizable as
// subscribe is: whose publishing was answered before it is delivered before its
// answer, though this node may apply it only now.
func (c *conn) unsubscribe(kind topicKind, names [][]byte) fsm.Reply {
	leave := make([]string, len(names))
	for i, b := range names {
		leave[i] = string(b)
	}
	if len(names) == 0 {
		leave = c.subscribedNames(kind)
	}
	if slices.ContainsFunc(leave, func(name string) bool { _, ok := c.subscribedTo[kind][name]; return ok }) {
		c.hearAll()
	}
	var out []byte
	for _, name := range leave {
		if _, ok := c.subscribedTo[kind][name]; ok {
			delete(c.subscribedTo[kind], name)
			c.srv.hub.unsubscribe(c, kind, name)
		}
		out = c.appendConfirmation(out, unsubscribeWords[kind], fsm.Bulk(name), kind)
	}
	if len(leave) == 0 {
		out = c.appendConfirmation(out, unsubscribeWords[kind], fsm.Null, kind)
	}
	c.showSubscriptions()
	if !c.weaving { // what has come from the topics goes before the confirmation
		c.out.drain() // but not before what a transaction has read: an invalidation may be with it
	}
	return fsm.Raw(out)
}

// subscribedNames returns the topics of a kind, in an order of their own.
func (c *conn) subscribedNames(kind topicKind) []string {
	names := make([]string, 0, len(c.subscribedTo[kind]))
	for name := range c.subscribedTo[kind] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// appendConfirmation says that one topic was joined or left, and how many are
// left: channels and patterns are counted together, shard channels by themselves.
func (c *conn) appendConfirmation(dst []byte, word string, name fsm.Reply, kind topicKind) []byte {
	n := len(c.subscribedTo[channels]) + len(c.subscribedTo[patterns])
	if kind == shardChannels {
		n = len(c.subscribedTo[shardChannels])
	}
	dst = appendPush(dst, c.proto, 3)
	dst = fsm.Bulk(word).Append(dst, c.proto)
	dst = name.Append(dst, c.proto)
	return fsm.Int(int64(n)).Append(dst, c.proto)
}

// subscriptions counts what the connection has subscribed to.
func (c *conn) subscriptions() int {
	n := 0
	for _, names := range c.subscribedTo {
		n += len(names)
	}
	return n
}

// showSubscriptions lets CLIENT LIST see how many there are.
func (c *conn) showSubscriptions() {
	c.edit(func(i *clientInfo) {
		for kind, names := range c.subscribedTo {
			i.subs[kind] = len(names)
		}
	})
}

// leaveAll ends all subscriptions without a word.
func (c *conn) leaveAll() {
	c.srv.hub.leave(c)
	c.subscribedTo = [3]map[string]struct{}{}
	c.showSubscriptions()
}

// restricted reports whether the connection may only run what has to do with
// subscriptions: in RESP2 a client could not tell messages from other replies.
func (c *conn) restricted() bool { return c.proto < 3 && c.info.subscribed() }

func (i *clientInfo) subscribed() bool { return i.subs != [3]int{} }

func msgRestricted(name string) string {
	return "ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

// position reads the place in the log that this moment is behind, linearizably.
func (c *conn) position() (uint64, error) {
	if c.srv.hub.local {
		return 0, nil
	}
	c.group.Command(c.srv.positionRow, 0, [][]byte{[]byte(fsm.PositionCommand)})
	out, err := c.do(false)
	c.group.Reset(c.proto, c.id)
	if err != nil {
		return 0, err
	}
	_, position, err := splitPosition(out)
	return position, err
}

// splitPosition takes the answer of the internal command for the position from
// the end of replies.
func splitPosition(replies []byte) (rest []byte, position uint64, err error) {
	body := bytes.TrimSuffix(replies, []byte("\r\n"))
	start := bytes.LastIndexByte(body, '\n') + 1
	position, err = strconv.ParseUint(string(bytes.TrimPrefix(body[start:], []byte(":"))), 10, 64)
	return replies[:start], position, err
}

// forLog returns PUBLISH and SPUBLISH as they go into the log, with the number of
// receivers on this node: see fsm.PublishCommand. A SORT that stores nothing becomes a
// read. Other commands stay as they are.
func (c *conn) forLog(cmd *fsm.Command, args [][]byte) (*fsm.Command, [][]byte) {
	if cmd == c.srv.sort && !c.local && len(cmd.KeyPositions(args)) == 1 {
		return c.srv.sortRO, args
	}
	sharded := cmd == c.srv.spublish
	if cmd != c.srv.publish && !sharded {
		return cmd, args
	}
	row := c.srv.publishRow
	if sharded {
		row = c.srv.spublishRow
	}
	n := c.srv.hub.receivers(string(args[1]), sharded)
	return row, [][]byte{[]byte(row.Name), args[1], args[2], strconv.AppendInt(nil, int64(n), 10)}
}

func pubsubChannels(c *conn, args [][]byte) fsm.Reply { return c.topicNames(channels, args) }

func pubsubShardchannels(c *conn, args [][]byte) fsm.Reply { return c.topicNames(shardChannels, args) }

func (c *conn) topicNames(kind topicKind, args [][]byte) fsm.Reply {
	switch len(args) {
	case 2:
		return fsm.Strings(c.srv.hub.names(kind, "*")...)
	case 3:
		return fsm.Strings(c.srv.hub.names(kind, string(args[2]))...)
	}
	return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try PUBSUB HELP.")
}

func pubsubNumsub(c *conn, args [][]byte) fsm.Reply { return c.topicCounts(channels, args[2:]) }

func pubsubShardnumsub(c *conn, args [][]byte) fsm.Reply {
	return c.topicCounts(shardChannels, args[2:])
}

func (c *conn) topicCounts(kind topicKind, names [][]byte) fsm.Reply {
	out := make([]fsm.Reply, 0, 2*len(names))
	for _, name := range names {
		out = append(out, fsm.Bulk(string(name)), fsm.Int(int64(c.srv.hub.count(kind, string(name)))))
	}
	return fsm.Array(out)
}

func pubsubNumpat(c *conn, args [][]byte) fsm.Reply {
	topics, _ := c.srv.hub.sizes()
	return fsm.Int(int64(topics[patterns]))
}
