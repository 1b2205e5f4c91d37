package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// These are the flags of a group.
const (
	groupRESP3 = 1 << iota
	groupTrack
	groupScript // the leader has to execute the group speculatively
	groupUser
)

// Group contains commands of one pipeline of a connection. They are logged
// together, or executed together as a read. This is the encoding of the log:
//
//	flags (bit 0: RESP3, bit 1: see Track, bit 2: the leader has to execute the
//	      group speculatively, bit 3: has a user, bits 4 and 5: see ScriptBudget; the
//	      leader clears bits 4 and 5 before it logs the group) |
//	origin | length, name of the user | operations …
//	operation: kind | db | argc | argc × (length, bytes)          command
//	           kind | number of watches | watches | number of commands |
//	           commands, each: db | argc | arguments              transaction
//	           kind | length, reply | last position | last draw | number of effects |
//	           effects, each: position | draw | db | argc | arguments  effects
//	watch:     db | length, key | version
//
// All numbers are uvarints. The log contains the full names of commands, so it
// can be read without a table of numbers.
type Group struct {
	buf  []byte
	ops  int
	user string
	// Write is set if an operation must go through the log.
	Write bool
	// Slow is set if an operation has the flag Slow, which says that the
	// operation may take long.
	Slow bool
	// Costly is set if an operation is a costly read.
	Costly bool
	// Feature is the highest feature version that an operation needs.
	Feature int
	// Grow is the number of operations that can make the data set grow.
	Grow int
	// Front, unless nil, allows a group of reads to be executed in pieces, and a
	// script that does not write to leave its large reply in Front.
	Front *Front
}

// Watch is a watched key of a transaction, and its version when the client
// watched it.
type Watch struct {
	DB      int
	Key     string
	Version uint64
}

// Queued is a command that is waiting for EXEC.
type Queued struct {
	DB   int
	Cmd  *Command
	Args [][]byte
}

// Reset empties the group for a connection. proto is the RESP version of the
// connection. origin is the number of the connection on this node.
func (g *Group) Reset(proto int, origin uint64) {
	g.buf = g.buf[:0]
	var flags byte
	if proto >= 3 {
		flags = groupRESP3
	}
	g.buf = append(g.buf, flags)
	g.buf = binary.AppendUvarint(g.buf, origin)
	g.ops, g.Write, g.Slow, g.Costly, g.user, g.Feature, g.Front = 0, false, false, false, "", 0, nil
	g.Grow = 0
}

// Track requests events for the keys that the group reads, for a connection
// with tracking. If the group goes through the log, Apply emits an EventTracked
// for each key that is read, in order with the changes.
func (g *Group) Track() { g.buf[0] |= groupTrack }

// As sets the ACL user whose rules apply to the commands that scripts of the
// group call. Without a user, no rules apply to these commands. As may be called
// once, before the first operation.
func (g *Group) As(user string) {
	if g.ops > 0 || g.buf[0]&groupUser != 0 {
		panic("fsm: Group.As called twice or after the first operation")
	}
	g.buf[0] |= groupUser
	g.buf = codec.AppendString(g.buf, user)
	g.user = user
}

// User returns the name that was passed to As, "" if there was none.
func (g *Group) User() string { return g.user }

// Ops returns the number of operations.
func (g *Group) Ops() int { return g.ops }

// Size returns the number of encoded bytes.
func (g *Group) Size() int { return len(g.buf) }

// Bytes returns the encoding. It is valid until the next call of Reset or Skip.
func (g *Group) Bytes() []byte { return g.buf }

// Release drops a buffer of more than keep bytes, so that idle connections take
// little memory. Reset must be called next.
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
	if cmd.Costly() {
		g.Costly = true
	}
	if g.Mixed() || cmd.interpreted(args) || cmd.Flags&Scripted != 0 && g.user != "" {
		g.buf[0] |= groupScript
	}
}

// Command adds one command. The group contains cmd.Name in place of args[0].
func (g *Group) Command(cmd *Command, db int, args [][]byte) {
	g.buf = append(g.buf, opCommand)
	g.appendCommand(cmd, db, args)
	g.ops++
	if cmd.Grows(args) {
		g.Grow++
	}
}

func (g *Group) appendCommand(cmd *Command, db int, args [][]byte) {
	g.note(cmd, args)
	b := binary.AppendUvarint(g.buf, uint64(db))
	b = binary.AppendUvarint(b, uint64(len(args)))
	b = codec.AppendString(b, cmd.Name)
	for _, arg := range args[1:] {
		b = codec.AppendString(b, arg)
	}
	g.buf = b
}

// Transaction adds the commands of a MULTI block as one operation. They are
// executed without other commands in between, or not at all if a watched key
// has another version.
func (g *Group) Transaction(watches []Watch, cmds []Queued) {
	b := append(g.buf, opTransaction)
	b = binary.AppendUvarint(b, uint64(len(watches)))
	for _, w := range watches {
		b = binary.AppendUvarint(b, uint64(w.DB))
		b = codec.AppendString(b, w.Key)
		b = binary.AppendUvarint(b, w.Version)
	}
	g.buf = binary.AppendUvarint(b, uint64(len(cmds)))
	grows := false
	for _, q := range cmds {
		g.appendCommand(q.Cmd, q.DB, q.Args)
		grows = grows || q.Cmd.Grows(q.Args)
	}
	g.ops++
	if grows {
		g.Grow++
	}
}

// groupReader decodes the operations of an encoded group.
type groupReader struct {
	proto  int
	origin uint64
	track  bool
	user   string // user whose rules apply to scripts, "" for none
	d      codec.Decoder
	args   [][]byte // scratch, reused for each operation
}

func (r *groupReader) open(body []byte) error {
	r.d = codec.Decoder{Rest: body}
	flags := r.d.Byte()
	r.proto = 2
	if flags&groupRESP3 != 0 {
		r.proto = 3
	}
	r.origin = r.d.Uvarint()
	r.track, r.user = flags&groupTrack != 0, ""
	if flags&groupUser != 0 {
		r.user = string(r.d.Bytes())
	}
	if flags > groupRESP3|groupTrack|groupScript|groupUser|groupDryRunPassed|groupGivenUp && r.d.Err == nil {
		return fmt.Errorf("group flags %#x: %w", flags, ErrVersion)
	}
	return r.d.Err
}

// skip skips the next operation.
func (r *groupReader) skip() error { return r.commands(func([][]byte) {}) }

// commands reads the next operation and calls f with the arguments of each of
// its commands.
func (r *groupReader) commands(f func(args [][]byte)) error {
	return r.commandsIn(func(_ int, args [][]byte) { f(args) })
}

// commandsIn reads the next operation and calls f with the database and the
// arguments of each of its commands. It skips an operation that the leader has
// answered: see answerOperation. args is valid only during the call.
func (r *groupReader) commandsIn(f func(db int, args [][]byte)) error {
	commands := uint64(1)
	switch op := r.d.Byte(); op {
	case opCommand:
	case opEffects:
		r.d.Bytes()
		r.d.Uvarint()
		r.d.Uvarint()
		if n := r.d.Uvarint(); n > 0 {
			return fmt.Errorf("answered operation with %d effects: %w", n, ErrFormat)
		}
		return r.d.Err
	case opTransaction:
		for n := r.d.Uvarint(); n > 0 && r.d.Err == nil; n-- {
			r.d.Uvarint()
			r.d.Bytes()
			r.d.Uvarint()
		}
		commands = r.d.Uvarint()
	default:
		return fmt.Errorf("operation kind %d: %w", op, ErrVersion)
	}
	for ; commands > 0 && r.d.Err == nil; commands-- {
		db, args, err := r.command()
		if err != nil {
			return err
		}
		f(db, args)
	}
	return r.d.Err
}

// command reads db, argc and the arguments.
func (r *groupReader) command() (db int, args [][]byte, err error) {
	db = int(r.d.Uvarint())
	n := r.d.Uvarint()
	if r.d.Err == nil && (n == 0 || n > uint64(len(r.d.Rest)) || db >= Databases) {
		return 0, nil, fmt.Errorf("command with %d arguments in db %d: %w", n, db, ErrFormat)
	}
	r.args = slices.Grow(r.args[:0], int(min(n, uint64(len(r.d.Rest)))))
	for ; n > 0 && r.d.Err == nil; n-- {
		r.args = append(r.args, r.d.Bytes())
	}
	return db, r.args, r.d.Err
}

// HasScripts reports whether the leader has to execute an encoded group
// speculatively.
func HasScripts(body []byte) bool { return len(body) > 0 && body[0]&groupScript != 0 }

// GroupOrigin returns the number of the connection that sent an encoded group,
// and the user whose rules apply to its scripts, "" for none.
func GroupOrigin(body []byte) (origin uint64, user string) {
	var r groupReader
	if r.open(body) != nil {
		return 0, ""
	}
	return r.origin, r.user
}

// RefuseGroup appends an error in place of each reply of an encoded group.
func RefuseGroup(dst, body []byte, text string) []byte {
	var r groupReader
	if r.open(body) != nil {
		return dst
	}
	for len(r.d.Rest) > 0 && r.skip() == nil {
		dst = Error(text).Append(dst, r.proto)
	}
	return dst
}

// GroupOps returns the number of operations of an encoded group.
func GroupOps(body []byte) int {
	var r groupReader
	if r.open(body) != nil {
		return 0
	}
	n := 0
	for len(r.d.Rest) > 0 && r.skip() == nil {
		n++
	}
	return n
}

// Mixed reports whether the group both writes and has costly reads.
func (g *Group) Mixed() bool { return g.Write && g.Costly }

// Skip removes the first n operations from the group.
func (g *Group) Skip(n int) error {
	var r groupReader
	if err := r.open(g.buf); err != nil {
		return err
	}
	head := len(g.buf) - len(r.d.Rest)
	for range n {
		if err := r.skip(); err != nil {
			return fmt.Errorf("skip operations of a group: %w", err)
		}
	}
	g.buf = append(g.buf[:head], r.d.Rest...)
	g.ops -= n
	return nil
}

// Piece is a part of a group: a sequence of its operations.
type Piece struct {
	Body []byte
	Read bool // the piece does not write
}

// Pieces splits a group into pieces that only read and pieces that write, so
// that the costly reads need not go through the log. A piece has at most
// pieceReads operations with costly reads. Pieces returns the whole group, with
// Read false, if there is only one piece or no piece that writes. It also does
// so if the connection tracks its reads, because only the log orders a tracked
// read correctly.
func (t *Table) Pieces(body []byte) []Piece {
	var r groupReader
	whole := []Piece{{Body: body}}
	if r.open(body) != nil || r.track {
		return whole
	}
	head := body[:len(body)-len(r.d.Rest)]
	var pieces []Piece
	start, at := len(head), len(head)
	var writes bool // whether the piece that begins at start writes
	var costly int
	end := func() {
		piece := slices.Concat(head, body[start:at])
		pieces = append(pieces, Piece{piece, !writes})
		start, writes, costly = at, false, 0
	}
	for len(r.d.Rest) > 0 {
		var w, c bool
		err := r.commands(func(args [][]byte) {
			if cmd := t.Find(args[0]); cmd != nil {
				row := cmd.Routed(args)
				w = w || row.IsWrite() || row.Flags&Scripted != 0 // a script may have to be logged
				c = c || row.Costly()
			}
		})
		if err != nil {
			return whole
		}
		if w && costly > 0 || c && (writes || costly == pieceReads) {
			end()
		}
		if writes = writes || w; c {
			costly++
		}
		at = len(body) - len(r.d.Rest)
	}
	end()
	if len(pieces) == 1 || !slices.ContainsFunc(pieces, func(p Piece) bool { return !p.Read }) {
		return whole
	}
	return pieces
}

// Reads reports whether a group can be executed as a read. A group cannot if it
// writes, or if its connection tracks its reads. Only the log orders a tracked
// read correctly.
func (t *Table) Reads(body []byte) bool {
	var r groupReader
	return r.open(body) == nil && !r.track && t.Check(body, true) == nil
}

// Mark marks an encoded group that writes and has costly reads, so that the
// leader executes it speculatively. It returns the group. Programs that know
// FeatureBudget mark such a group when they build it. Older programs do not.
func (t *Table) Mark(body []byte) []byte {
	if len(body) == 0 || body[0]&groupScript != 0 {
		return body
	}
	var r groupReader
	if r.open(body) != nil {
		return body
	}
	writes, costly := false, false
	for len(r.d.Rest) > 0 {
		err := r.commands(func(args [][]byte) {
			if cmd := t.Find(args[0]); cmd != nil {
				row := cmd.Routed(args)
				writes = writes || row.IsWrite()
				costly = costly || row.Costly()
			}
		})
		if err != nil {
			return body
		}
	}
	if writes && costly {
		body = slices.Clone(body)
		body[0] |= groupScript
	}
	return body
}
