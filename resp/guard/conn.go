// Package guard protects the client port from clients. A [Conn] wraps the
// socket of one client. It checks the frames and the limits of a command before
// the RESP parser sees a byte of it. A [Listener] limits the number of
// connections. It also limits the number and the input rate of the connections
// that have not authenticated. A [LoginThrottle] limits how fast passwords can
// be tried. [Limits] are the settings of a Conn and of a Listener.
//
// The package does not know the meaning of commands. It does not depend on the
// server behind it.
package guard

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

	"github.com/holdfast-kv/holdfast/resp/clientmem"
)

// A Conn wraps a client's connection for redcon. It checks all input between
// the socket and redcon v1.6.4, whose parser has no limits and no deadlines.
// Without the guard, any client that can connect could
//   - crash the parser (`*1\r\n$9223372036854775807\r\n`),
//   - keep it busy (`*9000000000000000000\r\n`, or a large command in small
//     packets, which redcon parses again from its start with each packet), and
//   - make it recurse until the stack overflows (packets that contain no
//     command).
//
// redcon reads only complete, valid, canonical multibulk commands from a Conn,
// and the empty lines that pad inserts. Every path of its parser that causes
// one of these problems begins with input that a Conn does not pass on.
//
// A Conn behaves like Redis 7.0.15. It ignores empty lines and counts below
// one. It understands inline commands, and rewrites them as multibulk, because
// redcon has other quoting rules. It answers an invalid frame with Redis' error
// text, after the replies to all commands before it, and then closes the
// connection. It closes the connection of a web browser without a reply. The
// replies to a client never depend on how its bytes are split into packets.
//
// One Read returns at most 64 KiB and 1024 commands, or a part of one larger
// command. (redcon asks for 4 KiB; the server gets more of a long pipeline from
// More.) redcon collects the replies to a Read in memory and flushes them before
// the next Read. So if a client sends a million commands and reads no replies, the
// flush of one batch blocks, and the write deadline ends the connection. Until the
// connection has authenticated, a Read returns one command, because the result of
// AUTH decides which limits apply to the next one.
//
// Memory: a length that a client announces allocates nothing. The guard keeps
// the received part of one incomplete command. The buffer for it has 4 KiB or at
// most twice the size of that part, and at most a little more than MaxCommand. The
// guard keeps nothing while the client is silent between commands. While a command
// runs or waits, the guard also keeps input that follows: see ReadAhead and
// ReadAheadWaiting.
//
// Only the connection's goroutine may call SetMemory, Read, More, ReadAhead and
// ReadAheadWaiting. All other methods are safe for concurrent use. Only the guard
// may set the deadlines of the connection.
type Conn struct {
	net.Conn
	limits *Limits
	hooks  *Hooks
	owner  *Listener // nil without a listener

	auth atomic.Bool

	lifeState
	unauthState
	writeState

	// The following fields belong to the goroutine that calls Read.

	// buf[off:] contains the bytes that have been received and not delivered.
	// The scanner has processed buf[off:scan], but not buf[scan:]. buf is nil
	// when it is empty.
	buf       []byte
	off, scan int
	scanner   scanner
	found     event // the event at the offset scan; its command waits for the next Read, which has more room

	big     []byte // rest of a command that did not fit into one Read
	bigSize int    // size of that whole command

	retried    bool // scanRun has already checked the start of the incomplete command in buf
	hadCommand bool // a complete command was delivered
	inputEnd

	ahead     aheadState // received after the bytes in buf
	deadlines deadlines
	padState
	bulkState

	mem   *clientmem.Account // charged with buf and ahead; nil without a server
	input clientmem.Part

	scanned uint64 // bytes scanned, for the test of linear cost
}

// lifeState contains the fields that the owner needs to count a Conn.
type lifeState struct {
	lifeMu sync.Mutex // guards closed, and keeps auth consistent with the owner's counts
	closed bool
	early  atomic.Bool // the owner's earlyConns counts the connection
}

// unauthState is the part of a Conn that matters until the client has
// authenticated.
type unauthState struct {
	unauthAddr    string        // the key under which the owner counts the connection
	unauthElement *list.Element // in owner.unauth, which guards it
	unauthInput   int           // bytes counted before authentication: see chargeInput; belongs to Read
	unauthSince   atomic.Int64  // start of the unauthenticated period, in Unix nanoseconds
}

// writeState is the part of a Conn that belongs to Write and TryWrite.
type writeState struct {
	writeMu    sync.Mutex      // one Write at a time; guards the other fields
	writeArmed time.Time       // when the write deadline was last extended
	raw        syscall.RawConn // for TryWrite; nil before its first call
}

// padState is the part of a Conn that frees redcon's memory: see pad.
type padState struct {
	padDue     bool // redcon's buffer is large
	padPending bool // the second half of the pad's last line has not been delivered
}

// inputEnd describes how the input of a Conn has ended.
type inputEnd struct {
	refused  bool   // the input has ended in an error, and nothing more is read
	reported bool   // the error has been sent to the client
	reason   string // the error text; "" for a web request
	readErr  error  // error of the socket; Read returns it after the bytes before it
}

// Hooks are functions that a Conn or Listener calls for logging and metrics. A
// nil function is not called. They may run on any goroutine, and must not
// block.
type Hooks struct {
	// ProtocolError reports an invalid frame. reason is the text after
	// "Protocol error: ".
	ProtocolError func(g *Conn, reason string)
	// CrossProtocol reports a connection that was closed because it sent HTTP.
	// A web page may have made a browser send commands: the attack that Redis
	// logs as "Possible SECURITY ATTACK detected".
	CrossProtocol func(g *Conn)
	// Timeout reports a missed deadline. kind is "handshake", "unauthenticated
	// idle", "login", "command" or "write".
	Timeout func(g *Conn, kind string)
	// TooMuchAhead reports a connection that ends because its client has sent the
	// given number of bytes while its command waited.
	TooMuchAhead func(g *Conn, bytes int)
	// Refused reports a connection that was refused because of MaxClients. If
	// unauth is true, it reports a connection that had not authenticated and
	// was closed because of MaxUnauth or MaxUnauthAddr.
	Refused func(addr net.Addr, unauth bool)
	// AcceptError reports an error of Accept, or an error in setting up,
	// refusing or evicting a connection. pause is how long Accept waits before it
	// continues.
	AcceptError func(err error, pause time.Duration)
}

const (
	bufSize     = 4096     // first size of buf, and the minimum size of a read into buf
	maxBatch    = 64 << 10 // maximum number of bytes that one Read delivers
	maxCommands = 1024     // maximum number of commands that one Read delivers
	writeChunk  = 1 << 20  // bytes that share one write deadline
	largeBuf    = 64 << 10 // a larger buf is not kept for the next command
	padSize     = 8 << 10  // minimum size of a command after which redcon's buffer is worth freeing
	lingerTime  = time.Second
	lingerSize  = 256 << 10
)

// bufs contains unused buffers of bufSize bytes. Most connections need a buffer
// only briefly.
var bufs = sync.Pool{New: func() any { return new([bufSize]byte) }}

// New returns a Conn around c. The connection counts as unauthenticated;
// a server without a password must call SetAuthenticated(true) at once. l must
// be valid.
func New(c net.Conn, l Limits, hooks Hooks) *Conn {
	return newConn(c, &l, &hooks, nil)
}

func newConn(c net.Conn, l *Limits, hooks *Hooks, owner *Listener) *Conn {
	g := &Conn{Conn: c, limits: l, hooks: hooks, owner: owner}
	if owner != nil {
		g.unauthAddr = unauthAddrOf(c.RemoteAddr())
	}
	g.unauthSince.Store(time.Now().UnixNano())
	return g
}

// NetConn returns the wrapped connection, for its TLS state.
func (g *Conn) NetConn() net.Conn { return g.Conn }

// Authenticated returns the last value of SetAuthenticated.
func (g *Conn) Authenticated() bool { return g.auth.Load() }

// SetAuthenticated records whether the client has authenticated. The value
// selects the limits and deadlines from the next command on. If the handler of
// AUTH calls SetAuthenticated, the next command is the command after AUTH. If
// RESET sets auth back to false, the later commands of the same batch have
// already been checked with the wider limits.
func (g *Conn) SetAuthenticated(auth bool) {
	if evicted := g.setAuthenticated(auth); evicted != nil {
		g.owner.evict(evicted) // not under lifeMu: two guards that evict each other would deadlock
	}
}

func (g *Conn) setAuthenticated(auth bool) (evicted *Conn) {
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

// SetMemory makes the guard charge the input that it keeps to the account a. It
// must be called before the first Read.
func (g *Conn) SetMemory(a *clientmem.Account) { g.mem = a }

// Close closes the connection. Further calls do nothing.
func (g *Conn) Close() error {
	g.lifeMu.Lock()
	if g.closed {
		g.lifeMu.Unlock()
		return nil
	}
	g.closed = true
	g.endEarly()
	if g.owner != nil {
		g.owner.open.Add(-1)
		g.owner.unauth.remove(g)
	}
	g.lifeMu.Unlock()
	return g.Conn.Close()
}

// Write sends p completely before any other Write of the connection, or closes
// the connection. After an error, the client may have received half a reply and
// could not interpret any further bytes.
func (g *Conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	g.writeMu.Lock()
	defer g.writeMu.Unlock()
	sent := 0
	for sent < len(p) {
		n, err := g.send(p[sent:min(len(p), sent+writeChunk)])
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

// TryWrite sends as many bytes of p as the socket accepts without waiting, and
// returns their number. It ignores errors, because the next Write returns them.
func (g *Conn) TryWrite(p []byte) (sent int) {
	if !g.writeMu.TryLock() {
		return 0
	}
	defer g.writeMu.Unlock()
	if g.raw == nil {
		c, ok := g.Conn.(syscall.Conn)
		if !ok {
			return 0
		}
		var err error
		if g.raw, err = c.SyscallConn(); err != nil {
			return 0
		}
	}
	err := g.raw.Write(func(fd uintptr) bool {
		sent, _ = syscall.Write(int(fd), p) // the Write of the rest returns the error again
		return true
	})
	if err != nil {
		return 0
	}
	return max(sent, 0)
}

// Read delivers commands as the comment of Conn describes. After a protocol
// error it writes the error line, waits briefly for the client to read it, and
// returns io.EOF. After a missed deadline it returns an error that wraps
// os.ErrDeadlineExceeded. redcon closes the connection in both cases.
func (g *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !g.padPending {
		return g.deliver(p)
	}
	if len(p) > 1 {
		n, err := g.deliver(p[1:])
		if n == 0 {
			return 0, err
		}
		g.padPending = false
		p[0] = '\n'
		return n + 1, err
	}
	g.padPending = false
	p[0] = '\n'
	return 1, nil
}

func (g *Conn) deliver(p []byte) (int, error) {
	for {
		if len(g.big) > 0 {
			n := g.takeBig(p)
			g.passed += int64(n)
			return n, nil
		}
		auth := g.auth.Load()
		batch := p[:min(len(p), maxBatch)]
		if n := g.takeCommands(batch, auth); n > 0 {
			g.passed += int64(n)
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

// delivered resets the deadlines for the next command.
func (g *Conn) delivered() {
	g.hadCommand = true
	g.retried = false
	g.deadlines.restart()
	if !g.auth.Load() {
		g.chargeInput(unauthCommand)
	}
}

// fill reads once from the socket. It returns the number of bytes of complete
// commands that it has put into p. All other bytes are in buf afterwards, for
// takeCommands. It may only be called when buf contains nothing that must still be
// scanned.
//
// fill reads directly into p, after the bytes of an incomplete command if
// there are any. If that does not complete the command, buf collects the rest.
// So the start of a command is copied into p only once, however many packets it
// comes in.
func (g *Conn) fill(p []byte, auth bool) (int, error) {
	tail := g.buf[g.off:]
	if len(tail) > 0 && (g.retried || len(tail) > len(p)/2) {
		return 0, g.fillBuf(auth)
	}
	if len(tail) == 0 {
		g.release()
	}
	prefix := copy(p, tail)
	n, err := g.receive(p[prefix:], prefix > 0, auth)
	if err == errPad {
		return g.pad(p), nil
	}
	if err != nil {
		return 0, err
	}
	most := maxCommands
	if !auth {
		most = 1
		g.chargeInput(n)
	}
	g.filled = n == len(p)-prefix
	n += prefix
	end := scanRun(p[:n], most, g.limits, auth)
	g.scanned += uint64(n)
	if end > 0 {
		g.scanner = scanner{}
		g.keep(p[end:n])
		g.passed += int64(end)
		g.delivered()
		return end, nil
	}
	g.retried = true
	g.grow(n - prefix)
	g.buf = append(g.buf, p[prefix:n]...)
	return 0, nil
}

// fillBuf reads more of the incomplete command into buf.
func (g *Conn) fillBuf(auth bool) error {
	g.grow(1)
	room := g.buf[len(g.buf):cap(g.buf)]
	room = room[:min(len(room), max(bufSize, g.scanner.body))]
	n, err := g.receive(room, true, auth)
	if !auth {
		g.chargeInput(n)
	}
	g.filled = n == len(room)
	g.buf = g.buf[:len(g.buf)+n]
	return err
}

// grow makes room for at least n more bytes at the end of buf. The capacity at
// most doubles, unless n requires more.
func (g *Conn) grow(n int) {
	if g.off > 0 {
		left := copy(g.buf, g.buf[g.off:])
		g.buf = g.buf[:left]
		g.scan -= g.off
		g.off = 0
	}
	need := len(g.buf) + n
	switch {
	case need <= cap(g.buf):
	case need <= bufSize:
		b := bufs.Get().(*[bufSize]byte)
		g.buf = append(b[:0], g.buf...)
	default:
		most := g.limits.MaxCommand + g.limits.MaxInline + bufSize
		old := g.buf
		g.buf = append(make([]byte, 0, max(need, min(2*cap(old), most))), old...)
		freeBuf(old)
		g.charge(cap(g.buf))
	}
}

// keep makes rest the content of buf. rest must not be part of buf.
func (g *Conn) keep(rest []byte) {
	if len(rest) == 0 {
		g.release()
		return
	}
	if cap(g.buf) > largeBuf {
		g.release()
	}
	g.buf = g.buf[:0]
	g.off, g.scan = 0, 0
	g.grow(len(rest))
	g.buf = append(g.buf, rest...)
}

// release frees buf.
func (g *Conn) release() {
	freeBuf(g.buf)
	g.charge(0)
	g.buf = nil
	g.off, g.scan = 0, 0
}

// charge records that the guard has allocated n bytes for buf.
func (g *Conn) charge(n int) {
	if g.mem != nil {
		g.input.Set(g.mem, int64(n+g.ahead.room))
	}
}

func freeBuf(b []byte) {
	if cap(b) == bufSize {
		bufs.Put((*[bufSize]byte)(b[:bufSize]))
	}
}

// takeCommands scans buf and moves complete commands to p as long as they fit. It
// returns the number of bytes moved. If the first command is larger than p,
// takeCommands stores it in g.big.
func (g *Conn) takeCommands(p []byte, auth bool) int {
	moved := 0
	for count := 0; count < maxCommands && (auth || count == 0); {
		if g.found == eventMore {
			if g.scan == len(g.buf) {
				return moved
			}
			from := g.scan
			g.scan, g.found = g.scanner.next(g.buf, g.scan, g.limits, auth)
			g.scanned += uint64(g.scan - from)
		}
		var command []byte
		switch g.found {
		case eventMore:
			return moved
		case eventFail:
			g.refuseWith(g.scanner.text(g.limits))
			return moved
		case eventWeb:
			g.refuseWith("")
			return moved
		case eventWhole:
			command = g.buf[g.off:g.scan]
		case eventInline:
			args, ok := splitInline(trimLine(g.buf[g.off:g.scan]))
			switch {
			case !ok:
				g.refuseWith(badQuotes)
				return moved
			case isWebRequest(args):
				g.refuseWith("")
				return moved
			case len(args) > 0:
				command = encode(nil, args)
			}
		}
		if len(command) > len(p)-moved {
			if moved == 0 {
				g.big, g.bigSize = command, len(command)
				g.off, g.found = g.scan, eventMore
			}
			return moved
		}
		moved += copy(p[moved:], command)
		if len(command) > 0 {
			count++
		}
		g.off, g.found = g.scan, eventMore
	}
	return moved
}

// trimLine removes the line end.
func trimLine(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// takeBig delivers the next part of a command that is larger than one Read.
// redcon doubles its buffer with each part, so the bytes that it parses again
// add up to the size of the command.
func (g *Conn) takeBig(p []byte) int {
	n := copy(p, g.big)
	g.big = g.big[n:]
	if len(g.big) > 0 {
		return n
	}
	g.big = nil
	if g.bigSize >= padSize {
		g.padDue = true
	}
	if cap(g.buf) > largeBuf {
		rest := g.buf[g.off:]
		g.buf = nil
		g.charge(0)
		g.keep(rest)
	}
	g.delivered()
	return n
}

// pad makes redcon free a large buffer after a large command, once the client
// has been silent for a while. redcon reslices its buffer to 4 KiB, which keeps
// the whole memory (up to twice MaxCommand) until the buffer grows again and is
// copied. The pad fills these 4 KiB with empty lines, which redcon skips, and
// with the first half of another empty line. For the second half, redcon's
// buffer must grow to 8 KiB. The guard delivers that half in front of the next
// command: see padPending.
func (g *Conn) pad(p []byte) int {
	for i := range p {
		p[i] = '\n'
	}
	p[len(p)-1] = '\r'
	g.padPending = true
	return len(p)
}

// refuseWith ends the input. Commands before the error are still delivered and
// answered. An empty reason stands for a web request.
func (g *Conn) refuseWith(reason string) {
	g.refused = true
	g.reason = reason
	g.found = eventMore
	g.ahead = aheadState{}
	g.release()
}

// refuse sends the reason to the client and returns the error that ends the
// connection. It sends the reason only once.
func (g *Conn) refuse(scratch []byte) error {
	if g.reported {
		return io.EOF
	}
	g.reported = true
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
	linger(g.Conn, scratch, time.Now().Add(lingerTime))
	return io.EOF
}

// linger closes the sending side of c and reads the remaining input: about
// lingerSize bytes at most, and until the given time at most. If a socket is
// closed with unread input, the kernel sends a reset, which can destroy the last
// line before the client has read it. linger ignores errors, because its caller
// closes c afterwards.
func linger(c net.Conn, scratch []byte, until time.Time) {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.SetReadDeadline(until) != nil {
		return
	}
	for left := lingerSize; left > 0; {
		n, err := c.Read(scratch)
		if err != nil {
			return
		}
		left -= n
	}
}
