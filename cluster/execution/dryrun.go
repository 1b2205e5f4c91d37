package execution

import (
	"errors"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/fsm"
)

// DryRun is the state of one dry run of a group.
type DryRun struct {
	begun time.Duration
	limit time.Duration // time limit of the lane in which the dry run runs
	// exceeded is set if the dry run has taken longer than limit, or if the
	// estimate says that it will take longer.
	exceeded bool
	work     time.Duration // estimated time of a group without scripts; 0 for other groups: see Weigh
}

// Weigh sets the estimated time of a group without scripts. Such a group is not
// run.
func (t *DryRun) Weigh(work time.Duration) { t.work, t.exceeded = work, work > t.limit }

// Refusal is the error of a dry run that got no slot. Its text is the reply for
// the client.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// RunDry calls run for a group when the group has the slot of a lane. If the dry
// run exceeds the limit of the lane for short dry runs, RunDry calls run again in
// the other lane. If the group got no slot, the error is a Refusal, or
// fairshare.ErrLost if done was closed.
func (h *Scripts) RunDry(
	body []byte, done <-chan struct{}, run func(t *DryRun) ([]byte, error),
) (verdict []byte, err error) {
	origin, user := fsm.GroupOrigin(body)
	wait := max(laneTimes*h.cfg.Limit, h.cfg.Wait)
	for _, l := range []*lane{h.short, h.long} { // the last lane has no limit
		p, refusal := l.enter(scriptWorker(origin, user), len(body), wait, done)
		switch {
		case refusal == msgScriptLost:
			return nil, fairshare.ErrLost
		case refusal != "" && !fsm.HasScripts(body):
			h.cfg.Metrics.WritesRefused.Add(1)
			return nil, Refusal(msgWriteRoom)
		case refusal != "":
			h.cfg.Metrics.Refused.Add(1)
			return nil, Refusal(refusal)
		}
		t := &DryRun{begun: h.cfg.Mono(), limit: l.limit}
		verdict, err = h.runInSlot(l, p, t, run)
		if err != nil || !t.exceeded {
			return verdict, err
		}
	}
	return nil, errors.New("a dry run exceeded a limit in the last lane, which has none")
}

// runInSlot runs a group in slot p of lane l, and then frees the slot, even after
// a panic, because the lane has no other slot.
func (h *Scripts) runInSlot(
	l *lane, p *fairshare.Slot, t *DryRun, run func(t *DryRun) ([]byte, error),
) ([]byte, error) {
	defer func() {
		took := max(h.cfg.Mono()-t.begun, t.work)
		if t.exceeded {
			took = 0 // the script is not executed yet, so the lane need not pause
		}
		l.leave(p, took, h.brief)
	}()
	return run(t)
}
