package process_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestPipeline_Abandoned sends pipelines of scripts to a follower and to the
// leader, and closes the connection when the first script has run. A pipeline
// with short replies is executed as a whole. A pipeline with large replies must
// end early, because it would otherwise occupy the cluster for a client that
// has left.
func TestPipeline_Abandoned(t *testing.T) {
	const scripts = 40
	c := newCluster(t, process.Config{Nodes: 2})
	for _, n := range c.Nodes {
		start(t, n)
	}
	c.settled()
	for i, n := range c.Nodes {
		for _, tt := range []struct {
			reply       string
			least, most int // scripts that are executed
		}{
			{"string.rep('x', 900000)", 1, scripts / 2},
			{"1", scripts, scripts},
		} {
			key := fmt.Sprintf("n%d:%.6s", i, tt.reply)
			if got := abandon(t, n, key, tt.reply, scripts); got < tt.least || got > tt.most {
				t.Errorf("through node %d, scripts that return %s: %d were executed, want %d to %d",
					i+1, tt.reply, got, tt.least, tt.most)
			}
		}
	}
}

// abandon sends a pipeline of scripts that increment a key, and closes the
// connection when the first script has run. It returns how many of the scripts
// were executed.
func abandon(t *testing.T, n *process.Node, key, reply string, scripts int) (count int) {
	t.Helper()
	conn, err := respwire.Dial(t.Context(), "tcp", n.Clients)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("EVAL %q 1 %s", "for i = 1, 100000 do end redis.call('INCR', KEYS[1]) return "+reply, key)
	if _, err := conn.Write(respwire.Lines(slices.Repeat([]string{line}, scripts)...)); err != nil {
		t.Fatal(err)
	}
	poll := func(what string, ok func() bool) {
		t.Helper()
		if err := process.Poll(testutil.Within(t, testutil.StartLimit), what, ok); err != nil {
			t.Fatal(err)
		}
	}
	poll("the first script", func() bool { return do(t, n, "EXISTS", key) == "(integer) 1" })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	poll("the end of the connection", func() bool { return !strings.Contains(do(t, n, "CLIENT", "LIST"), "cmd=eval") })
	count, err = strconv.Atoi(strings.Trim(do(t, n, "GET", key), `"`))
	if err != nil {
		t.Fatal(err)
	}
	return count
}
