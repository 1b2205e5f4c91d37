package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Families is a load without a model, so it does not check replies. It uses
// commands of every family on a few keys, to show whether nodes of two builds
// compute the same state from everything that the log can contain. A difference
// shows in one of three ways: the hash chains of the nodes differ, a node ends,
// or the nodes return different values. Most writes run in a transaction with a
// DUMP of the key, because the reply of DUMP is part of the hash chain.
type Families struct {
	addrs  []string
	login  Login
	prefix string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	commands []string // the familyCommands that the cluster knows
	reads    string   // the command that reads the whole value of a key

	count atomic.Int64 // commands that were answered without an error
}

// familyCommands contains commands of all families. The names of their keys,
// channels and users begin with a prefix of this load, so the commands have no
// effect that the clients of a Load could notice. In the commands, # is the
// prefix, $ is a number, and % is one of a few words. In an argument, · stands
// for a blank; in an argument with a ·, # and % stand for themselves. The
// argument ” is empty, and $$ stands for $.
var familyCommands = []string{
	"SET #s% %", "SET #s% $ EX 1", "SET #s% % NX GET", "SETEX #s% 1 %", "GETSET #s% %", "GETDEL #s%",
	"GETEX #s% PX 200", "APPEND #s% %", "SETRANGE #s% 3 %", "MSET #s% a #s% b", "MSETNX #s% a #s% b", "STRLEN #s%",
	"INCR #n%", "INCRBY #n% $", "INCRBYFLOAT #n% 0.1", "DECRBY #n% $",
	"SET #c% %", "DELIFEQ #c% %", "SET #c% % IFEQ %", "LCS #s% #s%",
	"SETBIT #b% $ 1", "BITOP XOR #b% #b% #s%", "BITCOUNT #b%", "BITPOS #b% 1",
	"BITFIELD #b% INCRBY u5 2 $ OVERFLOW SAT SET i7 9 3",
	"EXPIRE #s% 1", "PEXPIRE #l% 300", "PERSIST #s%", "EXPIRE #h% 1 NX", "DEL #s% #l%", "UNLINK #h%",
	"COPY #s% #s% REPLACE", "RENAME #s% #s%", "RENAMENX #l% #l%", "EXISTS #s%", "TOUCH #s%", "TYPE #s%", "TTL #s%",
	"OBJECT ENCODING #h%", "SCAN 0 MATCH #* COUNT 20", "MOVE #s% 8", "SORT #l% ALPHA STORE #l%",
	"HSET #h% f% % g $", "HINCRBY #h% g 3", "HINCRBYFLOAT #h% g 0.5", "HDEL #h% f%", "HSETNX #h% f% a", "HGETALL #h%",
	"HRANDFIELD #h% 2", "HSCAN #h% 0",
	"RPUSH #l% % %", "LPUSH #l% %", "LPOP #l%", "RPOP #l% 2", "LINSERT #l% BEFORE % x", "LREM #l% 1 %", "LSET #l% 0 %",
	"LTRIM #l% 0 20", "LMOVE #l% #l% LEFT RIGHT", "RPOPLPUSH #l% #l%", "LMPOP 2 #l% #l% LEFT COUNT 2", "LPOS #l% %",
	"SADD #t% % $", "SREM #t% %", "SPOP #t%", "SRANDMEMBER #t% -3", "SMOVE #t% #t% %", "SINTERSTORE #t% #t% #t%",
	"SUNIONSTORE #t% #t% #t%", "SDIFF #t% #t%", "SINTERCARD 2 #t% #t%",
	"ZADD #z% $ %", "ZADD #z% GT CH $ %", "ZINCRBY #z% 1.5 %", "ZREM #z% %", "ZPOPMIN #z%", "ZPOPMAX #z% 2",
	"ZRANGESTORE #z% #z% 0 5", "ZUNIONSTORE #z% 2 #z% #z% WEIGHTS 1 0.5", "ZINTERSTORE #z% 2 #z% #t%",
	"ZREMRANGEBYRANK #z% 8 -1", "ZMPOP 1 #z% MIN", "ZRANDMEMBER #z% 2 WITHSCORES",
	"GEOADD #g% 13.$ 38.1 %", "GEOSEARCHSTORE #z% #g% FROMLONLAT 13 38 BYRADIUS 500 km", "GEODIST #g% a b",
	"PFADD #p% % $", "PFMERGE #p% #p% #p%", "PFCOUNT #p%",
	"XADD #x% MAXLEN ~ 50 * f %", "XADD #x% NOMKSTREAM * f $", "XDEL #x% 0-1", "XTRIM #x% MAXLEN 20",
	"XGROUP CREATE #x% g 0 MKSTREAM", "XGROUP CREATECONSUMER #x% g c%", "XREADGROUP GROUP g c% COUNT 3 STREAMS #x% >",
	"XREADGROUP GROUP g c% COUNT 3 STREAMS #x% 0", "XAUTOCLAIM #x% g c% 50 0 COUNT 2", "XPENDING #x% g",
	"XINFO STREAM #x% FULL", "XACK #x% g 0-1", "XGROUP DELCONSUMER #x% g c%", "XGROUP DESTROY #x% g",
	"EVAL return·redis.call('INCRBY',KEYS[1],ARGV[1]) 1 #n% $",
	"EVAL local·r=redis.call('LRANGE',KEYS[1],0,-1);" +
		"redis.call('SET',KEYS[2],#r..'/'..math.random());return·r 2 #l% #s%",
	"EVAL for·i=1,200·do·redis.call('HSET',KEYS[1],i%7,i)·end;return·redis.call('TIME') 1 #h%",
	"EVAL_RO return·redis.call('GET',KEYS[1]) 1 #s%",
	"EVAL redis.call('SET',KEYS[1],1);return·redis.error_reply('ERR·undone') 1 #s%", "SCRIPT LOAD return·1",
	"FUNCTION LOAD REPLACE " +
		"#!lua·name=families\n" +
		"redis.register_function('families_add',function(k,a)·return·redis.call('SADD',k[1],a[1])·end)",
	"FCALL families_add 1 #t% %", "FUNCTION STATS", "FUNCTION DELETE families",
	"PUBLISH #channel %", "SPUBLISH #channel %",
	"CONFIG SET notify-keyspace-events KEA", "CONFIG SET notify-keyspace-events ”",
	"ACL SETUSER #u% on >% ~#* +@all", "ACL SETUSER #u% -@dangerous %R~x", "ACL DELUSER #u%", "ACL LIST",
	"BLPOP #q% #q% 0.2", "BRPOP #q% 0.1", "BLMOVE #q% #q% LEFT RIGHT 0.1", "BLMPOP 0.1 2 #q% #q% LEFT COUNT 2",
	"BZPOPMIN #y% 0.1", "BZMPOP 0.1 1 #y% MAX", "XREAD BLOCK 100 STREAMS #x% $$",
	"XREADGROUP GROUP g c% BLOCK 100 STREAMS #x% >",
	"RPUSH #q% %", "LPUSH #q% % %", "ZADD #y% $ %",
}

var familyWords = []string{"a", "b", "c", "dd"}

// StartFamilies starts the clients. The nodes may run an older build, so
// StartFamilies first tries every command. The clients send only those that the
// cluster knows.
func StartFamilies(ctx context.Context, addrs []string, login Login, prefix string, seed uint64) (*Families, error) {
	f := &Families{addrs: addrs, login: login, prefix: prefix, reads: "TYPE"}
	c, err := Dial(ctx, addrs[0], login, 5*time.Second)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	for _, text := range familyCommands {
		v, err := c.Do(f.args(rng, text)...)
		if err != nil {
			_ = c.Close() // StartFamilies returns the error of the command
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		if !strings.HasPrefix(v.Err, "ERR unknown ") && !strings.HasPrefix(v.Err, "ERR Unknown ") &&
			!strings.HasPrefix(v.Err, "ERR syntax") {
			f.commands = append(f.commands, text)
		}
	}
	v, err := c.Do("DUMP", prefix+"s")
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	if v.Err == "" {
		f.reads = "DUMP"
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	for id := range 2 * len(addrs) {
		run := f.mixed
		if id%2 == 1 {
			run = f.watch
		}
		f.wg.Go(func() { f.client(id, rand.New(rand.NewPCG(seed, 1<<33+uint64(id))), run) })
	}
	f.wg.Go(func() { f.client(0, nil, f.listen) })
	return f, nil
}

// Stop stops the clients and returns how many commands were answered without an
// error.
func (f *Families) Stop() int {
	f.cancel()
	f.wg.Wait()
	return int(f.count.Load())
}

// args replaces the placeholders in a command and returns its arguments.
func (f *Families) args(rng *rand.Rand, text string) []string {
	words := strings.Split(text, " ")
	for i, w := range words {
		var b strings.Builder
		script := strings.Contains(w, "·")
		for j, r := range w {
			switch {
			case r == '·':
				b.WriteByte(' ')
			case r == '”':
			case r == '#' && j == 0 && !script:
				b.WriteString(f.prefix)
			case r == '#' && j == 1 && w[0] == '~':
				b.WriteString(f.prefix)
			case r == '%' && !script && w != "%R~x":
				b.WriteString(familyWords[rng.IntN(len(familyWords))])
			case w == "$$":
				if j == 0 {
					b.WriteByte('$')
				}
			case r == '$':
				b.WriteString(strconv.Itoa(rng.IntN(100)))
			default:
				b.WriteRune(r)
			}
		}
		words[i] = b.String()
	}
	return words
}

// client connects to a node and calls run repeatedly. After each failure it
// connects to the next node.
func (f *Families) client(id int, rng *rand.Rand, run func(c *Conn, rng *rand.Rand) error) {
	for at := id; f.ctx.Err() == nil; at++ {
		c, err := Dial(f.ctx, f.addrs[at%len(f.addrs)], f.login, 4*time.Second)
		if err != nil {
			Sleep(f.ctx, 20*time.Millisecond)
			continue
		}
		for err == nil && f.ctx.Err() == nil {
			err = run(c, rng)
		}
		_ = c.Close() // an error of Close does not matter: a new connection follows
	}
}

// note counts the replies that are not errors. If a reply says that there is no
// leader, note delays the client.
func (f *Families) note(all ...respwire.Value) {
	for _, v := range all {
		switch {
		case v.Err == "":
			f.count.Add(1)
		case strings.HasPrefix(v.Err, "CLUSTERDOWN"):
			Sleep(f.ctx, 20*time.Millisecond)
		}
	}
}

// mixed runs a single command, or a few commands in a pipeline or a
// transaction. In a pipeline or a transaction, a read of the key follows each
// command whose first argument is a key.
func (f *Families) mixed(c *Conn, rng *rand.Rand) error {
	var cmds [][]string
	for range 1 + rng.IntN(4) {
		args := f.args(rng, f.commands[rng.IntN(len(f.commands))])
		cmds = append(cmds, args)
		if len(args) > 1 && strings.HasPrefix(args[1], f.prefix) && args[0] != "PUBLISH" {
			cmds = append(cmds, []string{f.reads, args[1]})
		}
	}
	switch rng.IntN(4) {
	case 0:
		cmds = cmds[:1]
	case 1:
	default:
		cmds = append(append([][]string{{"MULTI"}}, cmds...), []string{"EXEC"})
	}
	if rng.IntN(50) == 0 { // use databases 8 and 9, which no other load uses
		cmds = append(append([][]string{{"SELECT", "8"}, f.args(rng, "SET #s% %")}, cmds...),
			[]string{"SWAPDB", "8", "9"}, []string{"SELECT", "0"})
	}
	all, err := c.Pipeline(cmds)
	f.note(all...)
	Sleep(f.ctx, time.Duration(rng.IntN(10))*time.Millisecond)
	return err
}

// watch makes a transaction depend on a key that is absent most of the time, or
// sets and deletes such a key. Sometimes it waits between WATCH and MULTI, so
// that the leader may change in between.
func (f *Families) watch(c *Conn, rng *rand.Rand) error {
	key := f.prefix + "w" + strconv.Itoa(rng.IntN(6))
	steps := [][][]string{{{"WATCH", key}, {"GET", key}},
		{{"MULTI"}, {"SET", key, "mine", "PX", "50"}, {f.reads, key}, {"EXEC"}}}
	if rng.IntN(2) == 0 {
		steps = [][][]string{{{"SET", key, "x"}, {"DEL", key}}}
	}
	for i, cmds := range steps {
		if i > 0 && rng.IntN(3) == 0 {
			Sleep(f.ctx, time.Duration(rng.IntN(400))*time.Millisecond)
		}
		all, err := c.Pipeline(cmds)
		f.note(all...)
		if err != nil {
			return err
		}
	}
	Sleep(f.ctx, time.Duration(rng.IntN(5))*time.Millisecond)
	return nil
}

// listen subscribes to a channel and reads its messages. If no message arrives
// for a second, it ends the connection, because the node may be down.
func (f *Families) listen(c *Conn, _ *rand.Rand) error {
	c.timeout = time.Second
	_, err := c.Do("SUBSCRIBE", f.prefix+"channel")
	for err == nil && f.ctx.Err() == nil {
		if err = c.conn.SetReadDeadline(time.Now().Add(c.timeout)); err == nil {
			var v respwire.Value
			if v, err = c.conn.Receive(); err == nil {
				f.note(v)
			}
		}
	}
	return err
}
