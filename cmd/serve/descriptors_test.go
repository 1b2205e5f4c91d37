package serve

import (
	"strings"
	"testing"
)

func TestEnoughDescriptors(t *testing.T) {
	for _, c := range []struct {
		clients int
		limit   uint64
		says    string // part of the error, "" for none
	}{
		{10_000, 10_512, ""},
		{10_000, ^uint64(0), ""}, // unlimited
		{10_000, 4_096, "needs 10512 file descriptors, but the process may open only 4096: raise this limit to 10512 "},
		{10_000, 4_096, "or set --max-clients to 3584 or less"},
		{1, 512, "needs 513"},
	} {
		err := enoughDescriptors(c.clients, c.limit)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("--max-clients %d with a limit of %d descriptors: error is %v", c.clients, c.limit, err)
		}
	}
}
