package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// startRedis starts a redis-server that listens on a port. It returns the
// server as a node, so that do can send commands to it.
func startRedis(t *testing.T, dir string) *process.Node {
	t.Helper()
	base, err := process.FreePorts(1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	testutil.StartRedis(t, "--port", fmt.Sprint(base), "--bind", "127.0.0.1", "--dir", dir)
	return &process.Node{ID: "redis", Clients: fmt.Sprintf("127.0.0.1:%d", base)}
}

// fillRedis writes values of every type, in small and in large encodings.
func fillRedis(t *testing.T, r *process.Node) {
	t.Helper()
	for _, c := range []string{
		"SET s v", "SET n 12345", "SET ttl x PX 600000", "RPUSH l a b 1 -2 70000", "SADD ints 1 2 99999999999",
		"SADD set a b c", "HSET h f v g 1", "ZADD z 1 a 2.5 b -inf c +inf d", "PFADD hll a b c",
		"GEOADD geo 13.36 38.11 P 15.08 37.5 C", "XADD x 1-1 f v", "XADD x 2-1 f w g 7", "XADD x 3-1 f u",
		"XGROUP CREATE x g 0", "XREADGROUP GROUP g c COUNT 2 STREAMS x >", "XACK x g 1-1",
		"XGROUP CREATECONSUMER x g d",
	} {
		if got := do(t, r, strings.Fields(c)...); strings.HasPrefix(got, "(error)") {
			t.Fatalf("%s: %s", c, got)
		}
	}
	do(t, r, "SET", "long", strings.Repeat("abc", 5000))
	do(t, r, "FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 42 end)")
	do(t, r, "EVAL", `for i = 1, 2000 do
		redis.call('RPUSH', 'biglist', i, 'e' .. i)
		redis.call('ZADD', 'bigz', i + 0.25, 'm' .. i)
		redis.call('HSET', 'bigh', 'f' .. i, i)
		redis.call('SADD', 'bigs', 'm' .. i)
	end
	redis.call('SELECT', 3) redis.call('SET', 'other', 'three', 'EX', 500)`, "0")
}

// sameBytes are the keys of fillRedis for which equal values have equal DUMPs.
// Large hashes and sets of texts are not among them, because the order of their
// elements is not part of the value.
var sameBytes = []string{"s", "n", "ttl", "l", "ints", "h", "z", "hll", "geo", "x", "long", "biglist", "bigz"}

// wantImported compares the keys of the cluster with the keys of the Redis
// server r.
func wantImported(t *testing.T, r, n *process.Node) {
	t.Helper()
	for _, key := range sameBytes {
		if got, w := do(t, n, "DUMP", key), do(t, r, "DUMP", key); got != w {
			t.Errorf("DUMP %s: %q, Redis has %q", key, got, w)
		}
	}
	for key, members := range map[string]string{"bigh": "HGETALL", "bigs": "SMEMBERS", "set": "SMEMBERS"} {
		// Redis itself reads the DUMP of the cluster and compares the value.
		copied := do(t, r, "EVAL", `redis.call('DEL', KEYS[2]) redis.call('RESTORE', KEYS[2], 0, ARGV[1])
			local a, b = redis.call(ARGV[2], KEYS[1]), redis.call(ARGV[2], KEYS[2])
			table.sort(a) table.sort(b)
			redis.call('DEL', KEYS[2])
			return table.concat(a, ' ') == table.concat(b, ' ') and #a or 'different'`,
			"2", key, "copy", do(t, n, "DUMP", key), members)
		want := map[string]int{"bigh": 4000, "bigs": 2000, "set": 3}[key]
		if copied != fmt.Sprintf("(integer) %d", want) {
			t.Errorf("%s: %s, want %d", key, copied, want)
		}
	}
	want(t, n, "(integer) 42", "FCALL", "f", "0")
	want(t, n, "three", "EVAL", "redis.call('SELECT', 3) return redis.call('GET', 'other')", "0")
	// The test reads the key of Redis last, so that key has less time left.
	if left, source := number(t, n, "PTTL", "ttl"), number(t, r, "PTTL", "ttl"); left < source || left > source+5000 {
		t.Errorf("PTTL: %d, Redis has %d", left, source)
	}
}

// number returns a reply that is an integer.
func number(t *testing.T, n *process.Node, args ...string) (v int) {
	t.Helper()
	if _, err := fmt.Sscanf(do(t, n, args...), "(integer) %d", &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (c *cluster) addrs() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Clients)
	}
	return strings.Join(all, ",")
}

// TestImport copies values of every type from a running Redis and from its RDB
// file. A second import changes nothing. A key with another value is kept and
// reported.
func TestImport(t *testing.T) {
	c := startCluster(t)
	dir := t.TempDir()
	r, n := startRedis(t, dir), c.Nodes[1]
	fillRedis(t, r)
	source := "redis://" + r.Clients
	wantContains(t, "import", run(t, "import", source, "--addr", c.addrs()), "17 of 17 keys", "1 function",
		"has 17 of the 17 keys")
	wantImported(t, r, n)
	wantContains(t, "a second import", run(t, "import", source, "--addr", n.Clients), "17 of 17 keys")

	want(t, n, "OK", "SET", "s", "changed")
	res := invoke(t, nil, "import", source, "--addr", n.Clients)
	wantContains(t, "import over a changed key", res.out+res.errOut, "16 of 17", `"s"`, "--replace", "incomplete")
	if res.code != 1 {
		t.Errorf("exit code %d", res.code)
	}
	want(t, n, "changed", "GET", "s")
	run(t, "import", source, "--addr", n.Clients, "--replace")
	want(t, n, "v", "GET", "s")

	want(t, n, "OK", "FLUSHALL")
	want(t, n, "OK", "FUNCTION", "FLUSH")
	wantContains(t, "import --match", run(t, "import", source+"/0", "--addr", n.Clients, "--match", "big*"),
		"4 of 4 keys")
	want(t, n, "OK", "FLUSHALL")
	want(t, n, "OK", "FUNCTION", "FLUSH")
	want(t, r, "OK", "SAVE")
	wantContains(t, "import of a file", run(t, "import", filepath.Join(dir, "dump.rdb"), "--addr", n.Clients),
		"17 of 17 keys", "has 17 of the 17 keys")
	wantImported(t, r, n)
	importRefusals(t, c, r, filepath.Join(dir, "dump.rdb"))
}

// importRefusals checks that bad input changes nothing and names the remedy.
func importRefusals(t *testing.T, c *cluster, r *process.Node, file string) {
	t.Helper()
	n := c.Nodes[0]
	want(t, n, "OK", "FLUSHALL")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		path := filepath.Join(filepath.Dir(file), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flipped := append([]byte(nil), text...)
	flipped[len(text)/2] ^= 1
	for _, bad := range []struct{ source, part string }{
		{write("cut", text[:len(text)-20]), "cut off"},
		{write("flipped", flipped), "nothing was imported"},
		{write("newer", append([]byte("REDIS0099"), text[9:]...)), "newer than 10"},
		{write("other", []byte("text")), "not an RDB file"},
		{filepath.Join(filepath.Dir(file), "none"), "no such file"},
		{"redis://127.0.0.1:1", "is the server running"},
		{"redis://u:wrong@" + r.Clients, "password is wrong"},
		{"redis://" + n.Peers, "client port"},
		{"http://127.0.0.1", "redis://"},
		{"redis://" + r.Clients + "/16", "databases 0 to 15"},
		{"redis://" + c.Nodes[1].Clients, "is a node of the cluster of --addr"},
		{"redis://u:%zz@127.0.0.1", "--source-password-file"},
	} {
		refuses(t, []string{bad.part}, "import", bad.source, "--addr", n.Clients)
	}
	refuses(t, []string{"not a node of Holdfast"}, "import", "redis://"+r.Clients, "--addr", r.Clients)
	want(t, n, "(integer) 0", "DBSIZE")
	for _, down := range c.others(n) {
		kill(t, down)
	}
	refuses(t, []string{"no leader", "start a majority"}, "import", "redis://"+r.Clients, "--addr", n.Clients)
}

// TestImport_Interrupted interrupts an import with SIGINT and with SIGKILL.
// Each time, the same command continues the import. In the end the cluster has
// every key.
func TestImport_Interrupted(t *testing.T) {
	c := startCluster(t)
	dir := t.TempDir()
	r := startRedis(t, dir)
	const keys = 60000
	do(t, r, "EVAL", fmt.Sprintf("for i = 1, %d do redis.call('SET', 'k' .. i, i) end", keys), "0")
	args := []string{"import", "redis://" + r.Clients, "--addr", c.addrs(), "--state", filepath.Join(dir, "state")}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := exec.Command(binary, args...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr, cmd.Env = &said, &said, process.CleanEnv()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := number(t, c.Nodes[0], "DBSIZE")
		err := process.Poll(testutil.Within(t, testutil.StartLimit), "keys to arrive", func() bool {
			return number(t, c.Nodes[0], "DBSIZE") > before
		})
		if err := errors.Join(err, cmd.Process.Signal(sig)); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			t.Fatalf("the import does not end by %v: %v", sig, err)
		}
		if sig == syscall.SIGINT {
			wantContains(t, "an interrupted import", said.String(), "interrupted", "run the same command again")
		}
	}
	// SCAN may return a key twice while the hash table of the server grows, so
	// only the check at the end has an exact number.
	wantContains(t, "the last import", run(t, args...), fmt.Sprintf("has %d of the %d keys", keys, keys))
	want(t, c.Nodes[0], fmt.Sprintf("(integer) %d", keys), "DBSIZE")
}

// fillLarge writes a value of each collection type. Each value is too large for
// one command. fillLarge also writes a hash that is larger than an argument of
// a command may be.
func fillLarge(t *testing.T, r *process.Node) {
	t.Helper()
	const filled = 20000
	want(t, r, "OK", "CONFIG", "SET", "busy-reply-threshold", "60000")
	do(t, r, "EVAL", `for i = 1, tonumber(ARGV[1]) do
		redis.call('RPUSH', 'l', i, 'e' .. i)
		redis.call('SADD', 's', 'm' .. i)
		redis.call('HSET', 'h', 'f' .. i, i)
		redis.call('ZADD', 'z', i + 0.25, 'm' .. i)
		redis.call('XADD', 'x', i .. '-1', 'f', i)
	end
	for i = 1, 100 do redis.call('HSET', 'long', i, string.rep(i .. ' ', 40000)) end
	redis.call('ZADD', 'z', '-inf', 'a', 'inf', 'b', '1e-300', 'c')
	redis.call('PEXPIRE', 'l', 900000)
	redis.call('XGROUP', 'CREATE', 'x', 'g', '0')
	redis.call('XGROUP', 'CREATE', 'x', 'empty', '5-0')
	redis.call('XGROUP', 'CREATECONSUMER', 'x', 'g', 'idle')
	redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', 3000, 'STREAMS', 'x', '>')
	redis.call('XADD', 'x', '30000-1', 'f', 'deleted')
	redis.call('XDEL', 'x', '30000-1')`, "0", fmt.Sprint(filled))
	do(t, r, "CONFIG", "SET", "proto-max-bulk-len", "512mb")
}

// TestImport_Large imports values that the cluster refuses as one command. Each
// value arrives complete and under its own name only. Without --replace, the
// import never replaces another value.
func TestImport_Large(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--max-write-time", "4ms"}})
	c.start()
	dir := t.TempDir()
	r, n := startRedis(t, dir), c.Nodes[0]
	fillLarge(t, r)
	source := "redis://" + r.Clients
	wantLarge := func(source string) {
		t.Helper()
		wantContains(t, "import", run(t, "import", source, "--addr", n.Clients), "6 of 6 keys", "has 6 of the 6 keys")
		for _, key := range []string{"l", "z"} {
			if do(t, n, "DUMP", key) != do(t, r, "DUMP", key) {
				t.Errorf("the value of %s differs", key)
			}
		}
		for _, c := range []string{
			"LLEN l", "SCARD s", "HLEN h", "HLEN long", "XLEN x", "XINFO GROUPS x", "XPENDING x g", "XINFO STREAM x",
			"XRANGE x 700-1 720-1", "HGET long 37", "HGET h f19999", "SISMEMBER s m12345",
		} {
			words := strings.Fields(c)
			got, w := do(t, n, words...), do(t, r, words...)
			if c == "XINFO STREAM x" { // the nodes of the radix tree are an implementation detail
				got, w = withoutNodes(got), withoutNodes(w)
			}
			if got != w {
				t.Errorf("%s: %.500q, Redis has %.500q", c, got, w)
			}
		}
		if left := number(t, n, "PTTL", "l"); left < 1 || left > 900_000 {
			t.Errorf("PTTL l: %d", left)
		}
		want(t, n, "(integer) -1", "PTTL", "h")
		want(t, n, "(integer) 6", "DBSIZE")
	}
	wantLarge(source)
	wantContains(t, "a second import", run(t, "import", source, "--addr", n.Clients), "6 of 6 keys")

	want(t, n, "(integer) 1", "SREM", "s", "m1")
	want(t, n, "(integer) 0", "HSET", "long", "1", "changed")
	res := invoke(t, nil, "import", source, "--addr", n.Clients)
	wantContains(t, "import over changed keys", res.out+res.errOut, "4 of 6", `"s"`, `"long"`, "--replace", "incomplete")
	want(t, n, "changed", "HGET", "long", "1")
	want(t, n, "(integer) 6", "DBSIZE")
	run(t, "import", source, "--addr", n.Clients, "--replace")
	want(t, n, "(integer) 1", "SISMEMBER", "s", "m1")

	want(t, n, "OK", "FLUSHALL")
	want(t, r, "OK", "SAVE")
	wantLarge(filepath.Join(dir, "dump.rdb"))
}

// withoutNodes returns the reply to XINFO STREAM without the lines about the
// radix tree.
func withoutNodes(reply string) string {
	var lines []string
	skip := false
	for line := range strings.Lines(reply) {
		name := strings.Contains(line, "radix-tree")
		if !name && !skip {
			lines = append(lines, line)
		}
		skip = name
	}
	return strings.Join(lines, "")
}
