package checker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// cell is the state of a key: absent, or a value that may have a time to live.
// A client cannot know exactly when the time to live ends: it ends between from
// and to.
type cell struct {
	present  bool
	value    string
	volatile bool
	from, to time.Duration
	ttl      time.Duration
}

// keyModel returns the sequential model of the commands on one key.
func keyModel(health *Health) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{cell{}} },
		Step: func(state, input, output any) []any {
			c, o := state.(cell), input.(*Op)
			var next []any
			for _, seen := range c.foundBy(o) {
				if after, ok := seen.step(o, health); ok {
					next = append(next, after)
				}
			}
			return next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string { return input.(*Op).String() },
		DescribeState: func(state any) string {
			c := state.(cell)
			switch {
			case !c.present:
				return "absent"
			case !c.volatile:
				return c.value
			case c.to == Forever:
				return fmt.Sprintf("%s, may expire after %v", c.value, c.from)
			}
			return fmt.Sprintf("%s, expires between %v and %v", c.value, c.from, c.to)
		},
	}
	return m.ToModel()
}

// foundBy returns the states of the key that a command may have found. The key
// may be gone after the time c.from, and must be gone after the time c.to.
func (c cell) foundBy(o *Op) []cell {
	if !c.present || !c.volatile {
		return []cell{c}
	}
	var all []cell
	if o.Call <= c.to {
		all = append(all, c)
	}
	if o.end() >= c.from {
		all = append(all, cell{})
	}
	return all
}

// step runs a command on the key and compares the reply, if there is one.
func (c cell) step(o *Op, health *Health) (cell, bool) {
	want, after := c.run(o, health)
	if o.Outcome != Done {
		return after, true
	}
	got := o.Reply
	if got.Error || want.Error {
		return after, got.Error && want.Error
	}
	if o.Kind == PTTL && want.Int > 0 {
		return after, c.agrees(o)
	}
	return after, got == want
}

// agrees reports whether a PTTL reply can be correct. The reply must be at least
// the time that certainly remained when it arrived, and at most the time to live
// that was set, plus a millisecond for rounding.
func (c cell) agrees(o *Op) bool {
	left := time.Duration(o.Reply.Int) * time.Millisecond
	if o.Reply.Int < 0 || left > c.ttl+time.Millisecond {
		return false
	}
	return left >= c.from-o.Return
}

// put returns the key with a new value and the time to live that the command
// sets.
func (c cell) put(o *Op, value string, health *Health) cell {
	after := cell{present: true, value: value}
	switch {
	case o.TTL != 0:
		after.live(o, health)
	case o.KeepTTL && c.present:
		after.volatile, after.from, after.to, after.ttl = c.volatile, c.from, c.to, c.ttl
	}
	return after
}

func (c *cell) live(o *Op, health *Health) {
	c.volatile, c.ttl, c.from, c.to = true, o.TTL, o.Call+o.TTL-health.early(), Forever
	if o.Outcome == Done {
		c.to = health.Gone(o.Return, o.TTL)
	}
}

func (c cell) text() Reply {
	if !c.present {
		return Reply{Null: true}
	}
	return Reply{Text: c.value}
}

var (
	replyOK   = Reply{Text: "OK"}
	replyNull = Reply{Null: true}
	replyOne  = Reply{Int: 1}
	replyZero = Reply{}
)

func (c cell) run(o *Op, health *Health) (Reply, cell) {
	switch o.Kind {
	case Get:
		return c.text(), c
	case Set:
		return c.set(o, health)
	case SetNX:
		if c.present {
			return replyZero, c
		}
		return replyOne, c.put(o, o.Arg, health)
	case GetSet:
		return c.text(), cell{present: true, value: o.Arg}
	case GetDel:
		return c.text(), cell{}
	case Del:
		if !c.present {
			return replyZero, c
		}
		return replyOne, cell{}
	case DelIfEq:
		if !c.present || c.value != o.Cmp {
			return replyZero, c
		}
		return replyOne, cell{}
	case Incr:
		n := int64(0)
		if c.present {
			var err error
			if n, err = strconv.ParseInt(c.value, 10, 64); err != nil {
				return Reply{Error: true}, c
			}
		}
		after := c
		after.present, after.value = true, strconv.FormatInt(n+1, 10)
		return Reply{Int: n + 1}, after
	case PExpire:
		if !c.present {
			return replyZero, c
		}
		after := c
		after.live(o, health)
		return replyOne, after
	case Persist:
		if !c.present || !c.volatile {
			return replyZero, c
		}
		return replyOne, cell{present: true, value: c.value}
	case PTTL:
		switch {
		case !c.present:
			return Reply{Int: -2}, c
		case !c.volatile:
			return Reply{Int: -1}, c
		}
		return Reply{Int: 1}, c // any positive number: see agrees
	}
	panic("checker: the model does not know " + string(o.Kind))
}

func (c cell) set(o *Op, health *Health) (Reply, cell) {
	old := c.text()
	holds := true
	switch {
	case o.NX:
		holds = !c.present
	case o.XX:
		holds = c.present
	case o.Cmp != "":
		holds = c.present && c.value == o.Cmp
	}
	if !holds {
		if o.Get {
			return old, c
		}
		return replyNull, c
	}
	if o.Get {
		return old, c.put(o, o.Arg, health)
	}
	return replyOK, c.put(o, o.Arg, health)
}
