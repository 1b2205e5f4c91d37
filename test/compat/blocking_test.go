package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// scenario contains several clients of both servers, by name.
type scenario struct {
	p       *pair
	clients map[string]*pair
	waiting map[string]string // the blocking commands that have no reply yet
}

func newScenario(p *pair) *scenario {
	return &scenario{p: p, clients: map[string]*pair{"": p}, waiting: make(map[string]string)}
}

func (s *scenario) client(name string) *pair {
	if s.clients[name] == nil {
		s.clients[name] = s.p.other()
	}
	return s.clients[name]
}

// play runs lines. In "a> BLPOP q 0", client a sends a command that must block
// on both servers. In "a<", client a reads its reply. All other lines are
// commands that do not block. A client without a name sends them.
func (s *scenario) play(lines ...string) {
	s.p.t.Helper()
	for _, line := range lines {
		name, command, sends := strings.Cut(line, "> ")
		switch {
		case sends && len(name) == 1:
			s.begin(name, command)
		case strings.HasSuffix(line, "<"):
			s.finish(strings.TrimSuffix(line, "<"))
		default:
			s.p.Do(line)
		}
	}
}

func (s *scenario) begin(name, line string) {
	s.p.t.Helper()
	s.send(name, line)
	s.blocked(len(s.waiting))
}

// blocked waits until n clients are blocked on both servers.
func (s *scenario) blocked(n int) {
	s.p.t.Helper()
	want := fmt.Sprintf("blocked_clients:%d\r", n)
	deadline := time.Now().Add(20 * time.Second)
	for {
		redis, holdfast := s.p.ask("INFO clients")
		if strings.Contains(redis[0], want) && strings.Contains(holdfast[0], want) {
			return
		}
		if time.Now().After(deadline) {
			s.p.t.Fatalf("want %s, blocked clients are %v\nredis %s\nholdfast %s", want, s.waiting, redis[0],
				holdfast[0])
		}
	}
}

func (s *scenario) finish(name string) {
	s.p.t.Helper()
	c, line := s.client(name), s.waiting[name]
	delete(s.waiting, name)
	var got [2]string
	for i, end := range []*conn{c.redis, c.holdfast} {
		var err error
		if got[i], err = end.receive(); err != nil {
			s.p.t.Fatalf("%s> %s, on server %d: %v", name, line, i, err)
		}
	}
	s.p.compare(name+"> "+line, got[0], got[1])
}

// TestBlocking_AtOnce runs blocking commands that get their reply at once or
// after a short timeout.
func TestBlocking_AtOnce(t *testing.T) {
	both(t, func(p *pair) {
		for _, line := range []string{"BLPOP", "BLPOP q", "BRPOP q", "BLMOVE q r LEFT LEFT", "BRPOPLPUSH q r",
			"BLMPOP 0 1 q", "BZPOPMIN z", "BZPOPMAX z", "BZMPOP 0 1 z", "LMPOP 1 q", "ZMPOP 1 z"} {
			p.DoError(line)
		}
		for _, timeout := range []string{"x", "-1", "nan", "inf", "-inf", "1e400", `" 1"`, `"1 "`, `""`,
			"9223372036854776", "1e18", "-1.5", "0x", "+"} {
			p.DoError("BLPOP q "+timeout, "BRPOP q "+timeout, "BLMOVE q r LEFT RIGHT "+timeout,
				"BRPOPLPUSH q r "+timeout, "BLMPOP "+timeout+" 1 q LEFT", "BZPOPMIN z "+timeout, "BZPOPMAX z "+timeout,
				"BZMPOP "+timeout+" 1 z MIN")
		}
		p.Do("BLPOP q 0.01", "BRPOP q r 0.001", "BLMOVE q r LEFT RIGHT 1e-3", "BRPOPLPUSH q r 0.01",
			"BLMPOP 0.01 2 q r LEFT", "BZPOPMIN z 0.01", "BZPOPMAX z 0.01", "BZMPOP 0.01 2 z y MAX", "BLPOP q 1e-10",
			"BLPOP q +.01", "BLPOP q 0x.02")
		p.Do("RPUSH q 1 2 3 4 5 6 7 8 9", "BLPOP none q 0", "BRPOP none q 0", "BLMOVE q r LEFT RIGHT 0",
			"BLMOVE q r right left 0", "BRPOPLPUSH q r 0", "LRANGE r 0 -1", "BLMPOP 0 2 none q LEFT COUNT 2",
			"BLMPOP 0 2 q none RIGHT", "BLMPOP 0 1 q right COUNT 100", "EXISTS q")
		p.Do("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", "BZPOPMIN none z 0", "BZPOPMAX z none 0", "BZMPOP 0 1 z MIN",
			"BZMPOP 0 2 none z max COUNT 2", "BZMPOP 0 1 z MIN COUNT 100", "EXISTS z")
		p.Do("SET s x", "BLPOP none s 0", "BLPOP s 0", "BZPOPMIN s 0", "BLMOVE s q LEFT LEFT 0", "BLMPOP 0 1 s LEFT",
			"BZMPOP 0 1 s MIN", "RPUSH q 1 2", "BLMOVE q s LEFT LEFT 0", "BRPOPLPUSH q s 0", "BLPOP q s 0",
			"LRANGE q 0 -1", "BZPOPMIN q 0", "BZMPOP 0 1 q MIN", "SADD set x", "BLPOP set 0",
			"BLMPOP x 1 s LEFT COUNT 0")
		for _, line := range []string{"0 q LEFT", "-1 q LEFT", "x q LEFT", "2 q LEFT", "1 q MIDDLE", "1 q LEFT COUNT",
			"1 q LEFT COUNT 0", "1 q LEFT COUNT -1", "1 q LEFT COUNT x", "1 q LEFT COUNT 1 COUNT 1", "1 q LEFT FOO 1",
			"9223372036854775807 q LEFT", "1 q LEFT COUNT 1 x", "1 q LEFT COUNT x x"} {
			p.DoError("LMPOP "+line, "BLMPOP 0 "+line, "ZMPOP "+strings.ReplaceAll(line, "LEFT", "MIN"),
				"BZMPOP 0 "+strings.ReplaceAll(line, "LEFT", "MAX"))
		}
		p.Do("DEL q", "RPUSH q a b c d", "LMPOP 1 q LEFT", "LMPOP 2 none q RIGHT COUNT 2",
			"LMPOP 2 q none left COUNT 9223372036854775807", "LMPOP 1 q LEFT", "LMPOP 1 s LEFT", "LMPOP 2 none s LEFT",
			"ZADD z 1 a 2.5 b 3 c -0 d inf e", "ZMPOP 1 z MIN", "ZMPOP 2 none z MAX COUNT 2", "ZMPOP 1 z max COUNT 50",
			"ZMPOP 1 z MIN", "ZMPOP 1 s MIN")
		p.Do("MULTI", "BLPOP q 0", "BRPOP q r x", "BLMOVE none r LEFT LEFT 0", "BRPOPLPUSH none r 0",
			"BLMPOP 0 1 none LEFT", "BZPOPMIN none 0", "BZPOPMAX none 0", "BZMPOP 0 1 none MIN", "RPUSH q x",
			"BLPOP q 0", "EXEC")
		p.Do("COMMAND GETKEYS BLMPOP 0 2 a b LEFT", "COMMAND GETKEYS BZMPOP 0 1 a MIN", "COMMAND GETKEYS BLPOP a b 0",
			"COMMAND GETKEYS LMPOP 3 a b c LEFT", "COMMAND GETKEYS ZMPOP x a MIN")
	})
}

func TestBlocking(t *testing.T) {
	scenes := map[string][]string{
		"order": {"a> BLPOP q 0", "b> BRPOP q 0", "c> BLPOP x q 0", "RPUSH q 1", "a<",
			"RPUSH q 2 3 4", "b<", "c<", "LRANGE q 0 -1"},
		"a key twice": {"a> BLPOP q q 0", "b> BLPOP q 0", "RPUSH q 1", "a<", "RPUSH q 2", "b<",
			"EXISTS q"},
		"several keys, one push each": {"a> BLPOP x y 0", "b> BLPOP y x 0", "RPUSH y 1", "a<", "RPUSH x 2", "b<",
			"EXISTS x y"},
		"after the transaction": {"a> BLPOP q 0", "MULTI", "RPUSH q 1", "LPUSH q 2", "LLEN q", "EXEC", "a<",
			"LRANGE q 0 -1"},
		"order of keys in it": {"a> BLPOP x y 0", "MULTI", "RPUSH y 1", "RPUSH x 2", "EXEC", "a<",
			"LRANGE x 0 -1", "EXISTS y"},
		"given and taken": {"a> BLPOP q 0", "MULTI", "RPUSH q 1", "DEL q", "EXEC", "MULTI", "RPUSH q 2",
			"LPOP q", "EXEC", "RPUSH q 3", "a<"},
		"other types": {"a> BLPOP k 0", "b> BZPOPMIN k 0", "SET k s", "DEL k", "HSET k f v", "DEL k",
			"ZADD k 1 m 2 n", "b<", "ZRANGE k 0 -1", "DEL k", "RPUSH k x", "a<", "EXISTS k"},
		"type in a transaction": {"a> BLPOP k 0", "MULTI", "RPUSH k x", "DEL k", "SET k s", "EXEC", "GET k",
			"DEL k", "RPUSH k y", "a<"},
		"rename": {"a> BLPOP k 0", "RPUSH j 1 2", "RENAME j k", "a<", "LRANGE k 0 -1",
			"b> BZPOPMAX z 0", "ZADD y 1 a 2 b", "RENAMENX y z", "b<"},
		"copy": {"a> BLPOP k 0", "RPUSH j 1 2", "COPY j k", "a<", "LRANGE k 0 -1"},
		"move": {"a> BLPOP k 0", "SELECT 3", "RPUSH k 1", "MOVE k 0", "a<", "SELECT 0",
			"EXISTS k"},
		"swapdb": {"a> BLPOP k 0", "SELECT 3", "RPUSH k 1", "SWAPDB 0 3", "a<", "SELECT 0"},
		"another database": {"a> BLPOP k 0", "SELECT 3", "RPUSH k 1", "SELECT 0", "RPUSH k 2", "a<",
			"SELECT 3", "LRANGE k 0 -1", "SELECT 0"},
		"lmove": {"a> BLPOP k 0", "RPUSH j 1 2", "LMOVE j k RIGHT LEFT", "a<", "b> BLPOP k 0",
			"RPOPLPUSH j k", "b<"},
		"linsert does not make keys": {"a> BLPOP k 0", "LINSERT k BEFORE a b", "RPUSHX k 1", "LPUSHX k 1", "RPUSH k 1",
			"a<"},
		"stored sets": {"a> BZPOPMIN k 0", "SADD s a b", "ZUNIONSTORE k 1 s", "a<", "b> BZPOPMAX k2 0",
			"ZRANGESTORE k2 k 0 -1", "b<", "c> BZPOPMAX k2 0", "ZINTERSTORE k2 2 s s", "c<",
			"ZRANGE k2 0 -1 WITHSCORES"},
		"places": {"a> BZPOPMIN k 0", "GEOADD k 1 1 m", "a<", "GEOADD g 1 1 m 2 2 n",
			"b> BZPOPMAX k2 0", "GEOSEARCHSTORE k2 g FROMLONLAT 1 1 BYRADIUS 1 km", "b<", "c> BZPOPMIN k3 0",
			"GEORADIUS g 60 1 1 km STORE k3", "GEORADIUS g 1 1 500 km STOREDIST k3 DESC COUNT 1", "c<",
			"EXISTS k k2 k3"},
		"zincrby": {"a> BZPOPMIN k 0", "ZINCRBY k 2.5 m", "a<", "EXISTS k"},
		"blmove chain": {"a> BLMOVE x y LEFT RIGHT 0", "b> BRPOPLPUSH y z 0", "c> BLPOP z 0", "RPUSH x 1",
			"a<", "b<", "c<", "EXISTS x y z"},
		"blmove in a circle": {"a> BLMOVE x y LEFT RIGHT 0", "b> BLMOVE y x LEFT RIGHT 0", "RPUSH x 1", "a<",
			"b<", "LRANGE x 0 -1", "LRANGE y 0 -1"},
		"blmove to itself": {"a> BLMOVE x x LEFT RIGHT 0", "b> BLMOVE x x LEFT LEFT 0", "c> BRPOP x 0",
			"RPUSH x 1 2", "a<", "b<", "c<", "LRANGE x 0 -1"},
		"blmove to a wrong type": {"a> BLMOVE x s LEFT RIGHT 0", "b> BLPOP x 0", "SET s v", "RPUSH x 1", "a<", "b<",
			"EXISTS x"},
		"counts": {"a> BLMPOP 0 2 x y LEFT COUNT 2", "b> BLMPOP 0 1 y RIGHT COUNT 10",
			"RPUSH y 1 2 3 4", "a<", "b<", "EXISTS y"},
		"scores": {"a> BZMPOP 0 2 x y MIN COUNT 2", "b> BZPOPMAX y 0", "c> BZMPOP 0 1 y MAX",
			"ZADD y 1 a 2 b 3.5 c inf d", "a<", "b<", "c<", "EXISTS y"},
		"flushall":          {"a> BLPOP q 0", "FLUSHALL", "FLUSHDB", "RPUSH q 1", "a<"},
		"a push that fails": {"a> BLPOP q 0", "RPUSH", "ZADD q x y", "RPUSH q 1", "a<"},
		"timeout": {"a> BLPOP q 0.2", "b> BLMOVE q r LEFT LEFT 0.3", "c> BZMPOP 0.4 1 z MIN", "a<",
			"b<", "c<", "RPUSH q 1", "ZADD z 1 a"},
		"setrange and friends": {"a> BLPOP q 0", "SET q 1", "APPEND q 2", "EXPIRE q 100", "PERSIST q", "GETDEL q",
			"SADD q 1 2", "SPOP q 2", "RPUSH q 1", "a<"},
		"sadd and sorted set": {"a> BZPOPMIN q 0", "RPUSH q 1", "LPOP q", "ZADD q XX 1 m", "ZADD q NX 1 m", "a<"},
		"script": {"a> BLPOP q 0",
			`EVAL "redis.call('rpush','q','1'); redis.call('lpush','q','2'); return redis.call('llen','q')" 0`, "a<",
			"LRANGE q 0 -1"},
		"script that takes it back": {"a> BLPOP q 0",
			`EVAL "redis.call('rpush','q','1'); return redis.call('lpop','q')" 0`, "RPUSH q 2", "a<"},
		"pops of a script": {`EVAL "return redis.call('blmpop',0,1,'q','LEFT')" 0`,
			`EVAL "return redis.call('bzmpop',0,1,'q','MIN')" 0`, "RPUSH q 1 2",
			`EVAL "return redis.call('blmpop',0,1,'q','LEFT')" 0`, `EVAL "return redis.pcall('blpop','q',0)" 0`},
		"ltrim, lrem": {"RPUSH q 1 2", "LTRIM q 5 6", "a> BLPOP q 0", "RPUSH q 1", "a<"},
	}
	both(t, func(p *pair) {
		for name, lines := range scenes {
			t.Run(name, func(t *testing.T) {
				p := *p
				p.t = t
				p.setup("FLUSHALL")
				s := newScenario(&p)
				s.play(lines...)
				if len(s.waiting) > 0 {
					t.Errorf("still waiting: %v", s.waiting)
				}
			})
		}
	})
}

// TestBlocking_Pipelined checks that the servers execute the commands that a
// blocked client has already sent, once the client is served.
func TestBlocking_Pipelined(t *testing.T) {
	both(t, func(p *pair) {
		o := p.other()
		lines := []string{"SET k 1", "BLPOP q 0", "INCR k", "BLMOVE q r LEFT LEFT 0", "MULTI", "BLPOP q 0", "EXEC",
			"GET k", "BLPOP q 0.01", "PING"}
		cmds := make([][]string, len(lines))
		for i, line := range lines {
			cmds[i] = respwire.Words(line)
		}
		var got [2][]string
		var wg sync.WaitGroup
		for i, end := range []*conn{o.redis, o.holdfast} {
			wg.Go(func() {
				var err error
				if got[i], err = end.do(cmds...); err != nil {
					t.Errorf("server %d: %v", i, err)
				}
			})
		}
		s := newScenario(p)
		s.blocked(1)
		p.Do("GET k", "RPUSH q 1")
		p.DoUntil("$1\r\n2", "GET k")
		s.blocked(1)
		p.Do("RPUSH q 2", "LRANGE r 0 -1")
		wg.Wait()
		if t.Failed() {
			return
		}
		for i, line := range lines {
			p.compare(line, got[0][i], got[1][i])
		}
	})
}

func TestBlocking_Unblock(t *testing.T) {
	both(t, func(p *pair) {
		s := newScenario(p)
		for _, c := range []struct{ line, how string }{
			{"BLPOP q 0", ""}, {"BLMOVE q r LEFT LEFT 0", " TIMEOUT"}, {"BZPOPMIN q 0", " error"},
			{"BLMPOP 0 1 q LEFT", " ERROR"},
		} {
			a := s.client("a")
			redis, holdfast := a.ask("CLIENT ID")
			s.begin("a", c.line)
			got := make([]string, 2)
			for i, end := range []struct {
				c  *conn
				id string
			}{{p.redis, redis[0]}, {p.holdfast, holdfast[0]}} {
				replies, err := end.c.do(respwire.Words("CLIENT UNBLOCK " + strings.Trim(end.id, ":\r\n") + c.how))
				if err != nil {
					t.Fatal(err)
				}
				got[i] = replies[0]
			}
			p.compare("CLIENT UNBLOCK"+c.how, got[0], got[1])
			s.finish("a")
			p.Do("RPUSH q x", "LPOP q")
		}
	})
}

// TestBlocking_Random runs random scenarios. In each step, a client either sends a
// blocking command or changes a key.
func TestBlocking_Random(t *testing.T) {
	both(t, func(p *pair) {
		for seed := range uint64(12) {
			p.setup("FLUSHALL")
			playRandom(p, rand.New(rand.NewPCG(seed, uint64(p.proto))))
		}
	})
}

func playRandom(p *pair, r *rand.Rand) {
	s := newScenario(p)
	keys := []string{"x", "y", "z"}
	key := func() string { return keys[r.IntN(len(keys))] }
	ends := []string{"LEFT", "RIGHT"}
	end := func() string { return ends[r.IntN(2)] }
	waits := []func() string{
		func() string { return "BLPOP " + key() + " " + key() + " 0" },
		func() string { return "BRPOP " + key() + " 0" },
		func() string { return "BLMOVE " + key() + " " + key() + " " + end() + " " + end() + " 0" },
		func() string { return "BLMPOP 0 2 " + key() + " " + key() + " " + end() + " COUNT 2" },
		func() string { return "BZPOPMIN " + key() + " " + key() + " 0" },
		func() string { return "BZMPOP 0 1 " + key() + " MAX COUNT 2" },
	}
	pushes := []func() []string{
		func() []string { return []string{"RPUSH " + key() + " 1"} },
		func() []string { return []string{"LPUSH " + key() + " 1 2 3"} },
		func() []string { return []string{"ZADD " + key() + " 1 a 2 b"} },
		func() []string { return []string{"DEL " + key()} },
		func() []string { return []string{"RENAME " + key() + " " + key()} },
		func() []string {
			return []string{"MULTI", "RPUSH " + key() + " 1 2", "LPUSH " + key() + " 3", "ZADD " + key() + " 3 c",
				"EXEC"}
		},
		func() []string { return []string{"LMOVE " + key() + " " + key() + " LEFT LEFT"} },
		func() []string { return []string{"SET " + key() + " s"} },
	}
	names := []string{"a", "b", "c", "d", "e"}
	for range 60 {
		name := names[r.IntN(len(names))]
		if _, busy := s.waiting[name]; !busy && r.IntN(2) == 0 {
			s.mayWait(name, waits[r.IntN(len(waits))]())
			continue
		}
		s.play(pushes[r.IntN(len(pushes))]()...)
		s.collect()
	}
	s.play("LRANGE x 0 -1", "LRANGE y 0 -1", "LRANGE z 0 -1", "ZRANGE x 0 -1", "ZRANGE y 0 -1", "ZRANGE z 0 -1")
	for _, name := range names { // closing the connections ends the remaining waits on both servers
		if _, busy := s.waiting[name]; busy {
			for _, end := range []*conn{s.client(name).redis, s.client(name).holdfast} {
				end.close()
			}
		}
	}
	s.waiting = nil
	s.blocked(0)
}

// send sends a blocking command.
func (s *scenario) send(name, line string) {
	s.p.t.Helper()
	c := s.client(name)
	s.waiting[name] = line
	for _, end := range []*conn{c.redis, c.holdfast} {
		if err := end.Send(respwire.Words(line)); err != nil {
			s.p.t.Fatalf("%s: %v", line, err)
		}
	}
}

// mayWait sends a blocking command that may get its reply at once.
func (s *scenario) mayWait(name, line string) {
	s.p.t.Helper()
	s.send(name, line)
	s.collect()
}

// collect waits until Redis has sent the replies to all clients that it has
// served. It then reads these replies from both servers.
func (s *scenario) collect() {
	s.p.t.Helper()
	names := []string{"a", "b", "c", "d", "e"}
	deadline := time.Now().Add(20 * time.Second)
	for {
		var answered []string
		for _, name := range names {
			if _, busy := s.waiting[name]; busy && s.client(name).redis.answered(s.p.t) {
				answered = append(answered, name)
			}
		}
		redis, err := s.p.redis.do([]string{"INFO", "clients"})
		if err != nil {
			s.p.t.Fatal(err)
		}
		if strings.Contains(redis[0], fmt.Sprintf("blocked_clients:%d\r", len(s.waiting)-len(answered))) {
			for _, name := range answered {
				s.finish(name)
			}
			s.blocked(len(s.waiting))
			return
		}
		if time.Now().After(deadline) {
			s.p.t.Fatalf("of the waiting clients %v, only %v have replies: %s", s.waiting, answered, redis[0])
		}
	}
}
