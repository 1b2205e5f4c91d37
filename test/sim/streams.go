package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

const (
	streamKey   = "stream"
	streamGroup = "group"
)

// createGroup is the command that creates the group. Every groupReader sends
// it. The first of these commands that the cluster executes creates the group.
var createGroup = command{"xgroup", "create", streamKey, streamGroup, "0", "mkstream"}

// adder adds entries with unique values to the stream.
func (c *remote) adder() {
	for n := 0; c.think() && c.connect(); n++ {
		a := checker.Added{Stream: streamKey, Value: fmt.Sprintf("%d.%d", c.id, n), Client: c.id}
		x := c.do(command{"xadd", streamKey, "*", "v", a.Value})
		a.Call, a.Return, a.Outcome, a.ID = x.call, x.ret, x.outcome, x.first().Text
		c.h.served.mu.Lock()
		c.h.served.added = append(c.h.served.added, a)
		c.h.served.mu.Unlock()
	}
}

// groupReader reads entries for the group, acknowledges most of them, and claims
// entries that have been pending for a second.
func (c *remote) groupReader() {
	name := strconv.Itoa(c.id)
	for created := false; c.think() && c.connect(); {
		if !created {
			x := c.do(createGroup)
			created = x.outcome == checker.Done // this command or an earlier one has created the group
			continue
		}
		g := checker.GroupRead{Stream: streamKey, Consumer: name, Client: c.id, Claim: c.r.IntN(5) == 0}
		cmd := command{"xreadgroup", "group", streamGroup, name, "count", "4",
			"block", strconv.Itoa(100 + c.r.IntN(2000)), "streams", streamKey, ">"}
		if g.Claim {
			cmd = command{"xautoclaim", streamKey, streamGroup, name, "1000", "0-0", "count", "4"}
		}
		x := c.do(cmd)
		g.Call, g.Return, g.Outcome = x.call, x.ret, x.outcome
		if x.outcome == checker.Done {
			if x.first().Error {
				c.h.w.audit.violate("client %d: %v answered %s", c.id, cmd, x.first().Text)
			}
			g.Values = groupEntries(x.first(), g.Claim)
		}
		c.h.served.mu.Lock()
		c.h.served.reads = append(c.h.served.reads, g)
		c.h.served.mu.Unlock()
		if len(g.Values) > 0 && c.r.IntN(4) > 0 {
			c.acknowledge(g.Values)
		}
		if c.r.IntN(20) == 0 {
			c.leave()
		}
	}
}

// groupEntries returns the entries in the reply of XREADGROUP or XAUTOCLAIM.
func groupEntries(v value, claim bool) map[string]string {
	var list []value
	switch {
	case claim && len(v.Array) > 1:
		list = v.Array[1].Array
	case !claim && len(v.Array) == 1 && len(v.Array[0].Array) == 2:
		list = v.Array[0].Array[1].Array
	}
	values := make(map[string]string)
	for _, e := range list {
		if len(e.Array) == 2 && len(e.Array[1].Array) == 2 {
			values[e.Array[0].Text] = e.Array[1].Array[1].Text
		}
	}
	return values
}

func (c *remote) acknowledge(values map[string]string) {
	if !c.h.pause(time.Duration(c.r.Int64N(int64(300*time.Millisecond)))) || !c.connect() {
		return
	}
	a := checker.GroupAck{Stream: streamKey, Client: c.id}
	cmd := command{"xack", streamKey, streamGroup}
	for _, id := range slices.Sorted(maps.Keys(values)) {
		a.IDs = append(a.IDs, id)
		cmd = append(cmd, id)
	}
	x := c.do(cmd)
	a.Call, a.Return, a.Outcome, a.Acked = x.call, x.ret, x.outcome, x.first().Int
	c.h.served.mu.Lock()
	c.h.served.acks = append(c.h.served.acks, a)
	c.h.served.mu.Unlock()
}

// readGroup reads the stream and its group at the end of the history.
func (h *history) readGroup() {
	x, ok := h.ask(createGroup, command{"xrange", streamKey, "-", "+"},
		command{"xpending", streamKey, streamGroup, "-", "+", "100000"}, command{"xinfo", "groups", streamKey})
	if !ok || len(x.replies) != 4 {
		return
	}
	end := checker.GroupEnd{Stream: streamKey, Pending: make(map[string]bool)}
	for _, e := range x.replies[1].Array {
		if len(e.Array) == 2 && len(e.Array[1].Array) == 2 {
			end.Entries = append(end.Entries, checker.GroupEntry{ID: e.Array[0].Text, Value: e.Array[1].Array[1].Text})
		}
	}
	for _, e := range x.replies[2].Array {
		if len(e.Array) > 0 {
			end.Pending[e.Array[0].Text] = true
		}
	}
	if groups := x.replies[3].Array; len(groups) == 1 {
		for i, e := range groups[0].Array {
			if e.Text == "last-delivered-id" && i+1 < len(groups[0].Array) {
				end.Last = groups[0].Array[i+1].Text
			}
		}
	}
	h.served.ends = append(h.served.ends, end)
}
