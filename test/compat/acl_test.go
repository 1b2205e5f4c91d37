package compat

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
)

// deleteUsers deletes the users that a test has made, on both servers. It also
// resets the default user and the ACL log.
func (p *pair) deleteUsers(names ...string) {
	p.t.Helper()
	p.setup("ACL DELUSER "+strings.Join(names, " "), "ACL SETUSER default reset on nopass ~* &* +@all", "ACL LOG RESET")
}

const (
	hashP = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940" // hash of "p"
	hashA = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4b72b9807785afee48bb" // hash of "a"
)

// aclRules contains the arguments of ACL SETUSER. Each element is for one new
// user, and each of its lines is for one call.
var aclRules = []string{
	"", "on", "off", "ON", "Off", "on nopass", "nopass >p", ">p >p", ">p >a <p", "#" + hashP,
	"#" + hashP + " !" + hashP, "<p", "!" + hashP, "#abc", "!x", "#" + strings.ToUpper(hashP),
	">p resetpass", "nopass resetpass", ">", "<", "#", "!", "> <",
	"~*", "allkeys", "ALLKEYS", "~a ~b ~a", "~a ~*", "~* ~a", "allkeys %R~a", "~a resetkeys", "~* resetkeys ~b", "~",
	"%R~*", "%W~*", "%R~* %W~*", "%RW~*", "%RW~* ~x", "%rw~x",
	"%WR~x", "%R~x %W~x", "%RR~x", "%~x", "%X~x", "%", "%R", "%RW", "%Rx", "~[a-z]*", "\"~a b\"", "\"~a\\tb\"",
	"~\xff\xfe", "~*a",
	"&*", "allchannels", "&a &b", "&* &a", "allchannels &a", "&a allchannels", "&a resetchannels",
	"&* resetchannels &c", "&", "\"&a b\"",
	"+@all", "-@all", "allcommands", "nocommands", "ALLCOMMANDS", "+@ALL", "+@all -get", "+@all -get +get", "+get -get",
	"+GET", "-GET +get", "+get +set -get", "+nope", "-nope", "+", "-", "+@", "-@nope", "+@nope",
	"+@string", "+@string -@string", "+@all -@dangerous", "+@all -@dangerous +get -@string +get", "+@read -@read +get",
	"+@Read +@wRite",
	"+config", "-config", "+config|get", "+config|GET", "+CONFIG|get", "+config|nope", "+config|", "+config|get|x",
	"-config|get", "+@all -config +config|get", "+@all -config|set", "+config -config|get", "+config|get +config",
	"+config|get -config", "+config|get +config|set -config|get",
	"+select|0", "+select|0 +select|1", "+select|0 +select", "+select|0 -select", "-select|0", "+select|",
	"+select|0 +select|0", "+SELECT|ABC", "+select|0|1", "+get|x|y", "+|", "+|x", "-|", "+select|0 +@connection",
	"+select|0 -@all", "+select|0 +@all", "-select +select|2",
	"+object|encoding", "+object", "-object|encoding", "+client|id +client|info -client",
	"+client|id +client|info -client|id", "+client +clientx",
	"()", "(", ")", "(+get)", "(+get ~a)", "\"(+get ~a)\"", "(+get", "(+get ~a", "(+nope)", "(+get )", "( +get )",
	"(on)", "(>p)", "(reset)", "(+@all allkeys &*)", "(~*) (%R~a +get)", "(+get) clearselectors", "((+get))",
	"(+get) (+set", "(+get)x", "x(+get)", "(~a ~*)", "(~* ~a)", "(+config|get -@all +select|3)",
	"(+get\n(+set", "(+get)\n(+set)\nclearselectors\n(+del)",
	"reset", "on >p ~a &b +get (+set)\nreset", "reset on", "skip-sanitize-payload", "sanitize-payload",
	"skip-sanitize-payload sanitize-payload", "sanitize-payload reset", "on nope", "on ~a nope",
	"~a on +get\n~b -get\nnope\noff",
	"\"\"", "on \"\" off", "clearselectors", "resetchannels resetkeys resetpass", "+acl +ACL|WHOAMI", "+eval|x",
	"+publish|x", "+debug", "+memory|usage", "+xadd", "+geoadd", "+pfadd", "+shutdown", "+replicaof", "+monitor",
	"+sync", "+@scripting +@pubsub", "+multi +exec +discard +watch",
}

// ruleWords matches the + and - rules in a line of ACL LIST.
var ruleWords = regexp.MustCompile(`[-+][^ ()]+`)

// starAmongKeys matches ~* next to other key patterns.
var starAmongKeys = regexp.MustCompile(`[~%]\S+ ~\*( |$)| ~\* [~%]`)

// sameUser compares ACL LIST and ACL GETUSER of both servers. The command rules
// may differ in their text: Redis 7.0 does not store them but derives
// equivalent rules, in the order of a hash table with a random seed. Holdfast
// prints the rules that were given, as Redis does from version 7.2 on. So
// sameUser applies the rules that Holdfast prints to a second user of the Redis
// server, and requires that Redis prints the same rules for both users.
func (p *pair) sameUser(name string) {
	p.t.Helper()
	redis, holdfast := p.ask("ACL LIST")
	_, theirs := elements(redis[0])
	_, ours := elements(holdfast[0])
	mask := func(lines []string) string {
		return ruleWords.ReplaceAllString(strings.Join(lines, ""), "")
	}
	a, b := regexp.MustCompile(`\$\d+`).ReplaceAllString(mask(theirs), "$"),
		regexp.MustCompile(`\$\d+`).ReplaceAllString(mask(ours), "$")
	if a, b = strings.Join(strings.Fields(a), " "), strings.Join(strings.Fields(b), " "); a != b {
		p.t.Errorf("ACL LIST without commands\n  redis    %q\n  holdfast %q", a, b)
	}
	line := func(lines []string, name string) string {
		for _, l := range lines {
			if _, l, ok := strings.Cut(l, "user "+name+" "); ok {
				return strings.TrimSuffix(l, "\r\n")
			}
		}
		p.t.Fatalf("no user %q in %q", name, lines)
		return ""
	}
	sendTo := func(c *conn, args ...string) string {
		out, err := c.do(args)
		if err != nil {
			p.t.Fatal(err)
		}
		return out[0]
	}
	given := line(ours, name)
	if starAmongKeys.MatchString(" " + given) {
		return // Redis prints %RW~* as allkeys, and refuses its own output
	}
	if out := sendTo(p.redis, append([]string{"ACL", "SETUSER", "twin", "resetpass"},
		strings.Split(given, " ")...)...); out != "+OK\r\n" {
		p.t.Errorf("redis refuses %q: %q", given, out)
		return
	}
	_, theirs = elements(sendTo(p.redis, "ACL", "LIST"))
	sendTo(p.redis, "ACL", "DELUSER", "twin")
	if orderSubcommands(line(theirs, "twin")) != orderSubcommands(line(theirs, name)) {
		p.t.Errorf("the rules %q of holdfast differ from the rules of redis: %q", given, theirs)
	}
	// Compare ACL GETUSER without the values of "commands".
	redis, holdfast = p.ask("ACL GETUSER " + name)
	if a, b := withoutCommands(p.t, redis[0]), withoutCommands(p.t, holdfast[0]); a != b {
		p.t.Errorf("ACL GETUSER %s\n  redis    %s\n  holdfast %s", name, a, b)
	}
}

// orderSubcommands sorts each sequence of rules that allow subcommands, and
// each sequence of rules that deny subcommands. Redis prints them in the order of a
// hash table. The table can grow while Redis writes a reply, so the order can
// differ between two users.
func orderSubcommands(rules string) string {
	words := strings.Split(rules, " ")
	for i := 0; i < len(words); {
		end := i
		for end < len(words) && words[end][:min(1, len(words[end]))] == words[i][:min(1, len(words[i]))] &&
			strings.Contains(words[end], "|") {
			end++
		}
		slices.Sort(words[i:end])
		i = max(end, i+1)
	}
	return strings.Join(words, " ")
}

// withoutCommands returns a reply of ACL GETUSER without the text after each
// "commands".
func withoutCommands(t *testing.T, raw string) string {
	t.Helper()
	out := regexp.MustCompile(`\$8\r\ncommands\r\n\$\d+\r\n[^\r]*\r\n`).ReplaceAllString(raw,
		"$$8\r\ncommands\r\n*\r\n")
	if out == raw && !strings.HasPrefix(raw, "$") && !strings.HasPrefix(raw, "_") {
		t.Fatalf("no commands in %q", raw)
	}
	return fmt.Sprintf("%q", out)
}

func TestACL_Rules(t *testing.T) {
	both(t, func(p *pair) {
		for _, rules := range aclRules {
			for _, line := range strings.Split(rules, "\n") {
				p.Do("ACL SETUSER u " + line)
			}
			p.Do("ACL USERS")
			if redis, _ := p.ask("ACL GETUSER u"); redis[0] != p.null()+"\r\n" {
				p.sameUser("u")
			}
			p.Do("ACL DELUSER u")
		}
		p.deleteUsers("u")
	})
}

// TestACL_RandomRules applies random rules to one user, one call after another.
func TestACL_RandomRules(t *testing.T) {
	words := []string{"on", "off", "nopass", ">p", ">a", "<p", "#" + hashA, "!" + hashA, "resetpass", "~*", "~a*", "~b",
		"%R~a*", "%W~a*", "%R~*", "%W~*", "resetkeys", "&*", "&c", "&d*", "resetchannels",
		"+@all", "-@all", "+get", "-get", "+set", "-set", "+@string", "-@string", "+@read", "-@write", "+@admin",
		"-@dangerous", "+config", "-config", "+config|get", "-config|get", "+config|set", "+client|list", "-client",
		"+select|0", "+select|1", "+select", "-select", "+@connection", "-@connection", "+object|freq", "-object",
		"+@keyspace", "(+get ~a)", "(%R~x* +@read -mget)", "(+@all allkeys -config|set &*)", "clearselectors", "reset",
		"nope", "+nope", "sanitize-payload"}
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(7, uint64(p.proto)))
		for round := range 40 {
			var log []string
			for range 12 {
				line := "ACL SETUSER r"
				for range 1 + rng.IntN(4) {
					line += " " + words[rng.IntN(len(words))]
				}
				log = append(log, line)
				p.Do(line)
				if redis, _ := p.ask("ACL GETUSER r"); redis[0] != p.null()+"\r\n" {
					p.sameUser("r")
				}
				if t.Failed() || p.t.Failed() {
					p.t.Fatalf("round %d: after\n%s", round, strings.Join(log, "\n"))
				}
			}
			p.Do("ACL DELUSER r")
		}
		p.deleteUsers("r")
	})
}

func TestACL_Commands(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("ACL WHOAMI", "ACL", "ACL NOPE", "ACL GETUSER nobody", "ACL GETUSER", "ACL GETUSER a b", "ACL SETUSER",
			"ACL DELUSER", "ACL DELUSER nobody", "ACL DELUSER default", "ACL DELUSER a default",
			"ACL SETUSER \"a b\" on", "ACL SETUSER \"a\\x00b\" on", "ACL SETUSER \"\" on", "ACL DELUSER \"\"",
			"ACL LOAD", "ACL SAVE", "ACL LOAD x", "ACL USERS x", "ACL LIST x", "ACL WHOAMI x", "ACL CAT",
			"ACL CAT nope", "ACL CAT a b",
			"ACL LOG", "ACL LOG RESET", "ACL LOG reset x", "ACL LOG x", "ACL LOG 1 2", "ACL LOG -1", "ACL LOG 0",
			"ACL GENPASS 0", "ACL GENPASS 5000", "ACL GENPASS x", "ACL GENPASS 1 2", "ACL DRYRUN", "ACL DRYRUN default",
			"ACL DRYRUN default nope",
			"ACL DRYRUN nobody get a", "ACL DRYRUN default get", "ACL DRYRUN default get a",
			"ACL DRYRUN default config nope", "ACL DRYRUN default config get", "ACL DRYRUN default config",
			"CONFIG GET acl-pubsub-default", "CONFIG GET acllog-max-len", "CONFIG GET aclfile",
			"CONFIG SET acllog-max-len x", "CONFIG SET acllog-max-len 3", "CONFIG GET acllog-max-len",
			"CONFIG SET acllog-max-len 128",
			"CONFIG SET acl-pubsub-default nope", "CONFIG SET acl-pubsub-default allchannels",
			"CONFIG GET acl-pubsub-default", "ACL SETUSER c (+get)", "ACL GETUSER c", "ACL SETUSER c reset", "ACL LIST",
			"CONFIG SET acl-pubsub-default resetchannels", "ACL SETUSER c reset", "ACL LIST")
		p.deleteUsers("c")
	})
}

// TestACL_Categories compares which commands belong to each category. It
// compares only commands that both servers have.
func TestACL_Categories(t *testing.T) {
	p := newPair(t, 3)
	list := func(c *conn, args ...string) []string {
		raw, err := c.do(args)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range decode(t, raw[0]).([]any) {
			out = append(out, fmt.Sprint(v))
		}
		return out
	}
	set := func(words []string) map[string]bool {
		m := make(map[string]bool)
		for _, w := range words {
			m[w] = true
		}
		return m
	}
	theirAll, ourAll := make(map[string]bool), make(map[string]bool)
	theirs, ours := make(map[string]map[string]bool), make(map[string]map[string]bool)
	categories := list(p.redis, "ACL", "CAT")
	for _, cat := range categories {
		theirs[cat], ours[cat] = set(list(p.redis, "ACL", "CAT", cat)), set(list(p.holdfast, "ACL", "CAT", cat))
		for name := range theirs[cat] {
			theirAll[name] = true
		}
		for name := range ours[cat] {
			ourAll[name] = true
		}
	}
	shared := 0
	for name := range ourAll {
		if !theirAll[name] {
			continue
		}
		shared++
		for _, cat := range categories {
			if theirs[cat][name] != ours[cat][name] {
				t.Errorf("%s in @%s: redis %t, holdfast %t", name, cat, theirs[cat][name], ours[cat][name])
			}
		}
	}
	if shared < 150 {
		t.Errorf("only %d commands are in both: the comparison proves nothing", shared)
	}
}

// aclUsers contains the rules of one user in each element. For each user with
// valid rules, TestACL_Dryrun tries the commands of aclTries that Holdfast has.
var aclUsers = []string{
	"on nopass +@all ~a*", "on nopass +@all %R~a* %W~b*", "on nopass +@all %R~*", "on nopass +@all %W~*",
	"on nopass +@read ~*", "on nopass -@all", "on nopass +@all -@dangerous ~* &*",
	"on nopass +get ~a", "on nopass +get ~a (+set ~b) (%W~c +set|x)",
	"on nopass ~* +config|get +select|0 +object|encoding", "on nopass +@all ~* &ch:* &p?",
	"on nopass ~x (~a* +@all &*)", "on nopass +@write +get ~a* (%R~b +get) (+mget ~c)",
	"on nopass (+get ~a) (+get ~b) (~* +nope)", "on nopass +@all ~a\\*b ~[bc]d ~",
	"on nopass ~* +object +client -client|id", "on nopass +@transaction +@connection +@keyspace ~*",
}

var aclTries = []string{
	"get a", "get b", "get zz", "get", "set a b", "set b a", "set a b get", "set b b get", "SET aa b XX GET",
	"mget a b", "mget a aa", "mset a 1 b 2", "del a", "del a b", "exists b", "exists a", "type a", "rename a b",
	"rename b a", "copy a b", "copy b a",
	"lpush a x", "rpoplpush a b", "lmove a b left right", "sinterstore b a", "sinterstore a b", "sinter a b",
	"sintercard 2 a b", "zunionstore b 2 a aa", "zunionstore a 1 b", "getset a b", "getdel a", "getex a",
	"getex b persist", "setrange a 1 x", "append a x", "incr a", "strlen a", "hset a f v", "hget a f", "hgetall b",
	"config get x", "config set a b", "config resetstat", "select 0", "select 1", "object encoding a", "object freq a",
	"object help", "client id", "client list", "client kill x", "acl whoami", "acl list", "ping", "echo x", "auth a b",
	"hello", "reset", "quit", "multi", "exec", "discard", "watch a", "watch b", "unwatch",
	"dbsize", "flushall", "flushdb", "keys *", "scan 0", "randomkey", "time", "info", "command", "command count",
	"publish ch:1 x", "publish p1 x", "publish x x", "spublish ch:1 x", "spublish y x",
	"subscribe ch:1", "subscribe ch:1 x", "psubscribe ch:*", "psubscribe ch:1", "psubscribe ch:1 ch:*",
	"ssubscribe ch:2", "unsubscribe x", "punsubscribe", "get a*b", "get bd", "get \"\"", "get axb", "memory usage a",
	"sort a", "restore a 0 x", "dump a", "expire a 1", "ttl a", "pexpireat b 1", "touch a", "unlink a b", "swapdb 0 1",
	"wait 0 0", "lolwut", "debug sleep 0", "shutdown", "role",
}

func TestACL_Dryrun(t *testing.T) {
	both(t, func(p *pair) {
		known := func(try string) bool {
			raw, err := p.holdfast.do([]string{"COMMAND", "INFO", strings.Fields(try)[0]})
			if err != nil {
				t.Fatal(err)
			}
			return !strings.HasSuffix(raw[0], p.null()+"\r\n")
		}
		tried := 0
		for _, rules := range aclUsers {
			if strings.Contains(rules, "nope") {
				continue
			}
			p.setup("ACL SETUSER u reset", "ACL SETUSER u "+rules)
			for _, try := range aclTries {
				if known(try) {
					tried++
					p.Do("ACL DRYRUN u " + try)
				}
			}
		}
		if tried < 1000 {
			p.t.Errorf("%d tries", tried)
		}
		p.deleteUsers("u")
	})
}

// TestACL_Enforced runs commands as a user with few rights.
func TestACL_Enforced(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET a 1", "SET b 2", "ACL SETUSER few on >p ~a* %R~b &ch:* +get +set +mget +multi +exec +discard "+
			"+acl|whoami +object|encoding +select|1 +client|id +watch +publish +@connection -client +client|id "+
			"-select +select|1")
		q := p.other()
		q.Do("AUTH few wrong", "AUTH nobody p", "AUTH few p x", "AUTH few p", "ACL WHOAMI", "GET a", "GET b", "SET b 1",
			"SET a 2 GET", "MGET a b", "MGET a b c", "GET c", "DEL a", "OBJECT ENCODING a", "OBJECT FREQ a", "ACL LIST",
			"SELECT 0", "SELECT 1", "GET a",
			"CLIENT LIST", "CLIENT NOPE", "NOPE", "GET", "CONFIG GET x", "PUBLISH ch:1 x", "PUBLISH ch x", "WATCH a",
			"WATCH c", "FLUSHALL")
		q.Do("MULTI", "GET a", "DEL a", "EXEC", "MULTI", "GET c", "DISCARD", "MULTI", "SET a 9", "GET b", "EXEC")
		q.DoPipelined("GET a", "GET c", "SET a 3", "DEL a", "GET a")
		// The user loses rights between queueing and EXEC.
		q.Do("MULTI", "SET a 5", "GET a", "MGET a b", "CLIENT ID", "PUBLISH ch:x 1")
		p.setup("ACL SETUSER few -get resetkeys ~a* -client|id resetchannels")
		raw := func(c *conn) string {
			r, err := c.do([]string{"EXEC"})
			if err != nil {
				p.t.Fatal(err)
			}
			return r[0]
		}
		if a, b := raw(q.redis), raw(q.holdfast); a != b {
			p.t.Errorf("EXEC\n  redis    %q\n  holdfast %q", a, b)
		}
		q.Do("GET a", "SET a 6", "RESET", "ACL WHOAMI", "GET a")
		// Some changes of a user end its connections, and some do not.
		q.Do("AUTH few p")
		p.setup("ACL SETUSER few off")
		q.Do("ACL WHOAMI", "SET a 7", "AUTH few p", "RESET", "AUTH few p")
		p.setup("ACL SETUSER few on")
		q.Do("AUTH few p", "ACL WHOAMI")
		p.Do("CLIENT KILL USER nobody", "CLIENT KILL USER few", "CLIENT KILL USER few")
		gone := p.other()
		gone.Do("AUTH few p", "ACL WHOAMI")
		p.Do("ACL DELUSER few")
		for _, c := range []*conn{gone.redis, gone.holdfast} {
			if r, err := c.do([]string{"PING"}); err == nil {
				p.t.Errorf("the connection of a deleted user got %q", r)
			}
		}
		p.deleteUsers("few")
	})
}

// TestACL_Scripts checks that the commands of a script need the rights of the
// user that runs the script.
func TestACL_Scripts(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET a 1", "SET b 2", "ACL SETUSER few on nopass ~a* %R~b &c +get +eval +evalsha +eval_ro +script "+
			"+publish +ping +del +multi +exec")
		q := p.other()
		q.Do("AUTH few x")
		for _, body := range []string{
			"return redis.call('get', 'a')", "return redis.call('get', 'b')", "return redis.call('get', 'c')",
			"return redis.call('set', 'a', '3')", "return redis.pcall('set', 'a', '3')",
			"return redis.call('del', 'b')", "return redis.pcall('del', 'b')",
			"redis.call('del', 'a') return redis.pcall('set', 'a', '1')", "return redis.call('publish', 'c', 'x')",
			"return redis.pcall('publish', 'd', 'x')",
			"return redis.call('ping')", "return redis.call('echo', 'x')", "return redis.call('select', '1')",
			"return redis.call('nope')", "return redis.call('acl', 'whoami')", "return redis.call('get')",
			"return redis.call('object', 'encoding', 'a')",
		} {
			q.Do("EVAL \"" + body + "\" 0")
			q.Do("EVAL_RO \"" + body + "\" 0")
		}
		// Holdfast knows a native form of this script, but must interpret it
		// for a user with rules. The user may only read b, and must not access
		// c.
		const release = "if redis.call(\\\"get\\\",KEYS[1]) == ARGV[1] then return redis.call(\\\"del\\\",KEYS[1]) " +
			"else return 0 end"
		p.setup("SET a 1", "SET b 2", "SCRIPT FLUSH")
		q.Do("EVAL \""+release+"\" 1 a 1", "EVAL \""+release+"\" 1 b 2", "EVAL \""+release+"\" 1 c 2", "MULTI", "GET a",
			"EVAL \""+release+"\" 1 a 1", "EVAL \"return redis.call('set','a','5')\" 0", "EXEC")
		redis, holdfast := p.ask("ACL LOG 5")
		// If a script takes longer than a script without a dry run may take,
		// the leader runs it again, and counts the denials of each run.
		client, counts := regexp.MustCompile(`, client.*`), regexp.MustCompile(`(?m)^(\d+) (.* lua )`)
		a, b := client.ReplaceAllString(denials(t, redis[0]), ""), client.ReplaceAllString(denials(t, holdfast[0]), "")
		least, got := counts.FindAllStringSubmatch(a, -1), counts.FindAllStringSubmatch(b, -1)
		same := len(least) > 0 && counts.ReplaceAllString(a, "$2") == counts.ReplaceAllString(b, "$2")
		for i := 0; same && i < len(least); i++ {
			want, err1 := strconv.Atoi(least[i][1])
			n, err2 := strconv.Atoi(got[i][1])
			same = err1 == nil && err2 == nil && want <= n && n <= 2*want
		}
		if !same {
			p.t.Errorf("ACL LOG\n  redis:\n%s\n  holdfast:\n%s", a, b)
		}
		p.setup("ACL SETUSER few -del", "SET a 1")
		q.Do("EVAL \"" + release + "\" 1 a 1")
		p.setup("ACL SETUSER few -@all")
		q.Do("EVAL \"return 1\" 0")
		p.setup("ACL SETUSER few +@all ~* &*")
		q.Do("EVAL \""+release+"\" 1 a 1", "EVAL \"return redis.call('publish', 'd', 'x')\" 0")
		p.deleteUsers("few")
	})
}

// TestACL_Subscribers checks that the connections of subscribers end when their
// user loses the right to their channel.
func TestACL_Subscribers(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL SETUSER ear on nopass +@all ~* &a &b &c*")
		stays, goes, goesToo := p.other(), p.other(), p.other()
		stays.Do("AUTH ear x", "SUBSCRIBE a", "SUBSCRIBE d", "PSUBSCRIBE a*", "SSUBSCRIBE b")
		goes.Do("AUTH ear x", "SUBSCRIBE b")
		goesToo.Do("AUTH ear x", "PSUBSCRIBE c*")
		p.Do("ACL SETUSER ear &e")
		goes.Do("PING")
		p.Do("ACL SETUSER ear resetchannels &a &b2", "ACL SETUSER ear &b")
		for _, q := range []*pair{goes, goesToo} {
			for _, c := range []*conn{q.redis, q.holdfast} {
				if r, err := c.do([]string{"PING"}); err == nil {
					p.t.Errorf("a subscriber without the right to its channel got %q", r)
				}
			}
		}
		p.deleteUsers("ear")
	})
}

// TestACL_Self checks that a user that deletes itself gets the reply before its
// connection ends.
func TestACL_Self(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL SETUSER me on nopass ~* +@all")
		q := p.other()
		q.Do("AUTH me x", "ACL DELUSER me")
		for _, c := range []*conn{q.redis, q.holdfast} {
			if r, err := c.do([]string{"PING"}); err == nil {
				p.t.Errorf("the connection of a deleted user got %q", r)
			}
		}
		p.deleteUsers("me")
	})
}

// TestACL_Default restricts the default user, whose rules apply to connections
// before AUTH.
func TestACL_Default(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL SETUSER boss on >p ~* &* +@all")
		p.Do("AUTH boss p")
		q := p.other()
		p.Do("ACL SETUSER default -get")
		q.Do("GET a", "SET a 1", "ACL WHOAMI", "AUTH x", "AUTH default x")
		p.Do("ACL SETUSER default >secret")
		q.Do("SET a 2")
		r := p.bare()
		r.Do("GET a", "PING", "AUTH wrong", "AUTH secret", "GET a", "SET a 3", "RESET", "SET a 3",
			"AUTH default secret", "HELLO 2 AUTH default wrong", "SET a 4")
		p.Do("ACL SETUSER default off")
		r.Do("SET a 5", "RESET", "SET a 5", "AUTH secret", "AUTH default secret", "AUTH boss p", "SET a 5")
		p.Do("ACL SETUSER default on nopass")
		r2 := p.bare()
		r2.Do("SET a 5", "GET a")
		p.Do("CONFIG SET requirepass foobared", "ACL LIST")
		r3 := p.bare()
		r3.Do("SET a 1", "AUTH foobared", "SET a 1", "GET a")
		p.Do("CONFIG SET requirepass \"\"", "ACL LIST", "AUTH default x")
		p.deleteUsers("boss")
	})
}

// TestACL_CheckCmd checks that redis.acl_check_cmd also knows the commands that
// no script may call.
func TestACL_CheckCmd(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL SETUSER checks on >p ~a:* +@all -acl -config|set")
		q := p.other()
		q.Do("AUTH checks p")
		for _, call := range []string{"'acl','list'", "'config','set','a','b'", "'config','get','a'", "'client','id'",
			"'get','a:1'", "'get','b'", "'ping'", "'select','1'", "'info'"} {
			q.Do(`EVAL "return redis.acl_check_cmd(` + call + `)" 0`)
		}
		p.deleteUsers("checks")
	})
}

// TestACL_Exec checks that EXEC ends the transaction of a user that may not
// call EXEC. Otherwise, the reply to all later commands would be QUEUED.
func TestACL_Exec(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL SETUSER noexec on >p ~* +@all -exec")
		q := p.other()
		q.Do("AUTH noexec p", "WATCH k", "MULTI", "SET k 1", "EXEC", "GET k", "MULTI", "GET k", "EXEC", "EXEC", "GET k")
		p.setup("CONFIG SET requirepass foobared")
		p.bare().Do("EXEC", "MULTI", "AUTH foobared", "MULTI", "GET k", "EXEC")
		p.setup("CONFIG SET requirepass \"\"")
		p.deleteUsers("noexec")
	})
}

// TestACL_Log compares the ACL log without the fields that always differ.
func TestACL_Log(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("ACL LOG RESET", "ACL SETUSER few on >p ~a &c +get +publish +multi +exec")
		q := p.other()
		q.Do("AUTH few x", "AUTH few x", "HELLO 3 AUTH nobody x", "AUTH few p", "GET b", "GET b", "GET c", "SET a b",
			"PUBLISH d x", "MULTI", "GET b", "EXEC", "CONFIG GET x", "GET b", "OBJECT FREQ a")
		for _, args := range []string{"", " 2", " 100"} {
			redis, holdfast := p.ask("ACL LOG" + args)
			if a, b := denials(t, redis[0]), denials(t, holdfast[0]); a != b {
				p.t.Errorf("ACL LOG%s\n  redis:\n%s\n  holdfast:\n%s", args, a, b)
			}
		}
		p.Do("CONFIG SET acllog-max-len 2")
		q.Do("GET d")
		redis, holdfast := p.ask("ACL LOG")
		if a, b := denials(t, redis[0]), denials(t, holdfast[0]); a != b || strings.Count(a, "\n") != 2 {
			p.t.Errorf("ACL LOG of 2\n  redis:\n%s\n  holdfast:\n%s", a, b)
		}
		p.Do("CONFIG SET acllog-max-len 128", "ACL LOG RESET", "ACL LOG")
		p.deleteUsers("few")
	})
}

// denials returns a reply of ACL LOG as lines, without the age. Of client-info,
// it keeps only the words that must be equal.
func denials(t *testing.T, raw string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range decode(t, raw).([]any) {
		f := fields(e.([]any))
		info := fmt.Sprint(f["client-info"])
		var kept []string
		for _, word := range strings.Fields(info) {
			switch name, _, _ := strings.Cut(word, "="); name {
			case "cmd", "user", "db":
				kept = append(kept, word)
			case "flags":
				// the flag U means a unix socket, which only Redis has here
				kept = append(kept, strings.Trim(word, "NU"))
			}
		}
		fmt.Fprintf(&b, "%v %v %v %v %v %d fields, age %T, client %s\n", f["count"], f["reason"], f["context"],
			f["object"], f["username"], len(f), f["age-seconds"], strings.Join(kept, " "))
	}
	return b.String()
}

// TestACL_Catalog checks that the catalog contains commands on data, connection
// commands, and SENTINEL.
func TestACL_Catalog(t *testing.T) {
	c := resp.NewCatalog(command.NewTable())
	for _, name := range []string{"get", "config", "acl", "sentinel"} {
		if c.Resolve([][]byte{[]byte(name)}) == nil {
			t.Errorf("no %s in the catalog", name)
		}
	}
}
