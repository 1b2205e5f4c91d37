package sim

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// runner stands in for the interpreter, whose scripts take processor time and no
// virtual time. Its language has two commands: "incr", which increments KEYS[1] by
// a read and a write and returns the result, and "nap N", which takes N
// milliseconds first.
type runner struct{}

// CompileScript implements fsm.ScriptRunner.
func (runner) CompileScript([]byte) string { return "" }

// RunScript implements fsm.ScriptRunner.
func (runner) RunScript(call fsm.ScriptCall) fsm.Reply {
	if nap, ok := strings.CutPrefix(string(call.Body), "nap "); ok {
		millis, err := strconv.Atoi(nap)
		if err != nil {
			return fsm.Error("ERR " + err.Error())
		}
		for end := time.Now().Add(time.Duration(millis) * time.Millisecond); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
			if call.Interrupt == nil {
				continue
			}
			if text := call.Interrupt(); text != "" {
				return fsm.Error(text)
			}
		}
	}
	n := 0
	held := string(call.Do([][]byte{[]byte("get"), call.Keys[0]}).Append(nil, 2))
	if _, text, ok := strings.Cut(strings.TrimSuffix(held, "\r\n"), "\r\n"); ok {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return fsm.Error("ERR " + err.Error())
		}
	}
	n++
	if r := call.Do([][]byte{[]byte("set"), call.Keys[0], strconv.AppendInt(nil, int64(n), 10)}); r.IsError() {
		return r
	}
	return fsm.Int(int64(n))
}

var errScript = errors.New("script ended without effect")

// scripter increments counters by scripts that are quick.
func (c *remote) scripter() {
	for c.think() && c.connect() {
		c.script("incr")
	}
}

// napper does the same by scripts that hold up the proposer of the leader.
func (c *remote) napper() {
	for c.h.pause(time.Duration(c.r.Int64N(int64(8*time.Second)))) && c.connect() {
		c.script("nap " + strconv.Itoa(20+c.r.IntN(380)))
	}
}

func (c *remote) script(body string) {
	c.h.mu.Lock()
	key := c.h.scripted.key(c.r.IntN)
	c.h.mu.Unlock()
	o := oracle.Op{Key: key, Kind: oracle.Incr}
	x := c.do(command{"eval", body, "1", key})
	o.Reply = x.first().Reply
	x.finish(&o, c.id)
	c.h.mu.Lock()
	if o.Outcome == oracle.Unknown {
		c.h.scripted.open[key]++
	}
	c.h.mu.Unlock()
	if o.Outcome == oracle.Done && o.Reply.Error {
		// A script that was cut has done nothing.
		c.h.count(errScript)
		return
	}
	c.h.served.op(o)
}
