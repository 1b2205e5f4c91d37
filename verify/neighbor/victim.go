package neighbor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// Victim is an ordinary client. It takes its own locks, one after another, with
// SET NX PX. Only one goroutine may use a Victim.
type Victim struct {
	to   Target
	conn *load.Conn
	n    int
}

// victimLimit is how long a victim waits for one reply.
const victimLimit = 30 * time.Second

// NewVictim connects a victim to a node.
func NewVictim(ctx context.Context, to Target) (*Victim, error) {
	c, err := load.Dial(ctx, to.Addr, to.Login, victimLimit)
	if err != nil {
		return nil, fmt.Errorf("connect the victim: %w", err)
	}
	return &Victim{to: to, conn: c}, nil
}

// Close closes the connection.
func (v *Victim) Close() error { return v.conn.Close() }

// Times contains the durations of commands, sorted.
type Times []time.Duration

// At returns the time within which the given share of the commands was
// answered, 0 if there are none.
func (t Times) At(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[int(share*float64(len(t)-1))]
}

// Run takes locks until ctx is done. It returns an error reply as an error,
// because no neighbor may cause a command of a victim to fail.
func (v *Victim) Run(ctx context.Context) (Times, error) {
	var times Times
	defer func() { slices.Sort(times) }()
	for ctx.Err() == nil {
		v.n++
		begun := time.Now()
		reply, err := v.conn.Do("SET", fmt.Sprintf("%svictim:%d", v.to.Prefix, v.n), "owner", "NX", "PX", "5000")
		took := time.Since(begun)
		switch {
		case err != nil:
			return times, fmt.Errorf("the victim got no lock, after %v: %w", took.Round(time.Millisecond), err)
		case reply.Err != "":
			return times, fmt.Errorf("the victim got no lock, after %v: %w", took.Round(time.Millisecond),
				errors.New(reply.Err))
		}
		times = append(times, took)
	}
	return times, nil
}
