package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// cycle is a kind of row that measures lock cycles: SET NX PX, then
// compare-and-delete by EVALSHA, one after the other on each connection.
// redis-benchmark sends only one kind of command at a time. So these rows use
// the load generator of loop.go, on both systems.
type cycle struct {
	sha string
	// load puts the script into the script cache.
	load func(addr string) error
}

// ownText is a release script that is not from a lock library. Holdfast does
// not recognize its SHA1, so Holdfast interprets the script.
const ownText = `local held = redis.call('GET', KEYS[1]) == ARGV[1]
return held and redis.call('DEL', KEYS[1]) or 0`

const ownSHA = "96080cd14530bad84dacd8eda4d972d5114a0736"

var ownRelease = &cycle{sha: ownSHA, load: func(addr string) error {
	sha, err := ask(addr, "SCRIPT", "LOAD", ownText)
	if err == nil && sha.Text != ownSHA {
		err = fmt.Errorf("SCRIPT LOAD replies %s", sha)
	}
	return err
}}

// cycles runs about count lock cycles.
func (b *bench) cycles(ctx context.Context, r row, addr string, count int) (s sample, took time.Duration, err error) {
	if err := r.cycle.load(addr); err != nil {
		return s, 0, err
	}
	b.runs++
	l, err := newLoop(r.cycle, addr, r.clients, fmt.Sprintf("lock:%04d", b.runs), max(count/r.clients, 1))
	if err != nil {
		return s, 0, err
	}
	begun := time.Now()
	err = l.run(ctx)
	took = time.Since(begun)
	if err := errors.Join(err, l.close()); err != nil {
		return s, 0, fmt.Errorf("lock cycle at %s: %w", addr, err)
	}
	all := l.times
	slices.Sort(all)
	ms := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	return sample{rps: float64(len(all)) / took.Seconds(), p50: ms(0.5), p99: ms(0.99)}, took, nil
}
