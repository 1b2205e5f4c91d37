package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// writeFile writes a file in a new directory and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServe_ConfigFile configures a node with a configuration file, and checks
// that flags take precedence over the file. It also runs config check on the
// file.
func TestServe_ConfigFile(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Env: []string{"HOLDFAST_LEADER_WAIT=4s"}})
	n := c.Nodes[0]
	text := "requirepass: wrong\nmax-bulk-bytes: 2mb\nleader-wait: 3s\nscript-time: 700ms\n"
	for i := 1; i < len(n.Args); i += 2 {
		if name := strings.TrimPrefix(n.Args[i], "--"); name == "peers" {
			id, addr, _ := strings.Cut(n.Args[i+1], "=")
			text += fmt.Sprintf("peers:\n  %s: %q\n", id, addr)
		} else {
			text += fmt.Sprintf("%s: %q\n", name, n.Args[i+1])
		}
	}
	path := writeFile(t, text)
	password := writeFile(t, "secret\n")
	n.Args = []string{"serve", "--config", path, "--requirepass", "secret", "--script-time", "800ms"}
	start(t, n)
	conn, err := eventually(t, n)
	if err != nil {
		t.Fatal(err)
	}
	if got := show(conn, "AUTH", "secret"); got != "OK" {
		t.Errorf("the password of the command line: %q", got)
	}
	if got := show(conn, "SET", "k", "v"); got != "OK" { // SET waits until there is a leader
		t.Errorf("SET: %q", got)
	}
	for name, value := range map[string]string{
		"holdfast-max-bulk-bytes": "2097152", "holdfast-script-time": "800ms",
	} {
		if got := show(conn, "CONFIG", "GET", name); got != "["+name+" "+value+"]" {
			t.Errorf("CONFIG GET %s: %s, want %s", name, got, value)
		}
	}
	if o := invoke(t, nil, "status", n.Clients, "--password-file", password); o.code != 0 {
		t.Errorf("status with --password-file: %+v", o)
	}
	o := invoke(t, nil, "config", "check", path)
	if o.code != 0 {
		t.Errorf("config check: %+v", o)
	}
	wantLine(t, o.out, "max-bulk-bytes", "2097152")
	wantLine(t, o.out, "requirepass", "(set)")
	if strings.Contains(o.out, "wrong") {
		t.Errorf("config check prints a password: %s", o.out)
	}
}

// TestConfigFile_MistakesAreNamed checks that each mistake in a file is reported,
// with the number of its line if it has one.
func TestConfigFile_MistakesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		says       []string // parts of the error, each in a separate line
	}{
		{"several", "client-adr: a:1\nleader-wait: 7\nmax-bulk-bytes: lots\nnode_id: n1\n", []string{
			`:1: unknown setting "client-adr"; did you mean "client-addr"?`,
			`:2: leader-wait: time: missing unit in duration "7"`,
			`:3: max-bulk-bytes: "lots" is not a size such as`,
			`:4: unknown setting "node_id"; did you mean "node-id"?`,
		}},
		{"twice", "node-id: n1\nnode-id: n2\n", []string{`:2: "node-id" is already set in line 1`}},
		{"no value", "node-id:\n", []string{`:1: node-id: no value`}},
		{"list", "- node-id\n", []string{`:1: the file is not a list of lines "name: value"`}},
		{"nested", "node-id: {a: b}\n", []string{":1: node-id: must be a single value"}},
		{"nested address", "peers: {n1: [a]}\n", []string{":1: peers: the address of n1 is not a single value"}},
		{"not YAML", "node-id: [\n", []string{"--config: "}},
		{"another file", "config: x\n", []string{`:1: unknown setting "config"`}},
		{"nothing", "# only a comment\n", []string{"--node-id is missing"}},
		{"wrong value", "node-id: n1\ndata-dir: x\nlog-level: loud\n", []string{`--log-level is "loud"`}},
		{"no collector", "node-id: n1\ndata-dir: x\notlp-endpoint: collector\n",
			[]string{`"collector" is not the URL of a collector`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, tt.text)
			o := invoke(t, nil, "config", "check", path)
			if o.code != 1 || o.out != "" {
				t.Errorf("exit code %d, output %q", o.code, o.out)
			}
			for _, line := range tt.says {
				wantLine(t, o.errOut, line)
			}
		})
	}
}
