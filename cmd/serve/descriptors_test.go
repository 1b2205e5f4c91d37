package serve

import (
	"strings"
	"testing"
)

func TestEnoughDescriptors(t *testing.T) {
	for _, c := range []struct {
		clients, http int
		limit         uint64
		says          string // part of the error, "" for none
	}{
		{10_000, 256, 10_512, ""},
		{10_000, 256, ^uint64(0), ""}, // unlimited
		{10_000, 256, 4_096,
			"needs 10512 file descriptors, but the process may open only 4096: raise this limit to 10512 "},
		{10_000, 256, 4_096, "or set --max-clients to 3584 or less"},
		{10_000, 1_000, 11_256, ""},
		{10_000, 1_000, 11_255, "--max-http-connections is 1000, which needs 11256"},
		{10_000, 1_000, 11_255, "or set --max-clients to 9999 or less"},
		{1, 256, 512, "needs 513"},
	} {
		err := enoughDescriptors(c.clients, c.http, c.limit)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("--max-clients %d and --max-http-connections %d with a limit of %d descriptors: error is %v",
				c.clients, c.http, c.limit, err)
		}
	}
}
