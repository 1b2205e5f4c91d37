package execution

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
)

// lane is a queue of dry runs, of which one runs at a time. The leader has two
// lanes. Every dry run begins in the lane for short dry runs. If it
// exceeds the limit of that lane, it starts again in the other lane. So a short
// script waits for a long one only up to that limit.
//
// If the script ends in the dry run, the proposer then executes it. This takes
// about as long as the dry run took, and writes wait meanwhile. So a lane
// pauses after a dry run that was longer than ScriptConfig.Brief. During the
// pause, other clients' writes run. The scripts of a lane thus use at most
// 1/laneShare of the proposer's time.
type lane struct {
	limit time.Duration // time limit of a dry run, after which it starts again in the other lane
	most  int           // maximum number of waiting dry runs; see laneUsers for the limit of one user
	slots *fairshare.Slots

	mu      sync.Mutex
	waiting map[string]int // number of waiting dry runs, by user
	total   int
	bytes   int
}

const (
	// shortDryRuns is the limit of the lane for short dry runs, in multiples of
	// ScriptConfig.Brief.
	shortDryRuns = 25
	// laneShare bounds the part of the proposer's time that a lane uses: see
	// lane.
	laneShare = 4
	// laneTimes bounds how long a dry run waits in a lane, in multiples of
	// ScriptConfig.Limit. If ScriptConfig.Wait is longer, a dry run waits for
	// at most ScriptConfig.Wait.
	laneTimes = 60
	// laneUsers is the divisor of a lane's limit: a user may have up to
	// most/laneUsers waiting dry runs, and always at least one.
	laneUsers = 4
	// maxLaneBytes limits the bytes of the groups whose dry runs wait in a
	// lane. A larger group may wait alone.
	maxLaneBytes = 64 << 20
)

func newLane(limit time.Duration, most int, mono func() time.Duration) *lane {
	return &lane{
		limit:   limit,
		most:    most,
		slots:   fairshare.New(1, math.MaxInt64, mono),
		waiting: make(map[string]int),
	}
}

// enter waits for the lane's slot for at most limit, or until done is closed.
// size is the size of the dry run's group in bytes. If enter fails, refusal is
// the error text for the client.
func (l *lane) enter(
	who fairshare.Worker, size int, limit time.Duration, done <-chan struct{},
) (p *fairshare.Slot, refusal string) {
	l.mu.Lock()
	if l.waiting[who.User] >= max(l.most/laneUsers, 1) || l.total >= l.most ||
		l.total > 0 && l.bytes+size > maxLaneBytes {
		l.mu.Unlock()
		return nil, msgScriptQueue
	}
	l.waiting[who.User]++
	l.total++
	l.bytes += size
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting[who.User]--; l.waiting[who.User] == 0 {
			delete(l.waiting, who.User)
		}
		l.total--
		l.bytes -= size
	}()
	p, err := l.slots.Enter(who, limit, done)
	switch {
	case errors.Is(err, fairshare.ErrLost):
		return nil, msgScriptLost
	case err != nil:
		return nil, msgScriptRoom
	}
	return p, ""
}

// leave frees the slot of a dry run. If the dry run took longer than brief,
// leave frees the slot after a pause of the lane. The timer of the pause is
// never stopped, because it only frees the slot.
func (l *lane) leave(p *fairshare.Slot, took, brief time.Duration) {
	if took <= brief {
		p.Leave()
		return
	}
	time.AfterFunc((laneShare-1)*took, p.Leave)
}

// scriptWorker returns the worker for the scripts of a connection. origin is
// the number of the connection, which is unique in the cluster: see package
// clientid.
func scriptWorker(origin uint64, user string) fairshare.Worker {
	return fairshare.Worker{User: user, Conn: origin}
}
