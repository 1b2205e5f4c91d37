package recipes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// claimScript takes a job that is due and moves its time into the future. A
// sorted set contains the jobs, with the times at which they are due. If the
// worker dies, its job becomes due again. The new time also proves that the job
// still belongs to the worker.
var claimScript = redis.NewScript(`
local t = redis.call("time")
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call("zrangebyscore", KEYS[1], "-inf", now, "LIMIT", 0, 1)
if #due == 0 then
	return false
end
local again = now + tonumber(ARGV[1])
redis.call("zadd", KEYS[1], again, due[1])
return {due[1], tostring(again)}`)

// finishScript removes the job if it still belongs to the worker.
var finishScript = redis.NewScript(`
if redis.call("zscore", KEYS[1], ARGV[1]) == ARGV[2] then
	return redis.call("zrem", KEYS[1], ARGV[1])
end
return 0`)

func schedule(ctx context.Context, c *redis.Client, key, job string, in time.Duration) error {
	now, err := serverNow(ctx, c)
	if err != nil {
		return err
	}
	due := redis.Z{Score: float64(now.Add(in).UnixMilli()), Member: job}
	return persist(ctx, func() error { return c.ZAddNX(ctx, key, due).Err() })
}

// claim returns a job that is due, or "" if there is none, and the job's new
// time, which finish needs as a proof.
func claim(ctx context.Context, c *redis.Client, key string, limit time.Duration) (job, proof string, err error) {
	got, err := claimScript.Run(ctx, c, []string{key}, limit.Milliseconds()).StringSlice()
	if err != nil {
		return "", "", ignoreNil(err)
	}
	return got[0], got[1], nil
}

func finish(ctx context.Context, c *redis.Client, key, job, proof string) (mine bool, err error) {
	err = persist(ctx, func() error {
		n, err := finishScript.Run(ctx, c, []string{key}, job, proof).Int()
		mine = mine || n == 1
		return err
	})
	return mine, err
}

// page: end

func jobsDemo(ctx context.Context, e *Env) error {
	const key, workers, jobs, limit = "recipe:jobs", 4, 30, 20 * time.Second
	begun := make(map[string]time.Time)
	for n := range jobs {
		job := "job-" + strconv.Itoa(n)
		begun[job] = time.Now()
		if err := schedule(ctx, e.Client(n), key, job, time.Duration(n)*40*time.Millisecond); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	done, lost := make(map[string]int), 0
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for {
			mu.Lock()
			finished := len(done)+lost >= jobs
			mu.Unlock()
			if finished {
				return nil
			}
			job, proof, err := claim(ctx, c, key, limit)
			if err != nil {
				if isReply(err) || ctx.Err() != nil {
					return err
				}
				mu.Lock()
				lost++ // the job may have been claimed; it is then due again after limit
				mu.Unlock()
				continue
			}
			if job == "" {
				if err := wait(ctx, 10*time.Millisecond); err != nil {
					return err
				}
				continue
			}
			if n, _ := strconv.Atoi(job[len("job-"):]); time.Since(begun[job]) < time.Duration(n)*40*time.Millisecond-5*time.Millisecond {
				return fmt.Errorf("%s came too early", job)
			}
			mu.Lock()
			done[job]++
			half := len(done) == jobs/2
			mu.Unlock()
			if half {
				e.half() // this worker has a job at that time
			}
			if _, err := finish(ctx, c, key, job, proof); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	for job, n := range done {
		if n != 1 {
			return fmt.Errorf("%s was done %d times, want once", job, n)
		}
	}
	return nil
}
