package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// explainPort adds a possible cause to the error of a request to a client port, for
// instance that the address is that of another port of a node. If it finds no such
// cause, it returns the error unchanged.
func explainPort(ctx context.Context, addr string, err error) error {
	if st, ok := httpStatus(ctx, addr); ok {
		return fmt.Errorf("%s is the HTTP port of %s: use its client port, %s", addr, st.ID, st.ClientAddr)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w (is %s the client port of a node? "+
			"A node closes the connections of clients at its peer port, "+
			"and connections without TLS at a port with TLS)", err, addr)
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "tls: certificate required"):
		return fmt.Errorf("%w (set --tls-cert-file and --tls-key-file; or is the address a peer port?)", err)
	case strings.Contains(text, "first record does not look like a TLS handshake"),
		strings.Contains(text, "TLS handshake: context deadline exceeded"):
		return fmt.Errorf("%w (does %s use TLS? If not, leave out the flags --tls…)", err, addr)
	case strings.Contains(text, "unknown authority"):
		return fmt.Errorf("%w (set --tls-ca-cert-file)", err)
	case strings.Contains(text, `"HTTP/`):
		return fmt.Errorf("%s is an HTTP port: use the client port of the node", addr)
	}
	return err
}

// httpStatus requests a node's status from an address that may be an HTTP port. ok
// is false if the address does not answer with a status.
func httpStatus(ctx context.Context, addr string) (st cluster.NodeStatus, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/status", nil)
	if err != nil {
		return st, false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, false
	}
	defer res.Body.Close()
	err = json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&st)
	return st, err == nil && res.StatusCode == http.StatusOK && st.ID != ""
}
