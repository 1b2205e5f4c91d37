package fsm

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Feature versions. What an entry does to the state must be the same on all
// nodes, so a new meaning of entries, and a command that older programs do not
// know, takes effect only at a feature version of the cluster. The feature
// version is part of the state. The leader raises it with a logged command
// after every member has reported that its program knows it, and it never goes
// down again (from FeatureMend on): a program that does not know the feature
// version of the log or of a snapshot refuses to run it.
//
// The feature versions 0 and 1 are those of programs that took it from the
// TermStart of each leadership, and that do not report what they know.
const (
	// FeatureAbsent gives absent keys versions for WATCH: see removed.
	FeatureAbsent = 1
	// FeatureMend changes what entries mean in these ways: the groups of a
	// node's earlier start do not run behind a later start in the same entry;
	// WATCH of an absent key notices SWAPDB; a reply that was served to a waiter
	// stays until its node has it or has started anew; ZUNIONSTORE and its kin keep
	// a score of -0 in every large result; there are settings besides
	// notify-keyspace-events.
	FeatureMend = 2

	// FeatureBudget makes room in the script cache by last use: see scriptCache.
	FeatureBudget = 3

	// MaxFeatures is the highest feature version that this program knows.
	MaxFeatures = FeatureBudget
)

// FeaturesCommand is the internal command that raises the feature version:
// term, feature version. It has no effect in a later term, so a leader that was
// deposed raises nothing.
const FeaturesCommand = "_features"

var featureCommands = []Command{
	{Name: FeaturesCommand, Arity: 3, Flags: Internal | Write | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "term version", Doc: "Raise the feature version of the cluster", Run: raiseFeatures},
}

// Features returns the feature version of the cluster as of the last entry.
func (m *Machine) Features() int { return m.features }

// CheckFeatures says whether a program that knows feature versions up to known can
// go on with this state.
func (m *Machine) CheckFeatures(known int) error {
	if m.features > known {
		return fmt.Errorf("the cluster uses feature version %d and this program knows %d: install the newer program again: %w", m.features, known, ErrVersion)
	}
	return nil
}

// setFeatures puts a feature version into effect.
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
	c.change()
	mends := c.m.features < FeatureMend && n >= FeatureMend
	if c.fail = c.m.setFeatures(n); c.fail != nil {
		return Zero
	}
	if mends {
		c.endSuperseded()
	}
	return One
}

// Needs returns the feature version that a call of the command needs.
func (cmd *Command) Needs(args [][]byte) int {
	return max(cmd.Feature, cmd.Routed(args).Feature)
}

// NeedsFeature is the error reply to a command that the feature version of the
// cluster does not include yet.
func NeedsFeature(cmd *Command, args [][]byte, features int) string {
	name := cmd.Name
	if row := cmd.Routed(args); row != cmd {
		name += " " + row.Name
	}
	return fmt.Sprintf("ERR '%s' needs feature version %d and the cluster uses %d: upgrade every node first", name, cmd.Needs(args), features)
}

// appendFeatures writes the feature version into a snapshot. Programs that do not
// know the record refuse the snapshot.
func (m *Machine) appendFeatures(b []byte) []byte {
	if m.features < FeatureMend {
		return b
	}
	return binary.AppendUvarint(append(b, recordFeatures), uint64(m.features))
}

// features reads what appendFeatures wrote.
func (l *snapshotLoader) features(d *decoder) error {
	n := d.uvarint()
	switch {
	case d.err != nil:
		return nil // the caller reports it
	case n < FeatureMend || l.m.features != 0:
		return fmt.Errorf("feature version %d: %w", n, ErrFormat)
	}
	return l.m.setFeatures(int(min(n, MaxFeatures+1)))
}
