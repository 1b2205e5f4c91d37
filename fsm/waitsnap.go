package fsm

import (
	"encoding/binary"
	"fmt"
)

// These are the flags of a waiter in a snapshot.
const (
	flagServed    = 1
	flagRESP3     = 2
	flagSuspended = 4 // the session of the waiter is suspended
	// flagMixed: the node has waiters of several starts, and the waiter is not
	// of the start that is recorded for the node. The boot count of the
	// recorded start follows. See FeatureMend.
	flagMixed = 8
	// flagUser: the user of the waiting client follows the arguments. It is set
	// from FeatureBudget on.
	flagUser = 16
)

// waiters writes the waiters and returns their number.
func (w *snapshotWriter) waiters(waits *waits) (written uint64) {
	waits.conns.Scan(func(n *waiter) bool {
		at, _ := waits.node(n.session.NodeID)
		w.waiter(n, &waits.nodes[at])
		written++
		return w.err == nil
	})
	return written
}

func (w *snapshotWriter) waiter(n *waiter, node *waitNode) {
	var flags byte
	if n.served {
		flags |= flagServed
	}
	if n.proto >= 3 {
		flags |= flagRESP3
	}
	if node.suspended {
		flags |= flagSuspended
	}
	if node.id != n.session {
		flags |= flagMixed
	}
	if n.user != "" {
		flags |= flagUser
	}
	b := append(w.b, recordWaiter, flags)
	b = appendString(b, n.session.NodeID)
	b = binary.AppendUvarint(b, n.session.Boot)
	if node.id != n.session {
		b = binary.AppendUvarint(b, node.id.Boot)
	}
	b = binary.AppendUvarint(b, n.origin)
	b = binary.AppendUvarint(b, uint64(n.pos))
	if n.served {
		w.b = binary.AppendUvarint(b, uint64(len(n.reply)))
		for reply := n.reply; len(reply) > 0; {
			part := reply[:min(len(reply), snapshotBlock)]
			reply = reply[len(part):]
			w.b = appendString(append(w.b, recordServed), part)
			w.cut()
		}
		return
	}
	b = binary.AppendUvarint(b, uint64(n.db))
	b = binary.AppendUvarint(b, uint64(len(n.args)))
	for _, a := range n.args {
		b = appendString(b, a)
	}
	if n.user != "" {
		b = appendString(b, n.user)
	}
	w.b = b
	w.cut()
}

// waits reads a waiter.
func (l *snapshotLoader) waits(d *decoder) error {
	w := &l.m.waits
	flags := d.byte()
	suspended := flags&flagSuspended != 0
	n := &waiter{session: SessionID{NodeID: string(d.bytes()), Boot: d.uvarint()}}
	node := n.session
	if flags&flagMixed != 0 {
		if node.Boot = d.uvarint(); d.err == nil && node == n.session {
			return fmt.Errorf("waiter of %s: %w", n.session, ErrFormat)
		}
	}
	n.origin, n.pos, n.served = d.uvarint(), Pos(d.uvarint()), flags&flagServed != 0
	if flags > flagServed|flagRESP3|flagSuspended|flagMixed|flagUser ||
		flags&flagUser != 0 && (l.m.features < FeatureBudget || n.served) {
		return fmt.Errorf("waiter with flags %#x: %w", flags, ErrVersion)
	}
	if n.served {
		l.waiter, l.owed = n, d.uvarint()
		if l.owed == 0 || l.owed > 2*MaxReplyBytes {
			return fmt.Errorf("reply of %d bytes to a waiter: %w", l.owed, ErrFormat)
		}
	} else {
		var err error
		if n, err = d.waiter(n, l.m.table, flags); err != nil {
			return err
		}
	}
	if d.err != nil {
		return fmt.Errorf("waiter: %w", d.err)
	}
	at, found := w.node(n.session.NodeID)
	if found && (w.nodes[at].id != node || w.nodes[at].suspended != suspended) ||
		w.find(n.session.NodeID, n.origin) != nil {
		return fmt.Errorf("waiter %d of %s: %w", n.origin, n.session, ErrFormat)
	}
	w.add(n)
	w.nodes[at].id, w.nodes[at].suspended = node, suspended
	return nil
}

// waiter reads the command of a waiter that has not been served.
func (d *decoder) waiter(n *waiter, table *Table, flags byte) (*waiter, error) {
	db, argc := d.uvarint(), d.uvarint()
	if d.err != nil || db >= Databases || argc == 0 || argc > uint64(len(d.b)) {
		return nil, fmt.Errorf("waiter in db %d: %w", db, ErrFormat)
	}
	args := make([][]byte, argc)
	for i := range args {
		args[i] = d.bytes()
	}
	var user string
	if flags&flagUser != 0 {
		if user = string(d.bytes()); d.err == nil && user == "" {
			return nil, fmt.Errorf("waiter of a user without a name: %w", ErrFormat)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	cmd := table.Find(args[0])
	if cmd == nil || cmd.block == nil || !cmd.ArityOK(len(args)) {
		return nil, fmt.Errorf("waiter in command %.40q: %w", args[0], ErrVersion)
	}
	b, fail := cmd.block(args)
	if fail.IsError() {
		return nil, fmt.Errorf("waiter in command %q: %s: %w", args[0], fail.Text(), ErrFormat)
	}
	proto := 2
	if flags&flagRESP3 != 0 {
		proto = 3
	}
	w := newWaiter(n.session, n.origin, n.pos, int(db), proto, args, b)
	w.user = user
	return w, nil
}
