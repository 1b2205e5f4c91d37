package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNoRedis means that there is no redis-server on the PATH.
var ErrNoRedis = errors.New("redis-server is not installed (Debian: apt-get install redis-server)")

// redisStart bounds the start of a redis-server.
const redisStart = 30 * time.Second

// Redis is a redis-server that stores nothing on disk. It listens on a socket
// in a directory of its own, and on no port. On Linux, it ends with this
// process at the latest: see Starter.
type Redis struct {
	Socket string // path
	dir    string
	cmd    *exec.Cmd
}

// StartRedis starts a redis-server and waits until it listens. args are further
// arguments of the server.
func StartRedis(args ...string) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	dir, err := os.MkdirTemp("", "hf-redis-") // the path of a socket must be short
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	r := &Redis{Socket: filepath.Join(dir, "redis.sock"), dir: dir}
	r.cmd = exec.Command(path, append([]string{"--port", "0", "--unixsocket", r.Socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log")}, args...)...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not reach the server
	if err := Start(r.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), redisStart, fmt.Errorf("not within %v", redisStart))
	defer cancel()
	err = Poll(ctx, "redis-server to listen", func() bool {
		c, err := net.Dial("unix", r.Socket)
		return err == nil && c.Close() == nil
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close kills the server and deletes its directory.
func (r *Redis) Close() error {
	err := r.cmd.Process.Kill()
	var exit *exec.ExitError
	if ended := r.cmd.Wait(); !errors.As(ended, &exit) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
