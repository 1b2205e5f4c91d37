package compat

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestVersion_Promise checks that docs/operations.md lists the commands of the
// reported redis_version that Holdfast does not have, and none that Holdfast has.
// The list may omit the replication commands, which Holdfast refuses.
func TestVersion_Promise(t *testing.T) {
	p := newPair(t, 2)
	redis, holdfast := p.ask("COMMAND LIST")
	_, theirs := elements(redis[0])
	_, ours := elements(holdfast[0])
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begun := strings.Cut(string(page), "<!-- absent: begin")
	list, _, ended := strings.Cut(rest, "<!-- absent: end -->")
	if !begun || !ended {
		t.Fatal("docs/operations.md has no list of absent commands")
	}
	listed := strings.Fields(list)
	refused := []string{"psync", "replicaof", "slaveof", "sync"} // in resp/replication.go
	for _, name := range theirs {
		_, name, _ = strings.Cut(strings.TrimSpace(name), "\r\n")
		container, _, isSub := strings.Cut(name, "|")
		missing := !slices.ContainsFunc(ours,
			func(o string) bool { return strings.HasSuffix(strings.TrimSpace(o), "\n"+name) })
		documented := slices.Contains(listed, name) || isSub && slices.Contains(listed, container)
		switch {
		case missing && !documented && !slices.Contains(refused, name):
			t.Errorf("%s of Redis is missing here and in the list of docs/operations.md",
				strings.ToUpper(name))
		case !missing && slices.Contains(listed, name):
			t.Errorf("Holdfast has %s: remove it from the list in docs/operations.md", strings.ToUpper(name))
		}
	}
}
