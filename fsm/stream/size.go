package stream

import "github.com/holdfast-kv/holdfast/fsm/container"

// The methods in this file implement container.Sized. In each of them, the
// constant words is the size of the struct, in words of eight bytes.

// Bytes returns the approximate memory of the entry, in bytes.
func (e *Entry) Bytes() int64 {
	const words, fieldWords = 5, 2
	n := container.ItemBytes(words)
	for _, f := range e.Fields {
		n += 8*fieldWords + container.TextBytes(len(f))
	}
	return n
}

// Bytes returns the approximate memory of the group, in bytes.
func (g *Group) Bytes() int64 {
	const words = 11
	return container.ItemBytes(words) + container.TextBytes(len(g.Name)) + g.Pending.Bytes() + g.Consumers.Bytes()
}

// Bytes returns the approximate memory of the consumer, in bytes.
func (k *Consumer) Bytes() int64 {
	const words = 7
	return container.ItemBytes(words) + container.TextBytes(len(k.Name)) + k.Pending.Bytes()
}

// Bytes returns the approximate memory of the pending entry, in bytes. It does
// not count the name of the consumer, which all of the consumer's pending
// entries share.
func (p *PendingEntry) Bytes() int64 {
	const words = 7
	return container.ItemBytes(words)
}

// Bytes returns the approximate memory of the ID, in bytes.
func (a *ID) Bytes() int64 {
	const words = 2
	return container.ItemBytes(words)
}
