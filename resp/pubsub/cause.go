package pubsub

import "github.com/holdfast-kv/holdfast/fsm"

// Cause identifies the operation in the log that caused a message.
type Cause struct {
	// The operation is operation Op of the group at Position in the entry at
	// the log index Index. Index is 0 if the cause is not known.
	Index    uint64
	Position int
	Op       int
	// If the operation is a blocking command of the connection itself, which had
	// waited and was served, Wait identifies that command. Otherwise, Wait is 0.
	Wait fsm.Pos
}

// causeFor returns the cause of an event of the entry at a log index, for a
// message to the connection with the given id.
func causeFor(index uint64, e *fsm.Event, id uint64) Cause {
	if e == nil {
		return Cause{}
	}
	why := Cause{Index: index, Position: e.Group, Op: e.Op}
	if e.Waiter != nil && e.Waiter.Origin == id {
		why.Wait = e.Waiter.Pos
	}
	return why
}

// Relative compares the cause with the group at a position of the entry at
// index. It returns two results: before is true if the cause precedes the group
// in the log, and in is true if the cause belongs to the group.
func (w *Cause) Relative(index uint64, position int) (before, in bool) {
	switch {
	case w.Index == 0 || index == 0:
		return false, false
	case w.Index == index && w.Position == position:
		return false, true
	}
	return w.Index < index || w.Index == index && w.Position < position, false
}
