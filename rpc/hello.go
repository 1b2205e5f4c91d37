package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Service is the purpose of a connection. The numbers are part of the protocol:
// never reuse one.
type Service byte

const (
	ServiceRaft  Service = 1 // raw bytes for raft.NetworkTransport
	ServiceWrite Service = 2 // framed: groups to the leader and their replies
	ServiceRead  Service = 3 // framed: reads and ReadIndex rounds
	ServiceAdmin Service = 4 // framed: status, join, membership
)

// String returns the name in logs and errors.
func (s Service) String() string {
	switch s {
	case ServiceRaft:
		return "raft"
	case ServiceWrite:
		return "write"
	case ServiceRead:
		return "read"
	case ServiceAdmin:
		return "admin"
	}
	return fmt.Sprintf("service-%d", byte(s))
}

// Proto is this build's version of the protocol inside the frames.
// Config.Authorize and Config.Verify decide whether another version is
// acceptable; this package only transmits the number.
const Proto = 1

// Hello is the identity that each side sends in the handshake.
type Hello struct {
	Service   Service
	Proto     uint8  // protocol version of the sender; set by the package
	ClusterID string // "" while the sender does not belong to a cluster
	NodeID    string
	Instance  string // random identity of the data directory; never changes
	Boot      uint64 // number of starts of that data directory
	To        string // id of the node that the sender expects, "" if not known
}

const (
	magic       = "\xf7HFP"
	layout      = 1
	maxHello    = 4096 // maximum size of a body in bytes, in both directions
	statusOK    = 0
	preludeSize = len(magic) + 1 + 2     // magic, layout, length
	answerSize  = len(magic) + 1 + 1 + 2 // magic, layout, status, length
)

// appendHello appends the body of h.
func appendHello(dst []byte, h Hello) []byte {
	dst = append(dst, byte(h.Service), h.Proto)
	dst = binary.AppendUvarint(dst, h.Boot)
	for _, text := range [...]string{h.ClusterID, h.NodeID, h.Instance, h.To} {
		dst = binary.AppendUvarint(dst, uint64(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// decodeHello is the inverse of appendHello. It returns the bytes after the
// last field as rest.
func decodeHello(body []byte) (h Hello, rest []byte, err error) {
	if len(body) < 2 {
		return Hello{}, nil, fmt.Errorf("%w: %d bytes", ErrBadHello, len(body))
	}
	h.Service, h.Proto = Service(body[0]), body[1]
	body = body[2:]
	boot, n := binary.Uvarint(body)
	if n <= 0 {
		return Hello{}, nil, fmt.Errorf("%w: boot count", ErrBadHello)
	}
	h.Boot, body = boot, body[n:]
	for _, field := range [...]struct {
		name string
		text *string
	}{{"cluster id", &h.ClusterID}, {"node id", &h.NodeID}, {"instance", &h.Instance}, {"to", &h.To}} {
		size, n := binary.Uvarint(body)
		if n <= 0 || size > uint64(len(body)-n) {
			return Hello{}, nil, fmt.Errorf("%w: %s is truncated", ErrBadHello, field.name)
		}
		text := string(body[n : n+int(size)])
		if !printable(text) {
			return Hello{}, nil, fmt.Errorf("%w: %s %q", ErrBadHello, field.name, text)
		}
		*field.text, body = text, body[n+int(size):]
	}
	return h, body, nil
}

// printable reports whether text can be logged: control characters could forge
// log lines.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// appendPrelude appends the dialer's first message: its hello and, unless nil,
// its offer to authenticate.
func appendPrelude(dst []byte, h Hello, offer []byte) ([]byte, error) {
	dst = append(dst, magic...)
	dst = append(dst, layout, 0, 0)
	return sealBody(append(appendHello(dst, h), offer...), len(dst))
}

// appendAnswer appends an acceptor's welcome with its own hello.
func appendAnswer(dst []byte, h Hello) ([]byte, error) {
	dst = append(dst, magic...)
	dst = append(dst, layout, statusOK, 0, 0)
	return sealBody(appendHello(dst, h), len(dst))
}

// appendRefusal appends an acceptor's refusal. The text is cut to the maximum
// size.
func appendRefusal(dst []byte, reason Reason, text string) []byte {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxHello {
		text = strings.ToValidUTF8(text[:maxHello], "") // the cut may have split a character
	}
	dst = append(dst, magic...)
	dst = append(dst, layout, byte(reason))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
	return append(dst, text...)
}

// sealBody writes the length of the body into the two bytes before the body.
// The body is msg[from:].
func sealBody(msg []byte, from int) ([]byte, error) {
	size := len(msg) - from
	if size > maxHello {
		return nil, fmt.Errorf("%w: %d bytes exceed the limit of %d bytes", ErrBadHello, size, maxHello)
	}
	binary.BigEndian.PutUint16(msg[from-2:], uint16(size))
	return msg, nil
}

// layoutError reports a complete prelude or answer with an unknown layout.
type layoutError byte

func (e layoutError) Error() string {
	return fmt.Sprintf("rpc: unknown handshake layout %d (this node speaks %d)", byte(e), layout)
}

// readPrelude reads a dialer's prelude and not a byte more, because the
// following bytes belong to the service. After a layoutError or ErrBadHello,
// the whole prelude has been read and a refusal can be sent. rest is the part
// of the body after the hello.
func readPrelude(r io.Reader) (h Hello, rest []byte, err error) {
	var head [preludeSize]byte
	if err := readMagic(r, head[:len(magic)]); err != nil {
		return Hello{}, nil, err
	}
	if _, err := io.ReadFull(r, head[len(magic):]); err != nil {
		return Hello{}, nil, fmt.Errorf("read prelude: %w", err)
	}
	body, err := readBody(r, binary.BigEndian.Uint16(head[len(magic)+1:]))
	if err != nil {
		return Hello{}, nil, fmt.Errorf("read prelude: %w", err)
	}
	if version := head[len(magic)]; version != layout {
		return Hello{}, nil, layoutError(version)
	}
	return decodeHello(body)
}

// answer is an acceptor's answer before decoding.
type answer struct {
	layout, status byte
	body           []byte
}

// readAnswer reads one answer of the acceptor, and not a byte more.
func readAnswer(r io.Reader) (answer, error) {
	var head [answerSize]byte
	if err := readMagic(r, head[:len(magic)]); err != nil {
		return answer{}, err
	}
	if _, err := io.ReadFull(r, head[len(magic):]); err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	body, err := readBody(r, binary.BigEndian.Uint16(head[len(magic)+2:]))
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	return answer{head[len(magic)], head[len(magic)+1], body}, nil
}

// decode returns the acceptor's hello, or the reason and text of its refusal.
func (a answer) decode() (peer Hello, reason Reason, text string, err error) {
	if a.status != statusOK {
		// A refusal is accepted in any layout, because the text that a newer
		// node sends explains best why it refused.
		return Hello{}, Reason(a.status), strings.Map(dropControl, strings.ToValidUTF8(string(a.body), "?")), nil
	}
	if a.layout != layout {
		return Hello{}, 0, "", layoutError(a.layout)
	}
	peer, _, err = decodeHello(a.body)
	return peer, 0, "", err
}

func dropControl(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// readBody checks size and then reads size bytes.
func readBody(r io.Reader, size uint16) ([]byte, error) {
	if size > maxHello {
		return nil, fmt.Errorf("body of %d bytes exceeds the limit of %d bytes", size, maxHello)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return body, nil
}

// readMagic fills buf with the magic. It fails at the first byte that differs.
// The greeting of another protocol may be shorter than the magic, so waiting
// for more bytes could end in a timeout. io.EOF means that no byte was read.
func readMagic(r io.Reader, buf []byte) error {
	for have := 0; have < len(buf); {
		n, err := r.Read(buf[have:])
		have += n
		if got := buf[:have]; !bytes.HasPrefix([]byte(magic), got) {
			return &notPeerError{bytes.Clone(got)}
		}
		if err != nil && have < len(buf) {
			if err == io.EOF && have > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// WhatAnswers describes the program that seems to answer at an address. err is
// the ErrNotPeer with which a dial of that address failed.
func WhatAnswers(err error) string {
	var n *notPeerError
	if !errors.As(err, &n) {
		return "another program answers"
	}
	switch d := describeProtocol(n.first); d {
	case "looks like a Redis server":
		return "a client port (Redis protocol) answers"
	case "looks like HTTP":
		return "an HTTP port answers"
	default:
		return "another program answers"
	}
}

// notPeerError is ErrNotPeer with the first bytes of the other side.
type notPeerError struct{ first []byte }

func (e *notPeerError) Error() string {
	return fmt.Sprintf("%v: it began with %q (%s)", ErrNotPeer, e.first, describeProtocol(e.first))
}

func (e *notPeerError) Unwrap() error { return ErrNotPeer }

// redisClient reports whether the other side seems to be a Redis client.
func redisClient(err error) bool {
	var n *notPeerError
	return errors.As(err, &n) && describeProtocol(n.first) == "looks like a Redis client"
}

// describeProtocol returns a text for the log that says to which protocol the
// first bytes of another program seem to belong.
func describeProtocol(first []byte) string {
	switch c := first[0]; {
	case c == 0x16:
		return "looks like TLS"
	case c == '*' || bytes.HasPrefix(first, []byte("PING")):
		return "looks like a Redis client"
	case c == '-' || c == '+' || c == '$':
		return "looks like a Redis server"
	case bytes.HasPrefix(first, []byte("HTTP")) || bytes.HasPrefix(first, []byte("PRI ")) ||
		bytes.HasPrefix(first, []byte("GET")) || bytes.HasPrefix(first, []byte("POST")) ||
		bytes.HasPrefix(first, []byte("HEAD")) || bytes.HasPrefix(first, []byte("PUT")):
		return "looks like HTTP"
	}
	return "no known protocol"
}
