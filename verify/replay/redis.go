package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// ErrNoRedis means that there is no redis-server on the PATH.
var ErrNoRedis = process.ErrNoRedis

// redisTimeout bounds one exchange with the redis-server.
const redisTimeout = time.Minute

// Redis is a redis-server process of this package and the only connection to
// it.
type Redis struct {
	server *process.Redis
	conn   *respwire.Conn
	w      *bufio.Writer
	db     int // selected database
}

// StartRedis starts a redis-server. The server stores nothing on disk and
// listens on no network port.
func StartRedis() (*Redis, error) {
	server, err := process.StartRedis()
	if err != nil {
		return nil, err
	}
	conn, err := respwire.Dial(context.Background(), "unix", server.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis-server: %w", err), server.Close())
	}
	return &Redis{server: server, conn: conn, w: bufio.NewWriterSize(conn, 64<<10)}, nil
}

// Close ends the server and deletes its directory.
func (r *Redis) Close() error { return errors.Join(r.conn.Close(), r.server.Close()) }

// send queues a command. The caller reads its reply with receive, in order.
func (r *Redis) send(args ...string) error {
	_, err := r.w.Write(respwire.AppendCommand(r.w.AvailableBuffer(), args...))
	return err
}

// receive sends the queued commands and reads the next reply.
func (r *Redis) receive() (respwire.Value, error) {
	if err := r.conn.SetDeadline(time.Now().Add(redisTimeout)); err != nil {
		return respwire.Value{}, err
	}
	if r.w.Buffered() > 0 {
		if err := r.w.Flush(); err != nil {
			return respwire.Value{}, err
		}
	}
	return r.conn.Receive()
}

// do runs one command in a database. If the reply is an error, do returns it in
// the value and not as an error.
func (r *Redis) do(db int, args ...string) (respwire.Value, error) {
	if db != r.db {
		if err := r.send("SELECT", strconv.Itoa(db)); err != nil {
			return respwire.Value{}, err
		}
		if v, err := r.receive(); err != nil || v.Err != "" {
			return respwire.Value{}, errors.Join(errors.New(v.Err), err)
		}
		r.db = db
	}
	if err := r.send(args...); err != nil {
		return respwire.Value{}, fmt.Errorf("send to redis-server: %w", err)
	}
	v, err := r.receive()
	if err != nil {
		return v, fmt.Errorf("%s at redis-server: %w", args[0], err)
	}
	return v, nil
}

// must is like do, but returns an error reply as an error.
func (r *Redis) must(db int, args ...string) (respwire.Value, error) {
	v, err := r.do(db, args...)
	if err == nil && v.Err != "" {
		err = fmt.Errorf("%s at redis-server: %s", args[0], v.Err)
	}
	return v, err
}
