package load

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// client is one client of a load. It has one connection and sends one command
// or one pipeline at a time.
type client struct {
	load *Load
	id   int
	at   int // current node: an index into Config.Addrs, modulo its length
	rng  *rand.Rand
	conn *Conn
	n    int // number of values that the method unique has returned
}

func (c *client) hangUp() {
	if c.conn != nil {
		// No command is in progress, so an error of Close says nothing about
		// the cluster.
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ready waits a short time between commands, connects the client if necessary,
// and reports whether the client is connected and the load continues.
func (c *client) ready() bool {
	l := c.load
	if l.cfg.Pause > 0 && !Sleep(l.ctx, time.Duration(c.rng.Int64N(int64(l.cfg.Pause)))) {
		return false
	}
	for l.ctx.Err() == nil {
		if c.conn != nil {
			return true
		}
		conn, err := Dial(l.ctx, c.node(), l.cfg.Login, l.cfg.ReplyTimeout, l.cfg.First...)
		if err == nil {
			c.conn = conn
			return true
		}
		c.at++ // try the next node
		if !Sleep(l.ctx, 20*time.Millisecond) {
			return false
		}
	}
	return false
}

func (c *client) node() string { return c.load.cfg.Addrs[c.at%len(c.load.cfg.Addrs)] }

// unique returns the next unique value for a key.
func (c *client) unique(key string) string {
	c.n++
	return checker.ValueFor(key, c.id, c.n)
}

// send sends a pipeline and returns the replies that arrived, the time at which
// it was sent, and the time at which the last reply arrived. After an error the
// client has no connection.
func (c *client) send(cmds [][]string) (replies []respwire.Value, call, ret time.Duration) {
	c.load.pause.RLock()
	defer c.load.pause.RUnlock()
	call = c.load.Now()
	replies, err := c.conn.Pipeline(cmds)
	ret = c.load.Now()
	if err != nil {
		c.hangUp()
		c.at++
	} else if first := replies[0]; first.Err != "" {
		code, _, _ := strings.Cut(first.Err, " ")
		err = errors.New(code)
	}
	c.load.rec.note(len(cmds), call, ret, err)
	return replies, call, ret
}

// run sends commands in one pipeline and records their outcomes in the history.
func (c *client) run(ops []checker.Op, doubt *rotation) []checker.Op {
	cmds := make([][]string, len(ops))
	for i := range ops {
		cmds[i] = c.load.command(&ops[i])
		c.load.mark(ops[i].Key)
	}
	node := c.node()
	replies, call, ret := c.send(cmds)
	for i := range ops {
		o := &ops[i]
		o.Client, o.Node, o.Call, o.Return, o.Outcome = c.id, node, call, ret, checker.Unknown
		if i < len(replies) {
			c.settle(o, replies[i])
		}
		if o.Outcome == checker.Unknown && !o.Kind.Reads() {
			doubt.doubtful()
		}
	}
	c.load.rec.add(func(h *History) { h.Ops = append(h.Ops, ops...) })
	return ops
}

// settle records a reply.
func (c *client) settle(o *checker.Op, v respwire.Value) {
	if o.Outcome = outcomeOf(v); o.Outcome != checker.Done {
		o.Error = v.Err
		return
	}
	o.Reply = checker.ReplyOf(v)
}

const (
	deleteScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	renewScript  = `if redis.call("get",KEYS[1]) == ARGV[1] then ` +
		`return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
)

// command returns the command of an Op.
func (l *Load) command(o *checker.Op) []string {
	ms := strconv.FormatInt(o.TTL.Milliseconds(), 10)
	switch o.Kind {
	case checker.Set:
		args := []string{"SET", o.Key, o.Arg}
		for _, word := range []struct {
			on   bool
			args []string
		}{
			{o.NX, []string{"NX"}}, {o.XX, []string{"XX"}}, {o.Cmp != "", []string{"IFEQ", o.Cmp}},
			{o.Get, []string{"GET"}},
			{o.KeepTTL, []string{"KEEPTTL"}}, {o.TTL != 0, []string{"PX", ms}},
		} {
			if word.on {
				args = append(args, word.args...)
			}
		}
		return args
	case checker.SetNX, checker.GetSet:
		return []string{string(o.Kind), o.Key, o.Arg}
	case checker.DelIfEq:
		if l.script {
			return []string{"EVAL", deleteScript, "1", o.Key, o.Cmp}
		}
		return []string{"DELIFEQ", o.Key, o.Cmp}
	case checker.PExpire:
		return []string{"PEXPIRE", o.Key, ms}
	}
	return []string{string(o.Kind), o.Key}
}

// useKeys runs commands on keys until the load stops.
func (c *client) useKeys() {
	var written []string
	for c.ready() {
		size := 1
		if c.rng.IntN(5) == 0 {
			size = 3
		}
		ops := make([]checker.Op, size)
		for i := range ops {
			key := c.load.keys.take(c.rng, 1)
			ops[i] = c.random(key, written)
			if ops[i].Arg != "" {
				written = append(written[max(len(written)-8, 0):], ops[i].Arg)
			}
		}
		c.run(ops, c.load.keys)
	}
}

// random returns a random command on key. Counters have keys of their own.
func (c *client) random(key string, written []string) checker.Op {
	o := checker.Op{Key: key}
	ttl := time.Duration(50+c.rng.IntN(400)) * time.Millisecond
	some := "nothing"
	if len(written) > 0 {
		some = written[c.rng.IntN(len(written))]
	}
	switch c.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		o.Kind = checker.Get
	case 6, 7:
		o.Kind, o.Arg = checker.Set, c.unique(key)
	case 8:
		o.Kind, o.Arg, o.TTL = checker.Set, c.unique(key), ttl
	case 9, 10:
		o.Kind, o.Arg, o.NX, o.TTL = checker.Set, c.unique(key), true, ttl
	case 11:
		o.Kind, o.Arg, o.XX, o.KeepTTL = checker.Set, c.unique(key), true, true
	case 12:
		o.Kind, o.Arg, o.Get = checker.Set, c.unique(key), true
	case 13:
		o.Kind, o.Arg = checker.SetNX, c.unique(key)
	case 14:
		o.Kind, o.Arg = checker.GetSet, c.unique(key)
	case 15:
		o.Kind = checker.Del
	case 16:
		o.Kind, o.Cmp = checker.DelIfEq, some
	case 17:
		o.Kind, o.TTL = checker.PExpire, ttl
	case 18:
		o.Kind = []checker.Kind{checker.PTTL, checker.Persist, checker.GetDel}[c.rng.IntN(3)]
	case 19:
		o.Kind, o.Key = checker.Incr, key+":n"
	}
	return o
}

// useLists appends unique ids to lists until the load stops.
func (c *client) useLists() {
	l := c.load
	for c.ready() {
		list := l.mark(l.lists.take(c.rng, 1))
		a := checker.Append{List: list, ID: c.unique("id"), Client: c.id, Outcome: checker.Unknown}
		replies, call, ret := c.send([][]string{{"RPUSH", list, a.ID}})
		a.Call, a.Return = call, ret
		if len(replies) > 0 {
			a.Outcome = outcomeOf(replies[0])
		}
		l.rec.add(func(h *History) { h.Appends = append(h.Appends, a) })
	}
}

// useCounters sends pipelines of INCR to a counter that only this client uses.
func (c *client) useCounters() {
	l := c.load
	key := l.mark(l.cfg.Prefix + "counter:" + strconv.Itoa(c.id))
	for c.ready() {
		cmds := make([][]string, 2+c.rng.IntN(5))
		for i := range cmds {
			cmds[i] = []string{"INCR", key}
		}
		b := checker.Batch{Client: c.id, Key: key, Sent: len(cmds)}
		replies, call, ret := c.send(cmds)
		b.Call, b.Return = call, ret
		unknown := 0 // commands of unknown outcome since the last number
		for _, v := range replies {
			switch outcome := outcomeOf(v); {
			case outcome == checker.Refused:
				b.Sent-- // the refused command returns no number
			case outcome == checker.Unknown:
				unknown++
			case outcome == checker.Done && v.Err != "":
				b.Errors = append(b.Errors, v.Err)
			case outcome == checker.Done:
				b.Numbers, b.Unknown = append(b.Numbers, v.Int), append(b.Unknown, unknown)
				unknown = 0
			}
		}
		l.rec.add(func(h *History) { h.Batches = append(h.Batches, b) })
	}
}
