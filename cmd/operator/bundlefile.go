package operator

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// write writes the archive: the files, and a manifest of them.
func (b *bundle) write(w io.Writer, dir string) error {
	manifest, err := json.MarshalIndent(bundleManifest{
		Created: b.begun, Addr: b.options.addr, Data: b.options.data, Files: b.files, Missing: b.failed,
	}, "", "  ")
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	for _, f := range append([]bundleFile{{Name: "manifest.json", body: append(manifest, '\n')}}, b.files...) {
		head := &tar.Header{
			Name: dir + "/" + f.Name, Mode: 0o600, Size: int64(len(f.body)), ModTime: b.begun, Typeflag: tar.TypeReg,
		}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if _, err := out.Write(f.body); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}

// programInfo describes this program and the machine it runs on.
func programInfo() []byte {
	text := fmt.Sprintf("%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		text += info.String()
	}
	return []byte(text)
}

// tail returns the end of a file. The argument most is the maximum number of
// bytes. tail leaves out an incomplete first line.
func tail(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	from := max(info.Size()-most, 0)
	body, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if _, rest, found := strings.Cut(string(body), "\n"); found && from > 0 {
		body = []byte(rest)
	}
	return body, nil
}

// printReply prints a reply as an indented list.
func printReply(w io.Writer, reply any, indent string) {
	switch v := reply.(type) {
	case []any:
		for i, e := range v {
			if _, list := e.([]any); list {
				fmt.Fprintf(w, "%s%d)\n", indent, i+1)
				printReply(w, e, indent+"   ")
			} else {
				fmt.Fprintf(w, "%s%d) ", indent, i+1)
				printReply(w, e, "")
			}
		}
	case nil:
		fmt.Fprintln(w, "(nil)")
	default:
		fmt.Fprintln(w, v)
	}
}

// secretParameter matches the names of parameters whose value is a secret.
var secretParameter = regexp.MustCompile(`(?i)pass|masterauth|secret`)

// unexpectedReply replaces a reply from which secrets cannot be removed, because it
// does not have the expected shape.
const unexpectedReply = "(removed: unexpected reply)"

// hidePasswords removes the secrets of a reply to CONFIG GET.
func hidePasswords(reply any) any {
	list, ok := reply.([]any)
	if !ok {
		return unexpectedReply
	}
	for i := 0; i+1 < len(list); i += 2 {
		if value := fmt.Sprint(list[i+1]); value != "" && secretParameter.MatchString(fmt.Sprint(list[i])) {
			list[i+1] = "(removed)"
		}
	}
	return reply
}

// hideArguments replaces the arguments of the commands in a reply to SLOWLOG
// GET. The fourth element of each entry is the command with its arguments.
func hideArguments(reply any) any {
	return editEntries(reply, func(entry []any) bool {
		if len(entry) < 4 {
			return false
		}
		args, ok := entry[3].([]any)
		if ok && len(args) > 1 {
			entry[3] = []any{args[0], fmt.Sprintf("(%d arguments removed)", len(args)-1)}
		}
		return ok
	})
}

// hideKeys removes the names of keys and channels in a reply to ACL LOG. Each entry
// is a list of names and values.
func hideKeys(reply any) any {
	return editEntries(reply, func(entry []any) bool {
		object, reason := -1, ""
		for i := 0; i+1 < len(entry); i += 2 {
			switch entry[i] {
			case "reason":
				reason = fmt.Sprint(entry[i+1])
			case "object":
				object = i + 1
			}
		}
		if object >= 0 && (reason == "key" || reason == "channel") {
			entry[object] = "(removed)"
		}
		return object >= 0
	})
}

// editEntries calls edit for each entry of a reply, which is a list of lists. edit
// returns false for an entry that does not have the expected shape.
func editEntries(reply any, edit func(entry []any) bool) any {
	entries, ok := reply.([]any)
	if !ok {
		return unexpectedReply
	}
	for i, e := range entries {
		if entry, ok := e.([]any); !ok || !edit(entry) {
			entries[i] = unexpectedReply
		}
	}
	return reply
}

// bundleWeb requests pages of the HTTP port of a node.
type bundleWeb struct {
	client *http.Client
	hosts  []string // scheme and address, in the order in which they are tried
	token  string
	// downgraded says that TLS has failed and that the port answers without TLS.
	downgraded bool
}

// newBundleWeb returns a client for the HTTP port of a node. If the node reports an
// HTTP address without a usable host, newBundleWeb uses the host of its client
// address.
func newBundleWeb(b *bundle, n cluster.NodeStatus) *bundleWeb {
	addr := n.HTTPAddr
	if host, port, err := net.SplitHostPort(addr); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			if host, _, err = net.SplitHostPort(n.ClientAddr); err == nil {
				addr = net.JoinHostPort(host, port)
			}
		}
	}
	w := &bundleWeb{token: b.token, hosts: []string{"http://" + addr}}
	var encryption *tls.Config
	if b.login.TLS != nil && !b.options.plainHTTP {
		encryption = b.login.TLS.Clone()
		w.hosts = []string{"https://" + addr, "http://" + addr}
	}
	w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: encryption, DisableKeepAlives: true}}
	return w
}

// get returns a page. Once a scheme has worked, get uses it for all pages.
func (w *bundleWeb) get(ctx context.Context, page string, limit time.Duration) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i, host := range w.hosts {
		req, wrong := http.NewRequestWithContext(ctx, http.MethodGet, host+page, nil)
		if wrong != nil {
			return nil, wrong
		}
		// A failure of TLS must not make this program send the token in plain text.
		if w.token != "" && i == 0 && !w.downgraded {
			req.Header.Set("Authorization", "Bearer "+w.token)
		}
		res, failed := w.client.Do(req)
		if failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		w.hosts, w.downgraded = []string{host}, w.downgraded || i > 0
		body, err = io.ReadAll(io.LimitReader(res.Body, bundleMost+1))
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return nil, err
		}
		if len(body) > bundleMost {
			return nil, fmt.Errorf("the page has more than %d bytes", bundleMost)
		}
		// With 503, /readyz says why the node is not ready.
		unready := page == "/readyz" && res.StatusCode == http.StatusServiceUnavailable
		if res.StatusCode != http.StatusOK && !unready {
			err = fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(body[:min(len(body), 200)])))
			if w.token != "" && w.downgraded {
				err = fmt.Errorf("%w (the token was not sent because the connection has no TLS: "+
					"set --http-no-tls to send it)", err)
			}
			return nil, err
		}
		return body, nil
	}
	return nil, err
}
