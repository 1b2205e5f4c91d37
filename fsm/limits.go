package fsm

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// MaxKeyBytes bounds the length of a key that is written. Together with
// MaxStringBytes, it ensures that the reader of a snapshot accepts a key with
// its value. Redis allows keys as large as values.
const MaxKeyBytes = 512 << 10

// The parts of collections have limits too. A hash field has at most
// MaxKeyBytes bytes, because a field and its value must fit into one block of a
// snapshot. List elements, members and hash values have at most MaxStringBytes
// bytes.
const (
	// MaxArguments is the largest number of arguments of one write command.
	MaxArguments = 1 << 20
)

// limit makes a write command refuse keys and values that are too long, and too
// many arguments.
func (cmd *Command) limit() {
	run := cmd.Run
	cmd.Run = func(c *Ctx, args [][]byte) Reply {
		if len(args) > MaxArguments {
			return Error(msgArguments)
		}
		for i, arg := range args {
			if len(arg) > MaxKeyBytes && (len(arg) > MaxStringBytes || slices.Contains(cmd.KeyPositions(args), i)) {
				return Error(MsgTooLong)
			}
		}
		return run(c, args)
	}
}

// These limits bound the open waiters.
const (
	// maxWaiters and maxWaiterBytes apply to all open waiters of the cluster
	// together.
	maxWaiters     = 1 << 17
	maxWaiterBytes = 64 << 20
	// waiterOverhead is the memory, in bytes, that one argument of a waiter takes
	// in addition to the bytes of the argument.
	waiterOverhead = 64
	// maxWaitWeight is the largest sum of waiter.weight of the open waiters of one
	// user, and of those of one node. Some entries must visit all waiters
	// of a node (SuspendCommand) or, below FeatureDeferred, of a user (ACL
	// SETUSER), and an entry must not take longer than 10 ms. Visiting 22,000
	// waiters that each wait for one list, or 11,000 that wait for locks, takes
	// less time than that on a processor that does nothing else.
	maxWaitWeight = 44_000
)

const (
	msgWaiters     = "ERR too many clients wait in blocking commands"
	msgUserWaiters = "BUSY too many clients of this user wait in blocking commands"
	msgNodeWaiters = "BUSY too many clients of this node wait in blocking commands, use another node"
)

// overweight returns the error if n must not wait because too many clients of
// its user or of its node wait already, and "" otherwise.
func (c *Ctx) overweight(n *waiter) string {
	w := &c.m.waits
	if c.m.features < FeatureWaits {
		return ""
	}
	if w.weightOf(n.user)+n.weight() > maxWaitWeight {
		return msgUserWaiters
	}
	if at, found := w.node(n.session.NodeID); found && w.nodes[at].weight+n.weight() > maxWaitWeight {
		return msgNodeWaiters
	}
	return ""
}

// weight is a measure of the time that it takes to end the wait. Ending a wait
// for a lock takes twice as long as ending a wait for a value of one key.
func (n *waiter) weight() int {
	if n.forLock() {
		return 4
	}
	return 1 + len(n.keys)
}

// leastWeight is the smallest weight of an open waiter, which waits for at least
// one key.
const leastWeight = 2

// weightOf returns the sum of the weights of a user's open waiters.
func (w *waits) weightOf(user string) int {
	of, _ := w.users.Get(user)
	return of
}

// addWeight adds weight, which may be negative, to the sum of the weights of a
// user's open waiters.
func (w *waits) addWeight(user string, weight int) {
	if of := w.weightOf(user) + weight; of == 0 {
		w.users.Delete(user)
	} else {
		w.users.Set(user, of)
	}
}

// ReplyTooLarge is the error in place of a reply that a client does not get because
// the reply, or the replies of its group, would exceed MaxReplyBytes. From
// FeatureReplies on, a command with this reply has changed nothing:
//
//   - A command that takes elements, such as LPOP, returns the error and changes
//     nothing if these elements alone exceed the limit.
//   - A write whose reply makes the replies of the group exceed the limit has been
//     executed, so the client gets its reply. The writes after it are not
//     executed: see refuses. So the replies of a group may have nearly twice
//     MaxReplyBytes, and in addition the short replies and errors after that.
//   - A read whose reply would make the replies of the group exceed the limit gets
//     the error, also in a transaction that writes: see fit. If a transaction only
//     reads and does not go through the log, EXEC gets the error.
//   - A transaction with a script or with a costly read fails as a whole if its
//     replies exceed maxGroupReply, and none of its commands is executed: see
//     Speculation.group.
//
// Below FeatureReplies, a write may have been executed. Its reply, and the data that
// it has removed, are then lost.
const ReplyTooLarge = "ERR reply is larger than 50331648 bytes in one pipeline, ask for less at a time"

// shortReply is the size of the encoding of ReplyTooLarge, in bytes. A reply that is
// not longer is neither replaced nor counted.
const shortReply = len("-" + ReplyTooLarge + "\r\n")

// count counts a reply of size bytes in sent.
func (c *Ctx) count(size int) {
	if size > shortReply {
		c.sent += size
	}
}

// fits reports whether fit limits the replies of the group, command by command.
func (c *Ctx) fits() bool { return c.m.features >= FeatureReplies && !c.readOnly }

// cutsAt returns the size at which the encoding of a list ends: see Reply.Append.
func (c *Ctx) cutsAt() int {
	if c.fits() {
		return math.MaxInt
	}
	return MaxReplyBytes
}

// refuses reports whether a command must not be executed because the replies of its
// group exceed MaxReplyBytes. This is true for every write, because its reply may
// contain data that it removes or replaces. Only the reply of a write makes the
// replies exceed the limit, so a group whose writes have short replies is not
// affected. A node that executes a pipeline in pieces follows the same rule: see
// Session.inPieces in package cluster.
func (c *Ctx) refuses(row *Command) bool { return c.sent > MaxReplyBytes && row.IsWrite() && c.fits() }

// fit returns the reply of a command that was executed, or ReplyTooLarge in place of
// the reply of a read with which the replies of the group would exceed
// MaxReplyBytes.
func (c *Ctx) fit(row *Command, reply Reply) Reply {
	if row.IsWrite() || !c.fits() {
		return reply
	}
	if size := reply.encodedSize(c.proto); size > shortReply && c.sent+size > MaxReplyBytes {
		return Error(ReplyTooLarge)
	}
	return reply
}

// RDBWriter returns a writer of the RDB format that charges c.
func (c *Ctx) RDBWriter() *rdb.Writer { return rdb.NewWriter(MaxReplyBytes, c.Charge, c.ChargeMemory) }

// These constants limit the value of a payload: see rdb.Limits. Restoring an
// element costs about as much as adding one with a write command.
const (
	maxUnfolded = MaxReplyBytes
	maxRestored = MaxArguments
)

// RestoreLimits are the limits of RESTORE and FUNCTION RESTORE.
var RestoreLimits = rdb.Limits{String: MaxStringBytes, Unfolded: maxUnfolded, Elements: maxRestored}

// While the cluster has no room for more data, the leader refuses commands with
// the flag DenyOOM before they get into the log: see WorkLimits.Full, and
// Weigher.operation for the exceptions. As in Redis, these are the commands that
// can make the data set grow. All other commands are executed, such as reads,
// deletions, and the release and renewal of locks.

// FullNotice is implemented by runners that know whether there is room for more
// data.
type FullNotice interface {
	// Full returns "" if there is room. Otherwise it returns the error for a
	// script's command that can make the data set grow.
	Full() string
}

// MsgOOM is the error for a command that can make the data set grow, while the
// data set is larger than maxmemory. Redis has the same text.
const MsgOOM = "OOM command not allowed when used memory > 'maxmemory'."

// refusalOf returns the error that replaces the reply of a refused operation.
// For a transaction, it is the reply of EXEC, as in Redis.
func refusalOf(op byte, text string) string {
	if op == opTransaction {
		return "EXECABORT Transaction discarded because of: " + text
	}
	return text
}

// RefuseGrowth appends an error in place of each reply of an encoded group. For
// a transaction, the error is that of EXEC. RefuseGrowth is for groups that are
// refused as a whole, for example because all their operations can make the
// data set grow.
func RefuseGrowth(dst, body []byte, text string) []byte {
	var r groupReader
	if r.open(body) != nil {
		return dst
	}
	for len(r.d.Rest) > 0 {
		op := r.d.Rest[0]
		if r.skip() != nil {
			break
		}
		dst = Error(refusalOf(op, text)).Append(dst, r.proto)
	}
	return dst
}

// Grows reports whether the call of the command can make the data set grow. It
// returns false for the internal command that nodes log for LOCK ACQUIRE, because
// the owner may already hold the lock. The command then only extends the lease.
func (cmd *Command) Grows(args [][]byte) bool {
	return cmd.Routed(args).Flags&(DenyOOM|Internal) == DenyOOM && !keepsValue(args)
}

// keepsValue reports whether args are a SET that succeeds only if the key already has
// the value (SET key owner IFEQ owner PX ms). Such a SET renews a lock, and adds no data.
func keepsValue(args [][]byte) bool {
	if len(args) < 5 || !strings.EqualFold(codec.View(args[0]), "set") {
		return false
	}
	for i := 3; i+1 < len(args); i++ {
		switch option := codec.View(args[i]); {
		case strings.EqualFold(option, "ifeq"):
			return bytes.Equal(args[i+1], args[2])
		case strings.EqualFold(option, "ex"), strings.EqualFold(option, "px"),
			strings.EqualFold(option, "exat"), strings.EqualFold(option, "pxat"):
			i++
		}
	}
	return false
}

// createsKey reports whether args call a native script that would acquire a free
// lock. Native scripts that only renew or release a lock do not count, although
// they also write.
func (w *Weigher) createsKey(args [][]byte) bool {
	if len(args) < 3 {
		return false
	}
	var sha string
	switch string(args[0]) {
	case "eval":
		sha = SHA1(args[1])
	case "evalsha":
		var buf [shaLen]byte
		if len(args[1]) != shaLen {
			return false
		}
		sha = codec.View(lowerSHA(&buf, args[1]))
	}
	if !acquiring[sha] {
		return false
	}
	keys, _, fail := scriptArgs(args)
	return fail == "" && w.m.lacksKey(w.db, keys)
}

// lacksKey reports whether one of the keys does not exist.
func (m *Machine) lacksKey(db int, keys [][]byte) bool {
	return slices.ContainsFunc(keys, func(key []byte) bool { return m.dbs[db].Get(key) == nil })
}

// full returns the error for a script's call of a command that has to be
// refused because there is no room for more data. It returns "" if the call may
// run. As in Redis, a script that has already written something may continue,
// because an error could leave its work half done. A known script that releases
// or renews a lock may run too, even if it is interpreted because ACL rules
// apply to its user.
func (s *scriptRun) full(row *Command) string {
	if row.Flags&DenyOOM == 0 || s.before != nil {
		return ""
	}
	if native[s.sha] != nil && !(acquiring[s.sha] && s.c.m.lacksKey(s.c.db, s.keys)) {
		return ""
	}
	n, ok := s.c.runner.(FullNotice)
	if !ok {
		return ""
	}
	return n.Full()
}
