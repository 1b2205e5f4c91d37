package resp_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// redis starts a redis-server of the version that Holdfast reports, and returns the
// path of its socket. If that version is not installed, redis skips the test.
func redis(t *testing.T, options ...string) string {
	t.Helper()
	socket := testutil.StartRedis(t,
		append([]string{"--enable-debug-command", "yes", "--slowlog-log-slower-than", "-1"}, options...)...)
	c := connect(t, "unix", socket)
	info := c.do("INFO server")
	if !strings.Contains(info, "redis_version:"+resp.RedisVersion+"\r\n") {
		t.Skipf("redis-server is not %s:\n%.60s", resp.RedisVersion, info)
	}
	return socket
}

// transcripts are sent to Redis and to Holdfast, each on a new connection. The
// replies must be equal byte for byte.
var transcripts = []string{
	`PING; PING hi; PING a b; ECHO; ECHO hi; FOO bar baz; foo; FOO ”; CLIENT; CLIENT FOO; client|id; CONFIG FOO; CLUSTER FOO; MEMORY FOO; ACL FOO; COMMAND FOO; SLOWLOG FOO; LATENCY FOO; MODULE FOO`,
	`SELECT 0; SELECT 15; SELECT 16; SELECT -1; SELECT x; SELECT 99999999999; SELECT; SELECT 0 1`,
	`AUTH x; AUTH default x; AUTH nouser x; AUTH a b c; AUTH`,
	`HELLO 4; HELLO 1; HELLO abc; HELLO 3 SETNAME bad·name; HELLO 3 FOO; HELLO 3 AUTH default; HELLO 3 AUTH nouser x; HELLO 2 SETNAME`,
	`MULTI; MULTI; SET a 1; WATCH a; SET a 2; EXEC; EXEC; DISCARD; MULTI x; EXEC; UNWATCH; WATCH`,
	`MULTI; SET a; EXEC; MULTI; FOO; EXEC; MULTI; CLIENT FOO; EXEC; MULTI; CLIENT ID x; EXEC; MULTI; SAVE; EXEC; MULTI; PING a b; EXEC; MULTI; SELECT 99; EXEC; MULTI; EXEC x; EXEC; EXEC x; MULTI; DISCARD x; EXEC`,
	`MULTI; PING; SELECT 1; SET a 1; GET a; SELECT 0; GET a; ECHO x; CLIENT SETNAME bob; CLIENT GETNAME; EXEC; GET a; CLIENT GETNAME`,
	`MULTI; SET a 1; DISCARD; GET a; MULTI; RESET; EXEC; PING`,
	`MULTI; HELLO x; WAIT 0 0; WAIT x 0; EXEC`,
	`CLIENT SETNAME bob; CLIENT GETNAME; CLIENT SETNAME ”; CLIENT GETNAME; CLIENT SETNAME a·b; CLIENT GETNAME x; CLIENT ID x; CLIENT INFO x; CLIENT SETNAME`,
	`CLIENT TRACKING; CLIENT TRACKING foo; CLIENT TRACKING OFF; CLIENT TRACKINGINFO; CLIENT GETREDIR; CLIENT CACHING YES; CLIENT CACHING foo`,
	`CLIENT KILL; CLIENT KILL 1.2.3.4:5; CLIENT KILL ID 99999; CLIENT KILL ID x; CLIENT KILL ID 0; CLIENT KILL TYPE foo; CLIENT KILL TYPE pubsub; CLIENT KILL USER nobody; CLIENT KILL SKIPME foo; CLIENT KILL FOO bar; CLIENT KILL ADDR 1:1; CLIENT KILL ID; CLIENT KILL ID 1 ID`,
	`CLIENT LIST TYPE foo; CLIENT LIST TYPE; CLIENT LIST ID; CLIENT LIST ID x; CLIENT LIST ID 99999; CLIENT LIST foo; CLIENT LIST TYPE normal ID 1; CLIENT LIST TYPE pubsub`,
	`CLIENT REPLY foo; CLIENT REPLY ON; CLIENT UNBLOCK x; CLIENT UNBLOCK 99999; CLIENT UNBLOCK 99999 foo; CLIENT UNBLOCK x foo; CLIENT UNBLOCK 99999 timeout; CLIENT PAUSE x; CLIENT PAUSE -1; CLIENT PAUSE 1 foo; CLIENT PAUSE x foo; CLIENT PAUSE 99999999999999999999; CLIENT PAUSE 0; CLIENT UNPAUSE; CLIENT NO-EVICT foo; CLIENT NO-EVICT on; CLIENT NO-EVICT`,
	`CONFIG GET; CONFIG GET nope; CONFIG GET timeout; CONFIG GET databases; CONFIG GET replica-read-only; CONFIG GET slave-read-only; CONFIG GET maxmemory; CONFIG GET maxmemory-policy; CONFIG GET save; CONFIG GET notify-keyspace-events; CONFIG GET requirepass; CONFIG SET a; CONFIG SET a b c; CONFIG SET nope 1; CONFIG SET maxmemory 0 maxmemory 0; CONFIG SET save ”; CONFIG RESETSTAT; CONFIG RESETSTAT x; CONFIG REWRITE; CONFIG SET maxmemory 0`,
	`COMMAND COUNT x; COMMAND LIST foo; COMMAND LIST FILTERBY; COMMAND LIST FILTERBY foo bar; COMMAND LIST FILTERBY ACLCAT foo; COMMAND LIST FILTERBY MODULE foo; COMMAND DOCS nope; COMMAND INFO nope; COMMAND INFO nope client|nope`,
	`COMMAND GETKEYS GET; COMMAND GETKEYS GET a; COMMAND GETKEYS GET a b; COMMAND GETKEYS FOO a; COMMAND GETKEYS PING a; COMMAND GETKEYS MSET a 1 b 2; COMMAND GETKEYS OBJECT ENCODING a; COMMAND GETKEYS MEMORY USAGE a; COMMAND GETKEYS RENAME a b; COMMAND GETKEYS WATCH a b; COMMAND GETKEYS DEL a b c`,
	`COMMAND GETKEYSANDFLAGS SET a b; COMMAND GETKEYSANDFLAGS SET a b EX 1 get; COMMAND GETKEYSANDFLAGS RENAME a b; COMMAND GETKEYSANDFLAGS MGET a b; COMMAND GETKEYSANDFLAGS GETEX a; COMMAND GETKEYSANDFLAGS PING a`,
	`WAIT x 0; WAIT 0 x; WAIT 0 -1; WAIT 0 0; WAIT 1 10; WAIT -1 0; WAIT 1; ROLE x; LASTSAVE x; SAVE x; BGSAVE x`,
	`DEBUG; DEBUG SLEEP; DEBUG SLEEP 0.01; DEBUG SLEEP x; DEBUG FOO; DEBUG JMAP; DEBUG SLEEP 0 0; DEBUG HELP x; DEBUG ERROR foo; DEBUG ERROR FOO·bar; DEBUG ERROR; DEBUG ERROR a·b c; DEBUG LOG; DEBUG LOG x; DEBUG PROTOCOL; DEBUG PROTOCOL foo; DEBUG PROTOCOL string; DEBUG PROTOCOL integer; DEBUG PROTOCOL double; DEBUG PROTOCOL bignum; DEBUG PROTOCOL null; DEBUG PROTOCOL array; DEBUG PROTOCOL set; DEBUG PROTOCOL map; DEBUG PROTOCOL verbatim; DEBUG PROTOCOL true; DEBUG PROTOCOL FALSE; PING`,
	`MEMORY; MEMORY USAGE; MEMORY USAGE nokey; MEMORY USAGE a b; MEMORY USAGE a SAMPLES x; MEMORY USAGE nokey SAMPLES 0; MEMORY DOCTOR x`,
	`CONFIG SET slowlog-log-slower-than -1; SLOWLOG GET; SLOWLOG GET x; SLOWLOG GET -2; SLOWLOG GET -1; SLOWLOG LEN; SLOWLOG RESET; SLOWLOG LEN x; SLOWLOG GET 1 2; CONFIG SET slowlog-max-len 1gb; CONFIG SET slowlog-log-slower-than -2; CONFIG SET slowlog-log-slower-than x; CONFIG SET latency-monitor-threshold -1`,
	`SHUTDOWN foo; SHUTDOWN SAVE NOSAVE; SHUTDOWN ABORT; SHUTDOWN ABORT NOW; SHUTDOWN NOSAVE ABORT; MULTI; SHUTDOWN; EXEC`,
	`FAILOVER; FAILOVER x; FAILOVER ABORT; FAILOVER ABORT ABORT; FAILOVER TO; FAILOVER TO a; FAILOVER TO a x; FAILOVER TO a 1; FAILOVER FORCE; FAILOVER TIMEOUT 0; FAILOVER TIMEOUT -1; FAILOVER TIMEOUT x; FAILOVER TIMEOUT 99999999999999999999; FAILOVER TO a 1 TO b 2; FAILOVER TO a 1 FORCE TIMEOUT 5 TIMEOUT 6; FAILOVER ABORT TIMEOUT 1`,
	`MONITOR; GET k; SET k v; MULTI; MONITOR; GET k; EXEC; EVAL x 0; MEMORY USAGE k; PUBLISH a b; LOLWUT; RESET; GET k; MULTI; MONITOR; EXEC; MONITOR x; SUBSCRIBE x; MONITOR`,
	`MEMORY STATS x; MEMORY MALLOC-STATS x; MEMORY PURGE; MEMORY USAGE nokey FOO 1; MEMORY USAGE nokey SAMPLES -1; MEMORY USAGE nokey SAMPLES`,
	`LATENCY LATEST; LATENCY HISTORY x; LATENCY RESET; LATENCY RESET x; LATENCY GRAPH x; LATENCY HISTOGRAM nope; LATENCY DOCTOR x; MODULE LIST; MODULE LIST x`,
	`ACL WHOAMI; ACL LIST; ACL USERS; ACL CAT; ACL CAT foo; ACL CAT a b; ACL WHOAMI x; ACL GETUSER default; ACL GETUSER foo; ACL GENPASS 5000; ACL GENPASS x; ACL GENPASS 0`,
	`CLUSTER; CLUSTER INFO; CLUSTER SLOTS; CLUSTER SHARDS; CLUSTER NODES; CLUSTER MYID; CLUSTER KEYSLOT foo; CLUSTER KEYSLOT; CLUSTER COUNTKEYSINSLOT 1; CLUSTER HELP; CLUSTER INFO x; ASKING; SENTINEL masters`,
	`LOLWUT VERSION 1; LOLWUT VERSION x; LOLWUT; INFO nope; INFO cluster; QUIT x`,
	`READONLY x; READWRITE x; RESET x; RESET; ECHO a; QUIT`,
}

// shown matches the text that MONITOR puts before a command. Its group is the
// database.
var shown = regexp.MustCompile(`\d{10}\.\d{6} \[(\d+) [^ ]+\]`)

func TestRecorded_Transcripts(t *testing.T) {
	socket := redis(t)
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			for _, script := range transcripts {
				f := newFake(t)
				s := serve(t, f)
				theirs, ours := connect(t, "unix", socket), dial(t, s)
				theirs.expect("FLUSHALL", "+OK")
				for _, c := range []*client{theirs, ours} {
					c.do("HELLO " + strconv.Itoa(proto))
				}
				for _, line := range strings.Split(script, ";") {
					line = strings.TrimSpace(line)
					theirs.send(line)
					ours.send(line)
					want, wantErr := theirs.reply()
					got, err := ours.reply()
					got, want = shown.ReplaceAllString(got, "now [$1]"), shown.ReplaceAllString(want, "now [$1]")
					if got != want || (err == nil) != (wantErr == nil) {
						t.Errorf("%s (in %.40q):\n got %q, %v\nwant %q, %v", line, script, got, err, want, wantErr)
					}
				}
			}
		})
	}
}

// described is an entry of COMMAND INFO.
type described struct {
	arity, first, last, step int
	flags, acl, tips         []string
	keys                     string // the key specs, as bytes
	subs                     map[string]described
}

// commandInfo reads COMMAND in RESP3.
func commandInfo(t *testing.T, c *client) map[string]described {
	t.Helper()
	c.do("HELLO 3")
	p := &parser{t: t, lines: strings.Split(strings.TrimSuffix(c.do("COMMAND"), "\n"), "\n")}
	return p.commands()
}

type parser struct {
	t     *testing.T
	lines []string
}

func (p *parser) line() string {
	l := p.lines[0]
	p.lines = p.lines[1:]
	return l
}

func (p *parser) count() int {
	p.t.Helper()
	l := p.line()
	n, err := strconv.Atoi(l[1:])
	if err != nil {
		p.t.Fatalf("the line %q does not contain a count: %v", l, err)
	}
	return n
}

func (p *parser) text() string {
	l := p.line()
	if l[0] == '$' {
		return p.line()
	}
	return l[1:]
}

func (p *parser) texts() []string {
	out := []string{}
	for range p.count() {
		out = append(out, p.text())
	}
	slices.Sort(out)
	return out
}

// skip skips one reply of any type and returns its bytes.
func (p *parser) skip() string {
	l := p.line()
	n := 0
	switch l[0] {
	case '$':
		return l + p.line()
	case '*', '~':
		fmt.Sscan(l[1:], &n)
	case '%':
		fmt.Sscan(l[1:], &n)
		n *= 2
	}
	for range n {
		l += " " + p.skip()
	}
	return l
}

func (p *parser) commands() map[string]described {
	out := make(map[string]described)
	for range p.count() {
		if n := p.count(); n != 10 {
			p.t.Fatalf("an entry of COMMAND has %d elements, want 10", n)
		}
		name := p.text()
		var d described
		d.arity = p.count()
		d.flags = p.texts()
		d.first, d.last, d.step = p.count(), p.count(), p.count()
		d.acl, d.tips = p.texts(), p.texts()
		d.keys = p.skip()
		d.subs = p.commands()
		out[name] = d
	}
	return out
}

// permitted lists the differences from COMMAND INFO of Redis, with their
// reasons.
var permitted = map[string]string{}

// newer lists the commands that Redis 7.0.15 does not have.
var newer = map[string]string{
	"client|setinfo": "7.2", "client|no-touch": "7.2", "client|capa": "valkey 8", "waitaof": "7.2", "delex": "8.4", "msetex": "8.4", "digest": "8.4",
	"delifeq": "valkey 9", "holdfast": "ours", "lock": "ours",
}

func TestRecorded_CommandInfo(t *testing.T) {
	theirs := commandInfo(t, connect(t, "unix", redis(t)))
	ours := commandInfo(t, dial(t, serve(t, newFake(t))))
	if len(ours) < 70 {
		t.Errorf("COMMAND of Holdfast returns %d commands, want at least 70", len(ours))
	}
	compareCommands(t, ours, theirs)
}

func compareCommands(t *testing.T, ours, theirs map[string]described) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		got := ours[name]
		want, known := theirs[name]
		if !known {
			if newer[name] == "" {
				t.Errorf("Redis does not have the command %s, and the list newer does not contain it", name)
			}
			continue
		}
		for what, pair := range map[string][2]any{
			"arity": {got.arity, want.arity}, "flags": {got.flags, want.flags}, "acl": {got.acl, want.acl}, "tips": {got.tips, want.tips},
			"positions": {[]int{got.first, got.last, got.step}, []int{want.first, want.last, want.step}}, "key specs": {got.keys, want.keys},
		} {
			if g, w := fmt.Sprint(pair[0]), fmt.Sprint(pair[1]); g != w && permitted[name+" "+what] == "" {
				t.Errorf("COMMAND INFO %s: %s is %s, want %s as in Redis", name, what, g, w)
			}
		}
		compareCommands(t, got.subs, want.subs)
	}
}

// TestRecorded_Pause pauses one connection from another, and expects equal
// results from both servers.
func TestRecorded_Pause(t *testing.T) {
	socket := redis(t)
	s := serve(t, newFake(t))
	for name, open := range map[string]func() *client{
		"redis":    func() *client { return connect(t, "unix", socket) },
		"holdfast": func() *client { return dial(t, s) },
	} {
		a, b := open(), open()
		a.expect("SET k 1", "+OK", "CLIENT PAUSE 60000 WRITE", "+OK", "CLIENT PAUSE 50 WRITE", "+OK") // the pause is not shortened
		b.expect("GET k", "$1\n1", "PING", "+PONG", "MULTI", "+OK", "GET k", "+QUEUED", "EXEC", "*1\n$1\n1")
		b.send("SET k 2")
		a.expect("GET k", "$1\n1")
		if err := b.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a write got a reply during a pause, want none (error of the read: %v)", name, err)
		}
		a.expect("GET k", "$1\n1", "CLIENT UNPAUSE", "+OK")
		b.want("+OK")
		a.expect("GET k", "$1\n2", "CLIENT PAUSE 300", "+OK")
		start := time.Now()
		b.expect("PING", "+PONG")
		if d := time.Since(start); d < 200*time.Millisecond {
			t.Errorf("%s: a pause of 300 ms ended after %v, want at least 200 ms", name, d)
		}
	}
}
