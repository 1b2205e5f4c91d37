// Package clientid assigns numbers to the connections of a node's clients. Each
// start of a node reserves blocks of numbers in the log. So the numbers in these
// blocks are unique in the cluster, across all nodes and all their starts.
package clientid

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Allocator assigns the numbers of one start of a node. All of its methods
// except Sweep are safe for concurrent use.
//
// A connection that arrives while the node has no reserved number left, for
// instance before the first block is reserved, gets a number above
// fsm.MaxClientID. That number is made from a 31-bit hash of the node's
// identity and the number of its starts, so it is unique unless two such hashes
// are equal.
type Allocator struct {
	reserve Reserve

	mu        sync.Mutex
	early     uint64 // last number that was assigned without a block
	last, end uint64 // current block: the last assigned number, and the block's last number
	next      uint64 // first number of the next block, or 0 if none is reserved

	asked *Reservation // reservation that is under way, or nil; only Sweep uses it
}

// Reserve submits the command that reserves count client ids in the log, and
// does not wait for its reply. It returns nil if the cluster does not know the
// command yet.
type Reserve func(count uint64) *Reservation

// Reservation is a command that reserves client ids. Result must not be called
// before Done has delivered a value.
type Reservation struct {
	Done   <-chan struct{}
	Result func() (reply []byte, err error)
}

const (
	// clientBlock is how many numbers are reserved at a time. It is large, so
	// that reservations need few entries, and small enough that there are
	// blocks for all starts of all nodes.
	clientBlock = 1 << 20
	// earlyBits is the number of bits of the counter of connections that got
	// their numbers without a block.
	earlyBits = 21
)

// New returns an allocator for the start of the node to which session belongs.
func New(session fsm.SessionID, reserve Reserve) *Allocator {
	h := fnv.New64a()
	h.Write([]byte(session.String()))
	return &Allocator{reserve: reserve, early: fsm.MaxClientID + h.Sum64()>>(64-52+earlyBits)<<earlyBits}
}

// Take returns the number for a new connection. After this start of the node
// has reserved its first block, the numbers that Take returns ascend, unless a
// block is used up before the next one is reserved.
func (ids *Allocator) Take() uint64 {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.last == ids.end {
		if ids.next == 0 {
			ids.early++
			return ids.early
		}
		ids.last, ids.end, ids.next = ids.next-1, ids.next-1+clientBlock, 0
	}
	ids.last++
	return ids.last
}

// low reports whether another block should be reserved.
func (ids *Allocator) low() bool {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.next == 0 && ids.end-ids.last < clientBlock/2
}

// Sweep reserves a block when one is needed. The node calls it periodically,
// always on the same goroutine.
func (ids *Allocator) Sweep() {
	if ids.asked != nil {
		select {
		case <-ids.asked.Done:
		default:
			return
		}
		ids.reserved(ids.asked.Result())
		ids.asked = nil
	}
	if ids.low() {
		ids.asked = ids.reserve(clientBlock)
	}
}

// reserved handles the reply to the command that reserves a block. If the
// command failed, it may have reserved a block nevertheless. The node does not
// use that block, and Sweep reserves another one.
func (ids *Allocator) reserved(reply []byte, err error) {
	text, isInt := strings.CutPrefix(strings.TrimSuffix(string(reply), "\r\n"), ":")
	first, notInt := strconv.ParseUint(text, 10, 64)
	if err != nil || !isInt || notInt != nil {
		return
	}
	ids.mu.Lock()
	ids.next = first
	ids.mu.Unlock()
}
