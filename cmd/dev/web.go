package dev

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/holdfast-kv/holdfast/cmd/serve"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// web requests pages from the HTTP ports of the nodes that dev has started.
type web struct {
	scheme, token string
	client        *http.Client
}

// newWeb returns a web for nodes with the given flags, which dev passes to
// every node.
func newWeb(args []string) (*web, error) {
	token, usesTLS, err := serve.HTTPAccess(args)
	if err != nil {
		return nil, err
	}
	w := &web{scheme: "http", token: token, client: http.DefaultClient}
	if usesTLS {
		// The port is on loopback and belongs to a process of dev, so the name in
		// its certificate does not matter.
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
		w.scheme, w.client = "https", &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	}
	return w, nil
}

// get requests a page. The caller closes the body of the response.
func (w *web) get(ctx context.Context, n *process.Node, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.scheme+"://"+n.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.client.Do(req)
}
