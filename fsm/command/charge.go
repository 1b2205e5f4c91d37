package command

import (
	"math/bits"

	"github.com/holdfast-kv/holdfast/fsm"
)

// These are the charges for frequent operations of the commands: in steps if
// the name begins with steps or ends in Steps, and otherwise in bytes. Package
// fsm has those that the state machine uses too.
const (
	stepsDraw = 8 // for going to a random position
	// stepsMerge is the cost of comparing an element of a sorted sequence with
	// another one and copying it.
	stepsMerge = 3
	// stepsBuild is the cost of adding an element to a new sequence, after the
	// others.
	stepsBuild = 8
	// stepsScore is the cost of adding a member to a new sorted set that is
	// built as a whole: its members are sorted by score and by hash.
	stepsScore = 48
	// stepsDistance is the cost of deciding whether a point is in an area.
	stepsDistance = 16
	// hllSteps is the cost of reading all registers of a HyperLogLog.
	hllSteps = 4096
	// stepsCompare is the cost of comparing two elements of a SORT.
	stepsCompare = 2
	// sortedBytes is the memory of an element of a SORT.
	sortedBytes = 64
	// scoreBytes is the memory of a member and its score while scores are
	// added.
	scoreBytes = 128
	// geoPointBytes is the memory of a point that a search has found.
	geoPointBytes = 96
	// replyBytes is the memory of one reply without its text.
	replyBytes = 80
)

// chargeCompared charges for comparing an element with an argument. Only texts
// of the same length are compared byte by byte.
func chargeCompared(c *fsm.Ctx, element *string, arg []byte) {
	if len(*element) == len(arg) {
		c.Charge(1 + len(arg)/fsm.CopyBytes)
		return
	}
	c.Charge(1)
}

// chargeSort charges for sorting n items.
func chargeSort(c *fsm.Ctx, n int) { c.Charge(2 * n * bits.Len(uint(n))) }
