package resp_test

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestConn_YieldsWhenBusy checks that a connection whose commands never wait
// lets other goroutines run, even if the node has a single processor. A
// goroutine that wakes every 50 µs must run between the commands of the
// connection.
func TestConn_YieldsWhenBusy(t *testing.T) {
	s := serve(t, newFake(t))
	for name, word := range map[string]string{"refused commands": "nosuchcommand", "connection commands": "CLIENT LIST"} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			const commands = 16 << 10
			last := make(chan error, 1)
			go func() {
				_, err := io.WriteString(c.conn, strings.Repeat(encode(word), commands))
				last <- err
			}()
			first, err := c.reply() // the connection is busy from now on
			if err != nil {
				t.Fatal(err)
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			ran := testutil.Wakes(func() {
				for range commands - 1 {
					if _, err := c.reply(); err != nil {
						t.Fatalf("reading a reply after the first reply %q: %v", first, err)
					}
				}
			})
			if err := <-last; err != nil {
				t.Fatal(err)
			}
			// Without yields, the goroutine ran only when a batch of commands
			// ended: 10 and 37 times in the two cases of this test.
			if ran < 80 {
				t.Errorf("another goroutine ran %d times during %d commands, want at least 80", ran, commands)
			}
		})
	}
}
