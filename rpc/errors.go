package rpc

import (
	"errors"
	"fmt"
)

// Errors of connecting.
var (
	// ErrClosed reports that the Mux is closed: it accepts and dials no more
	// connections, and its streams have ended.
	ErrClosed = errors.New("rpc: mux is closed")

	// ErrHandshakeTimeout reports that connecting and the handshake took longer
	// than Config.HandshakeTimeout.
	ErrHandshakeTimeout = errors.New("rpc: handshake timed out")

	// ErrNotPeer reports that the other side's first bytes do not belong to
	// this protocol: the other side is another program.
	ErrNotPeer = errors.New("rpc: other side does not speak the peer protocol")

	// ErrBadHello reports that the other side speaks the protocol but sent a
	// malformed or unexpected message, or that this node's own hello is too
	// long.
	ErrBadHello = errors.New("rpc: malformed hello")

	// ErrSecret reports that the two nodes have no secret in common, or that
	// only one of them has a secret. A RefusedError with ReasonSecret matches
	// it.
	ErrSecret = errors.New("rpc: cluster secret does not match")

	// ErrNotMember reports that the dialer is not a member of the acceptor's
	// cluster. If an error of Config.Authorize wraps ErrNotMember, the acceptor
	// refuses with ReasonNotMember. A RefusedError with that reason matches
	// ErrNotMember.
	ErrNotMember = errors.New("not a member of this cluster")

	// ErrWrongNode reports that a node other than the expected one accepted the
	// connection.
	ErrWrongNode = errors.New("rpc: another node answered")
)

// Errors of an established stream.
var (
	// ErrStreamClosed reports that this side closed the stream.
	ErrStreamClosed = errors.New("rpc: stream is closed")

	// ErrFrameTooLarge is matched by every FrameSizeError.
	ErrFrameTooLarge = errors.New("rpc: frame too large")

	// ErrQueueFull reports that more than Config.MaxQueue bytes wait to be
	// written, and that the method that failed does not wait for room.
	ErrQueueFull = errors.New("rpc: stream queue is full")

	// ErrDamaged reports that bytes were changed in transit.
	ErrDamaged = errors.New("rpc: bytes were changed in transit")

	// ErrWriteTimeout reports that the peer accepted no byte for
	// Config.WriteTimeout.
	ErrWriteTimeout = errors.New("rpc: peer does not read")
)

// Reason is the reason why an acceptor refused a dialer. It is the status byte
// of the answer.
type Reason byte

// The numbers are part of the protocol: never reuse one.
const (
	ReasonUnauthorized Reason = 1 // Config.Authorize returned an error; the refusal has the text of this error
	ReasonNoService    Reason = 2 // the service has no handler, or none yet: the dialer may try again
	ReasonWrongNode    Reason = 3 // the acceptor is not the node that Hello.To names
	ReasonMalformed    Reason = 4 // the hello cannot be decoded
	ReasonLayout       Reason = 5 // the acceptor does not know this layout of the handshake
	ReasonSecret       Reason = 6 // the two secrets differ, or only one of the two nodes has a secret
	// The number 7 is taken by statusChallenge.
	ReasonNotMember Reason = 8 // Config.Authorize returned ErrNotMember; the refusal has the text of this error
)

// RefusedError is the error of Dial for a connection that the acceptor refused.
// No handler has received anything.
type RefusedError struct {
	Addr    string  // the dialed address
	Service Service // the requested service
	Reason  Reason
	Text    string // the acceptor's error text
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("rpc: %s refused a connection for %s: %s", e.Addr, e.Service, e.Text)
}

// Is makes errors.Is(err, ErrSecret) true for a refusal with ReasonSecret, and
// errors.Is(err, ErrNotMember) true for a refusal with ReasonNotMember.
func (e *RefusedError) Is(target error) bool {
	return target == ErrSecret && e.Reason == ReasonSecret ||
		target == ErrNotMember && e.Reason == ReasonNotMember
}

// FrameSizeError reports a frame over Config.MaxFrame. If Send returns it, the
// stream is intact; if Recv returns it, the stream has ended.
type FrameSizeError struct {
	Size  int64 // bytes of payload: as passed to Send, or as the received header claims
	Limit int64 // bytes
}

func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("rpc: frame of %d bytes exceeds the limit of %d bytes", e.Size, e.Limit)
}

// Is makes errors.Is(err, ErrFrameTooLarge) true.
func (e *FrameSizeError) Is(target error) bool { return target == ErrFrameTooLarge }
