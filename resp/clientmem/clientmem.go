// Package clientmem bounds the memory that the clients of a node occupy
// together. Each connection has an [Account] in the node's [Budget]. The budget
// delays large replies until there is room for them, and closes connections,
// first those whose clients neither read nor send.
package clientmem

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/platform"
)

// Budget bounds the bytes that all clients of this node occupy together: unread
// replies and messages, incomplete commands, commands that a client has sent
// while a command of it runs or waits, and commands that are queued for EXEC.
// Amounts below freeBytes are not counted, except for messages. So ordinary
// commands are never delayed by the limit and do not use its lock.
//
// A reply that would exceed the limit waits for room before the node builds it.
// To make room, the node closes connections that occupy memory and whose
// clients have neither read nor sent anything for stalledAfter although the
// node waits for them. It starts with the connection that occupies the most.
//
// Bytes that are already in memory when they are counted cannot wait. If they
// exceed the limit, the node closes stalled connections first, and then the
// connections that occupy the most, until the rest is within the limit.
//
// A message that waits for several connections is counted once for the node.
// But when the node looks for the largest connection, the full size of the message
// counts for each of these connections.
type Budget struct {
	max int64 // in bytes; 0 for no limit
	// pushed is the size in bytes of the messages that wait for clients that
	// subscribe, track keys or use MONITOR. counted is used minus leaving and
	// closing. Relieve reads both without mu; counted is written with mu locked.
	pushed, counted atomic.Int64

	mu      sync.Mutex
	used    int64
	leaving int64 // the part of used that belongs to connections that are being closed for room
	closing int64 // the part of pushed that belongs to connections that are being closed
	holders map[*Account]struct{}
	waiting []*roomWait // oldest first
}

// Account is the share of one connection in a Budget.
type Account struct {
	m     *Budget
	close func(bytes int64) // closes the connection

	// m.mu guards the following fields.
	bytes   int64
	queued  int64 // bytes of messages, which other connections may share
	leaving bool  // the connection was chosen to be closed
	ended   bool

	progress atomic.Int64 // when the client last read or sent something, in Unix nanoseconds
	// busy is true while the node executes a command for which the client
	// waits. It is false while the node writes replies to the socket, while a
	// blocking command waits, and while the node waits for the next command. At
	// those times, the client is the reason why the connection occupies bytes: for
	// example, the client has not read its replies, has sent only a part of a
	// command, or has sent further commands while the blocking command waits.
	busy atomic.Bool
}

// roomWait is a reply that waits for room.
type roomWait struct {
	h     *Account
	n     int64
	ready chan struct{}
}

const (
	freeBytes    = 64 << 10
	stalledAfter = time.Second
	roomRetry    = 200 * time.Millisecond
	// roomTimeout is how long a reply waits for room. By then, the node has
	// closed the connections of clients that do not read. Clients that read slowly
	// may occupy the memory for longer.
	roomTimeout = 5 * time.Second
)

// New returns the Budget of a node. setting is its limit in bytes. If setting is
// 0, the limit is an eighth of the memory that the process may use, but at least
// leastLimit.
func New(setting int64) *Budget {
	return &Budget{max: LimitFor(setting), holders: make(map[*Account]struct{})}
}

// Limit returns the limit in bytes.
func (m *Budget) Limit() int64 { return m.max }

// Account returns the share of a new connection. close closes the connection; it
// is called without locks.
func (m *Budget) Account(close func(bytes int64)) *Account { return &Account{m: m, close: close} }

// Limit returns the limit of the Budget in bytes, for all clients together.
func (h *Account) Limit() int64 { return h.m.max }

// Push counts n bytes of messages that wait in the queues of connections. A
// negative n releases bytes. The caller that adds bytes calls Relieve
// afterwards, without locks.
func (m *Budget) Push(n int64) { m.pushed.Add(n) }

// Touch records that the client has read or sent something.
func (h *Account) Touch() { h.progress.Store(time.Now().UnixNano()) }

// BeginWork records that the node executes a command for which the client
// waits.
func (h *Account) BeginWork() { h.busy.Store(true) }

// BeginWait records that the node waits for the client to read or to send.
func (h *Account) BeginWait() {
	h.Touch()
	h.busy.Store(false)
}

// Add counts n bytes that the connection already occupies. A negative n
// releases bytes.
func (h *Account) Add(n int64) {
	if n == 0 {
		return
	}
	m := h.m
	if n > 0 {
		h.Touch()
	}
	m.mu.Lock()
	m.addLocked(h, n)
	m.mu.Unlock()
	if n > 0 {
		m.Relieve()
	}
}

// Rank adds n to the bytes of messages in the connection's size. The node
// compares these sizes when it chooses the connections to close. Rank does not
// change the node's total, which already includes the bytes of messages: see
// Push.
func (h *Account) Rank(n int64) {
	if n == 0 || h.m.max == 0 {
		return
	}
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.ended {
		h.queued += n
		m.noteLocked(h)
	}
}

// Relieve closes connections if the total exceeds the limit.
func (m *Budget) Relieve() {
	if m.max == 0 || m.counted.Load()+m.pushed.Load() <= m.max {
		return
	}
	m.mu.Lock()
	evicted := m.evictLocked(m.totalLocked()-m.max, false)
	m.mu.Unlock()
	closeAll(evicted)
}

// totalLocked returns the total in bytes without the connections that are being
// closed.
func (m *Budget) totalLocked() int64 { return m.used - m.leaving + m.pushed.Load() - m.closing }

// Reserve waits until n more bytes fit, and counts them. It returns false if
// there is no room within roomTimeout or if quit is closed.
func (h *Account) Reserve(n int64, quit <-chan struct{}) bool {
	m := h.m
	h.Touch()
	m.mu.Lock()
	if m.max == 0 || len(m.waiting) == 0 && m.fitsLocked(n) {
		m.addLocked(h, n)
		m.mu.Unlock()
		return true
	}
	w := &roomWait{h: h, n: n, ready: make(chan struct{})}
	m.waiting = append(m.waiting, w)
	evicted := m.makeRoomLocked()
	m.mu.Unlock()
	closeAll(evicted)
	retry := time.NewTicker(roomRetry)
	defer retry.Stop()
	late := time.NewTimer(roomTimeout)
	defer late.Stop()
	for {
		select {
		case <-w.ready:
			return true
		case <-retry.C:
			m.mu.Lock()
			m.grantLocked() // clients may have read messages: that frees room, but does not wake the waiters
			evicted := m.makeRoomLocked()
			m.mu.Unlock()
			closeAll(evicted)
			continue
		case <-late.C:
		case <-quit:
		}
		return m.giveUp(w)
	}
}

// TryReserve is like Reserve but does not wait.
func (h *Account) TryReserve(n int64) bool {
	m := h.m
	h.Touch()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.max > 0 && (len(m.waiting) > 0 || !m.fitsLocked(n)) {
		return false
	}
	m.addLocked(h, n)
	return true
}

// giveUp removes a reply from the waiters. It returns true if the reply was
// granted room in the meantime.
func (m *Budget) giveUp(w *roomWait) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.waiting {
		if m.waiting[i] == w {
			m.waiting = append(m.waiting[:i], m.waiting[i+1:]...)
			m.grantLocked() // the replies that wait behind w may need less room
			return false
		}
	}
	return true
}

// End releases the connection's share. It must be called when the connection
// has ended; later changes are ignored.
func (h *Account) End() {
	h.m.mu.Lock()
	h.queued = 0
	h.m.addLocked(h, -h.bytes)
	h.ended = true
	h.m.mu.Unlock()
}

// fitsLocked reports whether n more bytes fit. A reply that is larger than the
// limit is accepted if nothing else is counted, except messages.
func (m *Budget) fitsLocked(n int64) bool {
	return m.used+m.pushed.Load()+n <= m.max || m.used == 0 && n > m.max
}

func (m *Budget) addLocked(h *Account, n int64) {
	if h.ended {
		return
	}
	h.bytes += n
	m.used += n
	if h.leaving {
		m.leaving += n
	}
	m.noteLocked(h)
	if n < 0 {
		m.grantLocked()
	}
}

// noteLocked updates holders and counted after a change of h.
func (m *Budget) noteLocked(h *Account) {
	if h.bytes > 0 || h.queued > 0 {
		m.holders[h] = struct{}{}
	} else {
		delete(m.holders, h)
	}
	m.counted.Store(m.used - m.leaving - m.closing)
}

// grantLocked gives room to the replies that wait, in their order.
func (m *Budget) grantLocked() {
	for len(m.waiting) > 0 && m.fitsLocked(m.waiting[0].n) {
		w := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.addLocked(w.h, w.n)
		w.h.Touch()
		close(w.ready)
	}
}

// eviction is a connection that is chosen to be closed.
type eviction struct {
	h             *Account
	bytes, queued int64
}

// makeRoomLocked chooses stalled connections to close for the reply that has
// waited longest.
func (m *Budget) makeRoomLocked() []eviction {
	if len(m.waiting) == 0 {
		return nil
	}
	return m.evictLocked(m.totalLocked()+m.waiting[0].n-m.max, true)
}

// evictLocked chooses connections to close until need bytes are free. It
// chooses stalled connections first, the largest of them before the smaller
// ones. If these are not enough, it chooses connections that are not stalled,
// unless stalledOnly is set.
func (m *Budget) evictLocked(need int64, stalledOnly bool) (chosen []eviction) {
	before := time.Now().Add(-stalledAfter).UnixNano()
	for need > 0 {
		var worst *Account
		stalled := false
		for h := range m.holders {
			s := h.progress.Load() < before && !h.busy.Load()
			if h.leaving || stalledOnly && !s {
				continue
			}
			if worst == nil || s && !stalled || s == stalled && h.bytes+h.queued > worst.bytes+worst.queued {
				worst, stalled = h, s
			}
		}
		if worst == nil {
			return chosen
		}
		worst.leaving = true
		m.leaving += worst.bytes
		m.closing += worst.queued
		m.noteLocked(worst)
		need -= worst.bytes + worst.queued
		chosen = append(chosen, eviction{worst, worst.bytes, worst.queued})
	}
	return chosen
}

// closeAll closes the chosen connections. That frees their messages, except
// messages that other connections share. It must be called without m.mu.
func closeAll(chosen []eviction) {
	for _, e := range chosen {
		e.h.close(e.bytes + e.queued)
		m := e.h.m
		m.mu.Lock()
		m.closing -= e.queued
		m.noteLocked(e.h)
		m.mu.Unlock()
	}
}

// Total returns the bytes that are counted.
func (m *Budget) Total() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used + m.pushed.Load()
}

// Part counts one kind of memory of a connection in steps of freeBytes, so
// that small amounts are not counted and changes are rare. It is not safe for
// concurrent use.
type Part struct{ counted int64 }

// Set records that the current size is n bytes.
func (s *Part) Set(h *Account, n int64) {
	if n = n / freeBytes * freeBytes; n != s.counted {
		d := n - s.counted
		s.counted = n
		h.Add(d)
	}
}

// These constants determine the default limit.
const (
	memoryPart = 8 // divisor of the memory that the process may use
	leastLimit = 256 << 20
)

// LimitFor returns the limit in bytes for a setting in bytes. If the setting is
// 0, the limit is an eighth of the memory that the process may use, but at
// least leastLimit.
func LimitFor(setting int64) int64 {
	if setting > 0 {
		return setting
	}
	memory, err := platform.ProcessMemory()
	if err != nil {
		memory = 0 // the system does not report it
	}
	return max(int64(memory/memoryPart), leastLimit)
}
