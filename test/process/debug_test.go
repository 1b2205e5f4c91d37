package process_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// readBundle returns the files of an archive of "holdfast debug bundle", by
// their names without the directory.
func readBundle(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		dir, name, _ := strings.Cut(head.Name, "/")
		if !strings.HasPrefix(dir, "holdfast-debug-") || head.Mode != 0o600 {
			t.Errorf("%s has the mode %o", head.Name, head.Mode)
		}
		files[name] = string(body)
	}
}

// TestDebugBundle collects an archive from a cluster with one dead node. The
// secrets of the cluster contain the word canary, which the archive must not
// contain.
func TestDebugBundle(t *testing.T) {
	dir := t.TempDir()
	password := writeSecret(t, filepath.Join(dir, "password"), "canary-password")
	token := writeSecret(t, filepath.Join(dir, "token"), "canary-token-of-the-http-port")
	secret := writeSecret(t, filepath.Join(dir, "secret"), "canary-secret-of-the-peers-0123456789abcdef")
	c := newCluster(t, process.Config{Nodes: 3, Args: []string{
		"--http-token-file", token, "--requirepass-file", password, "--cluster-secret-file", secret,
		"--log-level", "debug",
	}})
	for i, n := range c.Nodes {
		if i == 0 {
			n.Args = append(n.Args, "--pprof")
		}
		start(t, n)
	}
	n, dead := c.Nodes[0], c.Nodes[2]
	awaitReady(t, n)
	conn := as(t, n, "default", "canary-password")
	for _, args := range [][]string{
		{"CONFIG", "SET", "slowlog-log-slower-than", "0"}, {"SET", "name-of-a-key", "canary-value"},
		{"ACL", "SETUSER", "app", "on", ">canary-app", "+@all", "~app:*"},
		{"LOCK", "ACQUIRE", "name-of-a-lock", "owner", "PX", "600000"},
	} {
		if _, err := respwire.NoError(conn.Do(args...)); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	if got := show(as(t, n, "app", "canary-app"), "GET", "name-of-a-key"); !strings.HasPrefix(got, "NOPERM") {
		t.Errorf("app may read all keys: %q", got)
	}
	wrong := show(as(t, n, "default", "canary-password"), "AUTH", "default", "canary-wrong")
	if !strings.HasPrefix(wrong, "WRONGPASS") {
		t.Errorf("a wrong password: %q", wrong)
	}
	kill(t, dead)
	log := filepath.Join(dir, "a.log")
	text := "line\nrequirepass: canary-in-a-log\n--password=\"canary in a log\"\nrequirepass 'one canary'\n" +
		"password=\"a\\\"canary\"\npassword=ab,canary\nAUTH default canary\nACL SETUSER u on >canary\nlast line\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	archive := filepath.Join(dir, "bundle.tar.gz")
	args := []string{"debug", "bundle", n.Clients, "--password-file", password, "--http-token-file", token, "--profile",
		"1s", "--log", log, "--log", filepath.Join(dir, "none"), "--log", n.LogFile}
	o := invoke(t, nil, append(args, "-o", archive)...)
	if o.code != 0 || !strings.Contains(o.out, "2 of 3 nodes answered") {
		t.Fatalf("exit %d\n%s%s", o.code, o.out, o.errOut)
	}
	files := readBundle(t, archive)
	for name, part := range map[string]string{
		"status.json": `"id": "n1"`, "verdict.json": "Degraded: n3", "program.txt": "holdfast",
		"nodes/n1/info.txt": "# Server", "nodes/n1/config.txt": "slowlog-log-slower-than",
		"nodes/n2/metrics.txt": "holdfast_locks_granted_total", "nodes/n1/slowlog.txt": "arguments removed",
		"nodes/n1/latency.txt": "", "nodes/n1/latency-histogram.txt": "calls", "nodes/n1/acllog.txt": "auth",
		"nodes/n1/clients.txt": "addr=", "nodes/n1/node.json": `"role"`, "nodes/n1/ready.txt": "ready",
		"nodes/n2/events.json": "", "nodes/n1/pprof/goroutines.txt": "goroutine ", "nodes/n1/pprof/heap.pprof": "",
		"nodes/n1/pprof/cpu.pprof": "", "manifest.json": "nodes/n1/info.txt",
	} {
		if body, ok := files[name]; !ok || !strings.Contains(body, part) {
			t.Errorf("%s, present: %v, does not contain %q:\n%.300s", name, ok, part, body)
		}
	}
	for name, body := range files {
		for _, word := range []string{"canary", "name-of-a-key", "name-of-a-lock"} {
			// Logs are copied, so they may contain names of keys, but no
			// passwords.
			if strings.Contains(body, word) && (word == "canary" || !strings.HasPrefix(name, "logs/")) {
				t.Errorf("%s contains %q", name, word)
			}
		}
	}
	checkManifest(t, files, map[string]string{
		"nodes/n3/": "unreachable", "nodes/n2/pprof/": "--pprof", "logs/none": "no such file",
	})
	if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("archive: %v, %v", info, err)
	}

	// The command does not overwrite a file. Without the token, it collects
	// everything that needs no token.
	if o := invoke(t, nil, append(args, "-o", archive)...); o.code != 1 || !strings.Contains(o.errOut, "file exists") {
		t.Errorf("the second archive: exit %d, %s", o.code, o.errOut)
	}
	second := filepath.Join(dir, "second.tar.gz")
	o = invoke(t, nil, "debug", "bundle", "--addr", n.Clients, "--password-file", password, "-o", second,
		"--include-data")
	files = readBundle(t, second)
	if o.code != 0 || !strings.Contains(files["locks/locks.txt"], "name-of-a-lock") ||
		!strings.Contains(files["nodes/n1/slowlog.txt"], "name-of-a-key") {
		t.Errorf("exit %d, locks %q\n%s", o.code, files["locks/locks.txt"], o.errOut)
	}
	checkManifest(t, files, map[string]string{"nodes/n1/metrics.txt": "401"})
	if o := invoke(t, nil, "debug", "bundle", dead.Clients, "-o", archive+"3"); o.code != 3 {
		t.Errorf("a dead node: exit %d, %s", o.code, o.errOut)
	}
}

// checkManifest checks that the manifest of an archive reports the given files
// as missing, and that the archive has all files that the manifest lists. The
// map missing has the end of a name as key, and a part of the error as value.
func checkManifest(t *testing.T, files map[string]string, missing map[string]string) {
	t.Helper()
	var m struct {
		Files, Missing []struct {
			Name, Error string
			Bytes       int
		}
	}
	if err := json.NewDecoder(bytes.NewBufferString(files["manifest.json"])).Decode(&m); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		if body, ok := files[f.Name]; !ok || len(body) != f.Bytes {
			t.Errorf("%s, present: %v, has %d bytes, want %d", f.Name, ok, len(body), f.Bytes)
		}
	}
	for _, f := range m.Missing {
		for name, why := range missing {
			if strings.HasSuffix(f.Name, strings.TrimPrefix(name, "logs/")) && strings.Contains(f.Error, why) {
				delete(missing, name)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("the manifest does not say that %v is missing: %v", missing, m.Missing)
	}
}
