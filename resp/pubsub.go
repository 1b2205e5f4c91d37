package resp

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
)

var pubsubRows = []row{
	{
		cmd: fsm.Command{
			Name: "subscribe", Arity: -2,
			Group: "pubsub", Since: "2.0.0",
			Complexity: "O(N) where N is the number of channels to subscribe to",
			Syntax:     "channel [channel ...]",
			Doc:        "Receive the messages of channels",
		},
		run: subscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{
		cmd: fsm.Command{
			Name: "unsubscribe", Arity: -1,
			Group: "pubsub", Since: "2.0.0",
			Complexity: "O(N) where N is the number of channels to leave",
			Syntax:     "[channel [channel ...]]",
			Doc:        "Stop receiving the messages of channels, or of all channels",
		},
		run: unsubscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{
		cmd: fsm.Command{
			Name: "psubscribe", Arity: -2,
			Group: "pubsub", Since: "2.0.0",
			Complexity: "O(N) where N is the number of patterns",
			Syntax:     "pattern [pattern ...]",
			Doc:        "Receive the messages of channels whose names match patterns",
		},
		run: psubscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{
		cmd: fsm.Command{
			Name: "punsubscribe", Arity: -1,
			Group: "pubsub", Since: "2.0.0",
			Complexity: "O(N) where N is the number of patterns",
			Syntax:     "[pattern [pattern ...]]",
			Doc:        "Stop receiving the messages for patterns, or for all patterns",
		},
		run: punsubscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{
		cmd: fsm.Command{
			Name: "ssubscribe", Arity: -2, Keys: fsm.Keys{First: 1, Last: -1, Step: 1},
			Access: fsm.Access{Mode: "not_key"},
			Group:  "pubsub", Since: "7.0.0",
			Complexity: "O(N) where N is the number of shard channels to subscribe to",
			Syntax:     "shardchannel [shardchannel ...]",
			Doc:        "Receive the messages of shard channels",
		},
		run: ssubscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{
		cmd: fsm.Command{
			Name: "sunsubscribe", Arity: -1, Keys: fsm.Keys{First: 1, Last: -1, Step: 1},
			Access: fsm.Access{Mode: "not_key"},
			Group:  "pubsub", Since: "7.0.0",
			Complexity: "O(N) where N is the number of shard channels to leave",
			Syntax:     "[shardchannel [shardchannel ...]]",
			Doc:        "Stop receiving the messages of shard channels, or of all of them",
		},
		run: sunsubscribe, words: "pubsub noscript loading stale", loud: true, subscribed: true,
	},
	{cmd: fsm.Command{Name: "pubsub", Arity: -2, Group: "pubsub", Since: "2.8.0", Complexity: "Depends on subcommand.", Doc: "Commands about the subscriptions of this node's clients"}, sub: []row{
		{
			cmd: fsm.Command{
				Name: "channels", Arity: -2, Since: "2.8.0",
				Complexity: "O(N) where N is the number of channels with subscribers",
				Syntax:     "[pattern]",
				Doc:        "List the channels that clients of this node have subscribed to",
			},
			run: pubsubChannels, words: "pubsub loading stale",
		},
		{
			cmd: fsm.Command{
				Name: "numsub", Arity: -2, Since: "2.8.0",
				Complexity: "O(N) where N is the number of channels asked for",
				Syntax:     "[channel [channel ...]]",
				Doc:        "Return the number of subscribers that channels have on this node",
			},
			run: pubsubNumsub, words: "pubsub loading stale",
		},
		{
			cmd: fsm.Command{
				Name: "numpat", Arity: 2, Since: "2.8.0",
				Complexity: "O(1)",
				Doc:        "Return the number of patterns that clients of this node have subscribed to",
			},
			run: pubsubNumpat, words: "pubsub loading stale",
		},
		{
			cmd: fsm.Command{
				Name: "shardchannels", Arity: -2, Since: "7.0.0",
				Complexity: "O(N) where N is the number of shard channels with subscribers",
				Syntax:     "[pattern]",
				Doc:        "List the shard channels that clients of this node have subscribed to",
			},
			run: pubsubShardchannels, words: "pubsub loading stale",
		},
		{
			cmd: fsm.Command{
				Name: "shardnumsub", Arity: -2, Since: "7.0.0",
				Complexity: "O(N) where N is the number of shard channels asked for",
				Syntax:     "[shardchannel [shardchannel ...]]",
				Doc:        "Return the number of subscribers that shard channels have on this node",
			},
			run: pubsubShardnumsub, words: "pubsub loading stale",
		},
		helpRow("6.2.0"),
	}},
}

// The first element of a confirmation, by kind.
var (
	subscribeNames   = [...]string{"subscribe", "psubscribe", "ssubscribe"}
	unsubscribeNames = [...]string{"unsubscribe", "punsubscribe", "sunsubscribe"}
)

func subscribe(c *conn, args [][]byte) fsm.Reply    { return c.subscribe(channels, args[1:]) }
func psubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(patterns, args[1:]) }
func ssubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(shardChannels, args[1:]) }
func unsubscribe(c *conn, args [][]byte) fsm.Reply  { return c.unsubscribe(channels, args[1:]) }
func punsubscribe(c *conn, args [][]byte) fsm.Reply { return c.unsubscribe(patterns, args[1:]) }
func sunsubscribe(c *conn, args [][]byte) fsm.Reply { return c.unsubscribe(shardChannels, args[1:]) }

// subscribe is linearizable. Messages published before it are not delivered,
// even if this node has not applied them yet. Messages published after its
// reply are delivered, whichever node they are published through.
func (c *conn) subscribe(kind topicKind, names [][]byte) fsm.Reply {
	hub := c.srv.hub
	fresh, bytes := c.newTopics(kind, names)
	if refusal := c.topicRefusal(kind, len(fresh)); refusal != "" {
		return fsm.Error(refusal)
	}
	if !hub.reserve(bytes) {
		return fsm.Error(msgSubscriptionBytes)
	}
	defer hub.expect()()
	since, err := c.position()
	if err != nil {
		hub.release(bytes)
		return fsm.Error(errorText(err))
	}
	if c.subscribedTo[kind] == nil {
		c.subscribedTo[kind] = make(map[string]membership)
	}
	before := c.topicCount(kind)
	hub.subscribe(c, kind, fresh, since)
	c.showSubscriptions() // before the ACL check below: see Server.install
	for _, name := range fresh {
		if !c.allowsChannel(name, kind == patterns) { // the rules have changed since the command was checked
			c.done = true
		}
	}
	var out []byte
	for _, b := range names {
		// fresh has the order of names.
		if len(fresh) > 0 && string(b) == fresh[0] {
			before++
			fresh = fresh[1:]
		}
		out = c.appendConfirmation(out, subscribeNames[kind], fsm.Bulk(string(b)), before)
	}
	return fsm.Raw(out)
}

const msgSubscriptionBytes = "OOM the subscriptions and prefixes of this node's clients take too much memory: use fewer, or raise --max-subscription-bytes"

// newTopics returns the names to which the connection has not subscribed, each
// once, and the bytes that the subscriptions to them will take.
func (c *conn) newTopics(kind topicKind, names [][]byte) (fresh []string, bytes int) {
	seen := make(map[string]struct{}, len(names))
	for _, b := range names {
		name := string(b)
		if _, ok := c.subscribedTo[kind][name]; ok {
			continue
		}
		if _, ok := seen[name]; ok {
			continue
		}
		seen[name] = struct{}{}
		fresh = append(fresh, name)
		bytes += subscriptionSize(name)
	}
	return fresh, bytes
}

// topicRefusal returns the error for a connection that may not have more topics
// of a kind, or "" if it may.
func (c *conn) topicRefusal(kind topicKind, more int) string {
	l := &c.srv.cfg.Limits
	switch {
	case more == 0:
	case kind == patterns && l.MaxPatterns > 0 && len(c.subscribedTo[patterns])+more > l.MaxPatterns:
		return "ERR too many patterns: a connection may subscribe to " + strconv.Itoa(l.MaxPatterns) + " (--max-patterns)"
	case l.MaxTopics > 0 && c.subscriptions()+more > l.MaxTopics:
		return "ERR too many subscriptions: a connection may have " + strconv.Itoa(l.MaxTopics) + " (--max-subscriptions)"
	}
	return ""
}

// unsubscribe leaves topics, or all topics of a kind if names is empty. Like
// subscribe, it is linearizable: messages acknowledged before it are delivered
// before its reply, even if this node has not applied them yet.
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
	n := c.topicCount(kind)
	left := make(map[string]struct{})
	for _, name := range leave {
		if _, ok := c.subscribedTo[kind][name]; ok {
			if _, again := left[name]; !again {
				left[name] = struct{}{}
				n--
			}
		}
		out = c.appendConfirmation(out, unsubscribeNames[kind], fsm.Bulk(name), n)
	}
	if len(leave) == 0 {
		out = c.appendConfirmation(out, unsubscribeNames[kind], fsm.Null, n)
	}
	c.srv.hub.unsubscribe(c, kind, leave)
	c.showSubscriptions()
	if !c.interleaving { // messages of the topics precede the confirmation
		// In a transaction they must not precede its replies: an invalidation
		// of a key that the transaction has read may be among them.
		c.out.drain()
	}
	return fsm.Raw(out)
}

// subscribedNames returns the connection's topics of a kind, sorted.
func (c *conn) subscribedNames(kind topicKind) []string {
	names := make([]string, 0, len(c.subscribedTo[kind]))
	for name := range c.subscribedTo[kind] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// topicCount returns the number of topics that a confirmation reports: channels
// and patterns are counted together, shard channels separately.
func (c *conn) topicCount(kind topicKind) int {
	if kind == shardChannels {
		return len(c.subscribedTo[shardChannels])
	}
	return len(c.subscribedTo[channels]) + len(c.subscribedTo[patterns])
}

// appendConfirmation appends the confirmation that the connection has joined or
// left a topic. n is the number of topics after that.
func (c *conn) appendConfirmation(dst []byte, word string, name fsm.Reply, n int) []byte {
	dst = appendPush(dst, c.proto, 3)
	dst = fsm.Bulk(word).Append(dst, c.proto)
	dst = name.Append(dst, c.proto)
	return fsm.Int(int64(n)).Append(dst, c.proto)
}

// subscriptions returns the number of the connection's subscriptions.
func (c *conn) subscriptions() int {
	n := 0
	for _, names := range c.subscribedTo {
		n += len(names)
	}
	return n
}

// showSubscriptions updates the counts that CLIENT LIST prints.
func (c *conn) showSubscriptions() {
	c.edit(func(i *clientInfo) {
		for kind, names := range c.subscribedTo {
			i.subs[kind] = len(names)
		}
	})
}

// leaveAll ends all subscriptions without confirmations.
func (c *conn) leaveAll() {
	c.srv.hub.leave(c)
	c.subscribedTo = [3]map[string]membership{}
	c.showSubscriptions()
}

// restricted reports whether the connection may run only the commands about
// subscriptions. In RESP2 a client cannot distinguish messages from other
// replies.
func (c *conn) restricted() bool { return c.proto < 3 && c.info.subscribed() }

func (i *clientInfo) subscribed() bool { return i.subs != [3]int{} }

func msgRestricted(name string) string {
	return "ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

// position reads the current log index, linearizably: everything that was
// acknowledged before the call has at most that index.
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

// splitPosition cuts the reply of the internal position command off the end of
// replies.
func splitPosition(replies []byte) (rest []byte, position uint64, err error) {
	body := bytes.TrimSuffix(replies, []byte("\r\n"))
	start := bytes.LastIndexByte(body, '\n') + 1
	position, err = strconv.ParseUint(string(bytes.TrimPrefix(body[start:], []byte(":"))), 10, 64)
	return replies[:start], position, err
}

// forLog returns the form in which a command is logged. PUBLISH and SPUBLISH
// get the number of receivers on this node: see fsm.PublishCommand. A SORT that
// stores nothing becomes a read. Other commands are returned unchanged.
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
	pattern := "*"
	switch len(args) {
	case 2:
	case 3:
		pattern = string(args[2])
	default:
		return fsm.Error("ERR unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try PUBSUB HELP.")
	}
	names, ok := c.srv.hub.names(kind, pattern)
	if !ok {
		return fsm.Error("ERR pattern takes too many steps to match, make it simpler")
	}
	return fsm.Strings(names...)
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
	return fsm.Int(int64(c.srv.hub.sizes().topics[patterns]))
}
