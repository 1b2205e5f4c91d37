package matrix

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// wire is a connection on which a library is replayed.
type wire struct {
	conn *respwire.Conn
	addr string
}

// dialWire connects to addr. The deadline of ctx applies to everything that is
// sent and received later.
func dialWire(ctx context.Context, addr string) (*wire, error) {
	conn, err := respwire.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return &wire{conn: conn, addr: addr}, nil
}

func (w *wire) close() error { return w.conn.Close() }

// send sends a command. It formats an argument that is not a string.
func (w *wire) send(args ...any) error {
	command := make([]string, len(args))
	for i, a := range args {
		command[i] = fmt.Sprint(a)
	}
	return w.conn.Send(command)
}

// recv reads a reply and returns it in the form of the function line.
func (w *wire) recv() (string, error) {
	v, err := w.conn.Receive()
	return line(v), err
}

// line returns a reply as one line: "+OK", ":1", "$abc", "nil", "-ERR …",
// "[:1 $a]" for arrays, and "~[…]", "%[…]" and ">[…]" for the types of RESP3.
func line(v respwire.Value) string {
	switch {
	case v.Null:
		return "nil"
	case v.Kind == '$' || v.Kind == '=':
		return "$" + v.Text
	case v.Kind != '*' && v.Kind != '~' && v.Kind != '>' && v.Kind != '%':
		return v.Head()
	}
	parts := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		parts[i] = line(e)
	}
	all := "[" + strings.Join(parts, " ") + "]"
	if v.Kind == '*' {
		return all
	}
	return string(v.Kind) + all
}

// ask sends a command and reads its reply.
func (w *wire) ask(args ...any) (string, error) {
	if err := w.send(args...); err != nil {
		return "", err
	}
	return w.recv()
}

// want sends a command and compares the reply with a pattern of path.Match, in
// which brackets stand for themselves.
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

// command returns a step for a command whose arguments contain no blanks.
func command(command, pattern string) step {
	var args []any
	for _, w := range respwire.Words(command) {
		args = append(args, w)
	}
	return step{pattern, args}
}
