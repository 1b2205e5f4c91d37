package cluster

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
)

// clientIDs assigns numbers to the connections of this node's clients. A number
// is unique in the cluster, across all nodes and all their starts: each start
// of a node reserves blocks of numbers in the log.
//
// A connection that arrives before the first block is reserved gets a number
// above fsm.MaxClientID. That number is made from a 31-bit hash of the node's
// identity and the number of its starts, so it is unique unless two such hashes
// are equal.
type clientIDs struct {
	machine   *machine
	forwarder *forwarder

	mu        sync.Mutex
	early     uint64 // last number that was assigned without a block
	last, end uint64 // current block: the last assigned number, and the block's last number
	next      uint64 // first number of the next block, or 0 if none is reserved

	asked *call // reservation under way, or nil; only sweep uses it
}

const (
	// clientBlock is how many numbers are reserved at a time. It is large, so
	// that reservations need few entries, and small enough that blocks do not
	// run out.
	clientBlock = 1 << 20
	// earlyBits is the number of bits that count the connections that arrive
	// before the first block.
	earlyBits = 21
)

func newClientIDs(m *machine, fw *forwarder) *clientIDs {
	h := fnv.New64a()
	h.Write([]byte(fw.id.String()))
	return &clientIDs{machine: m, forwarder: fw, early: fsm.MaxClientID + h.Sum64()>>(64-52+earlyBits)<<earlyBits}
}

// ClientID returns the number for a new connection. Once this start of the node
// has reserved its first block, its numbers ascend.
func (n *Node) ClientID() uint64 { return n.clientIDs.take() }

func (ids *clientIDs) take() uint64 {
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
func (ids *clientIDs) low() bool {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.next == 0 && ids.end-ids.last < clientBlock/2
}

// sweep reserves a block when one is needed. The node calls it periodically,
// always on the same goroutine.
func (ids *clientIDs) sweep() {
	if ids.asked != nil {
		select {
		case <-ids.asked.done:
		default:
			return
		}
		ids.reserved(ids.asked.reply, ids.asked.err)
		ids.asked = nil
	}
	if !ids.low() {
		return
	}
	features := 0
	ids.machine.view(func(m *fsm.Machine) { features = m.Features() })
	if features < fsm.FeatureBudget {
		return
	}
	ids.asked = ids.forwarder.command(ids.machine.table, [][]byte{[]byte(fsm.ClientIDsCommand), decimal(clientBlock)})
}

// reserved handles the reply to a reservation. If the reservation failed, its
// numbers stay unused in case it was executed, and sweep reserves another
// block.
func (ids *clientIDs) reserved(reply []byte, err error) {
	text, isInt := strings.CutPrefix(strings.TrimSuffix(string(reply), "\r\n"), ":")
	first, notInt := strconv.ParseUint(text, 10, 64)
	if err != nil || !isInt || notInt != nil {
		return
	}
	ids.mu.Lock()
	ids.next = first
	ids.mu.Unlock()
}
