// Command etcd measures the Mutex of etcd's package concurrency, for comparison
// with the rows "locks" of test/bench. It measures how many hand-overs per second
// the clients that compete for one lock achieve, and the time from a release until
// the next owner has the lock. It runs three etcd processes on loopback, with their
// default settings.
//
//	cd test/bench/etcd && go run .
//
// It is a separate module, so that Holdfast does not depend on etcd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
)

// serveArgument is the first argument of the processes that are servers.
const serveArgument = "serve"

// watchBegins is the time after which a client that has entered the queue
// certainly watches its predecessor. Without this wait, etcd may report the
// release to the client up to 100 ms late.
const watchBegins = 150 * time.Millisecond

func main() {
	if len(os.Args) > 1 && os.Args[1] == serveArgument {
		etcdmain.Main(append([]string{"etcd"}, os.Args[2:]...))
		return
	}
	clients := flag.Int("clients", 50, "clients that compete for one lock")
	seconds := flag.Float64("seconds", 3, "length of the run")
	exchanges := flag.Int("exchanges", 60, "releases whose time is measured")
	port := flag.Int("port", 23790, "the first of six ports")
	flag.Parse()
	if err := run(*clients, time.Duration(*seconds*float64(time.Second)), *exchanges, *port); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(clients int, length time.Duration, exchanges, port int) (err error) {
	dir, err := os.MkdirTemp("", "etcd-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	endpoints, stop, err := start(dir, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := handOver(ctx, endpoints, clients, length); err != nil {
		return err
	}
	return nextOwner(ctx, endpoints, exchanges)
}

// start starts three servers.
func start(dir string, port int) (endpoints []string, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	url := func(n int) string { return "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(port+n)) }
	var initial []string
	for i := range 3 {
		initial = append(initial, fmt.Sprintf("n%d=%s", i, url(3+i)))
		endpoints = append(endpoints, url(i))
	}
	var all []*exec.Cmd
	stop = func() (err error) {
		for _, cmd := range all {
			err = errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		}
		return err
	}
	for i := range 3 {
		cmd := exec.Command(program, serveArgument, "--name", fmt.Sprintf("n%d", i), "--data-dir",
			filepath.Join(dir, fmt.Sprintf("n%d", i)), "--listen-client-urls", url(i),
			"--advertise-client-urls", url(i), "--listen-peer-urls", url(3+i),
			"--initial-advertise-peer-urls", url(3+i),
			"--initial-cluster", strings.Join(initial, ","), "--log-level", "error")
		if err := cmd.Start(); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		all = append(all, cmd)
	}
	return endpoints, stop, nil
}

// connect opens a client and a session for it.
func connect(endpoints []string) (*clientv3.Client, *concurrency.Session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 30 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(30))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, s, nil
}

// handOver lets clients compete for one lock.
func handOver(ctx context.Context, endpoints []string, clients int, length time.Duration) error {
	var sessions []*concurrency.Session
	for i := range clients {
		c, s, err := connect(endpoints[i%3 : i%3+1])
		if err != nil {
			return err
		}
		defer c.Close()
		sessions = append(sessions, s)
	}
	counts, errs := make([]int, clients), make([]error, clients)
	var grants atomic.Int64
	begun := time.Now()
	end, stop := context.WithDeadline(ctx, begun.Add(length))
	defer stop()
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() {
			for end.Err() == nil {
				m := concurrency.NewMutex(s, "/lock")
				if err := m.Lock(end); err != nil {
					if end.Err() == nil {
						errs[i] = err
					}
					return
				}
				counts[i]++
				grants.Add(1)
				if errs[i] = m.Unlock(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	fmt.Printf("hand-over: %d clients, one key: %.0f hand-overs/s, spread between clients %.2f\n", clients,
		float64(grants.Load())/took.Seconds(), float64(slices.Max(counts))/float64(max(slices.Min(counts), 1)))
	return errors.Join(errs...)
}

// nextOwner lets two clients hand a lock to each other, and measures the time
// from a release until the next owner has the lock. A client releases the lock
// when the other client has been in the queue for watchBegins.
func nextOwner(ctx context.Context, endpoints []string, exchanges int) error {
	var mutexes [2]*concurrency.Mutex
	var look *clientv3.Client
	for i := range mutexes {
		c, s, err := connect(endpoints[i : i+1])
		if err != nil {
			return err
		}
		defer c.Close()
		mutexes[i], look = concurrency.NewMutex(s, "/next"), c
	}
	if err := mutexes[0].Lock(ctx); err != nil {
		return err
	}
	var times []time.Duration
	for i := range exchanges {
		mine, next := mutexes[i%2], mutexes[(i+1)%2]
		got := make(chan time.Time)
		var err error
		go func() {
			err = next.Lock(ctx)
			got <- time.Now()
		}()
		for {
			queue, err := look.Get(ctx, "/next/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return err
			}
			if queue.Count == 2 {
				break
			}
		}
		<-time.After(watchBegins)
		begun := time.Now()
		freed := mine.Unlock(ctx)
		times = append(times, (<-got).Sub(begun))
		if err := errors.Join(err, freed); err != nil {
			return err
		}
	}
	slices.Sort(times)
	fmt.Printf("time to the next owner: p50 %.2f ms, p99 %.2f ms\n", ms(times[len(times)/2]),
		ms(times[len(times)*99/100]))
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
