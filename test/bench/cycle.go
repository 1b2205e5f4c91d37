package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
)

// cycle is a row of lock cycles: SET NX PX, then compare-and-delete by EVALSHA,
// one after the other on each connection. redis-benchmark knows only one command
// at a time, so these rows have a load of their own, the same for both systems.
type cycle struct {
	sha string
	// load brings the script into the cache.
	load func(addr string) error
}

// redsyncRelease is the script with which redsync releases a lock. The library
// brings it itself, by releasing one; Holdfast knows it by its SHA1.
var redsyncRelease = &cycle{sha: "e950836ed1e694540c503ef9972b8de518044d3b", load: func(addr string) error {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer pool.Close()
	m := redsync.New(redigo.NewPool(pool)).NewMutex("lock:of-redsync", redsync.WithExpiry(time.Minute))
	if err := m.Lock(); err != nil {
		return fmt.Errorf("lock by redsync: %w", err)
	}
	if ok, err := m.Unlock(); !ok || err != nil {
		return fmt.Errorf("unlock by redsync: %v, %w", ok, err)
	}
	return nil
}}

// ownText is what a program without a library might send: a script that nobody
// knows by its SHA1, so that it is interpreted.
const ownText = `local held = redis.call('GET', KEYS[1]) == ARGV[1]
return held and redis.call('DEL', KEYS[1]) or 0`

const ownSHA = "96080cd14530bad84dacd8eda4d972d5114a0736"

var ownRelease = &cycle{sha: ownSHA, load: func(addr string) error {
	sha, err := redis.String(ask(addr, "SCRIPT", "LOAD", ownText))
	if err == nil && sha != ownSHA {
		err = fmt.Errorf("SCRIPT LOAD answers %s", sha)
	}
	return err
}}

// cycles runs lock cycles until count of them are done.
func (b *bench) cycles(ctx context.Context, r row, addr string, count int) (s sample, took time.Duration, err error) {
	if err := r.cycle.load(addr); err != nil {
		return s, 0, err
	}
	b.runs++
	each := max(count/r.clients, 1)
	times := make([][]time.Duration, r.clients)
	errs := make([]error, r.clients)
	conns := make([]net.Conn, r.clients)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			return s, 0, err
		}
		defer conns[i].Close()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.Close()
		}
	})
	defer stop()
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range conns {
		wg.Go(func() { times[i], errs[i] = r.cycle.run(conns[i], fmt.Sprintf("lock:%04d:%d", b.runs, i), each) })
	}
	wg.Wait()
	took = time.Since(begun)
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return s, 0, fmt.Errorf("lock cycle at %s: %w", addr, err)
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	ms := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	return sample{rps: float64(len(all)) / took.Seconds(), p50: ms(0.5), p99: ms(0.99)}, took, nil
}

// run runs n cycles on a connection, each on a key of its own, and checks every
// reply.
func (c *cycle) run(conn net.Conn, prefix string, n int) ([]time.Duration, error) {
	in := bufio.NewReader(conn)
	const token = "holder-0123456789"
	step := func(want string, args ...string) error {
		out := make([]byte, 0, 256)
		out = append(append(append(out, '*'), strconv.Itoa(len(args))...), "\r\n"...)
		for _, a := range args {
			out = append(append(append(out, '$'), strconv.Itoa(len(a))...), "\r\n"...)
			out = append(append(out, a...), "\r\n"...)
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
		reply, err := in.ReadSlice('\n')
		if err == nil && string(reply) != want {
			err = fmt.Errorf("%s answered %q", args[0], reply)
		}
		return err
	}
	times := make([]time.Duration, 0, n)
	for i := range n {
		key := prefix + ":" + strconv.Itoa(i)
		begun := time.Now()
		if err := step("+OK\r\n", "SET", key, token, "NX", "PX", "30000"); err != nil {
			return nil, err
		}
		if err := step(":1\r\n", "EVALSHA", c.sha, "1", key, token); err != nil {
			return nil, err
		}
		times = append(times, time.Since(begun))
	}
	return times, nil
}
