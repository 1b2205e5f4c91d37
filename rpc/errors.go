package rpc

import (
	"errors"
	"fmt"
)

// Errors of connecting.
var (
	// ErrClosed says that the Mux is closed: nothing is accepted or dialled any more, and its streams have ended.
	ErrClosed = errors.New("rpc: mux is closed")

	// ErrHandshakeTimeout says that connecting and shaking hands took longer than Config.HandshakeTimeout.
	ErrHandshakeTimeout = errors.New("rpc: handshake timed out")

	// ErrNotPeer says that the other side's first bytes are not those of this protocol: another program is at that address.
	ErrNotPeer = errors.New("rpc: other side does not speak the peer protocol")

	// ErrBadHello says that the other side speaks the protocol but what it said of itself cannot be decoded.
	ErrBadHello = errors.New("rpc: malformed hello")

	// ErrSecret says that the other node has another Config.Secret than this one, or that only one of them has any. A RefusedError with
	// ReasonSecret matches it.
	ErrSecret = errors.New("rpc: cluster secret does not match")

	// ErrWrongNode says that another node than the one looked for answered, and did not notice it itself.
	ErrWrongNode = errors.New("rpc: another node answered")
)

// Errors of an established stream.
var (
	// ErrStreamClosed says that this side closed the stream.
	ErrStreamClosed = errors.New("rpc: stream is closed")

	// ErrFrameTooLarge is matched by every FrameSizeError.
	ErrFrameTooLarge = errors.New("rpc: frame too large")

	// ErrQueueFull says that more than Config.MaxQueue bytes wait to be written and the caller may not wait.
	ErrQueueFull = errors.New("rpc: stream queue is full")

	// ErrDamaged says that bytes were changed on their way here.
	ErrDamaged = errors.New("rpc: bytes were changed on their way")

	// ErrWriteTimeout says that the peer took no byte for Config.WriteTimeout.
	ErrWriteTimeout = errors.New("rpc: peer does not read")
)

// Reason is why an acceptor refused a dialler; it is the status byte of the answer.
type Reason byte

// Numbers are on the wire: never reuse one.
const (
	ReasonUnauthorized Reason = 1 // Config.Authorize of the acceptor said no; its text is the error's
	ReasonNoService    Reason = 2 // nobody serves the service there, or not yet: worth another try
	ReasonWrongNode    Reason = 3 // the acceptor is not the node that Hello.To names
	ReasonMalformed    Reason = 4 // the hello cannot be decoded
	ReasonLayout       Reason = 5 // the acceptor does not know this layout of the handshake
	ReasonSecret       Reason = 6 // the dialler has another Config.Secret, or only one of the two nodes has any
	// 7 is statusChallenge.
)

// RefusedError is what Dial returns when the acceptor said no. Nothing was delivered to any handler.
type RefusedError struct {
	Addr    string  // address that was dialled
	Service Service // service that was asked for
	Reason  Reason
	Text    string // the acceptor's words
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("rpc: %s refused a %s connection: %s", e.Addr, e.Service, e.Text)
}

// Is makes errors.Is(err, ErrSecret) true for a refusal because of the secret.
func (e *RefusedError) Is(target error) bool { return target == ErrSecret && e.Reason == ReasonSecret }

// FrameSizeError reports a frame over Config.MaxFrame. From Send it leaves the stream intact; from Recv it has ended it.
type FrameSizeError struct {
	Size  int64 // bytes of payload, claimed or real
	Limit int64 // bytes
}

func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("rpc: frame of %d bytes exceeds the limit of %d bytes", e.Size, e.Limit)
}

// Is makes errors.Is(err, ErrFrameTooLarge) true.
func (e *FrameSizeError) Is(target error) bool { return target == ErrFrameTooLarge }
