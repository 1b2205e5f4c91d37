package fsm

import (
	"encoding/binary"
	"errors"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
)

// ReadRequest is a group to be executed without the log.
type ReadRequest struct {
	Body []byte
	// Now is the lease clock that Read compares deadlines with: the current time
	// of the leadership. In a local read it is 0, which means the log's clock.
	Now  int64
	Wall int64  // wall clock in microseconds since 1970, 0 for the log's wall clock
	Seed uint64 // seed of the random numbers, for example for RANDOMKEY
	// Runner interprets the scripts of the group. Scripts are the scripts that
	// run on this node. Runner and Scripts may be nil.
	Runner  ScriptRunner
	Scripts RunningScripts
	// Pages, unless nil, keeps the locks that LOCK LIST finds. Later reads on
	// the same node use them.
	Pages locklist.Keeper
	// Budget, unless nil, bounds the cost of the group. If the group exceeds
	// it, Read returns the error of the budget, and no replies.
	Budget *Budget
	// Front, unless nil, allows Read to execute only the first operations of
	// the group.
	Front *Front
}

// Front makes Machine.Read execute only the first operations of a group whose
// replies are large. So if a client does not read its replies, the node holds
// only a few of them. The remaining operations become a group of their own: see
// Group.Skip. The caller sets Most, and Read sets the other fields.
type Front struct {
	// Most is an approximate limit for the encoded replies that Read returns,
	// in bytes. Read stops after the operation with which the replies exceed
	// it. If the reply of one operation alone exceeds it, Read stops before
	// this reply: see Large.
	Most int
	// Ops is the number of operations that were executed; it is 0 if all were
	// executed and Read returned all replies. Left reports whether operations
	// are left.
	Ops  int
	Left bool
	// Large is the reply of the last executed operation, if that reply alone
	// exceeds Most. Read then returns only the replies before it. Large shares
	// its strings with the state. They never change, so nothing is copied.
	Large *Reply
}

// Cut reports whether Read returned only a part of the group's replies.
func (p *Front) Cut() bool { return p != nil && p.Ops > 0 }

// Reset clears the fields that Read sets.
func (p *Front) Reset() {
	if p != nil {
		p.Ops, p.Left, p.Large = 0, false, nil
	}
}

// take keeps the reply of operation op in Large if it exceeds Most, and reports
// whether it did.
func (p *Front) take(op int, reply Reply, proto int) (large bool) {
	if reply.within(p.Most) >= 0 {
		return false
	}
	kept := reply
	if reply.encodedSize(proto) > MaxReplyBytes {
		kept = Error(ReplyTooLarge)
	}
	p.Ops, p.Large = op+1, &kept
	return true
}

// ErrUnlogged means that a read would have to change the state. Examples are an
// EVAL_RO of a script that is not in the cache yet, and a script that is
// executed as a read and calls a write command. The group has to go through the
// log.
var ErrUnlogged = errors.New("read has an effect and must go through the log")

// Read executes a group without writes and appends its replies to dst.
// expiryPending is true if a reply depends on an expired key whose expiry is
// not committed yet: the deadline lies between the log's clock and req.Now. The
// caller must then discard the replies and try the read again after a clock
// entry is committed. A leader must not hide such a key, because no entry says
// that it expired, and must not show it either, because it has expired.
func (m *Machine) Read(dst []byte, req ReadRequest) (reply []byte, expiryPending bool, err error) {
	c := Ctx{
		m: m, now: max(req.Now, m.clock.Lease), wall: req.Wall, index: m.applied, readOnly: true,
		draw:      draw{seed: req.Seed},
		scripting: scripting{runner: req.Runner, scripts: req.Scripts, scriptBudget: DryRun},
		reading:   reading{req.Front, req.Pages}, meter: meter{budget: req.Budget},
	}
	if c.wall == 0 {
		c.wall = m.clock.Wall
	}
	c.setPosition(0)
	c.front.Reset()
	out := dst
	err = c.metered(func() (err error) {
		out, err = c.run(dst, req.Body)
		return err
	})
	if err == nil && c.unlogged {
		err = ErrUnlogged
	}
	if err != nil {
		c.front.Reset() // Read returns no replies, so Cut must report false
		return dst, false, err
	}
	return out, c.expiryPending, nil
}

// AppendPosition encodes a log index and a time. The leader sends them to a
// node so that the node can run a read itself. Before the read, the node must
// have applied the entry at this log index. During the read, the node must use
// now as the lease clock.
func AppendPosition(dst []byte, index uint64, now int64) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, index), now)
}

// CutPosition reads the encoding of AppendPosition.
func CutPosition(b []byte) (index uint64, now int64, err error) {
	d := codec.Decoder{Rest: b}
	index, now = d.Uvarint(), d.Varint()
	return index, now, d.Done("read position")
}
