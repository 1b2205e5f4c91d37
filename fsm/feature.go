package fsm

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// These are the feature versions. An entry must change the state in the same
// way on all nodes. So a new meaning of entries, or a command that older
// programs do not know, takes effect only when the cluster has reached a
// certain feature version. The feature version is part of the state. The leader
// raises it with a logged command after every member has reported that its
// program knows the new version. From FeatureMend on, the feature version never
// goes down. A program refuses a log or a snapshot whose feature version it does
// not know.
//
// Programs of the feature versions 0 and 1 take the version from the TermStart
// of each leadership, and they do not report which versions they know.
const (
	// FeatureAbsent gives absent keys versions for WATCH: see the type removed.
	FeatureAbsent = 1
	// FeatureMend changes the meaning of entries in these ways:
	//   - If an entry contains sessions of two starts of a node, the groups of
	//     the earlier start are not executed.
	//   - WATCH of an absent key notices SWAPDB.
	//   - The reply that was served to a waiter is kept until the waiter's node
	//     has received the reply, has started again, or was removed from the
	//     cluster.
	//   - ZUNIONSTORE and the related commands keep a score of -0 in every
	//     large result.
	//   - SuspendCommand accepts SuspendDrop.
	//   - The reply for a blocking command that waits contains the last
	//     arguments with which the node executes the command again, if they
	//     change (see ResumeArgs).
	//   - The cluster has settings other than notify-keyspace-events.
	FeatureMend = 2

	// FeatureScriptCache changes the meaning of entries in this way:
	//   - The script cache evicts the least recently used scripts (see
	//     scriptCache).
	FeatureScriptCache = 3

	// FeatureBudget changes the meaning of entries in these ways:
	//   - A change of a user's rights ends the waits of that user.
	//   - Nodes reserve numbers for client connections (see ClientIDsCommand).
	//   - An entry expires keys up to a certain amount of work (see
	//     expiryWork). Below this version, an entry expires up to
	//     expiryPerEntry keys, however long their names are.
	//
	// From this version on, a node may also send the leader a frame that cancels
	// a read.
	FeatureBudget = 4

	// FeatureOperate changes the meaning of entries in these ways:
	//   - Fencing tokens come from a counter with an epoch (see nextToken).
	//   - The data can be replaced with that of a backup (see RestoreCommand).
	//   - During a quarantine, no lock is granted (see operating.go).
	FeatureOperate = 5

	// FeatureLocks changes the meaning of entries in these ways:
	//   - A value that is written again keeps its fencing token (see
	//     keepsGrant).
	//   - The command LOCK exists.
	//   - The setting lock-idempotent takes effect (see Ctx.Idempotent).
	//   - SuspendCommand accepts SuspendPass.
	FeatureLocks = 6

	// FeatureShared changes the meaning of entries in these ways:
	//   - LOCK ACQUIRE has the options SHARED and LIMIT, and LOCK TOKEN accepts an
	//     owner. Below this version, these arguments are errors, as in programs
	//     that do not know them.
	//   - Values of the type lock exist (see keyspace.Lock).
	//   - LOCK INFO and LOCK LIST describe values of this type, and LOCK HELP
	//     describes the new options.
	//   - A grant does not pass to the next waiter if it was renewed (see
	//     Ctx.answered).
	//   - A node must claim every grant that its waiter got.
	FeatureShared = 7

	// FeatureHistory changes the meaning of entries in these ways:
	//   - Strings have marks, so that nodes recognize the end of a lock that SET NX
	//     has taken (see keyspace.LockMark). No reply depends on the marks.
	//   - LOCK HELP describes LOCK HISTORY.
	FeatureHistory = 8

	// FeatureDelay changes the meaning of entries in these ways:
	//   - The setting lock-delay takes effect: for some time after a lock was lost,
	//     no client gets it (see Ctx.lost).
	//   - LOCK LIST WAITED lists the locks that clients wait for, those with
	//     the most waiters first.
	//   - SET NX GET of a free lock that is reserved for a waiting client is an
	//     error, because its null reply would say that the caller got the lock.
	FeatureDelay = 9

	// FeatureParts changes the meaning of entries in these ways:
	//   - SuspendCommand with SuspendEnd or SuspendDrop may name the waiters
	//     that it removes. Below this version, a call that names waiters has no
	//     effect.
	//   - When a waiter leaves its queues, or its session is resumed or passed
	//     over, the machine checks only those of the waiter's keys that may
	//     satisfy a waiter (see Ctx.mayServe). This may change the order in
	//     which the machine serves the waiters of several keys.
	//   - If SET NX or SETNX succeeds because the key already has the value
	//     (see SettingIdempotent), it renews the grant of the lock, so that the
	//     grant does not pass to the next waiter.
	//   - If a command tries to write in a script that is executed as a read,
	//     the read fails with ErrUnlogged.
	//   - The internal command that puts a script into the cache returns OK.
	//   - The leader may propose the reply of TooLarge in place of a group.
	FeatureParts = 10

	// FeatureLease is the same version as FeatureParts and changes the meaning
	// of no entry. From this version on, a leader may ask voters to promise
	// that they will vote for no candidate for a certain time: see package
	// readindex. A voter that starts again keeps the promises that it gave
	// before. A program that does not know the version would break these
	// promises, so it refuses to run.
	FeatureLease = 10

	// FeatureWaits changes the meaning of entries in these ways:
	//   - A blocking command that would have to wait gets an error if too many
	//     clients of its user or of its node wait already (see maxWaitWeight).
	//   - If an earlier start of a node has many waiters (see fewEnded), the
	//     entry that ends their waits ends the open waits before the served
	//     ones. This may change the order in which other waiters are served.
	FeatureWaits = 11

	// FeatureDeferred changes the meaning of entries in these ways:
	//   - An entry stops serving waiters after a certain amount of work. Later
	//     entries serve the other waiters: see serve.go.
	//   - When the rights of a user change, the entry that changes them may end
	//     only some of the user's waits. Later entries end the others: see
	//     endWaitsOf. When a session with many waiters is resumed, later entries
	//     may check some of the waiters: see checkResumed.
	//   - FLUSHALL and FLUSHDB of more than fewFlushed keys give new versions to
	//     all keys of the database, present or absent: see removeAll.
	//   - During a quarantine, MSETEX with NX that would create its keys fails.
	//     The lock delay and the quarantine apply to MSETEX in scripts.
	//   - If a script calls more than MaxOps commands, the later commands of its
	//     pipeline give their keys neither a version that belongs to a later
	//     entry, nor a version lower than one that the script has given.
	FeatureDeferred = 12

	// FeatureReplies changes the meaning of entries in these ways:
	//   - When the replies of a group exceed MaxReplyBytes, no further write of
	//     the group is executed: see Ctx.refuses.
	//   - The reply of a write is never replaced by ReplyTooLarge, and the reply
	//     that was served to a waiter is never cut. So no data is lost that the
	//     command has removed.
	//   - In a transaction that goes through the log, ReplyTooLarge replaces the
	//     reply of a read, and not that of the transaction.
	//   - The commands that take members of a sorted set count the exact size of
	//     the scores, and XAUTOCLAIM counts the ids of deleted entries.
	FeatureReplies = 13

	// MaxFeatures is the highest feature version that this program knows.
	MaxFeatures = FeatureReplies
)

// FeaturesCommand is the internal command that raises the feature version. Its
// arguments are the leader's term and the feature version. It has no effect in
// a later term, so a deposed leader cannot raise the version.
const FeaturesCommand = "_features"

var featureCommands = []Command{
	{
		Name: FeaturesCommand, Run: raiseFeatures, Arity: 3, Flags: Internal | Write | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "term version",
		Doc:        "Raise the feature version of the cluster",
	},
}

// Features returns the feature version of the cluster as of the last entry.
func (m *Machine) Features() int { return m.features }

// ErrDowngrade means that the state needs a feature version that this program
// does not know. It wraps ErrVersion.
var ErrDowngrade = fmt.Errorf("install the newer program again: %w", ErrVersion)

// CheckFeatures returns ErrDowngrade if the state needs a higher feature
// version than a program knows. known is the highest feature version of that
// program.
func (m *Machine) CheckFeatures(known int) error {
	if m.features > known {
		return fmt.Errorf("the cluster uses feature version %d and this program knows %d: %w",
			m.features, known, ErrDowngrade)
	}
	return nil
}

// setFeatures sets the feature version. It returns ErrDowngrade if this program
// does not know the version.
func (m *Machine) setFeatures(n int) error {
	m.features = n
	if err := m.CheckFeatures(MaxFeatures); err != nil {
		return err
	}
	if counts := n >= FeatureAbsent; counts != m.removed.counts {
		m.removed = removed{counts: counts}
	}
	return nil
}

func raiseFeatures(c *Ctx, args [][]byte) Reply {
	term, err1 := strconv.ParseUint(string(args[1]), 10, 64)
	n, err2 := strconv.Atoi(string(args[2]))
	if err1 != nil || err2 != nil || term != c.m.term || n <= c.m.features {
		return Zero
	}
	c.Change()
	reachesMend := c.m.features < FeatureMend && n >= FeatureMend
	if c.m.features < FeatureOperate && n >= FeatureOperate {
		c.m.startTokens(c.pos)
	}
	if c.fail = c.m.setFeatures(n); c.fail != nil {
		return Zero
	}
	if reachesMend {
		c.endSuperseded()
	}
	return One
}

// Needs returns the feature version that this call of the command needs.
func (cmd *Command) Needs(args [][]byte) int {
	row := cmd.Routed(args)
	n := max(cmd.Feature, row.Feature)
	if row.FeatureOf != nil {
		n = max(n, row.FeatureOf(args))
	}
	return n
}

// exists returns the feature version that the command needs, whatever its
// options. Members with an older program stop at an entry with the command.
func (cmd *Command) exists(args [][]byte) int { return max(cmd.Feature, cmd.Routed(args).Feature) }

// NeedsFeature returns the error text for a command that needs the feature
// version need, while the cluster has the lower feature version features.
func NeedsFeature(cmd *Command, args [][]byte, need, features int) string {
	name := cmd.Name
	if row := cmd.Routed(args); row != cmd {
		name += " " + row.Name
	}
	return fmt.Sprintf("ERR '%s' needs feature version %d and the cluster uses %d: upgrade every node first",
		name, need, features)
}

// appendFeatures writes the feature version into a snapshot, from FeatureMend on.
// Programs that do not know the record refuse the snapshot.
func (m *Machine) appendFeatures(b []byte) []byte {
	if m.features < FeatureMend {
		return b
	}
	return binary.AppendUvarint(append(b, recordFeatures), uint64(m.features))
}

// features reads the record that appendFeatures wrote.
func (l *snapshotLoader) features(d *codec.Decoder) error {
	n := d.Uvarint()
	switch {
	case d.Err != nil:
		return nil // the caller reports d.Err
	case n < FeatureMend || l.m.features != 0:
		return fmt.Errorf("feature version %d: %w", n, ErrFormat)
	}
	return l.m.setFeatures(int(min(n, MaxFeatures+1)))
}
