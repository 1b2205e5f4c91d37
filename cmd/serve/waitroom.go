package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// When a node opens its data directory, it must store that it has started. On a
// full disk, it cannot store this. The node then waits for free space, and its HTTP
// port shows the reason. The other ports are closed, so that clients connect to
// other nodes.
const (
	roomEvery = time.Second
	roomLeast = 1 << 20 // number of free bytes at which the node tries again to open the directory
)

// awaitRoom waits until the disk of the data directory has room. cause is the error
// with which the node failed to open the directory. awaitRoom returns false if ctx
// ends first. It closes the listeners of bound.
func (o *options) awaitRoom(ctx context.Context, log hclog.Logger, bound *ports, cause error) (bool, error) {
	web := bound.http
	bound.http = nil
	if err := bound.close(); err != nil {
		return false, errors.Join(err, web.Close())
	}
	text := fmt.Sprintf("the disk of the data directory %s is full: free space or enlarge the disk; "+
		"the node continues by itself (%v)", o.dataDir, cause)
	log.Error("cannot start yet: " + text)
	reason := ": " + text
	if o.web.tokenFile != "" { // like /readyz, which gives no reason without the token
		reason = ""
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready"+reason, http.StatusServiceUnavailable)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(web) }()
	waited := o.waitForRoom(ctx)
	err := srv.Close()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if waited && err == nil {
		log.Info("the disk has room again, starting")
	}
	return waited, err
}

// waitForRoom waits until the disk has room, or until ctx ends.
func (o *options) waitForRoom(ctx context.Context) bool {
	t := time.NewTicker(roomEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		var st unix.Statfs_t
		if err := unix.Statfs(o.dataDir, &st); err == nil && int64(st.Bavail)*int64(st.Bsize) >= roomLeast {
			return true
		}
	}
}
