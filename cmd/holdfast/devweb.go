package main

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// devWeb requests pages from the HTTP ports of the nodes that dev has started.
type devWeb struct {
	scheme, token string
	client        *http.Client
}

// newDevWeb returns a devWeb for nodes with the given flags, which dev passes to
// every node. Wrong flags are left to the nodes to report.
func newDevWeb(args []string) (*devWeb, error) {
	o := newServeOptions()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	o.flags(f)
	w := &devWeb{scheme: "http", client: http.DefaultClient}
	if f.Parse(args) != nil || flags.FromEnv(f) != nil {
		return w, nil
	}
	if o.configFile != "" && flags.FromFile(f, o.configFile) != nil {
		return w, nil
	}
	var err error
	if w.token, err = o.web.readToken(); err != nil {
		return nil, err
	}
	if o.tls.uses("http") {
		// The port is on loopback and belongs to a process of dev, so the name in
		// its certificate does not matter.
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
		w.scheme, w.client = "https", &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	}
	return w, nil
}

// get requests a page. The caller closes the body of the response.
func (w *devWeb) get(ctx context.Context, n *process.Node, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.scheme+"://"+n.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.client.Do(req)
}
