package pubsub

import "sync/atomic"

// Payload is an encoded message. Several connections may queue the same
// payload. It then counts once toward the memory of all clients.
type Payload struct {
	Bytes  []byte
	Queues atomic.Int32 // number of queues that contain it
}

// NewPayload returns the payload with the encoded message b, or nil if b is empty.
func NewPayload(b []byte) *Payload {
	if len(b) == 0 {
		return nil
	}
	return &Payload{Bytes: b}
}
