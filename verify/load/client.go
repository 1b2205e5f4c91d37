package load

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// client is one client of a load: one connection, one command or pipeline at a
// time.
type client struct {
	load *Load
	id   int
	at   int // node: index into Config.Addrs modulo their number
	rng  *rand.Rand
	conn *Conn
	n    int // commands so far, for unique values
}

func (c *client) hangUp() {
	if c.conn != nil {
		// Nothing is on its way: an error of closing says nothing about the cluster.
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ready reports whether the client is connected and shall go on; it waits a
// little between commands.
func (c *client) ready() bool {
	l := c.load
	if l.cfg.Pause > 0 && !pause(l.ctx, time.Duration(c.rng.Int64N(int64(l.cfg.Pause)))) {
		return false
	}
	for l.ctx.Err() == nil {
		if c.conn != nil {
			return true
		}
		conn, err := Dial(l.ctx, c.node(), l.cfg.Login, l.cfg.Patience, l.cfg.First...)
		if err == nil {
			c.conn = conn
			return true
		}
		c.at++ // try the next one
		if !pause(l.ctx, 20*time.Millisecond) {
			return false
		}
	}
	return false
}

func (c *client) node() string { return c.load.cfg.Addrs[c.at%len(c.load.cfg.Addrs)] }

// unique makes the next value for a key.
func (c *client) unique(key string) string {
	c.n++
	return oracle.ValueFor(key, c.id, c.n)
}

// send sends a pipeline and returns the replies that came, when it was sent and
// when the last of them came. After an error the connection is gone.
func (c *client) send(cmds [][]string) (replies []Value, call, ret time.Duration) {
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

// run runs commands of the history in one pipeline and notes what came of them.
func (c *client) run(ops []oracle.Op, doubt *rotation) []oracle.Op {
	cmds := make([][]string, len(ops))
	for i := range ops {
		cmds[i] = c.load.words(&ops[i])
		c.load.mark(ops[i].Key)
	}
	node := c.node()
	replies, call, ret := c.send(cmds)
	for i := range ops {
		o := &ops[i]
		o.Client, o.Node, o.Call, o.Return, o.Outcome = c.id, node, call, ret, oracle.Unknown
		if i < len(replies) {
			c.settle(o, replies[i])
		}
		if o.Outcome == oracle.Unknown && !o.Kind.Reads() {
			doubt.doubtful()
		}
	}
	c.load.rec.add(func(h *History) { h.Ops = append(h.Ops, ops...) })
	return ops
}

// settle notes a reply.
func (c *client) settle(o *oracle.Op, v Value) {
	if o.Outcome = outcomeOf(v); o.Outcome != oracle.Done {
		o.Error = v.Err
		return
	}
	o.Reply = v.reply()
}

const (
	deleteScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	renewScript  = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
)

// words are the command of an Op.
func (l *Load) words(o *oracle.Op) []string {
	ms := strconv.FormatInt(o.TTL.Milliseconds(), 10)
	switch o.Kind {
	case oracle.Set:
		args := []string{"SET", o.Key, o.Arg}
		for _, word := range []struct {
			on   bool
			args []string
		}{
			{o.NX, []string{"NX"}}, {o.XX, []string{"XX"}}, {o.Cmp != "", []string{"IFEQ", o.Cmp}}, {o.Get, []string{"GET"}},
			{o.KeepTTL, []string{"KEEPTTL"}}, {o.TTL != 0, []string{"PX", ms}},
		} {
			if word.on {
				args = append(args, word.args...)
			}
		}
		return args
	case oracle.SetNX, oracle.GetSet:
		return []string{string(o.Kind), o.Key, o.Arg}
	case oracle.DelIfEq:
		if l.script {
			return []string{"EVAL", deleteScript, "1", o.Key, o.Cmp}
		}
		return []string{"DELIFEQ", o.Key, o.Cmp}
	case oracle.PExpire:
		return []string{"PEXPIRE", o.Key, ms}
	}
	return []string{string(o.Kind), o.Key}
}

// useKeys works on keys until the load stops.
func (c *client) useKeys() {
	var written []string
	for c.ready() {
		size := 1
		if c.rng.IntN(5) == 0 {
			size = 3
		}
		ops := make([]oracle.Op, size)
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

// random makes a command on key. Counters have keys of their own.
func (c *client) random(key string, written []string) oracle.Op {
	o := oracle.Op{Key: key}
	ttl := time.Duration(50+c.rng.IntN(400)) * time.Millisecond
	some := "nothing"
	if len(written) > 0 {
		some = written[c.rng.IntN(len(written))]
	}
	switch c.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		o.Kind = oracle.Get
	case 6, 7:
		o.Kind, o.Arg = oracle.Set, c.unique(key)
	case 8:
		o.Kind, o.Arg, o.TTL = oracle.Set, c.unique(key), ttl
	case 9, 10:
		o.Kind, o.Arg, o.NX, o.TTL = oracle.Set, c.unique(key), true, ttl
	case 11:
		o.Kind, o.Arg, o.XX, o.KeepTTL = oracle.Set, c.unique(key), true, true
	case 12:
		o.Kind, o.Arg, o.Get = oracle.Set, c.unique(key), true
	case 13:
		o.Kind, o.Arg = oracle.SetNX, c.unique(key)
	case 14:
		o.Kind, o.Arg = oracle.GetSet, c.unique(key)
	case 15:
		o.Kind = oracle.Del
	case 16:
		o.Kind, o.Cmp = oracle.DelIfEq, some
	case 17:
		o.Kind, o.TTL = oracle.PExpire, ttl
	case 18:
		o.Kind = []oracle.Kind{oracle.PTTL, oracle.Persist, oracle.GetDel}[c.rng.IntN(3)]
	case 19:
		o.Kind, o.Key = oracle.Incr, key+":n"
	}
	return o
}

// useLists appends unique ids until the load stops.
func (c *client) useLists() {
	l := c.load
	for c.ready() {
		list := l.mark(l.lists.take(c.rng, 1))
		a := oracle.Append{List: list, ID: c.unique("id"), Client: c.id, Outcome: oracle.Unknown}
		replies, call, ret := c.send([][]string{{"RPUSH", list, a.ID}})
		a.Call, a.Return = call, ret
		if len(replies) > 0 {
			a.Outcome = outcomeOf(replies[0])
		}
		l.rec.add(func(h *History) { h.Appends = append(h.Appends, a) })
	}
}

// useCounters sends pipelines of INCR to a counter of this client's own.
func (c *client) useCounters() {
	l := c.load
	key := l.mark(l.cfg.Prefix + "counter:" + strconv.Itoa(c.id))
	for c.ready() {
		cmds := make([][]string, 2+c.rng.IntN(5))
		for i := range cmds {
			cmds[i] = []string{"INCR", key}
		}
		b := oracle.Batch{Client: c.id, Key: key, Sent: len(cmds)}
		replies, call, ret := c.send(cmds)
		b.Call, b.Return = call, ret
		for _, v := range replies {
			switch outcomeOf(v) {
			case oracle.Refused:
				b.Sent-- // its number will not come
			case oracle.Done:
				b.Numbers = append(b.Numbers, v.Int)
			}
		}
		l.rec.add(func(h *History) { h.Batches = append(h.Batches, b) })
	}
}
