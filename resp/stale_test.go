package resp_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// cachingClient caches the values that it reads until it receives an
// invalidation of the key. It caches the reply to each command separately, as
// rueidis does.
type cachingClient struct {
	*client
	rng    *rand.Rand
	noloop bool
	cache  map[string]map[string]string // by key and command
}

func (c *cachingClient) keep(key, command, reply string) {
	if c.cache[key] == nil {
		c.cache[key] = make(map[string]string)
	}
	c.cache[key][command] = reply
}

// next reads until a reply, and drops invalidated keys on the way.
func (c *cachingClient) next() string {
	for {
		r, err := c.reply()
		if err != nil {
			c.t.Fatal(err)
		}
		rest, ok := strings.CutPrefix(r, ">2\n$10\ninvalidate\n")
		switch {
		case !ok:
			return r
		case rest == "_\n":
			clear(c.cache)
		default:
			for i, key := range strings.Split(rest, "\n") {
				if i >= 2 && i%2 == 0 {
					delete(c.cache, key)
				}
			}
		}
	}
}

// round sends a pipeline of reads and writes, and caches the values that it
// reads.
func (c *cachingClient) round(optin bool) {
	var lines []string
	var got []func(reply string)
	add := func(line string, f func(string)) { lines, got = append(lines, line), append(got, f) }
	ignore := func(string) {}
	key := func() string { return fmt.Sprint("k", c.rng.IntN(6)) }
	changed := func(k string) {
		if c.noloop { // the server sends no invalidation, so the client drops the key itself
			delete(c.cache, k)
		}
	}
	read := func(k string) {
		if optin {
			add("CLIENT CACHING YES", ignore)
		}
		command := []string{"GET ", "STRLEN ", "TYPE "}[c.rng.IntN(3)] + k
		add(command, func(r string) { c.keep(k, command, r) })
	}
	for range 1 + c.rng.IntN(3) {
		switch c.rng.IntN(7) {
		case 0:
			k := key()
			add(fmt.Sprintf("SET %s own-%d", k, c.rng.IntN(1000)), func(string) { changed(k) })
		case 1:
			if c.noloop {
				continue
			}
			k := key() // a key that is read and then changed in one entry
			if optin {
				add("CLIENT CACHING YES", ignore)
			}
			add("MULTI", ignore)
			add("GET "+k, ignore)
			add("APPEND "+k+" y", ignore)
			add("EXEC", func(r string) {
				_, value, _ := strings.Cut(r, "\n")
				c.keep(k, "GET "+k, value[:strings.LastIndex(value, ":")])
			})
		case 2:
			k := key()
			if optin {
				add("CLIENT CACHING YES", ignore)
			}
			add("MULTI", ignore)
			add(fmt.Sprintf("APPEND %s x", k), ignore)
			add("GET "+k, ignore)
			add("EXEC", func(r string) {
				_, value, _ := strings.Cut(r, "\n:")
				_, value, _ = strings.Cut(value, "\n")
				changed(k)
				c.keep(k, "GET "+k, value)
			})
		default:
			read(key())
		}
	}
	c.send(lines...)
	for _, f := range got {
		f(c.next())
	}
}

// TestTracking_NeverStale checks that the client caches no old value after all
// changes have reached the client's node, however late they arrive there.
func TestTracking_NeverStale(t *testing.T) {
	for _, mode := range []struct {
		options       string
		optin, noloop bool
	}{{options: "ON"}, {options: "ON NOLOOP", noloop: true}, {options: "ON OPTIN", optin: true}} {
		t.Run(strings.ReplaceAll(mode.options, " ", "-"), func(t *testing.T) {
			f := newFake(t)
			f.late = make(chan *fsm.Result, 1000)
			s := serve(t, f)
			// Some reads are answered late, so that later changes arrive first.
			var applied atomic.Uint64
			f.after = func(at uint64) {
				for n := at % 200; n > 0 && applied.Load() <= at+1; n-- {
					runtime.Gosched()
				}
			}
			delivered := make(chan struct{})
			// This goroutine acts as the node. At random times, it applies the
			// entries that the leader's state machine has executed.
			go func() {
				defer close(delivered)
				rng := rand.New(rand.NewPCG(1, 2))
				var behind []*fsm.Result
				for res := range f.late {
					behind = append(behind, res)
					for len(behind) > rng.IntN(8) {
						f.listener.Applied(behind[0].Index, behind[0].Events)
						applied.Store(behind[0].Index)
						behind = behind[1:]
					}
				}
				for _, res := range behind {
					f.listener.Applied(res.Index, res.Events)
				}
			}()
			c := &cachingClient{client: dial(t, s), rng: rand.New(rand.NewPCG(3, 4)), noloop: mode.noloop, cache: make(map[string]map[string]string)}
			c.do("HELLO 3")
			c.expect("CLIENT TRACKING "+mode.options, "+OK")
			var writers sync.WaitGroup
			stop := make(chan struct{})
			for w := range 2 {
				writers.Go(func() {
					rng, wc := rand.New(rand.NewPCG(5, uint64(w))), dial(t, s)
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						line := fmt.Sprintf("SET k%d w%d-%d", rng.IntN(6), w, i)
						switch rng.IntN(20) {
						case 0:
							line = "FLUSHDB"
						case 1:
							line = fmt.Sprintf("DEL k%d", rng.IntN(6))
						}
						wc.do(line)
					}
				})
			}
			for range 500 {
				c.round(mode.optin)
			}
			close(stop)
			writers.Wait()
			for range 20 { // the node may receive the last changes before or after these reads
				c.round(mode.optin)
			}
			other := dial(t, s)
			other.do("HELLO 3")
			close(f.late)
			<-delivered
			f.late, f.after = nil, nil
			// The invalidation of this key follows all earlier invalidations.
			if mode.optin {
				c.send("CLIENT CACHING YES")
				c.next()
			}
			c.send("GET fence")
			c.next()
			c.keep("fence", "", "")
			other.expect("SET fence x", "+OK")
			for c.cache["fence"] != nil {
				c.send("PING")
				c.next()
			}
			held := 0
			for _, commands := range c.cache {
				for command, v := range commands {
					held++
					if now := other.do(command); now != v {
						t.Errorf("the cached reply to %s is %q, want the current reply %q", command, v, now)
					}
				}
			}
			t.Logf("%d replies were still cached at the end", held)
		})
	}
}
