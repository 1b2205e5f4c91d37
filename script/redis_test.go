package script_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// redisServer is a real Redis 7 on a socket of its own. The tests compare
// answers with it.
type redisServer struct {
	socket string
	cmd    *exec.Cmd
	dead   chan struct{}
}

func startRedis(tb testing.TB) *redisServer {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("HOLDFAST_REQUIRE_REDIS") == "1" {
			tb.Fatal("redis-server is not installed, and HOLDFAST_REQUIRE_REDIS=1")
		}
		tb.Skip("redis-server is not installed: nothing to compare with")
	}
	dir, err := os.MkdirTemp("", "hf") // the path of a socket must be short
	if err != nil {
		tb.Fatal(err)
	}
	s := &redisServer{socket: filepath.Join(dir, "s"), dead: make(chan struct{})}
	s.cmd = exec.Command(path, "--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.cmd.Process.Kill(); err != nil {
			tb.Log(err)
		}
		<-s.dead
		if err := os.RemoveAll(dir); err != nil {
			tb.Log(err)
		}
	})
	go func() {
		defer close(s.dead)
		_ = s.cmd.Wait() // the test kills it on purpose
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if c, err := net.Dial("unix", s.socket); err == nil {
			if err := c.Close(); err != nil {
				tb.Fatal(err)
			}
			return s
		}
		if time.Now().After(deadline) {
			tb.Fatal("redis-server does not listen")
		}
		time.Sleep(5 * time.Millisecond) // polls for the socket
	}
}

// redisConn is a connection to a redisServer that uses RESP.
type redisConn struct {
	tb testing.TB
	c  net.Conn
	r  *bufio.Reader
	mu sync.Mutex
}

func (s *redisServer) dial(tb testing.TB, proto int) *redisConn {
	tb.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	rc := &redisConn{tb: tb, c: c, r: bufio.NewReader(c)}
	if proto == 3 {
		rc.do("HELLO", "3")
	}
	return rc
}

// do sends a command and returns the encoded reply.
func (c *redisConn) do(args ...string) string {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if err := c.c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.tb.Fatal(err)
	}
	if _, err := io.WriteString(c.c, b.String()); err != nil {
		c.tb.Fatal(err)
	}
	var raw strings.Builder
	c.read(&raw)
	return raw.String()
}

func (c *redisConn) read(raw *strings.Builder) {
	c.tb.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.tb.Fatal(err)
	}
	raw.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return
		}
		buf := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, buf); err != nil {
			c.tb.Fatal(err)
		}
		raw.Write(buf)
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for range max(n, 0) {
			c.read(raw)
		}
	}
}

// fromScript are the errors whose text differs in Redis inside of a script.
var fromScript = []struct{ prefix, text string }{
	{"ERR unknown command", "ERR Unknown Redis command called from script"},
	{"ERR wrong number of arguments", "ERR Wrong number of args calling Redis command from script"},
}

// call implements ScriptCall.Do with a real Redis. RESP3 preserves all types.
func (c *redisConn) call(args [][]byte) fsm.Reply {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = string(a)
	}
	switch strings.ToUpper(list[0]) {
	case "MULTI", "SUBSCRIBE", "BLPOP", "EVAL":
		return fsm.Error("ERR This Redis command is not allowed from script")
	}
	r, rest := toReply(c.do(list...))
	if rest != "" {
		c.tb.Errorf("%q: %q is left of the reply", list, rest)
	}
	if r.IsError() {
		for _, f := range fromScript {
			if strings.HasPrefix(r.Text(), f.prefix) {
				return fsm.Error(f.text)
			}
		}
	}
	return r
}

// toReply parses one value and returns it with the rest of s.
func toReply(s string) (fsm.Reply, string) {
	line, rest, _ := strings.Cut(s, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	if n < 0 && (line[0] == '$' || line[0] == '*') {
		return fsm.Null, rest
	}
	switch line[0] {
	case '+':
		return fsm.Simple(line[1:]), rest
	case '-':
		return fsm.Error(line[1:]), rest
	case ':':
		return fsm.Int(int64(n)), rest
	case ',':
		f, _ := strconv.ParseFloat(line[1:], 64)
		return fsm.Double(f), rest
	case '$':
		return fsm.Bulk(rest[:n]), rest[n+2:]
	case '=':
		return fsm.Verbatim(rest[4:n]), rest[n+2:]
	case '_':
		return fsm.Null, rest
	}
	if line[0] == '%' {
		n *= 2
	}
	elems := make([]fsm.Reply, n)
	for i := range elems {
		elems[i], rest = toReply(rest)
	}
	switch line[0] {
	case '%':
		return fsm.Map(elems), rest
	case '~':
		return fsm.Set(elems), rest
	}
	return fsm.Array(elems), rest
}
