package fsm

import "fmt"

// Record is a decoded entry of the log. It is for code that inspects an entry
// without executing it, such as the replay of package verify.
type Record struct {
	Header    Header
	TermStart *TermStart // nil for a batch
	// Sessions are the sessions that the entry names, in its order. A session
	// without groups in the entry is included, because it replaces an earlier
	// session of its node.
	Sessions []SessionID
	Groups   []RecordGroup
}

// RecordGroup is one group of a batch.
type RecordGroup struct {
	Session SessionID
	Seq     uint64
	Ops     []RecordOp
}

// RecordOp is one operation of a group: a single command, a transaction, or the
// effects of a script. Effects are the commands that changed the state, and the
// reply.
type RecordOp struct {
	Transaction, Effects bool
	Watches              []Watch
	Commands             []RecordCommand
	Reply                string // encoded RESP, of Effects
}

// RecordCommand is a command as it is in the log.
type RecordCommand struct {
	DB   int
	Args []string // the first is the name in lower case
}

// ReadRecord decodes an entry. It returns the same errors as Machine.Apply for
// bytes that are not an entry.
func ReadRecord(data []byte) (Record, error) {
	e, err := decodeEntry(data)
	if err != nil {
		return Record{}, err
	}
	rec := Record{Header: e.header}
	if e.kind == entryTermStart {
		t, err := decodeTermStart(e)
		rec.TermStart = &t
		return rec, err
	}
	d := decoder{b: e.rest}
	sessions := make([]SessionID, e.sessions)
	for i := range sessions {
		sessions[i] = SessionID{NodeID: string(d.bytes()), Boot: d.uvarint()}
		d.uvarint() // floor that the forwarder has acknowledged
	}
	rec.Sessions = sessions
	for range e.groups {
		si, seq, body := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil || si >= uint64(len(sessions)) {
			return rec, fmt.Errorf("groups: %w", ErrFormat)
		}
		ops, err := readOps(body)
		if err != nil {
			return rec, fmt.Errorf("group %d of %s: %w", seq, sessions[si], err)
		}
		rec.Groups = append(rec.Groups, RecordGroup{sessions[si], seq, ops})
	}
	return rec, d.done("groups")
}

func readOps(body []byte) ([]RecordOp, error) {
	if len(body) == 0 {
		return nil, nil // the forwarder gave up this number
	}
	var r groupReader
	if err := r.open(body); err != nil {
		return nil, err
	}
	var ops []RecordOp
	for len(r.d.b) > 0 {
		var op RecordOp
		n := uint64(1)
		switch kind := r.d.byte(); kind {
		case opCommand:
		case opTransaction:
			op.Transaction = true
			for w := r.d.uvarint(); w > 0 && r.d.err == nil; w-- {
				op.Watches = append(op.Watches, Watch{int(r.d.uvarint()), string(r.d.bytes()), r.d.uvarint()})
			}
			n = r.d.uvarint()
		case opEffects:
			op.Effects, op.Reply = true, string(r.d.bytes())
			r.d.uvarint() // last position
			r.d.uvarint() // last draw
			n = r.d.uvarint()
		default:
			return ops, fmt.Errorf("operation kind %d: %w", kind, ErrVersion)
		}
		for ; n > 0 && r.d.err == nil; n-- {
			if op.Effects {
				r.d.uvarint() // position
				r.d.uvarint() // draw
			}
			db, args, err := r.command()
			if err != nil {
				return ops, err
			}
			c := RecordCommand{DB: db}
			for _, arg := range args {
				c.Args = append(c.Args, string(arg))
			}
			op.Commands = append(op.Commands, c)
		}
		if r.d.err != nil {
			return ops, r.d.err
		}
		ops = append(ops, op)
	}
	return ops, r.d.err
}
