package matrix

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"strings"
)

// wire is a connection on which a library is replayed.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
	addr string
}

// dialWire connects to addr. The deadline of ctx applies to everything that is
// sent and received later.
func dialWire(ctx context.Context, addr string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return &wire{conn: conn, r: bufio.NewReader(conn), addr: addr}, nil
}

func (w *wire) close() error { return w.conn.Close() }

// splitWords splits a command at blanks.
func splitWords(line string) []string { return strings.Fields(line) }

// send sends a command. It formats an argument that is not a string.
func (w *wire) send(args ...any) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		s := fmt.Sprint(a)
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(s), s)
	}
	_, err := io.WriteString(w.conn, b.String())
	return err
}

// recv reads a reply and returns it as one line: "+OK", ":1", "$abc", "nil",
// "-ERR …", "[:1 $a]" for arrays, and "~[…]", "%[…]" and ">[…]" for the types
// of RESP3.
func (w *wire) recv() (string, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("empty line in place of a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', '-', ':', ',', '#', '(':
		return line, nil
	case '_':
		return "nil", nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return "", fmt.Errorf("reply %q: %w", line, err)
	}
	switch kind {
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(w.r, b); err != nil {
			return "", err
		}
		return "$" + string(b[:n]), nil
	case '*', '~', '>', '%':
		if n < 0 {
			return "nil", nil
		}
		if kind == '%' {
			n *= 2
		}
		parts := make([]string, n)
		for i := range parts {
			if parts[i], err = w.recv(); err != nil {
				return "", err
			}
		}
		all := "[" + strings.Join(parts, " ") + "]"
		if kind != '*' {
			all = string(kind) + all
		}
		return all, nil
	}
	return "", fmt.Errorf("reply of unknown kind %q", line)
}

// ask sends a command and reads its reply.
func (w *wire) ask(args ...any) (string, error) {
	if err := w.send(args...); err != nil {
		return "", err
	}
	return w.recv()
}

// want sends a command and compares the reply with a pattern of path.Match.
func (w *wire) want(pattern string, args ...any) error {
	got, err := w.ask(args...)
	if err != nil {
		return fmt.Errorf("%v: %w", args, err)
	}
	return w.like(pattern, got, args)
}

// expect reads one more reply or push, and compares it with a pattern.
func (w *wire) expect(pattern string) error {
	got, err := w.recv()
	if err != nil {
		return fmt.Errorf("wait for %s: %w", pattern, err)
	}
	return w.like(pattern, got, nil)
}

func (w *wire) like(pattern, got string, args []any) error {
	flat := strings.NewReplacer("/", "|", "\n", "|", "\r", "|") // path.Match treats slashes as separators
	quote := strings.NewReplacer("[", `\[`, "]", `\]`)
	ok, err := path.Match(quote.Replace(flat.Replace(pattern)), flat.Replace(got))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%.300v answered %.500q, want %q", args, got, pattern)
	}
	return nil
}

// step is one step of a replayed session.
type step struct {
	pattern string
	args    []any
}

// all runs the steps until one fails.
func (w *wire) all(steps ...step) error {
	for _, s := range steps {
		if err := w.want(s.pattern, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func on(pattern string, args ...any) step { return step{pattern, args} }

// words returns a step for a command whose arguments contain no blanks.
func words(command, pattern string) step {
	var args []any
	for _, w := range splitWords(command) {
		args = append(args, w)
	}
	return step{pattern, args}
}
