package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// A corpusCase contains the input of a client on a new connection, and all
// bytes that the client must receive. If stranger is set, the server has the
// password "pw"; otherwise, the server has no password.
type corpusCase struct {
	name     string
	in       string
	want     string
	closes   bool   // the server closes the connection
	stranger bool   // the server has a password
	differs  string // why Redis 7.0.15 answers differently, "" if it does not
}

func protocolError(reason string) string { return "-ERR Protocol error: " + reason + "\r\n" }

const (
	pingLine = "*1\r\n$4\r\nPING\r\n"
	pongLine = "+PONG\r\n"
	authLine = "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n"
	guard64K = 64 << 10
)

// The replies that many cases expect.
var (
	multi  = protocolError(badMulti)
	bulk   = protocolError(badBulk)
	quotes = protocolError(badQuotes)
)

// Arguments of 1 MiB and of 16 KiB.
var (
	mebi   = strings.Repeat("v", 1<<20)
	arg16k = strings.Repeat("u", 16<<10)
)

const packets = "Redis drops replies that it has not sent when it closes, which depends on packets"

// expected is the reply to a command that has the character c where a length must begin.
func expected(c string) string { return protocolError("expected '$', got '" + c + "'") }

// noargs is the reply to an unknown command that has no arguments.
func noargs(name string) string {
	return "-ERR unknown command '" + name + "', with args beginning with: \r\n"
}

// corpus contains input of hostile and unusual clients. The limits are
// DefaultLimits.
func corpus() []corpusCase {
	return slices.Concat(wholeCases, emptyCases, countCases, lengthCases, typeCases, cutCases,
		inlineCases, webCases, pipelineCases, strangerCases)
}

// wholeCases are whole commands, in each of the two forms.
var wholeCases = []corpusCase{
	{name: "multibulk", in: pingLine, want: pongLine},
	{name: "two in a packet", in: pingLine + pingLine, want: pongLine + pongLine},
	{name: "inline", in: "PING\r\n", want: pongLine},
	{name: "inline without CR", in: "PING\n", want: pongLine},
	{name: "inline and multibulk mixed", in: "PING\n" + pingLine + "PING a\r\n" + pingLine, want: pongLine + pongLine + "$1\r\na\r\n" + pongLine},
	{name: "nothing", in: "", want: ""},
}

// emptyCases are lines and commands that are empty.
var emptyCases = []corpusCase{
	{name: "empty line", in: "\r\n", want: ""},
	{name: "empty lines around commands", in: "\r\n\n\r\n" + pingLine + "\n\r\n" + pingLine + "\r\n", want: pongLine + pongLine},
	{name: "blank line", in: " \t \r\n" + pingLine, want: pongLine},
	{name: "many empty lines", in: strings.Repeat("\r\n", 10000) + pingLine, want: pongLine},
	{name: "count zero", in: "*0\r\n" + pingLine, want: pongLine},
	{name: "count minus one", in: "*-1\r\n" + pingLine, want: pongLine},
	{name: "count minus two", in: "*-2\r\n" + pingLine, want: pongLine},
	{name: "count smallest int64", in: "*-9223372036854775808\r\n" + pingLine, want: pongLine},
	{name: "count below int64", in: pingLine + "*-9223372036854775809\r\n" + pingLine, want: pongLine + multi, closes: true},
	{name: "zeros between commands", in: pingLine + "*0\r\n*-1\r\n" + pingLine + "*0\r\n", want: pongLine + pongLine},
	{name: "many zeros", in: strings.Repeat("*0\r\n", 5000) + pingLine, want: pongLine},
}

// countCases have unusual counts of arguments.
var countCases = []corpusCase{
	{name: "count largest int64", in: "*9223372036854775807\r\n$3\r\nabc\r\n", want: multi, closes: true},
	{name: "count 9e18", in: "*9000000000000000000\r\n", want: multi, closes: true},
	{name: "count beyond int64", in: "*9223372036854775808\r\n", want: multi, closes: true},
	{name: "count beyond uint64", in: "*18446744073709551617\r\n", want: multi, closes: true},
	{name: "count wraps to one", in: "*18446744073709551617\r\n$4\r\nPING\r\n", want: multi, closes: true},
	{name: "count over int32", in: "*2147483648\r\n", want: multi, closes: true},
	{name: "count over MaxArgs", in: "*1048577\r\n", want: multi, closes: true, differs: "Redis takes up to 2^31-1 arguments"},
	{name: "count MaxArgs and no more", in: "*1048576\r\n", want: ""},
	{name: "count a word", in: pingLine + "*abc\r\n" + pingLine, want: pongLine + multi, closes: true},
	{name: "count empty", in: "*\r\n", want: multi, closes: true},
	{name: "count with plus", in: "*+1\r\n", want: multi, closes: true},
	{name: "count with leading zero", in: "*01\r\n$4\r\nPING\r\n", want: multi, closes: true},
	{name: "count of zeros", in: "*" + strings.Repeat("0", 100) + "\r\n", want: multi, closes: true},
	{name: "count with leading blank", in: "* 1\r\n", want: multi, closes: true},
	{name: "count with trailing blank", in: "*1 \r\n", want: multi, closes: true},
	{name: "count minus zero", in: "*-0\r\n", want: multi, closes: true},
	{name: "count minus", in: "*-\r\n", want: multi, closes: true},
	{name: "count minus minus", in: "*--1\r\n", want: multi, closes: true},
	{name: "count hex", in: "*0x1\r\n", want: multi, closes: true},
	{name: "count with underscore", in: "*1_0\r\n", want: multi, closes: true},
	{name: "count line ends with LF only", in: "*1\n$4\nPING\n", want: ""},
	{name: "count line with LF inside", in: "*1\n$4\nPING\n\r\n", want: multi, closes: true},
	{name: "count line CR without LF", in: "*1\rX$4\rYPINGZZ" + pingLine, want: pongLine + pongLine},
	{name: "count with NUL", in: "*1\x00\r\n$4\r\nPING\r\n", want: ""},
	{name: "count line endless", in: "*" + strings.Repeat("1", guard64K), want: protocolError(longMulti), closes: true},
	{name: "count line endless by NUL", in: "*1\x00\r\n" + strings.Repeat("PING\r\n", guard64K/6+1), want: protocolError(longMulti), closes: true},
	{name: "count line just short of endless", in: "*" + strings.Repeat("1", guard64K-1), want: ""},
}

// lengthCases have unusual lengths of arguments, or arguments that do not have
// their stated length.
var lengthCases = []corpusCase{
	{name: "length largest int64", in: "*1\r\n$9223372036854775807\r\nabc\r\n", want: bulk, closes: true},
	{name: "length smallest int64", in: "*1\r\n$-9223372036854775808\r\n", want: bulk, closes: true},
	{name: "length wraps to four", in: "*1\r\n$18446744073709551620\r\nPING\r\n", want: bulk, closes: true},
	{name: "length just below int64 overflow", in: "*1\r\n$9223372036854775800\r\nPING\r\n", want: bulk, closes: true},
	{name: "length of second argument largest int64", in: "*2\r\n$4\r\nPING\r\n$9223372036854775807\r\n", want: bulk, closes: true},
	{name: "length minus one", in: "*1\r\n$-1\r\n", want: bulk, closes: true},
	{name: "length minus two", in: "*1\r\n$-2\r\n", want: bulk, closes: true},
	{name: "length minus five after a command", in: pingLine + "*1\r\n$-5\r\n" + pingLine, want: pongLine + bulk, closes: true},
	{name: "length minus zero", in: "*1\r\n$-0\r\n", want: bulk, closes: true},
	{name: "length with plus", in: "*1\r\n$+1\r\n", want: bulk, closes: true},
	{name: "length with leading zero", in: "*1\r\n$01\r\n", want: bulk, closes: true},
	{name: "length with leading blank", in: "*1\r\n$ 1\r\n", want: bulk, closes: true},
	{name: "length empty", in: "*1\r\n$\r\n", want: bulk, closes: true},
	{name: "length of thirty digits", in: "*1\r\n$" + strings.Repeat("1", 30) + "\r\n", want: bulk, closes: true},
	{name: "length over MaxBulk", in: "*1\r\n$1048577\r\n", want: bulk, closes: true},
	{name: "length far over MaxBulk", in: "*1\r\n$600000000\r\n", want: bulk, closes: true},
	{name: "length MaxBulk and no more", in: "*1\r\n$1048576\r\nxyz", want: ""},
	{name: "length zero", in: "*1\r\n$0\r\n\r\n", want: noargs("")},
	{name: "length zero of an argument", in: "*2\r\n$4\r\nPING\r\n$0\r\n\r\n", want: "$0\r\n\r\n"},
	{name: "length line CR without LF", in: "*1\r\n$4\rXPING\r\n", want: pongLine},
	{name: "length line with NUL", in: "*1\r\n$4\x00\r\nPING\r\n", want: ""},
	{name: "length line endless", in: "*1\r\n$" + strings.Repeat("1", guard64K), want: protocolError(longBulk), closes: true},
	{name: "length line endless without dollar", in: "*1\r\n" + strings.Repeat("x", guard64K+1), want: protocolError(longBulk), closes: true},
	{name: "argument of MaxBulk", in: "*2\r\n$4\r\nECHO\r\n$1048576\r\n" + mebi + "\r\n" + pingLine, want: "$1048576\r\n" + mebi + "\r\n" + pongLine},
	{name: "argument larger than its length", in: "*1\r\n$4\r\nPINGPING\r\n", want: pongLine + noargs("NG")},
	{name: "argument with any end", in: "*1\r\n$4\r\nPINGxy" + pingLine, want: pongLine + pongLine},
	{name: "argument with NUL and CR LF", in: "*2\r\n$4\r\nECHO\r\n$5\r\na\x00\r\nb\r\n", want: "$5\r\na\x00\r\nb\r\n"},
	{name: "argument that looks like a frame", in: "*2\r\n$4\r\nECHO\r\n$14\r\n" + pingLine + "\r\n", want: "$14\r\n" + pingLine + "\r\n"},
	{name: "command over MaxCommand", in: "*9\r\n$4\r\nPING\r\n" + strings.Repeat("$1048576\r\n"+mebi+"\r\n", 7) + "$1048576\r\n", want: protocolError("too big command, the limit is 8388608 bytes"), closes: true, differs: "Redis allows 1 GB"},
}

// typeCases have a byte other than $ where a length must begin.
var typeCases = []corpusCase{
	{name: "got plus", in: "*1\r\n+PING\r\n", want: expected("+"), closes: true},
	{name: "got letter", in: "*1\r\nPING\r\n", want: expected("P"), closes: true},
	{name: "got star", in: "*1\r\n*1\r\n", want: expected("*"), closes: true},
	{name: "got CR", in: "*1\r\n\r\n\r\n", want: expected(" "), closes: true},
	{name: "got LF", in: "*1\r\n\n\r\n", want: expected(" "), closes: true},
	{name: "got byte 255", in: "*1\r\n\xff\r\n", want: expected("\xff"), closes: true},
	{name: "got plus for the second argument", in: pingLine + "*2\r\n$4\r\nECHO\r\n:1\r\n", want: pongLine + expected(":"), closes: true},
	{name: "got plus, line not ended", in: "*1\r\n+PING", want: ""},
	{name: "got plus, line ended by half", in: "*1\r\n+PING\r", want: ""},
	{name: "got NUL", in: "*1\r\n\x00\r\n", want: ""},
	{name: "bulk without count", in: "$4\r\nPING\r\n", want: noargs("$4") + pongLine},
	{name: "status line", in: "+PING\r\n", want: noargs("+PING")},
}

// cutCases are commands that end too early.
var cutCases = []corpusCase{
	{name: "incomplete count", in: pingLine + "*1", want: pongLine},
	{name: "incomplete length", in: pingLine + "*1\r\n$4\r", want: pongLine},
	{name: "incomplete argument", in: pingLine + "*1\r\n$4\r\nPIN", want: pongLine},
	{name: "incomplete end", in: pingLine + "*1\r\n$4\r\nPING\r", want: pongLine},
	{name: "incomplete inline", in: pingLine + "PING", want: pongLine},
}

// inlineCases are commands on a line of text.
var inlineCases = []corpusCase{
	{name: "inline quotes", in: `PING "b c"` + "\r\n", want: "$3\r\nb c\r\n"},
	{name: "inline single quotes", in: `PING 'b\'c\n'` + "\r\n", want: "$5\r\nb'c\\n\r\n"},
	{name: "inline escapes", in: `PING "a\n\r\t\b\a\q\\\"\x41\xfF\xg1\x4"` + "\r\n", want: "$16\r\na\n\r\t\b\aq\\\"A\xffxg1x4\r\n"},
	{name: "inline quote inside a word", in: `PI"NG" ab'c d'` + "\r\n", want: "$5\r\nabc d\r\n"},
	{name: "inline empty quotes", in: `PING ""` + "\r\n", want: "$0\r\n\r\n"},
	{name: "inline empty name", in: `""` + "\r\n", want: noargs("")},
	{name: "inline blanks", in: "\t\v PING \f\v\t x \r\r\n", want: "$1\r\nx\r\n"},
	{name: "inline vertical tab inside a word", in: "PING a\vb\r\n", want: "$3\r\na\vb\r\n"},
	{name: "inline CR inside", in: "PING\rx\r\n", want: "$1\r\nx\r\n"},
	{name: "inline unbalanced", in: pingLine + `PING "b` + "\r\n" + pingLine, want: pongLine + quotes, closes: true},
	{name: "inline unbalanced single", in: `PING 'b` + "\r\n", want: quotes, closes: true},
	{name: "inline text after a quote", in: `PING "b"c` + "\r\n", want: quotes, closes: true},
	{name: "inline ends in a backslash", in: `PING "b\` + "\r\n", want: quotes, closes: true},
	{name: "inline ends in half an escape", in: `PING "\x4` + "\r\n", want: quotes, closes: true},
	{name: "inline ends in no escape", in: `PING "\x` + "\n", want: quotes, closes: true},
	{name: "inline too big", in: strings.Repeat("x", guard64K+1), want: protocolError(longInline), closes: true},
	{name: "inline as big as it may be", in: "PING " + strings.Repeat("x", guard64K-6) + "\r\n", want: "$65530\r\n" + strings.Repeat("x", guard64K-6) + "\r\n"},
	{name: "inline with NUL", in: "a\x00b\r\nPING\r\n", want: ""},
	{name: "inline endless by NUL", in: "a\x00" + strings.Repeat("PING\r\n", guard64K/6+1), want: protocolError(longInline), closes: true},
	{name: "TLS hello", in: "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n", want: ""},
}

// webCases are requests of a web browser.
var webCases = []corpusCase{
	{name: "POST", in: "POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n", want: "", closes: true},
	{name: "post alone", in: "post\r\n", want: "", closes: true},
	{name: "Host", in: "HOST: x\r\nPING\r\n", want: "", closes: true},
	{name: "GET over HTTP", in: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", want: "", closes: true},
	{name: "Host after a command", in: "PING\r\nhost: x\r\nPING\r\n", want: pongLine, closes: true, differs: packets},
	{name: "POST as multibulk", in: "*1\r\n$4\r\nPoSt\r\n" + pingLine, want: "", closes: true},
	{name: "Host as multibulk", in: "*2\r\n$5\r\nhost:\r\n$1\r\nx\r\n", want: "", closes: true},
	{name: "POST as argument", in: "PING POST\r\nPING Host:\r\n", want: "$4\r\nPOST\r\n$5\r\nHost:\r\n"},
	{name: "POSTX", in: "POSTX\r\n", want: noargs("POSTX")},
}

// pipelineCases are pipelines.
var pipelineCases = []corpusCase{
	{name: "long pipeline", in: strings.Repeat(pingLine, 3000), want: strings.Repeat(pongLine, 3000)},
	{name: "long pipeline then an error", in: strings.Repeat(pingLine, 1000) + "*1\r\n$x\r\n" + pingLine, want: strings.Repeat(pongLine, 1000) + bulk, closes: true},
	{name: "long inline pipeline", in: strings.Repeat("PING\n", 3000), want: strings.Repeat(pongLine, 3000)},
	{name: "large then small", in: "*2\r\n$4\r\nECHO\r\n$100000\r\n" + mebi[:100000] + "\r\n" + strings.Repeat(pingLine, 500), want: "$100000\r\n" + mebi[:100000] + "\r\n" + strings.Repeat(pongLine, 500)},
}

// strangerCases are clients that have not logged in.
var strangerCases = []corpusCase{
	{name: "stranger, 10 arguments", in: "*10\r\n", want: "", stranger: true},
	{name: "stranger, 11 arguments", in: "*11\r\n", want: protocolError(unauthMulti), closes: true, stranger: true},
	{name: "stranger, 2000000 arguments", in: "*2000000\r\n", want: protocolError(unauthMulti), closes: true, stranger: true},
	{name: "stranger, 2^31 arguments", in: "*2147483648\r\n", want: multi, closes: true, stranger: true},
	{name: "stranger, 16 KiB", in: "*2\r\n$4\r\nECHO\r\n$16384\r\n" + arg16k + "\r\n", want: "-NOAUTH Authentication required.\r\n", stranger: true},
	{name: "stranger, over 16 KiB", in: "*1\r\n$16385\r\n", want: protocolError(unauthBulk), closes: true, stranger: true},
	{name: "stranger, over MaxBulk", in: "*1\r\n$1048577\r\n", want: bulk, closes: true, stranger: true},
	{name: "stranger pipelines", in: pingLine + "PING\r\n*0\r\n" + pingLine, want: strings.Repeat("-NOAUTH Authentication required.\r\n", 3), stranger: true},
	{name: "stranger posts", in: "*1\r\n$4\r\nPOST\r\n", want: "", closes: true, stranger: true},
	{name: "AUTH and a large command in one packet", in: authLine + "*2\r\n$4\r\nECHO\r\n$16385\r\n" + mebi[:16385] + "\r\n", want: "+OK\r\n$16385\r\n" + mebi[:16385] + "\r\n", stranger: true},
	{name: "AUTH and 11 arguments in one packet", in: "AUTH pw\r\n*11\r\n", want: "+OK\r\n", stranger: true},
	{name: "wrong AUTH and 11 arguments in one packet", in: "AUTH xx\r\n*11\r\n", want: "-WRONGPASS invalid username-password pair or user is disabled.\r\n" + protocolError(unauthMulti), closes: true, stranger: true},
}

// testHandler returns a handler that replies to the commands of the corpus as
// Redis does.
func testHandler(password string) func(redcon.Conn, redcon.Command) {
	return func(c redcon.Conn, cmd redcon.Command) {
		g := c.NetConn().(*Conn)
		name := strings.ToUpper(string(cmd.Args[0]))
		switch {
		case name == "AUTH" && len(cmd.Args) == 2:
			if string(cmd.Args[1]) != password {
				c.WriteError("WRONGPASS invalid username-password pair or user is disabled.")
				return
			}
			g.SetAuthenticated(true)
			c.WriteString("OK")
		case !g.Authenticated():
			c.WriteError("NOAUTH Authentication required.")
		case name == "PING" && len(cmd.Args) == 1:
			c.WriteString("PONG")
		case (name == "PING" || name == "ECHO") && len(cmd.Args) == 2:
			c.WriteBulk(cmd.Args[1])
		default:
			text := "ERR unknown command '" + toNUL(cmd.Args[0]) + "', with args beginning with: "
			for _, arg := range cmd.Args[1:] {
				text += "'" + toNUL(arg) + "' "
			}
			c.WriteRaw([]byte("-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(text) + "\r\n"))
		}
	}
}

// toNUL returns the part of arg before the first NUL, which C's printf prints.
func toNUL(arg []byte) string {
	before, _, _ := bytes.Cut(arg, []byte{0})
	return string(before)
}

// A testServer is a redcon server behind a Listener on a loopback port.
type testServer struct {
	*Listener
	addr     string
	protocol atomic.Int64 // number of calls of the hook ProtocolError
	cross    atomic.Int64
	write    chan struct{} // receives one value for each write timeout
}

// serveTest starts a server. For each connection, cut returns a function that
// returns the maximum number of bytes of each read from the socket.
func serveTest(t testing.TB, l Limits, password string, cut func() func() int) *testServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{addr: ln.Addr().String(), write: make(chan struct{}, 1)}
	s.Listener = NewListener(cutListener{ln, cut}, l, Hooks{
		ProtocolError: func(*Conn, string) { s.protocol.Add(1) },
		CrossProtocol: func(*Conn) { s.cross.Add(1) },
		Timeout: func(_ *Conn, kind string) {
			if kind == "write" {
				s.write <- struct{}{}
			}
		},
		AcceptError: func(err error, _ time.Duration) { t.Log(err) },
	})
	accept := func(c redcon.Conn) bool {
		c.NetConn().(*Conn).SetAuthenticated(password == "")
		return true
	}
	done := make(chan error, 1)
	go func() { done <- redcon.Serve(s.Listener, testHandler(password), accept, nil) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

type cutListener struct {
	net.Listener
	cut func() func() int // nil: no limit
}

func (l cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.cut == nil {
		return c, err
	}
	return &cutConn{c.(*net.TCPConn), l.cut()}, nil
}

type cutConn struct {
	*net.TCPConn
	next func() int
}

func (c *cutConn) Read(p []byte) (int, error) {
	return c.TCPConn.Read(p[:min(len(p), c.next())])
}

// oneByte and random limit the reads to one byte and to random sizes.
func oneByte() func() int { return func() int { return 1 } }

func random(seed uint64) func() func() int {
	return func() func() int {
		r := rand.New(rand.NewPCG(seed, 1))
		return func() int { return 1 + r.IntN(1<<r.IntN(14)) }
	}
}

// ask sends input on a new connection and returns everything that it receives.
// If closes is set, the server must close the connection. Otherwise ask closes
// its sending side after it has received len(want) bytes.
func ask(network, addr, in, want string, closes bool) (string, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, in) // fails if the server does not read the rest
	}()
	var out bytes.Buffer
	if !closes {
		_, err = io.CopyN(&out, c, int64(len(want)))
		<-sent
		if err == nil {
			err = c.(interface{ CloseWrite() error }).CloseWrite()
		}
	}
	if err == nil {
		_, err = io.Copy(&out, c)
	}
	if closes && errors.Is(err, syscall.ECONNRESET) {
		err = nil // the server has closed the connection with unread input
	}
	c.Close()
	<-sent
	return out.String(), err
}

func short(s string) string {
	if len(s) > 200 {
		return strconv.Quote(s[:150]) + "..." + strconv.Quote(s[len(s)-50:]) + fmt.Sprintf(" (%d bytes)", len(s))
	}
	return strconv.Quote(s)
}

func TestCorpus(t *testing.T) {
	for _, way := range []struct {
		name string
		cut  func() func() int
	}{
		{"whole", nil},
		{"one byte", oneByte},
		{"random 1", random(1)},
		{"random 2", random(2)},
		{"random 3", random(3)},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			open := serveTest(t, DefaultLimits(), "", way.cut)
			locked := serveTest(t, DefaultLimits(), "pw", way.cut)
			bystander, err := net.Dial("tcp", open.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer bystander.Close()
			for _, c := range corpus() {
				if way.name == "one byte" && len(c.in) > 1<<20 {
					continue // TestLinear does this without a system call per byte
				}
				s := open
				if c.stranger {
					s = locked
				}
				before := s.protocol.Load() + s.cross.Load()
				got, err := ask("tcp", s.addr, c.in, c.want, c.closes)
				if got != c.want || err != nil {
					t.Errorf("%s: sent %s\ngot  %s, %v\nwant %s", c.name, short(c.in), short(got), err, short(c.want))
				}
				if refused := s.protocol.Load()+s.cross.Load() > before; refused != c.closes {
					t.Errorf("%s: the guard refused the input: %v, want %v", c.name, refused, c.closes)
				}
				pingBystander(t, bystander, c.name)
			}
		})
	}
}

func pingBystander(t *testing.T, c net.Conn, after string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, pingLine); err != nil {
		t.Fatalf("after %s, another connection failed: %v", after, err)
	}
	got := make([]byte, len(pongLine))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != pongLine {
		t.Fatalf("after %s, another connection got %q, %v, want the reply to its PING", after, got, err)
	}
}

// TestAgainstRedis compares the expected replies of the corpus with the replies of
// a real Redis.
func TestAgainstRedis(t *testing.T) {
	open := testutil.StartRedis(t, "--proto-max-bulk-len", "1mb")
	locked := testutil.StartRedis(t, "--proto-max-bulk-len", "1mb", "--requirepass", "pw")
	for _, c := range corpus() {
		if c.differs != "" {
			continue
		}
		sock := open
		if c.stranger {
			sock = locked
		}
		got, err := ask("unix", sock, c.in, c.want, c.closes)
		if got != c.want || err != nil {
			t.Errorf("%s: sent %s\nRedis answers %s, %v\nthe corpus has %s", c.name, short(c.in), short(got), err, short(c.want))
		}
	}
}

// TestRandomAgainstRedis generates input from pieces that matter to a
// parser, and requires the same replies as from a real Redis, byte for byte.
func TestRandomAgainstRedis(t *testing.T) {
	sock := testutil.StartRedis(t, "--proto-max-bulk-len", "1mb")
	s := serveTest(t, DefaultLimits(), "", random(11))
	pieces := []string{"x", "y", "*1\r\n", "*2\r\n", "$1\r\n", "$2\r\n", "$0\r\n", "\r\n", "\r\n", "\r\n",
		"\r", "\n", " ", "\t", "\v", "\"", "\"", "'", "'", "\\", "\\x41", "\\n", "*", "$", "-", "0", "1", "2", "\x00", "\xff",
		"*1\r\n$1\r\nz\r\n", "*2\r\n$1\r\nz\r\n$2\r\n", "*1\r\n$", "*2\r\n$1\r\nz\r\n$"}
	r := rand.New(rand.NewPCG(20, 26))
	answers := map[string]int{}
	for range 3000 {
		var in strings.Builder
		for range 1 + r.IntN(12) {
			in.WriteString(pieces[r.IntN(len(pieces))])
		}
		want, err := ask("unix", sock, in.String(), "", false)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ENOTCONN) {
			t.Fatal(err)
		}
		got, err := ask("tcp", s.addr, in.String(), "", false)
		if got != want || err != nil {
			t.Errorf("sent %q\ngot  %q, %v\nwant %q", in.String(), got, err, want)
		}
		for _, kind := range []string{"unknown command", badMulti, badBulk, badQuotes, "expected '$'"} {
			answers[kind] += strings.Count(got, kind)
		}
	}
	for kind, n := range answers {
		if n < 20 {
			t.Errorf("%q was the reply to only %d random inputs: choose pieces that cause it more often", kind, n)
		}
	}
	t.Log(answers)
}
