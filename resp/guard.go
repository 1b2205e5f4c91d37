package resp

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Guard is the client's connection as redcon sees it. It stands between the
// socket and redcon v1.6.4, whose parser a stranger can crash
// (`*1\r\n$9223372036854775807\r\n`), keep busy (`*9000000000000000000\r\n`; a
// large command in small packets, which it parses again from the start at each)
// and make recurse until the stack is full (packets without a command in them),
// and which has no limits and no deadlines. redcon reads whole, valid, canonical
// multibulk commands from a Guard and nothing else: every path of its parser that
// leads to trouble begins with something that a Guard does not pass on.
//
// What Redis 7.0.15 does, a Guard does: it ignores empty lines and counts below
// one, understands inline commands (and rewrites them as multibulk, for redcon
// has other quoting rules), answers a bad frame with the same text after the
// replies to everything before it and then closes, and closes without a word when
// a browser is at the other end. What a client gets to see never depends on how
// its bytes were cut into packets.
//
// One Read returns at most 64 KiB and 1024 commands (redcon asks for 4 KiB), or a
// piece of one larger command: redcon collects the replies to a Read in memory and
// flushes them before it asks for more, so a client that sends a million commands
// and reads no replies blocks the flush of one batch, and its write deadline ends
// the connection. Until the connection has authenticated a Read returns one
// command, because the answer to AUTH decides how the next one is judged.
//
// Memory: a claimed length allocates nothing. The guard holds what came of one
// incomplete command, in a buffer of at most twice the bytes received and no more
// than MaxCommand and a little, and nothing while the client is silent.
//
// Read is for one goroutine, the connection's; all else is safe for concurrent
// use. The guard owns the deadlines of the connection: do not set them.
type Guard struct {
	net.Conn
	limits *Limits
	hooks  *GuardHooks
	owner  *GuardListener // nil without one

	auth atomic.Bool

	lifeMu sync.Mutex // guards closed, and auth against the owner's counts
	closed bool

	unauthAddr  string        // by which the owner counts it
	unauthPlace *list.Element // in owner.unauth, which guards it
	unauthInput int           // bytes charged before authentication; belongs to Read
	unauthSince atomic.Int64  // since when it has not authenticated, Unix nanoseconds

	writeMu    sync.Mutex      // one Write at a time; guards the next two
	writeArmed time.Time       // when the write deadline was moved last
	raw        syscall.RawConn // for tryWrite, nil before the first

	// The rest belongs to the goroutine that calls Read.

	// buf[off:] is what has been received and not been delivered: buf[off:scan]
	// went through the scanner, buf[scan:] did not. It is nil when empty.
	buf       []byte
	off, scan int
	scanner   guardScanner
	found     guardEvent // what ends at scan and waits for room in the next Read

	big     []byte // rest of a command that did not fit into one Read
	bigSize int    // its whole size

	retried bool   // the incomplete command in buf has had its chance in guardRun
	greeted bool   // a whole command was delivered
	refused bool   // the input ended in a protocol error or the like: nothing more is read
	told    bool   // and the client knows
	reason  string // why, "" for a web request
	readErr error  // came with the last bytes read

	clock  guardClock
	relief bool // redcon's buffer is large: see pad
	owed   bool // the pad's last line is not complete

	scanned uint64 // bytes looked at, for the test of linear cost
}

// GuardHooks are called, where set, when a Guard or GuardListener does something
// that somebody may want to log or count. They run on the connection's or the
// accepting goroutine and must not block.
type GuardHooks struct {
	// ProtocolError reports a bad frame; reason is the text after
	// "Protocol error: ".
	ProtocolError func(g *Guard, reason string)
	// CrossProtocol reports a connection that was closed because HTTP came in:
	// a browser may have been made to send commands (the cross-protocol attack
	// that Redis logs as "Possible SECURITY ATTACK detected").
	CrossProtocol func(g *Guard)
	// Timeout reports a missed deadline: kind is "handshake", "unauthenticated
	// idle", "login", "command" or "write".
	Timeout func(g *Guard, kind string)
	// Refused reports a connection that was turned away because of MaxClients or,
	// if unauth is true, one that had not authenticated and was closed because of
	// MaxUnauth or MaxUnauthAddr.
	Refused func(addr net.Addr, unauth bool)
	// AcceptError reports an error of Accept or of setting up what it returned,
	// and how long Accept now pauses.
	AcceptError func(err error, pause time.Duration)
}

const (
	guardBufSize    = 4096     // first size of buf, and what is read at least
	guardBatch      = 64 << 10 // most bytes that one Read delivers
	guardCommands   = 1024     // most commands that one Read delivers
	guardWriteChunk = 1 << 20  // bytes that share one write deadline
	guardLargeBuf   = 64 << 10 // a larger buf is not kept for the next command
	guardBigRelief  = 8 << 10  // from here on redcon's buffer is worth freeing
	guardLingerTime = time.Second
	guardLingerSize = 256 << 10
)

// guardBufs holds buffers of guardBufSize between their uses, since most
// connections need one for a moment only.
var guardBufs = sync.Pool{New: func() any { return new([guardBufSize]byte) }}

// NewGuard returns a Guard around c. It has not authenticated yet; a server
// without a password says SetAuthenticated(true) at once. l must be valid.
func NewGuard(c net.Conn, l Limits, hooks GuardHooks) *Guard {
	return newGuard(c, &l, &hooks, nil)
}

func newGuard(c net.Conn, l *Limits, hooks *GuardHooks, owner *GuardListener) *Guard {
	g := &Guard{Conn: c, limits: l, hooks: hooks, owner: owner}
	if owner != nil {
		g.unauthAddr = unauthAddrOf(c.RemoteAddr())
	}
	g.unauthSince.Store(time.Now().UnixNano())
	return g
}

// NetConn returns the connection that the guard was put around, for its TLS state.
func (g *Guard) NetConn() net.Conn { return g.Conn }

// Authenticated returns what SetAuthenticated said last.
func (g *Guard) Authenticated() bool { return g.auth.Load() }

// SetAuthenticated says whether the client has authenticated, which decides the
// limits and deadlines from the next command on. When it comes from the command
// handler, the next command is the one after AUTH; after a change back to false
// (RESET), commands of the same batch were still let through under the wider
// limits.
func (g *Guard) SetAuthenticated(auth bool) {
	if evicted := g.setAuthenticated(auth); evicted != nil {
		g.owner.evict(evicted) // without lifeMu: two guards may evict each other
	}
}

func (g *Guard) setAuthenticated(auth bool) (evicted *Guard) {
	g.lifeMu.Lock()
	defer g.lifeMu.Unlock()
	if g.auth.Load() == auth {
		return nil
	}
	g.auth.Store(auth)
	switch {
	case g.owner == nil || g.closed:
		return nil
	case auth:
		g.owner.unauth.remove(g)
		return nil
	}
	g.unauthSince.Store(time.Now().UnixNano())
	return g.owner.unauth.add(g, g.limits)
}

// Close closes the connection. Further calls do nothing.
func (g *Guard) Close() error {
	g.lifeMu.Lock()
	if g.closed {
		g.lifeMu.Unlock()
		return nil
	}
	g.closed = true
	if g.owner != nil {
		g.owner.open.Add(-1)
		g.owner.unauth.remove(g)
	}
	g.lifeMu.Unlock()
	return g.Conn.Close()
}

// Write sends p whole before any other Write of the connection, or closes the
// connection: after an error the peer may have half a reply, and nothing that
// follows would make sense.
func (g *Guard) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	g.writeMu.Lock()
	defer g.writeMu.Unlock()
	sent := 0
	for sent < len(p) {
		n, err := g.writeLocked(p[sent:min(len(p), sent+guardWriteChunk)])
		sent += n
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && g.hooks.Timeout != nil {
				g.hooks.Timeout(g, "write")
			}
			return sent, errors.Join(fmt.Errorf("write reply: %w", err), g.Close())
		}
	}
	return sent, nil
}

func (g *Guard) writeLocked(p []byte) (int, error) {
	// Moving the deadline costs a tenth of a small write, so it is moved only
	// when it has come nearer by an eighth: a peer has 7/8 to 8/8 of WriteTimeout.
	if limit := g.limits.WriteTimeout; limit > 0 {
		if now := time.Now(); now.Sub(g.writeArmed) > limit/8 {
			if err := g.Conn.SetWriteDeadline(now.Add(limit)); err != nil {
				return 0, err
			}
			g.writeArmed = now
		}
	}
	return g.Conn.Write(p)
}

// Read delivers commands as the type's comment says. After a protocol error it
// writes the error line, waits a moment for the peer to take it, and returns
// io.EOF; after a missed deadline it returns an error that wraps
// os.ErrDeadlineExceeded. redcon closes the connection in both cases.
func (g *Guard) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !g.owed {
		return g.deliver(p)
	}
	if len(p) > 1 {
		n, err := g.deliver(p[1:])
		if n == 0 {
			return 0, err
		}
		g.owed = false
		p[0] = '\n'
		return n + 1, err
	}
	g.owed = false
	p[0] = '\n'
	return 1, nil
}

func (g *Guard) deliver(p []byte) (int, error) {
	for {
		if len(g.big) > 0 {
			return g.takeBig(p), nil
		}
		auth := g.auth.Load()
		batch := p[:min(len(p), guardBatch)]
		if n := g.sift(batch, auth); n > 0 {
			g.delivered()
			return n, nil
		}
		if len(g.big) > 0 {
			continue
		}
		if g.refused {
			return 0, g.refuse(p)
		}
		n, err := g.fill(batch, auth)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// delivered starts the deadlines of the next command afresh.
func (g *Guard) delivered() {
	g.greeted = true
	g.retried = false
	g.clock.restart()
	if !g.auth.Load() {
		g.chargeInput(unauthCommand)
	}
}

// fill reads from the socket, once. It returns commands if it finds them at the
// front of what is there then; all else is in buf afterwards, for sift. It must
// be called only when nothing in buf is left to scan.
//
// The bytes go straight into p, behind those of an incomplete command if there
// is one. If that did not complete it, buf collects the rest: the front of a
// command is copied to p once, however many packets it comes in.
func (g *Guard) fill(p []byte, auth bool) (int, error) {
	tail := g.buf[g.off:]
	if len(tail) > 0 && (g.retried || len(tail) > len(p)/2) {
		return 0, g.fillBuf(auth)
	}
	if len(tail) == 0 {
		g.release()
	}
	held := copy(p, tail)
	n, err := g.receive(p[held:], held > 0, auth)
	if err == errGuardRelief {
		return g.pad(p), nil
	}
	if err != nil {
		return 0, err
	}
	most := guardCommands
	if !auth {
		most = 1
		g.chargeInput(n)
	}
	n += held
	end := guardRun(p[:n], most, g.limits, auth)
	g.scanned += uint64(n)
	if end > 0 {
		g.scanner = guardScanner{}
		g.keep(p[end:n])
		g.delivered()
		return end, nil
	}
	g.retried = true
	g.grow(n - held)
	g.buf = append(g.buf, p[held:n]...)
	return 0, nil
}

// fillBuf reads more of the incomplete command in buf.
func (g *Guard) fillBuf(auth bool) error {
	g.grow(1)
	room := g.buf[len(g.buf):cap(g.buf)]
	room = room[:min(len(room), max(guardBufSize, g.scanner.body))]
	n, err := g.receive(room, true, auth)
	if !auth {
		g.chargeInput(n)
	}
	g.buf = g.buf[:len(g.buf)+n]
	return err
}

// grow makes room for at least n more bytes at the end of buf, and at most for
// as many as it holds.
func (g *Guard) grow(n int) {
	if g.off > 0 {
		left := copy(g.buf, g.buf[g.off:])
		g.buf = g.buf[:left]
		g.scan -= g.off
		g.off = 0
	}
	need := len(g.buf) + n
	switch {
	case need <= cap(g.buf):
	case need <= guardBufSize:
		b := guardBufs.Get().(*[guardBufSize]byte)
		g.buf = append(b[:0], g.buf...)
	default:
		most := g.limits.MaxCommand + g.limits.MaxInline + guardBufSize
		old := g.buf
		g.buf = append(make([]byte, 0, max(need, min(2*cap(old), most))), old...)
		guardFree(old)
	}
}

// keep makes rest, which is not part of buf, the content of buf.
func (g *Guard) keep(rest []byte) {
	if len(rest) == 0 {
		g.release()
		return
	}
	if cap(g.buf) > guardLargeBuf {
		g.release()
	}
	g.buf = g.buf[:0]
	g.off, g.scan = 0, 0
	g.grow(len(rest))
	g.buf = append(g.buf, rest...)
}

// release gives buf back.
func (g *Guard) release() {
	guardFree(g.buf)
	g.buf = nil
	g.off, g.scan = 0, 0
}

func guardFree(b []byte) {
	if cap(b) == guardBufSize {
		guardBufs.Put((*[guardBufSize]byte)(b[:guardBufSize]))
	}
}

// sift scans buf and moves whole commands to p as long as they fit. A command
// larger than p becomes big if it is the first. It returns the bytes moved.
func (g *Guard) sift(p []byte, auth bool) int {
	moved := 0
	for count := 0; count < guardCommands && (auth || count == 0); {
		if g.found == guardMore {
			if g.scan == len(g.buf) {
				return moved
			}
			from := g.scan
			g.scan, g.found = g.scanner.next(g.buf, g.scan, g.limits, auth)
			g.scanned += uint64(g.scan - from)
		}
		var command []byte
		switch g.found {
		case guardMore:
			return moved
		case guardFail:
			g.refuseWith(g.scanner.text(g.limits))
			return moved
		case guardWeb:
			g.refuseWith("")
			return moved
		case guardWhole:
			command = g.buf[g.off:g.scan]
		case guardInline:
			args, ok := guardSplitInline(guardTrimLine(g.buf[g.off:g.scan]))
			switch {
			case !ok:
				g.refuseWith(guardBadQuotes)
				return moved
			case guardIsWebRequest(args):
				g.refuseWith("")
				return moved
			case len(args) > 0:
				command = guardEncode(nil, args)
			}
		}
		if len(command) > len(p)-moved {
			if moved == 0 {
				g.big, g.bigSize = command, len(command)
				g.off, g.found = g.scan, guardMore
			}
			return moved
		}
		moved += copy(p[moved:], command)
		if len(command) > 0 {
			count++
		}
		g.off, g.found = g.scan, guardMore
	}
	return moved
}

// guardTrimLine takes the line end off.
func guardTrimLine(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// takeBig delivers the next piece of a command that is larger than one Read.
// redcon doubles its buffer at each piece, so the work it does again is as much
// as the command, once.
func (g *Guard) takeBig(p []byte) int {
	n := copy(p, g.big)
	g.big = g.big[n:]
	if len(g.big) > 0 {
		return n
	}
	g.big = nil
	if g.bigSize >= guardBigRelief {
		g.relief = true
	}
	if cap(g.buf) > guardLargeBuf {
		rest := g.buf[g.off:]
		g.buf = nil
		g.keep(rest)
	}
	g.delivered()
	return n
}

// pad makes redcon drop a large buffer when the client has been silent for a
// while after a large command. redcon cuts its buffer back to 4 KiB by reslicing,
// which keeps the memory (up to twice MaxCommand) until the buffer grows again
// and is copied. The pad fills those 4 KiB with empty lines, which redcon skips,
// and half of one, for which it must grow to 8 KiB. The other half is owed: it
// goes in front of the next command.
func (g *Guard) pad(p []byte) int {
	for i := range p {
		p[i] = '\n'
	}
	p[len(p)-1] = '\r'
	g.owed = true
	return len(p)
}

// refuseWith ends the input here; commands that were moved before are still
// delivered and answered. An empty reason is a web request.
func (g *Guard) refuseWith(reason string) {
	g.refused = true
	g.reason = reason
	g.found = guardMore
	g.release()
}

// refuse says why the connection ends, and ends it. Later calls only end it.
func (g *Guard) refuse(scratch []byte) error {
	if g.told {
		return io.EOF
	}
	g.told = true
	if g.reason == "" {
		if g.hooks.CrossProtocol != nil {
			g.hooks.CrossProtocol(g)
		}
		return io.EOF
	}
	if g.hooks.ProtocolError != nil {
		g.hooks.ProtocolError(g, g.reason)
	}
	if _, err := g.Write([]byte("-ERR Protocol error: " + g.reason + "\r\n")); err != nil {
		return fmt.Errorf("report protocol error: %w", err)
	}
	guardLinger(g.Conn, scratch, time.Now().Add(guardLingerTime))
	return io.EOF
}

// guardLinger ends the sending side of c and reads what still comes in, until
// then at most. A socket that is closed with input unread answers that input with a
// reset, which can overtake the last line sent. It is a courtesy: errors end it,
// and the caller closes c in any case.
func guardLinger(c net.Conn, scratch []byte, until time.Time) {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.SetReadDeadline(until) != nil {
		return
	}
	for left := guardLingerSize; left > 0; {
		n, err := c.Read(scratch)
		if err != nil {
			return
		}
		left -= n
	}
}
