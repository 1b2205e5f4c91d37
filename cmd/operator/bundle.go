package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/verify/load"
)

const (
	bundleLogTail = 1 << 20          // number of bytes that are copied from the end of a log file
	bundleMost    = 64 << 20         // maximum size of an answer in bytes
	bundleWait    = 10 * time.Second // maximum wait for an answer, in addition to the time of a profile
)

// bundle is the content of an archive for a bug report.
type bundle struct {
	options bundleOptions
	login   load.Login
	token   string // token of the HTTP ports, "" for none
	begun   time.Time

	mu       sync.Mutex // guards the fields below while requests to nodes are running
	files    []bundleFile
	failed   []bundleFailure
	answered int // nodes that answered a command
}

// bundleFile is a file of the archive.
type bundleFile struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Bytes  int    `json:"bytes"`
	body   []byte
}

// bundleFailure says why the archive does not have a file.
type bundleFailure struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Error  string `json:"error"`
}

// bundleManifest is the file manifest.json of the archive.
type bundleManifest struct {
	Created time.Time       `json:"created"`
	Addr    string          `json:"addr"`
	Data    bool            `json:"includes_data"`
	Files   []bundleFile    `json:"files"`
	Missing []bundleFailure `json:"missing"`
}

func newBundle(o bundleOptions, login load.Login) *bundle {
	return &bundle{options: o, login: login, begun: time.Now().UTC()}
}

// add adds a file, or the reason why it is missing.
func (b *bundle) add(name, source string, body []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.failed = append(b.failed, bundleFailure{name, source, string(b.clean([]byte(err.Error())))})
		return
	}
	body = b.clean(body)
	b.files = append(b.files, bundleFile{name, source, len(body), body})
}

// passwordSetting matches text that may be a password in a log or a configuration
// file: the rest of a line after the name of a setting, a field or a command that
// contains a password. The match extends to the end of the line, because a password
// may contain blanks and quotes.
var passwordSetting = regexp.MustCompile(
	`(?i)((?:requirepass|masterauth|password|passwd)["']?[ \t]*[=: ][ \t]*|\b(?:AUTH|SETUSER)[ \t]+)[^\r\n]+`)

// clean removes the password and the token that this program sends to the nodes.
func (b *bundle) clean(body []byte) []byte {
	const removed = "(removed)"
	for _, secret := range []string{b.login.Password, b.token} {
		if secret != "" {
			body = bytes.ReplaceAll(body, []byte(secret), []byte(removed))
		}
	}
	return body
}

// collect adds all files of the archive. It asks all nodes at the same time.
func (b *bundle) collect(ctx context.Context, nodes []cluster.NodeStatus, v verdict.Verdict) {
	b.addJSON("status.json", "HOLDFAST STATUS at "+b.options.addr, nodes)
	b.addJSON("verdict.json", "status.json", v)
	b.add("program.txt", "this program", programInfo(), nil)
	for _, name := range b.options.logs {
		body, err := tail(name, bundleLogTail)
		body = passwordSetting.ReplaceAll(body, []byte("${1}(removed)"))
		b.add("logs/"+strings.ReplaceAll(strings.Trim(filepath.ToSlash(name), "/."), "/", "_"), name, body, err)
	}
	if b.options.data {
		list := bundleCommandFile{"locks.txt", []string{"LOCK", "LIST", "COUNT", "1000"}, nil}
		b.commands(ctx, "locks/", b.options.addr, []bundleCommandFile{list})
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { b.node(ctx, n) })
	}
	wg.Wait()
	slices.SortFunc(b.files, func(x, y bundleFile) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(b.failed, func(x, y bundleFailure) int { return cmp.Compare(x.Name, y.Name) })
}

func (b *bundle) addJSON(name, source string, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	b.add(name, source, append(body, '\n'), err)
}

// bundleCommandFile is a file with the reply to a command. edit, unless nil,
// changes the reply.
type bundleCommandFile struct {
	name string
	args []string
	edit func(reply any) any
}

// node collects the replies of one node to commands and to HTTP requests.
func (b *bundle) node(ctx context.Context, n cluster.NodeStatus) {
	dir := "nodes/" + path.Base(path.Clean("/"+n.ID)) + "/"
	if !n.Reachable {
		b.add(dir, "status.json", nil, fmt.Errorf("the node is unreachable: %s", n.Detail))
		return
	}
	hide, hideObjects := hideArguments, hideKeys
	if b.options.data {
		hide, hideObjects = nil, nil
	}
	if b.commands(ctx, dir, n.ClientAddr, []bundleCommandFile{
		{"info.txt", []string{"INFO", "everything"}, nil},
		{"config.txt", []string{"CONFIG", "GET", "*"}, hidePasswords},
		{"slowlog.txt", []string{"SLOWLOG", "GET", "128"}, hide},
		{"latency.txt", []string{"LATENCY", "LATEST"}, nil},
		{"latency-histogram.txt", []string{"LATENCY", "HISTOGRAM"}, nil},
		{"acllog.txt", []string{"ACL", "LOG", "128"}, hideObjects},
		{"clients.txt", []string{"CLIENT", "LIST"}, nil},
		{"memory.txt", []string{"MEMORY", "STATS"}, nil},
	}) {
		b.mu.Lock()
		b.answered++
		b.mu.Unlock()
	}
	if n.HTTPAddr == "" {
		b.add(dir+"metrics.txt", "HTTP port", nil, errors.New("the node has no HTTP port"))
		return
	}
	web := newBundleWeb(b, n)
	pages := map[string]string{
		"metrics.txt": "/metrics", "node.json": "/status", "ready.txt": "/readyz", "traffic.json": "/api/v1/traffic",
		"events.json": "/api/v1/events?kind=cluster",
	}
	if b.options.data { // the audit log names locks that were broken
		pages["audit.json"] = "/api/v1/events?kind=audit"
	}
	for name, at := range pages {
		body, err := web.get(ctx, at, bundleWait)
		b.add(dir+name, at, body, err)
	}
	if _, err := web.get(ctx, "/debug/pprof/", bundleWait); err != nil {
		b.add(dir+"pprof/", "/debug/pprof/", nil, fmt.Errorf("%w (does the node run with --pprof?)", err))
		return
	}
	profiles := map[string]string{
		"goroutines.txt": "goroutine?debug=2", "heap.pprof": "heap", "allocs.pprof": "allocs", "mutex.pprof": "mutex",
		"block.pprof": "block",
	}
	if s := b.options.profile; s > 0 {
		profiles["cpu.pprof"] = fmt.Sprintf("profile?seconds=%d", max(int(s.Seconds()), 1))
	}
	for name, query := range profiles {
		body, err := web.get(ctx, "/debug/pprof/"+query, bundleWait+b.options.profile)
		b.add(dir+"pprof/"+name, "/debug/pprof/"+query, body, err)
	}
}

// commands sends commands to a node, and adds a file with the reply to each of
// them. It reports whether the node answered.
func (b *bundle) commands(ctx context.Context, dir, addr string, files []bundleCommandFile) bool {
	c, err := client.Dial(ctx, addr, b.login)
	if err != nil {
		b.add(dir, "client port "+addr, nil, err)
		return false
	}
	answered := false
	for _, f := range files {
		ctx, cancel := context.WithTimeout(ctx, bundleWait)
		reply, err := c.Reply(ctx, f.args...)
		cancel()
		if err == nil {
			answered = true
			if f.edit != nil {
				reply = f.edit(reply)
			}
		}
		var body bytes.Buffer
		printReply(&body, reply, "")
		b.add(dir+f.name, strings.Join(f.args, " "), body.Bytes(), err)
	}
	if err := c.Close(); err != nil {
		b.add(dir, "client port "+addr, nil, err)
	}
	return answered
}
