package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/dashboard/traffic"
)

// sampledNode is a node of a cluster. The other node, n2, has taken some samples.
type sampledNode struct {
	fakeNode
	taken *atomic.Int64 // number of samples that n2 has taken
}

func (n sampledNode) Reports(_ context.Context, query string) map[string][]byte {
	var s traffic.Series
	var count int64
	if _, err := fmt.Sscanf(query, "recent %d", &count); err != nil {
		panic(err)
	}
	for i := max(1, n.taken.Load()-count+1); i <= n.taken.Load(); i++ {
		s.Times = append(s.Times, i)
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{"n2": text}
}

// TestStream_AllSamples checks that the stream has every sample of another
// node. The node may have taken no sample, or two samples, since the last
// query. A slow client may also miss a message, because the next message
// replaces it.
func TestStream_AllSamples(t *testing.T) {
	var taken atomic.Int64
	d, _ := open(t, port{open: true}, func(c *Config) { c.Node = sampledNode{taken: &taken} })
	sub := d.stream.open([]string{topicTraffic})
	defer d.stream.close(sub)
	seen := make(map[int64]bool)
	for _, step := range []int64{1, 0, 2, 1, 1} {
		taken.Add(step)
		d.sampled()
		if taken.Load() == 4 {
			continue // the next message replaces this one
		}
		var message Traffic
		if err := json.Unmarshal(d.stream.take(sub)[topicTraffic], &message); err != nil {
			t.Fatal(err)
		}
		for _, at := range message.Nodes["n2"].Times {
			seen[at] = true
		}
	}
	for at := range taken.Load() {
		if !seen[at+1] {
			t.Errorf("sample %d was not sent", at+1)
		}
	}
}
