package guard

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// fuzzLimits are small, so that short inputs reach them.
func fuzzLimits() Limits {
	l := DefaultLimits()
	l.MaxArgs, l.MaxBulk, l.MaxInline, l.MaxCommand = 40, 6000, 64, 10000
	l.UnauthArgs, l.UnauthBulk = 3, 16
	return l
}

// An outcome is the output of a guard, and of redcon behind it.
type outcome struct {
	commands [][]byte
	replies  string // protocol errors of the guard
	err      error
}

// FuzzGuard sends any input in any packets through a guard to redcon. redcon
// must not panic. The result must equal that of the function reference, which
// reads the whole input at once. The guard's memory must be bounded.
func FuzzGuard(f *testing.F) {
	for i, c := range corpus() {
		if len(c.in) < 20000 {
			f.Add([]byte(c.in), uint64(i), !c.stranger)
		}
	}
	long := strings.Repeat("x", 6000)
	f.Add([]byte("*2\r\n$4\r\nECHO\r\n$6000\r\n"+long+"\r\n"+pingLine+"PING\n"), uint64(1), true)
	f.Add([]byte(strings.Repeat("*2\r\n$4\r\nECHO\r\n$900\r\n"+long[:900]+"\r\n", 12)), uint64(2), true)
	f.Add([]byte("*4\r\n$4\r\nPING\r\n$6000\r\n"+long+"\r\n$6000\r\n"), uint64(3), true)
	f.Add([]byte(strings.Repeat("\"x\" 'y'\r\n", 700)), uint64(4), true)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, auth bool) {
		limits := fuzzLimits()
		want := reference(in, limits, auth)
		for name, next := range map[string]func() int{
			"whole":    nil,
			"one byte": oneByte(),
			"random":   random(seed)(),
		} {
			got := throughRedcon(t, in, limits, auth, next)
			compare(t, "redcon, "+name, got, want)
			got = throughSizes(t, in, limits, auth, next, seed)
			compare(t, "any buffer, "+name, got, want)
		}
	})
}

func compare(t *testing.T, how string, got, want outcome) {
	t.Helper()
	for i := range min(len(got.commands), len(want.commands)) {
		if !bytes.Equal(got.commands[i], want.commands[i]) {
			t.Fatalf("%s: command %d: got %q, want %q", how, i, got.commands[i], want.commands[i])
		}
	}
	if len(got.commands) != len(want.commands) || got.replies != want.replies || !errors.Is(got.err, want.err) {
		t.Fatalf("%s: got %d commands, the replies %q, %v, want %d commands, %q, %v", how,
			len(got.commands), got.replies, got.err, len(want.commands), want.replies, want.err)
	}
}

// throughRedcon returns the commands that redcon parses.
func throughRedcon(t *testing.T, in []byte, l Limits, auth bool, next func() int) outcome {
	feed := &feed{in: bytes.Clone(in), next: next}
	g := New(feed, l, Hooks{})
	g.SetAuthenticated(auth)
	var res outcome
	for r := redcon.NewReader(g); res.err == nil; {
		var cmd redcon.Command
		if cmd, res.err = r.ReadCommand(); res.err == nil {
			res.commands = append(res.commands, cmd.Raw)
			if canonical := encode(nil, cmd.Args); !bytes.Equal(canonical, cmd.Raw) {
				t.Fatalf("redcon got %q, want the canonical form %q", cmd.Raw, canonical)
			}
		}
		bounded(t, g, l, len(in))
	}
	res.replies = feed.replies.String()
	return res
}

// throughSizes reads with buffers of random sizes, and splits the bytes into
// commands.
func throughSizes(t *testing.T, in []byte, l Limits, auth bool, next func() int, seed uint64) outcome {
	feed := &feed{in: bytes.Clone(in), next: next}
	g := New(feed, l, Hooks{})
	g.SetAuthenticated(auth)
	r := rand.New(rand.NewPCG(seed, 2))
	var res outcome
	var out []byte
	for res.err == nil {
		p := make([]byte, 1+r.IntN(1<<r.IntN(14)))
		var n int
		n, res.err = g.Read(p)
		if n == 0 && res.err == nil || n > 0 && res.err != nil {
			t.Fatalf("Read returned %d, %v, want either bytes or an error", n, res.err)
		}
		out = append(out, p[:n]...)
		bounded(t, g, l, len(in))
	}
	res.replies = feed.replies.String()
	rd := redcon.NewReader(bytes.NewReader(out))
	for {
		cmd, err := rd.ReadCommand()
		if err == io.EOF {
			return res
		}
		if err != nil {
			t.Fatal(err)
		}
		res.commands = append(res.commands, cmd.Raw)
	}
}

func bounded(t *testing.T, g *Conn, l Limits, received int) {
	if got, most := cap(g.buf), min(2*received, l.MaxCommand+l.MaxInline)+2*maxBatch; got > most {
		t.Fatalf("the guard's buffer has %d bytes, want at most %d", got, most)
	}
}

// reference parses its input as Redis parses a complete query buffer. It is a
// simple parser that sees the whole input. It shares with the guard only the
// functions splitInline, isWebRequest and encode.
func reference(in []byte, l Limits, auth bool) (res outcome) {
	res.err = io.EOF
	fail := func(reason string) { res.replies = protocolError(reason) }
	maxBulk := func(n int64) string {
		switch {
		case n < 0 || n > int64(l.MaxBulk):
			return "invalid bulk length"
		case n > int64(l.UnauthBulk) && !auth:
			return "unauthenticated bulk length"
		}
		return ""
	}
	for len(in) > 0 {
		if in[0] != '*' {
			end := lineEnd(in, '\n')
			if end > l.MaxInline || end < 0 && len(in) > l.MaxInline {
				fail("too big inline request")
				return res
			}
			if end < 0 {
				return res
			}
			args, ok := splitInline(bytes.TrimSuffix(in[:end], []byte("\r")))
			if !ok {
				fail("unbalanced quotes in request")
				return res
			}
			if isWebRequest(args) {
				return res
			}
			if len(args) > 0 {
				res.commands = append(res.commands, encode(nil, args))
			}
			in = in[end+1:]
			continue
		}
		end := lineEnd(in, '\r')
		if end > l.MaxInline || end < 0 && len(in) > l.MaxInline {
			fail("too big mbulk count string")
			return res
		}
		if end < 0 || end+1 >= len(in) {
			return res
		}
		count, ok := referenceNumber(in[1:end])
		switch {
		case !ok || count > math.MaxInt32:
			fail("invalid multibulk length")
			return res
		case count > int64(l.UnauthArgs) && !auth:
			fail("unauthenticated multibulk length")
			return res
		case count > int64(l.MaxArgs):
			fail("invalid multibulk length")
			return res
		}
		at := end + 2
		var args [][]byte
		for int64(len(args)) < count {
			line := in[at:]
			end := lineEnd(line, '\r')
			if end > l.MaxInline || end < 0 && len(line) > l.MaxInline {
				fail("too big bulk count string")
				return res
			}
			if end < 0 || end+1 >= len(line) {
				return res
			}
			if line[0] != '$' {
				fail("expected '$', got '" + strings.NewReplacer("\r", " ", "\n", " ").Replace(string(line[:1])) + "'")
				return res
			}
			n, ok := referenceNumber(line[1:end])
			if !ok {
				n = -1
			}
			if reason := maxBulk(n); reason != "" {
				fail(reason)
				return res
			}
			if at+end+2+int(n)+2 > l.MaxCommand {
				fail("too big command, the limit is " + strconv.Itoa(l.MaxCommand) + " bytes")
				return res
			}
			if len(line) < end+2+int(n)+2 {
				return res
			}
			args = append(args, line[end+2:end+2+int(n)])
			at += end + 2 + int(n) + 2
			if name := strings.ToLower(string(args[0])); len(args) == 1 && (name == "post" || name == "host:") {
				return res
			}
		}
		if len(args) > 0 {
			res.commands = append(res.commands, encode(nil, args))
		}
		in = in[at:]
	}
	return res
}

// lineEnd implements C's strchr: it returns the index of the byte end, or -1 if b
// does not contain this byte or a NUL precedes it.
func lineEnd(b []byte, end byte) int {
	if nul := bytes.IndexByte(b, 0); nul >= 0 {
		b = b[:nul]
	}
	return bytes.IndexByte(b, end)
}

// referenceNumber is string2ll: it accepts a number only in the form in
// which it would be printed.
func referenceNumber(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == string(b)
}
