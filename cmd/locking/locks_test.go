package locking

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

// TestPrint checks the output for a lock that was not acquired with LOCK
// ACQUIRE, for an empty list, and for a free lock with a delay.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	plain := listing.Lock{
		"key": "plain", "owner": "me", "mode": "exclusive", "token": int64(7), "ttl-ms": int64(5000),
		"waiting": int64(3),
	}
	known := listing.Lock{"acquired-ms": int64(1), "held-ms": int64(3000), "node": "n2", "client-id": int64(9)}
	maps.Copy(known, plain)
	for want, l := range map[string]listing.Lock{
		"plain me exclusive 7 - 5s 3 -":               plain,
		"plain me exclusive 7 3s 5s 3 client 9 at n2": known, // from the history
	} {
		out.Reset()
		if err := printLocks(&out, []listing.Lock{l}, false); err != nil {
			t.Fatal(err)
		}
		_, row, _ := strings.Cut(out.String(), "\n")
		if got := strings.Join(strings.Fields(row), " "); got != want {
			t.Errorf("row %q, want %q", got, want)
		}
	}
	for want, filtered := range map[string]bool{"no lock is held\n": false, "no lock is held that matches\n": true} {
		out.Reset()
		if err := printLocks(&out, nil, filtered); err != nil || out.String() != want {
			t.Errorf("%q, %v, want %q", &out, err, want)
		}
	}
	out.Reset()
	lost := listing.Lock{
		"key": "lost", "owner": nil, "token": nil, "delay-ms": int64(2500), "waiters": []listing.Lock{},
	}
	if err := printInfo(&out, lost); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"delay:     2.5s left", "owner:     none (the lock is free)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}
