package respwire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Value is one reply or push.
type Value struct {
	Kind  byte    // first byte of the encoding: '+', '-', ':', '$', …
	Null  bool    // the null of RESP2 or RESP3
	Err   string  // text of an error, "" for other kinds
	Text  string  // text of all other values without elements, including integers
	Int   int64   // number of an integer
	Elems []Value // elements of an array, set, push or map; a map has key, value, key, …
	Raw   []byte  // the encoding
}

// Read and Parse return ErrProtocol for input that is not RESP. If the input
// ends in the middle of a reply, Parse returns ErrIncomplete and Read returns
// io.ErrUnexpectedEOF.
var (
	ErrProtocol   = errors.New("reply is not valid RESP")
	ErrIncomplete = errors.New("reply is not complete")
)

// maxLength bounds the lengths in an encoding, far above those that a server
// sends.
const maxLength = 1 << 40

// IsError reports whether the reply is an error.
func (v Value) IsError() bool { return v.Kind == '-' }

// IsPush reports whether the value is a push of RESP3, which answers no command.
func (v Value) IsPush() bool { return v.Kind == '>' }

// Head returns the first line of the encoding, without the line end.
func (v Value) Head() string {
	head, _, _ := bytes.Cut(v.Raw, []byte("\r\n"))
	return string(head)
}

// Texts returns the texts of the elements.
func (v Value) Texts() []string {
	texts := make([]string, len(v.Elems))
	for i, e := range v.Elems {
		texts[i] = e.Text
	}
	return texts
}

// Pairs returns the texts of the elements of a map, or of an array in which keys
// and values alternate.
func (v Value) Pairs() map[string]string {
	pairs := make(map[string]string)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		pairs[v.Elems[i].Text] = v.Elems[i+1].Text
	}
	return pairs
}

// String returns the reply as one line, much as redis-cli shows it: "(nil)",
// "(integer) 5", the text of a string or an error, or "[a b]".
func (v Value) String() string {
	switch v.Kind {
	case '-':
		return v.Err
	case ':':
		return "(integer) " + v.Text
	case '*', '~', '>', '%':
		if v.Null {
			break
		}
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = e.String()
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	if v.Null {
		return "(nil)"
	}
	return v.Text
}

// ErrorReply is an error that contains the text of an error reply.
type ErrorReply string

func (e ErrorReply) Error() string { return string(e) }

// NoError is for callers that expect no error reply. It returns its arguments,
// the results of Do or Receive. But if the reply is an error, it returns an
// ErrorReply as the error.
func NoError(v Value, err error) (Value, error) {
	if err == nil && v.IsError() {
		err = ErrorReply(v.Err)
	}
	return v, err
}

// Read reads one reply or push.
func Read(r *bufio.Reader) (Value, error) {
	raw, err := ReadRaw(r)
	if err != nil {
		return Value{}, err
	}
	v, _, err := Parse(raw)
	return v, err
}

// ReadRaw reads one reply or push and returns its encoding.
func ReadRaw(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for parts := 1; parts > 0; parts-- {
		line, err := r.ReadBytes('\n')
		raw = append(raw, line...)
		if err != nil {
			return nil, midway(err, len(raw) > 0)
		}
		payload, inner, err := parseHead(line)
		if err != nil {
			return nil, err
		}
		if payload > 0 {
			begin := len(raw)
			raw = append(raw, make([]byte, payload)...)
			if _, err := io.ReadFull(r, raw[begin:]); err != nil {
				return nil, midway(err, true)
			}
		}
		parts += inner
	}
	return raw, nil
}

// midway returns the error of a read. It replaces io.EOF by io.ErrUnexpectedEOF
// if part of a reply has been read.
func midway(err error, part bool) error {
	if err == io.EOF && part {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseHead parses the first line of an encoding, including the line end. It
// returns the number of payload bytes that follow the line, and the number of
// elements.
func parseHead(line []byte) (payload, inner int, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, 0, fmt.Errorf("%w: line %.40q", ErrProtocol, line)
	}
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return 0, 0, nil
	case '$', '=', '*', '~', '>', '%':
	default:
		return 0, 0, fmt.Errorf("%w: line %.40q", ErrProtocol, line)
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	switch {
	case err != nil || n > maxLength:
		return 0, 0, fmt.Errorf("%w: line %.40q", ErrProtocol, line)
	case n < 0: // null of RESP2
		return 0, 0, nil
	case line[0] == '$' || line[0] == '=':
		return n + 2, 0, nil
	case line[0] == '%':
		return 0, 2 * n, nil
	}
	return 0, n, nil
}

// Parse decodes the first reply or push in b. rest contains the bytes that
// follow it. If b ends before the reply does, the error is ErrIncomplete.
func Parse(b []byte) (v Value, rest []byte, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return v, b, ErrIncomplete
	}
	head := b[:end+1]
	payload, inner, err := parseHead(head)
	if err != nil {
		return v, b, err
	}
	rest = b[len(head):]
	if payload > len(rest) {
		return v, b, ErrIncomplete
	}
	text := string(head[1 : end-1])
	v.Kind = head[0]
	switch v.Kind {
	case '-':
		v.Err = text
	case '_':
		v.Null = true
	case ':':
		v.Text = text
		if v.Int, err = strconv.ParseInt(text, 10, 64); err != nil {
			return v, b, fmt.Errorf("%w: line %.40q", ErrProtocol, head)
		}
	case '+', ',', '#', '(':
		v.Text = text
	default:
		v.Null = text[0] == '-'
	}
	if payload > 0 {
		if !bytes.HasPrefix(rest[payload-2:], []byte("\r\n")) {
			return v, b, fmt.Errorf("%w: line %.40q: no line end follows the string", ErrProtocol, head)
		}
		v.Text, rest = string(rest[:payload-2]), rest[payload:]
	}
	for range inner {
		var e Value
		if e, rest, err = Parse(rest); err != nil {
			return v, b, err
		}
		v.Elems = append(v.Elems, e)
	}
	v.Raw = b[: len(b)-len(rest) : len(b)-len(rest)]
	return v, rest, nil
}

// ParseAll decodes the replies that b consists of.
func ParseAll(b []byte) ([]Value, error) {
	var all []Value
	for len(b) > 0 {
		v, rest, err := Parse(b)
		if err != nil {
			return nil, err
		}
		all, b = append(all, v), rest
	}
	return all, nil
}
