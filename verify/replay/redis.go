package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// ErrNoRedis means that there is no redis-server on the PATH.
var ErrNoRedis = errors.New("redis-server is not installed (Debian: apt-get install redis-server)")

// redisTimeout bounds one exchange with the redis-server.
const redisTimeout = time.Minute

// Redis is a redis-server process of this package and the only connection to
// it. The server listens on a socket in a directory of its own.
type Redis struct {
	cmd  *exec.Cmd
	dir  string
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	db   int // selected database

	closed chan struct{}
}

// StartRedis starts a redis-server. The server stores nothing on disk and
// listens on no network port.
func StartRedis() (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	dir, err := os.MkdirTemp("", "replay-redis-")
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	socket := filepath.Join(dir, "redis.sock")
	r := &Redis{dir: dir, closed: make(chan struct{})}
	r.cmd = exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log"))
	if err := r.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	deadline := time.Now().Add(30 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		r.conn, err = net.Dial("unix", socket)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("connect to redis-server: %w", err), r.Close())
		}
		<-again.C
	}
	r.r, r.w = bufio.NewReaderSize(r.conn, 64<<10), bufio.NewWriterSize(r.conn, 64<<10)
	return r, nil
}

// start starts the process. The process must not outlive this process, however
// this process ends. The kernel ties the child to the thread that started it,
// so that thread stays until Close.
func (r *Redis) start() error {
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			<-r.closed
		}
	}()
	return <-started
}

// Close ends the server and deletes its directory.
func (r *Redis) Close() error {
	var errs []error
	defer close(r.closed)
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
	}
	errs = append(errs, r.cmd.Process.Kill()) // the server has nothing to save
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// answer is a reply of a redis-server in RESP2.
type answer struct {
	null  bool
	err   string // error line, "" for none
	text  string // simple or bulk string, or the digits of an integer
	elems []answer
	array bool
	raw   []byte // the bytes as received
}

// send queues a command. The caller reads its reply with receive, in order.
func (r *Redis) send(args ...string) error {
	b := append(r.w.AvailableBuffer(), '*')
	b = append(strconv.AppendInt(b, int64(len(args)), 10), '\r', '\n')
	for _, a := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(a)), 10), '\r', '\n')
		b = append(append(b, a...), '\r', '\n')
	}
	_, err := r.w.Write(b)
	return err
}

// receive sends the queued commands and reads the next reply.
func (r *Redis) receive() (answer, error) {
	if err := r.conn.SetDeadline(time.Now().Add(redisTimeout)); err != nil {
		return answer{}, err
	}
	if r.w.Buffered() > 0 {
		if err := r.w.Flush(); err != nil {
			return answer{}, err
		}
	}
	return readValue(r.r)
}

// do runs one command in a database. If the reply is an error, do returns it in
// the answer and not as an error.
func (r *Redis) do(db int, args ...string) (answer, error) {
	if db != r.db {
		if err := r.send("SELECT", strconv.Itoa(db)); err != nil {
			return answer{}, err
		}
		if v, err := r.receive(); err != nil || v.err != "" {
			return answer{}, errors.Join(errors.New(v.err), err)
		}
		r.db = db
	}
	if err := r.send(args...); err != nil {
		return answer{}, fmt.Errorf("send to redis-server: %w", err)
	}
	v, err := r.receive()
	if err != nil {
		return v, fmt.Errorf("%s at redis-server: %w", args[0], err)
	}
	return v, nil
}

// must calls do for a command that cannot fail.
func (r *Redis) must(db int, args ...string) (answer, error) {
	v, err := r.do(db, args...)
	if err == nil && v.err != "" {
		err = fmt.Errorf("%s at redis-server: %s", args[0], v.err)
	}
	return v, err
}

func readValue(r *bufio.Reader) (v answer, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return v, err
	}
	if len(line) < 3 {
		return v, fmt.Errorf("reply line %q", line)
	}
	v.raw = line
	kind, text := line[0], string(line[1:len(line)-2])
	n := 0
	if kind == '$' || kind == '*' {
		if n, err = strconv.Atoi(text); err != nil {
			return v, fmt.Errorf("reply line %q: %w", line, err)
		}
	}
	switch {
	case kind == '-':
		v.err = text
	case kind == '+' || kind == ':':
		v.text = text
	case n < 0:
		v.null = true
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return v, err
		}
		v.text = string(b[:n])
		v.raw = append(v.raw, b...)
	case kind == '*':
		v.array = true
		for range n {
			e, err := readValue(r)
			if err != nil {
				return v, err
			}
			v.elems = append(v.elems, e)
			v.raw = append(v.raw, e.raw...)
		}
	default:
		return v, fmt.Errorf("reply line %q", line)
	}
	return v, nil
}

// texts returns the texts of the elements of an array.
func (v answer) texts() []string {
	list := make([]string, len(v.elems))
	for i, e := range v.elems {
		list[i] = e.text
	}
	return list
}
