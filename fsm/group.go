package fsm

import (
	"encoding/binary"
	"fmt"
)

// Flags of a group.
const (
	groupRESP3 = 1 << iota
	groupTrack
	groupScript // an operation needs the interpreter of the leader
	groupUser
)

// Group is what one connection asks for in one go, already in log encoding:
//
//	flags (bit 0: RESP3, bit 1: see Track, bit 2: has a script, bit 3: has a user,
//	      bits 4 and 5: see Patience; not in the log) |
//	origin | length, name of the user | operations …
//	operation: kind | db | argc | argc × (length, bytes)          command
//	           kind | number of watches | watches | number of commands |
//	           commands, each: db | argc | arguments              transaction
//	           kind | length, reply | last place | last draw | number of effects |
//	           effects, each: place | draw | db | argc | arguments     effects
//	watch:     db | length, key | version
//
// All numbers are uvarints. Names of commands stand in the log in full: a log
// says what happened without a table of numbers beside it.
type Group struct {
	buf  []byte
	ops  int
	user string
	// Write is set when an operation must go through the log.
	Write bool
	// Slow is set when an operation walks many keys (see the flag Slow).
	Slow bool
	// Feature is the highest feature version that an operation needs.
	Feature int
}

// Watch is a key that a transaction depends on and the version it had then.
type Watch struct {
	DB      int
	Key     string
	Version uint64
}

// Queued is a command waiting for EXEC.
type Queued struct {
	DB   int
	Cmd  *Command
	Args [][]byte
}

// Reset empties the group for a connection: proto is its RESP version, origin
// its number on this node.
func (g *Group) Reset(proto int, origin uint64) {
	g.buf = g.buf[:0]
	var flags byte
	if proto >= 3 {
		flags = groupRESP3
	}
	g.buf = append(g.buf, flags)
	g.buf = binary.AppendUvarint(g.buf, origin)
	g.ops, g.Write, g.Slow, g.user, g.Feature = 0, false, false, "", 0
}

// Track says that the connection wants to hear of the next change of the keys
// that the group reads: if the group goes through the log, applying it tells of
// the reads, at their place among the changes (EventTracked).
func (g *Group) Track() { g.buf[0] |= groupTrack }

// As names the ACL user whose rules hold for what scripts of the group call. Without
// it they may call everything. It must be said before the first operation, and once.
func (g *Group) As(user string) {
	if g.ops > 0 || g.buf[0]&groupUser != 0 {
		panic("fsm: a group's user is named too late")
	}
	g.buf[0] |= groupUser
	g.buf = appendString(g.buf, user)
	g.user = user
}

// User returns the name that As was given, "" if there was none.
func (g *Group) User() string { return g.user }

// Ops returns the number of operations.
func (g *Group) Ops() int { return g.ops }

// Size returns the number of encoded bytes.
func (g *Group) Size() int { return len(g.buf) }

// Bytes returns the encoding; it is valid until the next Reset.
func (g *Group) Bytes() []byte { return g.buf }

// Release drops a buffer larger than keep bytes, so that idle connections stay
// small. Reset must follow.
func (g *Group) Release(keep int) {
	if cap(g.buf) > keep {
		g.buf = nil
	}
}

func (g *Group) note(cmd *Command, args [][]byte) {
	g.Feature = max(g.Feature, cmd.Needs(args))
	cmd = cmd.Routed(args)
	if cmd.IsWrite() {
		g.Write = true
	}
	if cmd.Flags&Slow != 0 {
		g.Slow = true
	}
	if cmd.interpreted(args) || cmd.Flags&Scripted != 0 && g.user != "" {
		g.buf[0] |= groupScript
	}
}

// Command adds one command. args[0], the name, is replaced by the row's.
func (g *Group) Command(cmd *Command, db int, args [][]byte) {
	g.buf = append(g.buf, opCommand)
	g.appendCommand(cmd, db, args)
	g.ops++
}

func (g *Group) appendCommand(cmd *Command, db int, args [][]byte) {
	g.note(cmd, args)
	b := binary.AppendUvarint(g.buf, uint64(db))
	b = binary.AppendUvarint(b, uint64(len(args)))
	b = appendString(b, cmd.Name)
	for _, arg := range args[1:] {
		b = appendString(b, arg)
	}
	g.buf = b
}

// Transaction adds the commands of a MULTI block as one operation: all of them
// run at one log position, or none if a watched key has another version.
func (g *Group) Transaction(watches []Watch, cmds []Queued) {
	b := append(g.buf, opTransaction)
	b = binary.AppendUvarint(b, uint64(len(watches)))
	for _, w := range watches {
		b = binary.AppendUvarint(b, uint64(w.DB))
		b = appendString(b, w.Key)
		b = binary.AppendUvarint(b, w.Version)
	}
	g.buf = binary.AppendUvarint(b, uint64(len(cmds)))
	for _, q := range cmds {
		g.appendCommand(q.Cmd, q.DB, q.Args)
	}
	g.ops++
}

// groupReader walks over the operations of an encoded group.
type groupReader struct {
	proto  int
	origin uint64
	track  bool
	user   string // whose rules hold for scripts, "" for none
	d      decoder
	args   [][]byte // scratch, reused from operation to operation
}

func (r *groupReader) open(body []byte) error {
	r.d = decoder{b: body}
	flags := r.d.byte()
	r.proto = 2
	if flags&groupRESP3 != 0 {
		r.proto = 3
	}
	r.origin = r.d.uvarint()
	r.track, r.user = flags&groupTrack != 0, ""
	if flags&groupUser != 0 {
		r.user = string(r.d.bytes())
	}
	if flags > groupRESP3|groupTrack|groupScript|groupUser|groupTried|groupGivenUp && r.d.err == nil {
		return fmt.Errorf("group flags %#x: %w", flags, ErrVersion)
	}
	return r.d.err
}

// skip passes over an operation that a connection has asked for.
func (r *groupReader) skip() error {
	commands := uint64(1)
	switch op := r.d.byte(); op {
	case opCommand:
	case opTransaction:
		for n := r.d.uvarint(); n > 0 && r.d.err == nil; n-- {
			r.d.uvarint()
			r.d.bytes()
			r.d.uvarint()
		}
		commands = r.d.uvarint()
	default:
		return fmt.Errorf("operation kind %d: %w", op, ErrVersion)
	}
	for ; commands > 0 && r.d.err == nil; commands-- {
		if _, _, err := r.command(); err != nil {
			return err
		}
	}
	return r.d.err
}

// command reads db, argc and the arguments.
func (r *groupReader) command() (db int, args [][]byte, err error) {
	db = int(r.d.uvarint())
	n := r.d.uvarint()
	if r.d.err == nil && (n == 0 || n > uint64(len(r.d.b)) || db >= Databases) {
		return 0, nil, fmt.Errorf("command with %d arguments in db %d: %w", n, db, ErrFormat)
	}
	r.args = r.args[:0]
	for ; n > 0 && r.d.err == nil; n-- {
		r.args = append(r.args, r.d.bytes())
	}
	return db, r.args, r.d.err
}
