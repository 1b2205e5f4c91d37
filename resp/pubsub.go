package resp

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

var pubsubRows = []row{
	{run: subscribe, cmd: &fsm.Command{
		Name: "subscribe", Arity: -2,
		Flags: fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) where N is the number of channels to subscribe to",
		Syntax:     "channel [channel ...]",
		Doc:        "Receive the messages of channels",
	}},
	{run: unsubscribe, cmd: &fsm.Command{
		Name: "unsubscribe", Arity: -1,
		Flags: fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) where N is the number of channels to leave",
		Syntax:     "[channel [channel ...]]",
		Doc:        "Stop receiving the messages of channels, or of all channels",
	}},
	{run: psubscribe, cmd: &fsm.Command{
		Name: "psubscribe", Arity: -2,
		Flags: fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) where N is the number of patterns",
		Syntax:     "pattern [pattern ...]",
		Doc:        "Receive the messages of channels whose names match patterns",
	}},
	{run: punsubscribe, cmd: &fsm.Command{
		Name: "punsubscribe", Arity: -1,
		Flags: fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) where N is the number of patterns",
		Syntax:     "[pattern [pattern ...]]",
		Doc:        "Stop receiving the messages for patterns, or for all patterns",
	}},
	{run: ssubscribe, hooks: hooks{queued: refuseShardInMulti}, cmd: &fsm.Command{
		Name: "ssubscribe", Arity: -2, Keys: fsm.Keys{First: 1, Last: -1, Step: 1},
		Flags:  fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Access: fsm.Access{Mode: "not_key"},
		Group:  "pubsub", Since: "7.0.0",
		Complexity: "O(N) where N is the number of shard channels to subscribe to",
		Syntax:     "shardchannel [shardchannel ...]",
		Doc:        "Receive the messages of shard channels",
	}},
	{run: sunsubscribe, cmd: &fsm.Command{
		Name: "sunsubscribe", Arity: -1, Keys: fsm.Keys{First: 1, Last: -1, Step: 1},
		Flags:  fsm.PubSub | fsm.NoScript | fsm.Loading | fsm.Stale | fsm.AlwaysAnswers | fsm.Subscribed,
		Access: fsm.Access{Mode: "not_key"},
		Group:  "pubsub", Since: "7.0.0",
		Complexity: "O(N) where N is the number of shard channels to leave",
		Syntax:     "[shardchannel [shardchannel ...]]",
		Doc:        "Stop receiving the messages of shard channels, or of all of them",
	}},
	{cmd: &fsm.Command{
		Name: "pubsub", Arity: -2,
		Group: "pubsub", Since: "2.8.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about the subscriptions of this node's clients",
	}, sub: []row{
		{run: pubsubChannels, cmd: &fsm.Command{
			Name: "channels", Arity: -2,
			Flags:      fsm.PubSub | fsm.Loading | fsm.Stale,
			Since:      "2.8.0",
			Complexity: "O(N) where N is the number of channels with subscribers",
			Syntax:     "[pattern]",
			Doc:        "List the channels that clients of this node have subscribed to",
		}},
		{run: pubsubNumsub, cmd: &fsm.Command{
			Name: "numsub", Arity: -2,
			Flags:      fsm.PubSub | fsm.Loading | fsm.Stale,
			Since:      "2.8.0",
			Complexity: "O(N) where N is the number of channels asked for",
			Syntax:     "[channel [channel ...]]",
			Doc:        "Return the number of subscribers that channels have on this node",
		}},
		{run: pubsubNumpat, cmd: &fsm.Command{
			Name: "numpat", Arity: 2,
			Flags:      fsm.PubSub | fsm.Loading | fsm.Stale,
			Since:      "2.8.0",
			Complexity: "O(1)",
			Doc:        "Return the number of patterns that clients of this node have subscribed to",
		}},
		{run: pubsubShardchannels, cmd: &fsm.Command{
			Name: "shardchannels", Arity: -2,
			Flags:      fsm.PubSub | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of shard channels with subscribers",
			Syntax:     "[pattern]",
			Doc:        "List the shard channels that clients of this node have subscribed to",
		}},
		{run: pubsubShardnumsub, cmd: &fsm.Command{
			Name: "shardnumsub", Arity: -2,
			Flags:      fsm.PubSub | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of shard channels asked for",
			Syntax:     "[shardchannel [shardchannel ...]]",
			Doc:        "Return the number of subscribers that shard channels have on this node",
		}},
		helpRow("6.2.0"),
	}},
}

// These arrays contain the first element of a confirmation, by the kind of the
// topic.
var (
	subscribeNames   = [...]string{"subscribe", "psubscribe", "ssubscribe"}
	unsubscribeNames = [...]string{"unsubscribe", "punsubscribe", "sunsubscribe"}
)

// topicSlice is the number of topics that a command handles before it checks
// again whether the connection has to yield.
const topicSlice = 64

func subscribe(c *conn, args [][]byte) fsm.Reply    { return c.subscribe(pubsub.Channels, args[1:]) }
func psubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(pubsub.Patterns, args[1:]) }
func ssubscribe(c *conn, args [][]byte) fsm.Reply   { return c.subscribe(pubsub.ShardChannels, args[1:]) }
func unsubscribe(c *conn, args [][]byte) fsm.Reply  { return c.unsubscribe(pubsub.Channels, args[1:]) }
func punsubscribe(c *conn, args [][]byte) fsm.Reply { return c.unsubscribe(pubsub.Patterns, args[1:]) }
func sunsubscribe(c *conn, args [][]byte) fsm.Reply {
	return c.unsubscribe(pubsub.ShardChannels, args[1:])
}

// subscribe is linearizable. Messages that were published before the call are
// not delivered, even if this node has not applied them yet. Messages that are
// published after the reply are delivered, through whichever node a client
// publishes them.
func (c *conn) subscribe(kind pubsub.Kind, names [][]byte) fsm.Reply {
	hub := c.srv.hub
	fresh, bytes := c.sub.Fresh(kind, names)
	if refusal := c.topicRefusal(kind, len(fresh)); refusal != "" {
		return fsm.Error(refusal)
	}
	if !hub.Reserve(bytes) {
		return fsm.Error(msgSubscriptionBytes)
	}
	defer hub.Expect()()
	since, err := c.position()
	if err != nil {
		hub.Release(bytes)
		return fsm.Error(errorText(err))
	}
	before := c.sub.Count(kind)
	hub.Subscribe(c.sub, kind, fresh, since)
	c.showSubscriptions() // must precede the ACL check below: see Server.install
	var pace yield.Pace
	for i, name := range fresh {
		if i%topicSlice == 0 {
			pace.Check()
		}
		if !c.sub.Allows(name, kind == pubsub.Patterns) { // the rules have changed since the command was checked
			c.done = true
		}
	}
	var out []byte
	for i, b := range names {
		if i%topicSlice == 0 {
			pace.Check()
		}
		// fresh has the order of names.
		if len(fresh) > 0 && string(b) == fresh[0] {
			before++
			fresh = fresh[1:]
		}
		out = c.appendConfirmation(out, subscribeNames[kind], fsm.Bulk(string(b)), before)
	}
	return fsm.Raw(out)
}

const msgSubscriptionBytes = "OOM the subscriptions and prefixes of this node's clients take too much memory: " +
	"use fewer, or raise --max-subscription-bytes"

// topicRefusal returns the error for a connection that may not have more topics
// of a kind, or "" if it may.
func (c *conn) topicRefusal(kind pubsub.Kind, more int) string {
	l := &c.srv.cfg.Limits
	switch {
	case more == 0:
	case kind == pubsub.Patterns && l.MaxPatterns > 0 && c.sub.Counts()[pubsub.Patterns]+more > l.MaxPatterns:
		return "ERR too many patterns: a connection may subscribe to " +
			strconv.Itoa(l.MaxPatterns) + " (--max-patterns)"
	case l.MaxTopics > 0 && c.sub.Total()+more > l.MaxTopics:
		return "ERR too many subscriptions: a connection may have " +
			strconv.Itoa(l.MaxTopics) + " (--max-subscriptions)"
	}
	return ""
}

// unsubscribe leaves topics, or all topics of a kind if names is empty. Like
// subscribe, it is linearizable: messages that were acknowledged before the
// call are delivered before the reply, even if this node has not applied them
// yet.
func (c *conn) unsubscribe(kind pubsub.Kind, names [][]byte) fsm.Reply {
	leave := make([]string, len(names))
	for i, b := range names {
		leave[i] = string(b)
	}
	if len(names) == 0 {
		leave = c.sub.Names(kind)
	}
	if slices.ContainsFunc(leave, func(name string) bool { return c.sub.Has(kind, name) }) {
		c.awaitCommittedEvents()
	}
	var out []byte
	n := c.sub.Count(kind)
	left := make(map[string]struct{})
	var pace yield.Pace
	for i, name := range leave {
		if i%topicSlice == 0 {
			pace.Check()
		}
		if c.sub.Has(kind, name) {
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
	c.srv.hub.Unsubscribe(c.sub, kind, leave)
	c.showSubscriptions()
	if !c.tx.interleaving { // messages of the topics precede the confirmation
		// In a transaction, the messages must not precede the replies of the
		// transaction: an invalidation of a key that the transaction has read may
		// be among them.
		c.out.Drain()
	}
	return fsm.Raw(out)
}

// appendConfirmation appends the confirmation that the connection has joined or
// left a topic. n is the number of subscriptions after that change, as
// pubsub.Subscriber.Count counts them.
func (c *conn) appendConfirmation(dst []byte, word string, name fsm.Reply, n int) []byte {
	dst = pubsub.AppendPush(dst, c.proto, 3)
	dst = fsm.Bulk(word).Append(dst, c.proto)
	dst = name.Append(dst, c.proto)
	return fsm.Int(int64(n)).Append(dst, c.proto)
}

// showSubscriptions updates the counts that CLIENT LIST prints.
func (c *conn) showSubscriptions() {
	c.edit(func(i *clientInfo) { i.subs = c.sub.Counts() })
}

// leaveAll ends all subscriptions without confirmations.
func (c *conn) leaveAll() {
	c.srv.hub.Leave(c.sub)
	c.showSubscriptions()
}

// audience is a connection as the hub sees it.
type audience struct{ c *conn }

// Push implements pubsub.Conn.
func (a audience) Push(why pubsub.Cause, encode func(proto int) *pubsub.Payload) {
	a.c.out.Push(why, encode)
}

// CutOff implements pubsub.Conn.
func (a audience) CutOff(reason string) { a.c.out.CutOff(reason) }

// Closing implements pubsub.Conn.
func (a audience) Closing() bool { return a.c.killed.Load() }

// Rules implements pubsub.Conn.
func (a audience) Rules() *acl.User { return a.c.user.limits.Load() }

// Subscribed implements pubsub.Conn.
func (a audience) Subscribed() bool { return a.c.subscribed() }

// RedirectBroken implements pubsub.Conn.
func (a audience) RedirectBroken() { a.c.edit(func(i *clientInfo) { i.broken = true }) }

// restricted reports whether the connection may run only the commands with the
// flag fsm.Subscribed. In RESP2 a client cannot distinguish messages from other
// replies.
func (c *conn) restricted() bool { return c.proto < 3 && c.info.subscribed() }

func (i *clientInfo) subscribed() bool { return i.subs != [3]int{} }

func msgRestricted(name string) string {
	return "ERR Can't execute '" + name +
		"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

// position reads the current log index, linearizably: every write that was
// acknowledged before the call has at most that index.
func (c *conn) position() (uint64, error) {
	if c.srv.cfg.Mode == Sentinel { // there is no log
		return 0, nil
	}
	c.group.Command(c.srv.cmds.position, 0, [][]byte{[]byte(fsm.PositionCommand)})
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

// logPublish and logSpublish implement hooks.logged for PUBLISH and SPUBLISH. They
// add the number of receivers on this node: see fsm.PublishCommand.
func logPublish(c *conn, _ *fsm.Command, args [][]byte) (*fsm.Command, [][]byte) {
	return c.withReceivers(c.srv.cmds.publish, args, false)
}

func logSpublish(c *conn, _ *fsm.Command, args [][]byte) (*fsm.Command, [][]byte) {
	return c.withReceivers(c.srv.cmds.spublish, args, true)
}

func (c *conn) withReceivers(publish *fsm.Command, args [][]byte, sharded bool) (*fsm.Command, [][]byte) {
	n := c.srv.hub.Receivers(string(args[1]), sharded)
	return publish, [][]byte{[]byte(publish.Name), args[1], args[2], strconv.AppendInt(nil, int64(n), 10)}
}

// logSort implements hooks.logged for SORT. A SORT that stores nothing becomes a read,
// unless the connection accepts stale reads.
func logSort(c *conn, sort *fsm.Command, args [][]byte) (*fsm.Command, [][]byte) {
	if !c.local && len(sort.KeyPositions(args)) == 1 {
		return c.srv.cmds.sortRO, args
	}
	return sort, args
}

// refuseShardInMulti implements hooks.queued for SSUBSCRIBE: MULTI queues the
// command, but its reply in the transaction is an error.
func refuseShardInMulti(_ *conn, q *queued) { q.refused = msgShardMulti }

func pubsubChannels(c *conn, args [][]byte) fsm.Reply { return c.topicNames(pubsub.Channels, args) }

func pubsubShardchannels(c *conn, args [][]byte) fsm.Reply {
	return c.topicNames(pubsub.ShardChannels, args)
}

func (c *conn) topicNames(kind pubsub.Kind, args [][]byte) fsm.Reply {
	pattern := "*"
	switch len(args) {
	case 2:
	case 3:
		pattern = string(args[2])
	default:
		return fsm.Error(msgWrongSubcommand("PUBSUB", args[1]))
	}
	names, ok := c.srv.hub.Names(kind, pattern)
	if !ok {
		return fsm.Error("ERR pattern takes too many steps to match, make it simpler")
	}
	return fsm.Strings(names...)
}

func pubsubNumsub(c *conn, args [][]byte) fsm.Reply { return c.topicCounts(pubsub.Channels, args[2:]) }

func pubsubShardnumsub(c *conn, args [][]byte) fsm.Reply {
	return c.topicCounts(pubsub.ShardChannels, args[2:])
}

func (c *conn) topicCounts(kind pubsub.Kind, names [][]byte) fsm.Reply {
	out := make([]fsm.Reply, 0, 2*len(names))
	for _, name := range names {
		out = append(out, fsm.Bulk(string(name)), fsm.Int(int64(c.srv.hub.Count(kind, string(name)))))
	}
	return fsm.Array(out)
}

func pubsubNumpat(c *conn, args [][]byte) fsm.Reply {
	return fsm.Int(int64(c.srv.hub.Sizes().Topics[pubsub.Patterns]))
}
