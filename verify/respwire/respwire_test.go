package respwire_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

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

// The connection may end within a reply, and must not be taken for one that
// ended between two replies.
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
