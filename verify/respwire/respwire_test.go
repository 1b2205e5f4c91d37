package respwire_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// replies has an encoding of every kind, each with its value as show prints it.
var replies = []struct{ raw, want string }{
	{"+OK\r\n", "+OK"},
	{"-ERR no\r\n", "-error ERR no"},
	{":-12\r\n", ":-12 = -12"},
	{"$4\r\na\r\nb\r\n", "$a\r\nb"},
	{"$0\r\n\r\n", "$"},
	{"$-1\r\n", "$null"},
	{"*-1\r\n", "*null"},
	{"_\r\n", "_null"},
	{"#t\r\n", "#t"},
	{",1.5\r\n", ",1.5"},
	{"(123\r\n", "(123"},
	{"=5\r\ntxt:a\r\n", "=txt:a"},
	{"*0\r\n", "*"},
	{"*2\r\n:1\r\n*1\r\n$-1\r\n", "*[:1 = 1][*[$null]]"},
	{"~1\r\n+a\r\n", "~[+a]"},
	{"%1\r\n+a\r\n%0\r\n", "%[+a][%]"},
	{">2\r\n$1\r\na\r\n_\r\n", ">[$a][_null]"},
}

func show(v respwire.Value) string {
	s := string(v.Kind)
	switch {
	case v.Null:
		s += "null"
	case v.IsError():
		s += "error " + v.Err
	case v.Kind == ':':
		s += fmt.Sprint(v.Text, " = ", v.Int)
	default:
		s += v.Text
	}
	for _, e := range v.Elems {
		s += "[" + show(e) + "]"
	}
	return s
}

// TestString checks the result of String for each of the replies.
func TestString(t *testing.T) {
	want := []string{"OK", "ERR no", "(integer) -12", "a\r\nb", "", "(nil)", "(nil)", "(nil)", "t", "1.5", "123", "txt:a",
		"[]", "[(integer) 1 [(nil)]]", "[a]", "[a []]", "[a (nil)]"}
	for i, c := range replies {
		if v, _, err := respwire.Parse([]byte(c.raw)); err != nil || v.String() != want[i] {
			t.Errorf("%q: %q, %v, want %q", c.raw, v, err, want[i])
		}
	}
}

// serve listens on a new port and returns its address. It answers each command
// with the next of the replies, and does not answer further commands.
func serve(t *testing.T, replies ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close() // ends Accept
		<-ended
	})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for r := bufio.NewReader(conn); ; {
			if _, err := respwire.Read(r); err != nil {
				return
			}
			if len(replies) > 0 {
				if _, err := io.WriteString(conn, replies[0]); err != nil {
					return
				}
				replies = replies[1:]
			}
		}
	}()
	return l.Addr().String()
}

func TestConnect(t *testing.T) {
	c, err := respwire.Connect(serve(t, "%1\r\n$1\r\nk\r\n$1\r\nv\r\n", "-ERR no\r\n", "-ERR no\r\n"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := respwire.NoError(c.Do("HELLO")); err != nil || !maps.Equal(v.Pairs(), map[string]string{"k": "v"}) {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := c.Do("GET", "k"); err != nil || v.Err != "ERR no" {
		t.Errorf("%v, %v", v, err)
	}
	var refusal respwire.ErrorReply
	if _, err := respwire.NoError(c.Do("GET", "k")); !errors.As(err, &refusal) || refusal != "ERR no" {
		t.Error(err)
	}
	c.Limit = 20 * time.Millisecond
	if v, err := respwire.NoError(c.Do("GET", "k")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, %v, want the end of the limit", v, err)
	}
}

func TestParse(t *testing.T) {
	for _, c := range replies {
		v, rest, err := respwire.Parse([]byte(c.raw + "+next\r\n"))
		if err != nil || show(v) != c.want || string(v.Raw) != c.raw || string(rest) != "+next\r\n" {
			t.Errorf("%q: %q, the encoding %q, the rest %q, %v", c.raw, show(v), v.Raw, rest, err)
		}
		for n := range len(c.raw) {
			if _, _, err := respwire.Parse([]byte(c.raw[:n])); !errors.Is(err, respwire.ErrIncomplete) {
				t.Errorf("%q: %v", c.raw[:n], err)
			}
		}
	}
}

// TestRead checks that Read distinguishes a connection that ends within a reply
// from one that ends between two replies.
func TestRead(t *testing.T) {
	for _, c := range replies {
		r := bufio.NewReaderSize(strings.NewReader(c.raw+c.raw), 16)
		for range 2 {
			if v, err := respwire.Read(r); err != nil || show(v) != c.want || string(v.Raw) != c.raw {
				t.Errorf("%q: %q, the encoding %q, %v", c.raw, show(v), v.Raw, err)
			}
		}
		if _, err := respwire.Read(r); err != io.EOF {
			t.Errorf("after %q: %v", c.raw, err)
		}
		for n := 1; n < len(c.raw); n++ {
			r := bufio.NewReader(strings.NewReader(c.raw[:n]))
			if _, err := respwire.Read(r); err != io.ErrUnexpectedEOF {
				t.Errorf("%q: %v", c.raw[:n], err)
			}
		}
	}
}

func TestRead_Malformed(t *testing.T) {
	for _, raw := range []string{
		"\r\n", "\n", "OK\r\n", "+OK\n", ":\r\n", ":a\r\n", "$a\r\n", "$1\r\nabc", "*x\r\n", "$9223372036854775807\r\n",
		"*1\r\n*1\r\n!\r\n",
	} {
		if _, err := respwire.Read(bufio.NewReader(strings.NewReader(raw))); !errors.Is(err, respwire.ErrProtocol) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestParseAll(t *testing.T) {
	all, err := respwire.ParseAll([]byte(":1\r\n*1\r\n$1\r\na\r\n"))
	if err != nil || len(all) != 2 || all[0].Int != 1 || !slices.Equal(all[1].Texts(), []string{"a"}) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := respwire.ParseAll([]byte(":1\r\n$1\r\n")); !errors.Is(err, respwire.ErrIncomplete) {
		t.Error(err)
	}
}

func TestLines(t *testing.T) {
	const want = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na \r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
	if got := string(respwire.Lines("PING", `  SET  k "a \r\n" `, `GET ""`)); got != want {
		t.Errorf("%q", got)
	}
	if got := string(respwire.Pipeline([]string{"PING"}, []string{"SET", "k", "a \r\n"}, []string{"GET", ""})); got != want {
		t.Errorf("%q", got)
	}
}
