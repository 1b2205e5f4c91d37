package script_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// redisConn is a connection to a real Redis.
type redisConn struct {
	tb testing.TB
	c  *respwire.Conn
	mu sync.Mutex
}

func dialRedis(tb testing.TB, socket string, proto int) *redisConn {
	tb.Helper()
	c, err := respwire.Dial(context.Background(), "unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	rc := &redisConn{tb: tb, c: c}
	if proto == 3 {
		rc.do("HELLO", "3")
	}
	return rc
}

// do sends a command and returns the encoded reply.
func (c *redisConn) do(args ...string) string {
	c.tb.Helper()
	return string(c.ask(args...).Raw)
}

func (c *redisConn) ask(args ...string) respwire.Value {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.tb.Fatal(err)
	}
	v, err := c.c.Do(args...)
	if err != nil {
		c.tb.Fatal(err)
	}
	return v
}

// fromScript lists errors that have another text in Redis when a script calls the
// command.
var fromScript = []struct{ prefix, text string }{
	{"ERR unknown command", "ERR Unknown Redis command called from script"},
	{"ERR wrong number of arguments", "ERR Wrong number of args calling Redis command from script"},
}

// call implements ScriptCall.Do with a real Redis. RESP3 preserves all types.
func (c *redisConn) call(args [][]byte) fsm.Reply {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = string(a)
	}
	switch strings.ToUpper(list[0]) {
	case "MULTI", "SUBSCRIBE", "BLPOP", "EVAL":
		return fsm.Error("ERR This Redis command is not allowed from script")
	}
	r := toReply(c.ask(list...))
	if r.IsError() {
		for _, f := range fromScript {
			if strings.HasPrefix(r.Text(), f.prefix) {
				return fsm.Error(f.text)
			}
		}
	}
	return r
}

// toReply converts a reply of Redis to the type that ScriptCall.Do returns.
func toReply(v respwire.Value) fsm.Reply {
	elems := make([]fsm.Reply, len(v.Elems))
	for i, e := range v.Elems {
		elems[i] = toReply(e)
	}
	switch {
	case v.Null:
		return fsm.Null
	case v.Kind == '+':
		return fsm.Simple(v.Text)
	case v.Kind == '-':
		return fsm.Error(v.Err)
	case v.Kind == ':':
		return fsm.Int(v.Int)
	case v.Kind == ',':
		f, _ := strconv.ParseFloat(v.Text, 64)
		return fsm.Double(f)
	case v.Kind == '$':
		return fsm.Bulk(v.Text)
	case v.Kind == '=':
		return fsm.Verbatim(v.Text[4:])
	case v.Kind == '%':
		return fsm.Map(elems)
	case v.Kind == '~':
		return fsm.Set(elems)
	}
	return fsm.Array(elems)
}
