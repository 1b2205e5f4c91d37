package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/fsm"
)

func TestScript_Replies(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET s text", "HSET h a 1", "ZADD z 1729760300000.5 m", "RPUSH l a b c", "SADD set m")
		for _, body := range []string{
			`return 1`, `return 3.99`, `return 'x'`, `return nil`, `return false`, `return true`, `return {1,2,nil,4}`,
			`return {1,false,'a',{2}}`,
			`return {ok='FINE'}`, `return {err='MYERR boo'}`, `return redis.error_reply('ERROR')`,
			`return redis.error_reply('MY ERR')`, ``,
			`return redis.call('GET','nope')`, `return type(redis.call('GET','nope'))`,
			`return redis.call('TYPE','s').ok`, `return redis.call('PING')`,
			`return redis.call('PING','hello')`, `return redis.call('ECHO','hello')`,
			`return redis.call('HGETALL','h')`, `return redis.call('ZSCORE','z','m')`,
			`redis.setresp(3) return redis.call('HGETALL','h')`, `redis.setresp(3) return redis.call('ZSCORE','z','m')`,
			`redis.setresp(3) return redis.call('GET','nope')`,
			`redis.setresp(3) return redis.call('ZRANGE','z',0,-1,'WITHSCORES')`,
			`return redis.call('ZRANGE','z',0,-1,'WITHSCORES')`,
			`redis.setresp(3) return redis.call('SMEMBERS','set')`,
			`redis.setresp(3) return redis.call('HRANDFIELD','h',1,'WITHVALUES')`,
			`return redis.call('SET','n',1729760300000+1)`, `return redis.call('GET','n')`,
			`return redis.call('INCRBYFLOAT','f',10/3)`,
			`return redis.call('LRANGE','l',0,-1)`, `return redis.sha1hex('')`,
			`#!lua flags=no-writes` + "\nreturn redis.call('GET','s')",
		} {
			p.Do(fmt.Sprintf("EVAL %q 0", body))
		}
		p.Do(`EVAL "return {KEYS[1],KEYS[2],ARGV[1],#KEYS,#ARGV}" 2 a b c d`,
			`EVAL "return redis.call('SET',KEYS[1],ARGV[1],'PX','60000')" 1 k v`)
	})
}

func TestScript_Errors(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET s text")
		for _, body := range []string{
			`return redis.call('SETEX','k',0,'v')`, `return redis.call('PSETEX','k',-1,'v')`,
			`return redis.call('PExpire','s','9223372036854775807')`, `return redis.call('HSET','k','f')`,
			`return redis.call('HMSET','k','f','v','g')`, `return redis.call('LPOP','k','1','2')`,
			`return redis.call('MSET','k')`, `return redis.call('SET','k','v','EX','0')`,
			`return redis.call('GetEx','s','EX','0')`,
			`return redis.call('INCR','s')`, "\n\nreturn redis.call('INCR','s')", `return redis.pcall('INCR','s')`,
			`return redis.call('FOO')`, `return redis.call('GET')`,
			`return redis.call()`, `error('boom')`, `error({err='X y'})`, `x=1`, `return x`, `return (`,
			`return redis.call('OBJECT')`, `return redis.call('OBJECT','FOO','s')`,
			`return redis.call('OBJECT','ENCODING')`,
			`return redis.call('SCRIPT','FLUSH')`, `return redis.call('EVAL','return 1',0)`,
			`return redis.call('EVALSHA','x',0)`, `return redis.call('EVAL_RO','return 1',0)`,
			`return redis.call('MULTI')`, `return redis.call('EXEC')`, `return redis.call('WATCH','k')`,
			`return redis.call('SUBSCRIBE','c')`, `return redis.call('AUTH','x')`,
			`return redis.call('CONFIG','GET','x')`, `return redis.call('CLIENT','ID')`,
			`return redis.call('SELECT','x')`, `return redis.call('SELECT','99')`, `return redis.call('SELECT')`,
			`#!lua flags=no-writes` + "\nreturn redis.call('SET','s','x')", `return redis.call('ECHO')`,
			`return redis.call('PING','a','b')`, `return redis.call('SHUTDOWN')`,
		} {
			p.DoError(fmt.Sprintf("EVAL %q 0", body))
		}
		p.DoError(`EVAL "return 1"`, `EVAL "return 1" x`, `EVAL "return 1" -1`, `EVAL "return 1" 2 a`,
			`EVALSHA short 0`, `EVALSHA short x`,
			`EVALSHA ffffffffffffffffffffffffffffffffffffffff 0`, `EVALSHA ffffffffffffffffffffffffffffffffffffffff -1`,
			`EVALSHA_RO ffffffffffffffffffffffffffffffffffffffff 0`,
			`EVAL_RO "return redis.call('SET','a','b')" 1 a`, `EVAL_RO "return redis.call('PUBLISH','a','b')" 0`,
			`SCRIPT`, `SCRIPT FOO`, `SCRIPT EXISTS`, `SCRIPT LOAD`, fmt.Sprintf("EVAL_RO %q 0", "#!lua\nreturn 1"),
			fmt.Sprintf("EVAL_RO %q 0", "#!lua flags=allow-oom\nreturn 1"),
			`SCRIPT LOAD "return ("`, `SCRIPT FLUSH FOO`, `SCRIPT FLUSH SYNC x`, `SCRIPT KILL`, `SCRIPT KILL x`)
		p.Do("GET s", "EXISTS a")
	})
}

func TestScript_Cache(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SCRIPT FLUSH", "SET a 1")
		sha := fsm.SHA1([]byte("return redis.call('GET',KEYS[1])"))
		p.Do("SCRIPT EXISTS "+sha+" 00", `SCRIPT LOAD "return redis.call('GET',KEYS[1])"`, "EVALSHA "+sha+" 1 a",
			"EVALSHA "+strings.ToUpper(sha)+" 1 a",
			"EVALSHA_RO "+sha+" 1 a", "SCRIPT EXISTS "+sha+" 00 "+strings.ToUpper(sha), "SCRIPT FLUSH ASYNC",
			"EVALSHA "+sha+" 1 a",
			`EVAL "return redis.call('GET',KEYS[1])" 1 a`, "EVALSHA "+sha+" 1 a", "SCRIPT FLUSH",
			`EVAL_RO "return redis.call('GET',KEYS[1])" 1 a`, "EVALSHA "+sha+" 1 a",
			"SCRIPT FLUSH SYNC", `EVAL "return redis.call('NOSUCH')" 0`,
			"SCRIPT EXISTS "+fsm.SHA1([]byte("return redis.call('NOSUCH')")), "SCRIPT HELP", "SCRIPT DEBUG NO")
		p.Do("MULTI", `EVAL "return redis.call('INCR','a')" 0`, "EVALSHA "+sha+" 1 a", "GET a", "EXEC")
		p.DoPipelined("SET p 1", `EVAL "return redis.call('INCR','p')" 0`, "GET p",
			`EVAL "redis.call('SELECT',3) return redis.call('SET','p','three')" 0`, "GET p")
	})
}

// TestScript_AllOrNothing checks that a failed script changes nothing in Holdfast.
// In Redis, the changes before the error remain.
func TestScript_AllOrNothing(t *testing.T) {
	both(t, func(p *pair) {
		p.DoError(`EVAL "redis.call('SET','undone','v') redis.call('INCR','undone')" 0`)
		p.Do("EXISTS undone")
		p.Do(`EVAL "redis.call('SET','j','v') redis.pcall('INCR','j') return redis.error_reply('NO it is not')" 0`,
			"GET j")
	})
}

// TestScript_Native calls scripts that Holdfast runs in a native form, and
// compares the results with those of Redis. It then makes the same calls with a
// copy of each script. The copy has another SHA1, so Holdfast interprets it.
// The arguments include those that libraries send, and invalid ones.
func TestScript_Native(t *testing.T) {
	both(t, func(p *pair) {
		for _, script := range libraryScripts(t) {
			own := script + "\n" // another SHA1, so the interpreter runs this script
			for _, body := range []string{script, own} {
				p.setup("FLUSHALL", fmt.Sprintf("SCRIPT LOAD %q", body))
				rnd := rand.New(rand.NewPCG(1, 2)) // both protocols get the same calls
				pick := func(words ...string) string { return words[rnd.IntN(len(words))] }
				for range 150 {
					key := pick("k1", "k2", "k3")
					p.Do(pick("SET "+key+" tokA PX 50000", "SET "+key+" tokB", "DEL "+key, "HSET "+key+" f 1",
						"RPUSH "+key+" x", "PERSIST "+key))
					call := fmt.Sprintf("EVALSHA %s 1 %s", fsm.SHA1([]byte(body)), pick("k1", "k2", "k3"))
					for _, arg := range []string{pick("tokA", "tokB", `""`),
						pick("60000", "30000", "0", "-1", "x", "1.5"), "0"}[:1+rnd.IntN(3)] {
						call += " " + arg
					}
					p.Do(call)
					for _, key := range []string{"k1", "k2", "k3"} {
						p.Do("TYPE " + key)
						p.DoApprox(5000, "PTTL "+key)
					}
				}
			}
		}
	})
}

// libraryScripts records the scripts that redsync sends, so that this
// repository does not have to contain their texts.
func libraryScripts(t *testing.T) []string {
	t.Helper()
	if redisSocket == "" {
		t.Skip("redis-server is not installed")
	}
	var bodies []string
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		c, err := redis.Dial("unix", redisSocket)
		return &scriptRecorder{Conn: c, bodies: &bodies}, err
	}}
	defer pool.Close()
	m := redsync.New(redigo.NewPool(pool)).NewMutex("of-redsync", redsync.WithSetNXOnExtend())
	step := func(what string, ok bool, err error) {
		if !ok || err != nil {
			t.Fatalf("redsync cannot %s: %v, %v", what, ok, err)
		}
	}
	step("lock", true, m.Lock())
	ok, err := m.Extend()
	step("extend", ok, err)
	ok, err = m.Unlock()
	step("unlock", ok, err)
	plain := redsync.New(redigo.NewPool(pool)).NewMutex("of-redsync")
	step("lock again", true, plain.Lock())
	ok, err = plain.Extend()
	step("extend again", ok, err)
	if len(bodies) != 3 {
		t.Fatalf("redsync sent %d scripts, want 3", len(bodies))
	}
	return bodies
}

// scriptRecorder records the scripts that a connection sends.
type scriptRecorder struct {
	redis.Conn
	bodies *[]string
}

// Do implements redis.Conn. It answers every EVALSHA with NOSCRIPT, so that the
// library falls back to EVAL, which contains the text.
func (l *scriptRecorder) Do(cmd string, args ...any) (any, error) {
	if cmd == "EVAL" {
		*l.bodies = append(*l.bodies, fmt.Sprint(args[0]))
	}
	if cmd == "EVALSHA" {
		return nil, redis.Error("NOSCRIPT No matching script. Please use EVAL.")
	}
	return l.Conn.Do(cmd, args...)
}

// TestScript_Random sends random scripts to both servers. The scripts catch the
// errors of calls, so that earlier changes remain in both servers.
func TestScript_Random(t *testing.T) {
	calls := []string{
		"'SET','a','1'", "'SET','a','2','NX'", "'GET','a'", "'INCR','a'", "'DEL','a','b'", "'APPEND','b','x'",
		"'STRLEN','b'", "'EXISTS','a','b','c'",
		"'RPUSH','l','x','y'", "'LPOP','l'", "'LLEN','l'", "'LRANGE','l','0','-1'", "'HSET','h','f','1'",
		"'HGETALL','h'", "'HINCRBY','h','f','3'", "'HDEL','h','f'",
		"'ZADD','z','1','a','2','b'", "'ZRANGE','z','0','-1','WITHSCORES'", "'ZPOPMIN','z'", "'ZCARD','z'",
		"'SADD','s','m'", "'SISMEMBER','s','m'", "'EXPIRE','a','100'",
		"'PERSIST','a'", "'TYPE','a'", "'RENAME','a','c'", "'GETSET','a','9'", "'MSET','a','1','b','2'",
		"'MGET','a','l','b'", "'INCR','l'", "'HGET','a','f'",
	}
	both(t, func(p *pair) {
		for seed := range uint64(60) {
			rnd := rand.New(rand.NewPCG(seed, uint64(p.proto)))
			body := "local r = {} "
			for i := range 1 + rnd.IntN(8) {
				body += fmt.Sprintf("r[%d] = redis.pcall(%s) ", i+1, calls[rnd.IntN(len(calls))])
			}
			p.Do(fmt.Sprintf("EVAL %q 0", body+"return r"))
			p.Do("GET a", "GET b", "LRANGE l 0 -1", "HGETALL h", "ZRANGE z 0 -1 WITHSCORES", "SMEMBERS s")
		}
	})
}
