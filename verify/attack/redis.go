package attack

import (
	"errors"
	"math/rand/v2"

	"github.com/holdfast-kv/holdfast/verify/replay"
)

// checkOnRedis replays the committed log on a real redis-server, if one is
// installed. It compares all keys at random log indices and at the end.
func (e *episode) checkOnRedis(v *Verdict, log replay.Log) {
	if len(log.Entries) == 0 {
		return
	}
	res, err := replay.OnRedis(log, rand.New(rand.NewPCG(e.plan.Seed, 7)))
	switch {
	case errors.Is(err, replay.ErrNoRedis):
		v.note("log on a real Redis: keys (NOT RUN: redis-server is not installed)", 0, nil)
		return
	case err != nil:
		e.violation("log on a real Redis", "the log could not be replayed: %v", err)
	}
	v.note("log on a real Redis: keys", res.Compared, res.Violations)
}
