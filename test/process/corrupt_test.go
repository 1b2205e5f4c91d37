package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestCorruption_IsRefusedAndMended damages a file of a stopped node. The node
// detects the damage at its start: it refuses to start, and names the file and
// the remedy. The other nodes continue, and the remedy works.
func TestCorruption_IsRefusedAndMended(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"wal", "boltdb"} {
		t.Run(store, func(t *testing.T) { testCorruption(t, store) })
	}
}

func testCorruption(t *testing.T, store string) {
	c := startCluster(t, "--log-store", store)
	const keys = 300
	for i := range keys {
		want(t, c.Nodes[i%3], "OK", "SET", fmt.Sprintf("k:%d", i), marker(i))
	}
	log := func(n *process.Node) string {
		if store == "boltdb" {
			return filepath.Join(n.Dir, "log.db")
		}
		return onlyFile(t, filepath.Join(n.Dir, "wal", "*.wal"))
	}
	for i, tt := range []struct {
		name   string
		damage func(t *testing.T, n *process.Node) (file string)
	}{
		{"a flipped byte in the log", func(t *testing.T, n *process.Node) string {
			file := log(n)
			flipAt(t, file, marker(100))
			return file
		}},
		{"a truncated log", func(t *testing.T, n *process.Node) string {
			file := log(n)
			if err := os.Truncate(file, int64(find(t, file, marker(200)))); err != nil {
				t.Fatal(err)
			}
			return file
		}},
		{"a missing log", func(t *testing.T, n *process.Node) string {
			file := log(n)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			return file
		}},
		{"a flipped byte in the votes", func(t *testing.T, n *process.Node) string {
			file := filepath.Join(n.Dir, "stable.db")
			flipAt(t, file, "holdfast/raft")
			return file
		}},
		{"a flipped byte in the identity", func(t *testing.T, n *process.Node) string {
			file := filepath.Join(n.Dir, "node.json")
			flipAt(t, file, `"boot"`)
			return file
		}},
		{"a flipped byte in the snapshot", func(t *testing.T, n *process.Node) string {
			file := onlyFile(t, filepath.Join(n.Dir, "snapshots", "*", "state.bin"))
			flipAt(t, file, "k:200")
			return file
		}},
		{"a flipped byte in the snapshot's description", func(t *testing.T, n *process.Node) string {
			file := onlyFile(t, filepath.Join(n.Dir, "snapshots", "*", "meta.json"))
			flipAt(t, file, `"Index"`)
			return file
		}},
	} {
		// Damage the nodes one after the other. If n leads, another node
		// becomes leader when n stops.
		n := c.Nodes[i%3]
		if strings.Contains(tt.name, "snapshot") {
			want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
		}
		stopNode(t, n)
		file := tt.damage(t, n)
		out := refusesToStart(t, n)
		wantLine(t, out, "holdfast: open data directory: ", n.Dir)
		wantLine(t, out, " is corrupt", "must not be trusted", "holdfast member remove "+n.ID)
		if !strings.Contains(out, filepath.Base(file)) {
			t.Errorf("%s: the message does not name %s:\n%s", tt.name, filepath.Base(file), out)
		}
		refuses(t, []string{file + " is corrupt", "must not be trusted: if a majority of the cluster is up",
			"otherwise use the data directory of another node, or restore a backup"}, "inspect", n.Dir)
		// A second start reports the same error: the node has repaired
		// nothing.
		if again := refusesToStart(t, n); lastOf(again) != lastOf(out) {
			t.Errorf("%s: the second start says %q, the first %q", tt.name, lastOf(again), lastOf(out))
		}
		live := c.leader()
		key := fmt.Sprintf("meanwhile:%d", i)
		want(t, live, "OK", "SET", key, "v")
		c.replace(n, live)
		for k := 0; k < keys; k += 17 {
			want(t, n, marker(k), "GET", fmt.Sprintf("k:%d", k))
		}
		want(t, n, "v", "GET", key)
		if t.Failed() {
			t.Fatalf("%s", tt.name)
		}
	}
}

// marker returns a value that can be found in a file.
func marker(i int) string { return fmt.Sprintf("<the value of key number %06d>", i) }

func lastOf(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func onlyFile(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files[len(files)-1]
}

// find returns the offset of the first occurrence of a text in a file.
func find(t *testing.T, file, text string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		t.Fatalf("%s does not contain %q", file, text)
	}
	return at
}

// flipAt changes one bit in every occurrence of a text in a file. Changing only
// the first occurrence may have no effect, because a bbolt file also contains
// old copies of its pages, which bbolt no longer reads.
func flipAt(t *testing.T, file, text string) {
	t.Helper()
	find(t, file, text)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := bytes.Index(b, []byte(text)); at >= 0; at = bytes.Index(b, []byte(text)) {
		b[at+2] ^= 0x04
		if _, err := f.WriteAt(b[at+2:at+3], int64(at)+2); err != nil {
			t.Fatal(err)
		}
	}
}
