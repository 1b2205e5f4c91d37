package sim

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// runner replaces the interpreter, because a script in the interpreter takes
// processor time and no virtual time. Its language has two commands. "incr"
// increments KEYS[1], with a read and a write, and returns the result. "nap N"
// waits N milliseconds and then does the same.
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
		for end := time.Now().Add(time.Duration(millis) * time.Millisecond); time.Now().Before(end); <-time.After(
			2 * time.Millisecond) {
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

// scripter increments counters with scripts that end quickly.
func (c *remote) scripter() {
	for c.think() && c.connect() {
		c.script("incr")
	}
}

// napper increments counters with scripts that delay the leader's proposer.
func (c *remote) napper() {
	for c.h.pause(time.Duration(c.r.Int64N(int64(8*time.Second)))) && c.connect() {
		c.script("nap " + strconv.Itoa(20+c.r.IntN(380)))
	}
}

func (c *remote) script(body string) {
	c.h.mu.Lock()
	key := c.h.scripted.key(c.r.IntN)
	c.h.mu.Unlock()
	o := checker.Op{Key: key, Kind: checker.Incr}
	x := c.do(command{"eval", body, "1", key})
	o.Reply = x.first().Reply
	x.finish(&o, c.id)
	c.h.mu.Lock()
	if o.Outcome == checker.Unknown {
		c.h.scripted.open[key]++
	}
	c.h.mu.Unlock()
	if o.Outcome == checker.Done && o.Reply.Error {
		// A script that was interrupted has no effect.
		c.h.count(errScript)
		return
	}
	c.h.served.op(o)
}
