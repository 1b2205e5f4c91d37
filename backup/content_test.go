package backup

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestContent_Locks checks which keys count as locks.
func TestContent_Locks(t *testing.T) {
	var c Content
	for _, k := range []fsm.SnapshotKey{
		{Key: "shared", Type: "lock", TTL: 90e9, Token: 5}, {Key: "exclusive", Type: "string", TTL: 9e9, Token: 6},
		{Key: "redisson", Type: "hash", TTL: 5e9, Token: 7}, {Key: "queue", Type: "list", TTL: 5e9}, {Key: "value", Type: "string"},
	} {
		c.Add(k)
	}
	c.Sort()
	if len(c.Locks) != 3 || c.Locks[0].Key != "shared" || c.Locks[2].Key != "redisson" || c.LongestTTL != 90e9 {
		t.Errorf("got the locks %+v and the longest TTL %d ns, want 3 locks and 90e9", c.Locks, c.LongestTTL)
	}
}
