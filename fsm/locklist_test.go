package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
)

// listed is a machine with locks, and the pages that a node keeps for LOCK LIST.
type listed struct {
	*operated
	pages locklist.Keeper
	steps int // work of the last read, in units of StepsPerStop
}

var listedKey = regexp.MustCompile(`\$3\r\nkey\r\n\$\d+\r\n([^\r]*)\r\n`)

// list reads a page of LOCK LIST and returns the keys and the next cursor.
func (l *listed) list(line string) (keys []string, cursor string) {
	l.t.Helper()
	var g fsm.Group
	g.Reset(2, 1)
	args := bytes.Fields([]byte("lock list " + line))
	for i, arg := range args {
		if string(arg) == `""` {
			args[i] = nil
		}
	}
	cmd := l.m.Table().Find(args[0])
	g.Command(cmd, 0, args)
	l.steps = 0
	out, pending, err := l.m.Read(nil, fsm.ReadRequest{
		Body: g.Bytes(), Now: l.lease, Pages: l.pages, Budget: &fsm.Budget{Stop: func() error { l.steps++; return nil }},
	})
	if err != nil || pending {
		l.t.Fatalf("LOCK LIST %s: %v, expiry pending: %v", line, err, pending)
	}
	for _, m := range listedKey.FindAllSubmatch(out, -1) {
		keys = append(keys, string(m[1]))
	}
	return keys, strings.Split(string(out), "\r\n")[2]
}

// walk returns the keys of all pages, and the units of work that they took. Unless
// the function between is nil, walk calls it after each page except the last.
func (l *listed) walk(options string, between func(page int)) (keys []string, steps int) {
	l.t.Helper()
	for cursor, page := "0", 0; ; page++ {
		found, next := l.list(options + " CURSOR " + cursor)
		keys, steps = append(keys, found...), steps+l.steps
		if cursor = next; cursor == "0" {
			return keys, steps
		}
		if between != nil {
			between(page)
		}
	}
}

func newListed(t *testing.T, locks int) (l *listed, keys []string) {
	l = &listed{operated: newOperated(t, "c", fsm.MaxFeatures), pages: new(locklist.Pages)}
	l.lease = 1
	for i := range locks {
		key := fmt.Sprintf("lock:%04d", i)
		l.want("set "+key+" owner nx px 60000", "+OK")
		keys = append(keys, key)
	}
	return l, keys
}

// TestLockList_Walk: a client that reads page after page gets each lock once, the
// oldest first. This holds whether or not the node keeps the locks for the next
// pages.
func TestLockList_Walk(t *testing.T) {
	l, keys := newListed(t, 2000)
	got, kept := l.walk("COUNT 7", nil)
	if !slices.Equal(got, keys) {
		t.Errorf("%d locks, want %d", len(got), len(keys))
	}
	l.pages = nil
	got, alone := l.walk("COUNT 7", nil)
	if !slices.Equal(got, keys) {
		t.Errorf("%d locks from a node that keeps nothing, want %d", len(got), len(keys))
	}
	if alone < 5*kept {
		t.Errorf("the walk took %d units of work, want at most a fifth of the %d units without kept locks", kept, alone)
	}
}

// TestLockList_EmptyPattern: the pages of a list with an empty pattern, which no key
// matches, are not used for a list without a pattern.
func TestLockList_EmptyPattern(t *testing.T) {
	l, keys := newListed(t, 20)
	_, next := l.list("COUNT 1")
	if got, _ := l.list(`MATCH "" CURSOR ` + next); len(got) > 0 {
		t.Errorf("an empty pattern lists %q, want no locks", got)
	}
	if got, _ := l.list("COUNT 100 CURSOR " + next); !slices.Equal(got, keys[1:]) {
		t.Errorf("the second page has %d locks, want %d", len(got), len(keys)-1)
	}
}

// TestLockList_Changes: locks are granted and released between the pages. The list
// contains every lock that is held all the time, and no lock that was released before
// its page was read.
func TestLockList_Changes(t *testing.T) {
	l, keys := newListed(t, 300)
	got, _ := l.walk("COUNT 10", func(page int) {
		if page > 26 {
			return // later pages contain the new locks
		}
		l.want(fmt.Sprintf("set new:%d owner nx px 60000", page), "+OK")
		l.want("del "+keys[299-page], ":1")
		l.want(fmt.Sprintf("del lock:%04d", 10*page), ":1") // listed before
	})
	if len(got) < 270 || !slices.Equal(got[:270], keys[:270]) {
		t.Errorf("%d locks, want the 270 oldest ones first: %v", len(got), got)
	}
	for _, key := range got[270:] {
		if !strings.HasPrefix(key, "new:") && l.do("exists "+key) != ":1\r\n" {
			t.Errorf("%s is listed although it was released", key)
		}
	}
	// A new list is complete, even if the node has kept the last pages of another
	// list.
	before, _ := l.walk("COUNT 10", nil)
	l.want("set later owner nx px 60000", "+OK")
	if got, _ = l.walk("COUNT 10", nil); !slices.Equal(got, append(before, "later")) {
		t.Errorf("%d locks, and %d after one more was granted, want one more at the end", len(before), len(got))
	}
	l.want("set newest owner nx px 60000", "+OK")
	if got, _ = l.walk("COUNT 1000 MATCH newest", nil); !slices.Equal(got, []string{"newest"}) {
		t.Errorf("new list: %v, want newest", got)
	}
}

// TestLockList_Large: a page ends when it reaches 1 MiB, and long owners are
// truncated.
func TestLockList_Large(t *testing.T) {
	l, _ := newListed(t, 0)
	for i := range 8 {
		key := fmt.Appendf(nil, "%d%s", i, strings.Repeat("k", 400<<10))
		owner := bytes.Repeat([]byte("é"), 1<<20)
		l.args([]byte("set"), key, owner, []byte("nx"), []byte("px"), []byte("60000"))
	}
	pages := 0
	got, _ := l.walk("COUNT 100", func(int) { pages++ })
	if len(got) != 8 || pages != 2 {
		t.Errorf("%d locks on %d pages, want 8 on 3", len(got), pages+1)
	}
	var g fsm.Group
	g.Reset(2, 1)
	args := bytes.Fields([]byte("lock list count 1"))
	cmd := l.m.Table().Find(args[0])
	g.Command(cmd, 0, args)
	out, _, err := l.m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
	owner := "\r\n$1024\r\n" + strings.Repeat("é", 512) + "\r\n"
	if err != nil || !bytes.Contains(out, []byte(owner)) || !bytes.Contains(out, []byte("owner-bytes\r\n:2097152\r\n")) {
		t.Errorf("the owner is not cut: error %v, reply of %d bytes", err, len(out))
	}
}

// TestLockList_Expiry: LOCK LIST does not wait for the entry that removes
// expired locks, so the list can be read while locks expire all the time.
func TestLockList_Expiry(t *testing.T) {
	l, _ := newListed(t, 3)
	l.lease += 60_000_000_000 // no entry has this time yet
	if got, _ := l.list(""); len(got) != 3 {
		t.Errorf("keys %v, want three", got)
	}
	l.want("set other owner nx px 60000", "+OK")
	if got, _ := l.list(""); !slices.Equal(got, []string{"other"}) {
		t.Errorf("after an entry: %v, want other", got)
	}
}

// TestLockList_Budget: a walk stops when its budget is used up. The node then
// keeps none of the locks that the walk has found.
func TestLockList_Budget(t *testing.T) {
	l, keys := newListed(t, 4000)
	var g fsm.Group
	g.Reset(2, 1)
	args := bytes.Fields([]byte("lock list cursor 1"))
	cmd := l.m.Table().Find(args[0])
	g.Command(cmd, 0, args)
	ended := errors.New("ended")
	if _, _, err := l.m.Read(nil, fsm.ReadRequest{
		Body: g.Bytes(), Pages: l.pages, Budget: &fsm.Budget{Stop: func() error { return ended }},
	}); !errors.Is(err, ended) {
		t.Fatal(err)
	}
	if got, _ := l.walk("COUNT 1000", nil); !slices.Equal(got, keys) {
		t.Errorf("%d locks after a walk that was ended, want %d", len(got), len(keys))
	}
}

// TestLockList_Holders: the list contains the holders of a shared lock even if a
// command other than LOCK ACQUIRE made its key, and even after a snapshot was read.
// The machine always knows the number of such holders, so LOCK LIST walks the
// database only if there are any.
func TestLockList_Holders(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  []string
	}{
		{"rename a b", []string{"b", "b"}},
		{"copy a b", []string{"a", "a", "b", "b"}},
		{"copy a b; lock acquire b third px 60000 shared", []string{"a", "a", "b", "b", "b"}},
		{"copy a b; lock release a first; lock release b first; rename b c", []string{"a", "c"}},
		{"move a 1; swapdb 0 1", []string{"a", "a"}},
		{"copy a b; copy a b replace; del a", []string{"b", "b"}},
		{"rename a b; lock release b first; lock renew b second px 90000", []string{"b"}},
		{"rename a b; lock release b first; lock release b second", nil},
		{"rename a b; lock break b", nil},
		{"rename a b; set b value; lock acquire c owner px 60000", []string{"c"}},
		{"rename a b; del b", nil},
		{"rename a b; flushdb", nil},
	} {
		l, _ := newListed(t, 0)
		l.want("lock acquire a first px 60000 shared", ":")
		l.want("lock acquire a second px 60000 shared", ":")
		for line := range strings.SplitSeq(c.lines, "; ") {
			l.do(line)
		}
		for _, from := range []string{"log", "snapshot"} {
			if got, _ := l.list(""); !slices.Equal(got, c.want) {
				t.Errorf("%s, state from a %s: %v, want %v", c.lines, from, got, c.want)
			}
			if err := fsm.Broken(l.m); err != nil {
				t.Errorf("%s, state from a %s: %v", c.lines, from, err)
			}
			l.m = restore(t, snapshotOf(t, l.m))
		}
	}
}
