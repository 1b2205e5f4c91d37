package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// loop generates the load of the lock cycles.
type loop struct {
	*sockets
	cycle *cycle
	lanes []*lane
	each  int // cycles per lane
	times []time.Duration
}

// lane is a connection with at most one command in progress.
type lane struct {
	socket  int // index of the connection
	prefix  string
	done    int // cycles completed
	key     string
	begun   time.Time // beginning of the cycle
	release bool      // true if the command in progress is the second one of the cycle
	in      [64]byte  // the part of the reply that has arrived
	n       int
}

const loopToken = "holder-0123456789"

// These are the only valid replies to the two commands of a cycle.
const (
	granted  = "+OK\r\n"
	released = ":1\r\n"
)

// newLoop opens the connections to addr.
func newLoop(c *cycle, addr string, clients int, prefix string, each int) (*loop, error) {
	s, err := connect(addr, clients, "")
	if err != nil {
		return nil, err
	}
	l := &loop{sockets: s, cycle: c, each: each, times: make([]time.Duration, 0, each*clients)}
	for i := range clients {
		l.lanes = append(l.lanes, &lane{socket: i, prefix: prefix + ":" + strconv.Itoa(i) + ":"})
	}
	return l, nil
}

// run runs all cycles and checks every reply.
func (l *loop) run(ctx context.Context) error {
	open := len(l.lanes)
	for _, ln := range l.lanes {
		if err := l.lock(ln); err != nil {
			return err
		}
	}
	for open > 0 {
		events, err := l.wait()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range events {
			ended, err := l.step(l.lanes[e.Fd])
			if err != nil {
				return err
			}
			if ended {
				open--
			}
		}
	}
	return nil
}

// step reads the data that has arrived. If the reply is complete, step sends the
// next command. ended reports whether the lane has run all its cycles.
func (l *loop) step(ln *lane) (ended bool, err error) {
	n, err := l.receive(ln.socket, ln.in[ln.n:])
	if err != nil || n == 0 {
		return false, err
	}
	ln.n += n
	got, want := string(ln.in[:ln.n]), granted
	if ln.release {
		want = released
	}
	if len(got) < len(want) && got == want[:len(got)] {
		return false, nil // the rest has not arrived yet
	}
	if got != want {
		return false, fmt.Errorf("got %q, want %q", got, want)
	}
	ln.n = 0
	if !ln.release {
		ln.release = true
		return false, l.send(ln.socket, "EVALSHA", l.cycle.sha, "1", ln.key, loopToken)
	}
	l.times = append(l.times, time.Since(ln.begun))
	if ln.done++; ln.done == l.each {
		return true, nil
	}
	return false, l.lock(ln)
}

// lock begins the next cycle of a lane.
func (l *loop) lock(ln *lane) error {
	ln.release, ln.key, ln.begun = false, ln.prefix+strconv.Itoa(ln.done), time.Now()
	return l.send(ln.socket, "SET", ln.key, loopToken, "NX", "PX", "30000")
}
