package process_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/harness"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// raw is a connection on which the tests compare every byte.
type raw struct {
	t *testing.T
	*respwire.Conn
}

func dialRaw(t *testing.T, network, addr string) *raw {
	t.Helper()
	c, err := respwire.Dial(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // an error does not matter after the test
	return &raw{t, c}
}

// ask sends lines in one pipeline that ends with an ECHO. It returns all bytes
// that arrive before the reply to the ECHO.
func (r *raw) ask(lines ...string) string {
	r.t.Helper()
	if _, err := r.Write(respwire.Lines(append(lines, "ECHO end")...)); err != nil {
		r.t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	for got := ""; ; {
		reply, err := respwire.ReadRaw(r.R)
		if err != nil {
			r.t.Fatalf("%q: %v after %q", lines, err, got)
		}
		if string(reply) == respwire.Bulk("end") {
			return got
		}
		got += string(reply)
	}
}

// slowSet is the beginning of an EVAL command. The script sets its key, and
// takes longer than a script without a dry run may take.
const slowSet = `EVAL "for i = 1, 300000 do end return redis.call('SET', KEYS[1], ARGV[1])"`

// ownSteps lists the steps of one connection. Each step is a pipeline. If a
// step begins with @, another connection sends it. The step after that contains
// a write, and the pushes that the other connection caused arrive before the
// reply to the write.
var ownSteps = []struct {
	name  string
	setup []string
	steps []string
	// pushed marks the cases in which the order differs from that of Redis 7.0.
	// Redis 7.0 sends messages before the reply of PUBLISH, and inside the
	// reply of EXEC. Holdfast and later versions of Redis send them after that
	// reply.
	pushed bool
}{
	{name: "write", steps: []string{"GET k", "SET k 1|PING|GET k|PING", "SET k 2|SET k 3|GET k|SET k 4|PING",
		"MGET a b c", "MSET a 1 b 2 c 3|PING", "DEL a|GET a|DEL a b"}},
	{name: "EVAL", steps: []string{"GET k", "EVAL return(redis.call('SET',KEYS[1],'v')) 1 k|PING",
		"EVAL return(redis.call('GET',KEYS[1])) 2 k j|PING", "SET j 1|PING", "SET k 1|PING",
		"EVAL return(redis.call('GET','k')) 0|PING", "SET k 1|PING", "EVAL return(1) 1 k", "SET k 1",
		"EVAL redis.call('SET',KEYS[1],'x')return(redis.call('GET',KEYS[1])) 2 k j|PING", "SET j 1|PING",
		"SET k 1|PING"}},
	// These scripts need a dry run, so the pipelines are executed in pieces.
	{name: "slow EVAL", steps: []string{"GET k", slowSet + " 1 k 1|PING",
		"MGET k l|SET k 2|" + slowSet + " 1 l 1|GET l|" + slowSet + " 1 k 3|SET l 2|PING",
		"GET k|MULTI|SET k 4|" + slowSet + " 1 l 3|EXEC|GET l|SET l 4|PING"}},
	{name: "MULTI", steps: []string{"GET k", "MULTI|SET k 1|GET k|SET k 2|PING|EXEC|PING", "SET k 9|PING", "MGET a b",
		"MULTI|SET a 1|SET b 2|EXEC|PING", "GET a", "MULTI|SET a 1|DISCARD|SET a 2|PING"}},
	{name: "flush", steps: []string{"GET k|GET j", "SET k 1|FLUSHALL|PING", "GET k|FLUSHDB|GET k|PING",
		"SET k 1|PING"}},
	{name: "BLMOVE", steps: []string{"LRANGE m 0 -1", "@RPUSH l a", "BLMOVE l m LEFT RIGHT 0|PING",
		"LRANGE m 0 -1|LRANGE l 0 -1", "BLPOP l m 0|PING"}},
	{name: "NOLOOP", setup: []string{"CLIENT TRACKING ON NOLOOP"},
		steps: []string{"GET k|SET k 1|PING", "GET k|FLUSHALL|PING", "GET k", "@SET k 3", "SET z 1|PING"}},
	{name: "OPTIN", setup: []string{"CLIENT TRACKING ON OPTIN"},
		steps: []string{"GET k|SET k 1|PING", "CLIENT CACHING YES|GET k|SET k 2|PING"}},
	{name: "OPTOUT", setup: []string{"CLIENT TRACKING ON OPTOUT"},
		steps: []string{"GET k|SET k 1|PING", "CLIENT CACHING NO|GET k|SET k 2|PING"}},
	{name: "REPLY", steps: []string{"GET k", "CLIENT REPLY SKIP|SET k 1|PING", "GET k",
		"CLIENT REPLY OFF|SET k 1|GET k|SET k 2|CLIENT REPLY ON|PING"}},
	{name: "PUBLISH", pushed: true, setup: []string{"SUBSCRIBE ch", "PSUBSCRIBE c*"},
		steps: []string{"PUBLISH ch m|PING", "PUBLISH ch a|PUBLISH ch b|GET k|PING",
			"EVAL redis.call('PUBLISH','ch','x')return(7) 0|PING"}},
}

// behindReplies moves each push behind the reply that follows it.
func behindReplies(text string) string {
	values, err := respwire.ParseAll([]byte(text))
	if err != nil {
		return text + err.Error()
	}
	var b, pushes strings.Builder
	for _, v := range values {
		if v.IsPush() {
			pushes.Write(v.Raw)
			continue
		}
		b.Write(v.Raw)
		b.WriteString(pushes.String())
		pushes.Reset()
	}
	return b.String() + pushes.String()
}

// TestOwn_AsRedis checks the pushes that a connection's own commands cause, on
// the leader and on a follower. The connection gets the same bytes as from
// Redis, and it gets the pushes after the reply of the command and before the
// next reply.
func TestOwn_AsRedis(t *testing.T) {
	c := startCluster(t, "--script-time", "10s") // slowSet may be slow on a busy machine
	leader := c.leader()
	ends := [][2]string{{"tcp", leader.Clients}, {"tcp", c.others(leader)[0].Clients}}
	if socket := testutil.TryRedis(t); socket != "" {
		ends = append(ends, [2]string{"unix", socket})
	}
	for _, s := range ownSteps {
		t.Run(s.name, func(t *testing.T) {
			got := make([][]string, len(ends))
			for i, end := range ends {
				a, other := dialRaw(t, end[0], end[1]), dialRaw(t, end[0], end[1])
				other.ask("FLUSHALL")
				setup := s.setup
				if setup == nil {
					setup = []string{"CLIENT TRACKING ON"}
				}
				a.ask("HELLO 3")
				for _, line := range setup {
					a.ask(line)
				}
				for _, step := range s.steps {
					if line, found := strings.CutPrefix(step, "@"); found {
						other.ask(line)
						continue
					}
					text := a.ask(strings.Split(step, "|")...)
					if s.pushed && end[0] == "unix" {
						text = behindReplies(text)
					}
					got[i] = append(got[i], step+" -> "+text)
				}
			}
			for i := 1; i < len(ends); i++ {
				for k := range got[0] {
					if got[i][k] != got[0][k] {
						t.Errorf("leader: %q\n%s: %q", got[0][k], []string{"", "follower", "redis"}[i], got[i][k])
					}
				}
			}
		})
	}
}

// TestOwn_BlockedMove checks the order after a blocking command that waited.
// Its reply comes first, then the pushes that it caused, then the next reply.
func TestOwn_BlockedMove(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	for _, n := range []*process.Node{leader, c.others(leader)[0]} {
		a, other := dialRaw(t, "tcp", n.Clients), dial(t, n)
		a.ask("HELLO 3", "CLIENT TRACKING ON")
		for i := range 20 {
			to := fmt.Sprintf("to%d", i)
			a.ask("LRANGE " + to + " 0 -1")
			answer := make(chan string, 1)
			go func() { answer <- a.ask("BLMOVE from " + to + " LEFT RIGHT 0") }()
			if err := process.Poll(testutil.Within(t, time.Minute), "a client that waits", func() bool {
				return strings.Contains(show(other, "INFO", "clients"), "blocked_clients:1")
			}); err != nil {
				t.Fatal(err)
			}
			if got := show(other, "RPUSH", "from", "x"); got != "(integer) 1" {
				t.Fatal(got)
			}
			want := fmt.Sprintf("$1\r\nx\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(to), to)
			if got := <-answer; got != want {
				t.Fatalf("try %d at %s: got %q, want %q", i, n.ID, got, want)
			}
		}
	}
}

// TestOwn_TrackingOn checks that after CLIENT TRACKING ON, a connection gets no
// invalidation for a change that any node had acknowledged before.
func TestOwn_TrackingOn(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	rest := c.others(leader)
	for i := range 60 {
		w, n := dialRaw(t, "tcp", []*process.Node{leader, rest[1]}[i%2].Clients),
			[]*process.Node{rest[0], leader}[i/2%2]
		a := dialRaw(t, "tcp", n.Clients)
		a.ask("HELLO 3")
		w.ask("SET k v", "FLUSHDB", "SET k v")
		mode := []string{"", " BCAST"}[i%2]
		if got := a.ask("CLIENT TRACKING ON" + mode); got != "+OK\r\n" {
			t.Fatalf("try %d: CLIENT TRACKING ON%s at %s was answered %q", i, mode, n.ID, got)
		}
		w.ask("SET l v") // the first change that the connection must report
		want := "+OK\r\n"
		if mode != "" {
			invalid := ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n"
			want = invalid + "l\r\n+OK\r\n" + invalid + "z\r\n"
		}
		if got := a.ask("SET z v"); got != want {
			t.Fatalf("try %d: CLIENT TRACKING ON%s at %s: got %q, want %q", i, mode, n.ID, got, want)
		}
		_, _ = a.Close(), w.Close()
	}
}

// TestOwn_CachesThroughKill runs clients with caches on the two followers. The
// clients change cached keys while the leader is killed. A cached value is
// never older than the client's own last acknowledged write, nor older than a
// value that the client has already received. At the end, the caches have the
// values of the keys.
func TestOwn_CachesThroughKill(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	stop := make(chan struct{})
	var clients []*harness.Cacher
	var rounds atomic.Int64
	var wg sync.WaitGroup
	for i := range 6 {
		cl := harness.NewCacher(t, rest[i%2].Clients, "k", uint64(i))
		clients = append(clients, cl)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := cl.Pipeline(); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	until := func(n int64) {
		t.Helper()
		n += rounds.Load()
		if err := process.Poll(testutil.Within(t, time.Minute), "rounds",
			func() bool { return rounds.Load() >= n }); err != nil {
			t.Error(err)
		}
	}
	until(300)
	kill(t, dead)
	until(300)
	close(stop)
	wg.Wait()
	other, hits := dial(t, rest[0]), 0
	for i, cl := range clients {
		if err := process.Poll(testutil.Within(t, time.Minute), "the cache to match the keys", func() bool {
			differs, err := cl.Differs(func(key string) int64 {
				n, err := numberOf(other, key)
				if err != nil {
					t.Fatal(err)
				}
				return n
			})
			if err != nil {
				t.Fatal(err)
			}
			return differs == ""
		}); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
		hits += cl.Hits
	}
	if hits == 0 {
		t.Error("no client changed a key that it had cached")
	}
}

// TestOwn_Paused pauses the leader, so that a follower receives no events from
// it. The follower must not delay its replies without a limit while events are
// missing. Instead, it sends an invalidation of all keys to a connection with
// tracking.
func TestOwn_Paused(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	n := c.others(leader)[0]
	a := dialRaw(t, "tcp", n.Clients)
	a.ask("HELLO 3", "CLIENT TRACKING ON", "GET k")
	if err := leader.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leader.Signal(syscall.SIGCONT) }) // the process may have been killed
	// Either the new leader answers, or no node answers in time. Both are
	// valid.
	for range 20 {
		if got := a.ask("SET k v", "PING"); !strings.HasSuffix(got, "+PONG\r\n") {
			t.Fatalf("answered %q", got)
		}
	}
}
