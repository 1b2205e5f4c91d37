package sim

import (
	"errors"
	"fmt"

	"github.com/holdfast-kv/holdfast/verify/replay"
)

// redisShare is the sampling rate: 4 means that the log of one history in four
// is replayed on a real redis-server.
const redisShare = 4

// replayOnRedis replays the committed log on a real redis-server, for a share
// of the seeds and only if redis-server is installed. It must run outside the
// bubble, because the server has a real clock.
func (r *Result) replayOnRedis() {
	if r.Schedule.Seed%redisShare != 0 || len(r.committed.Entries) == 0 {
		return
	}
	res, err := replay.OnRedis(r.committed, stream(r.Schedule.Seed, "redis"))
	switch {
	case errors.Is(err, replay.ErrNoRedis):
		r.Checks["replay on a real Redis NOT RUN: redis-server is not installed"]++
		return
	case err != nil:
		r.Violations = append(r.Violations, fmt.Sprintf("replay on a real Redis: %v", err))
	}
	for _, v := range res.Violations {
		r.Violations = append(r.Violations, fmt.Sprint(v))
	}
	r.Checks["replay on a real Redis: keys"] = res.Compared
}
