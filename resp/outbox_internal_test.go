package resp

import (
	"testing"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

// flooded is a connection that receives another message whenever one has been
// written.
type flooded struct {
	redcon.Conn
	c       *conn
	written int
}

// newFlooded returns a connection whose outbox's goroutine does not run.
func newFlooded() *flooded {
	s := &Server{cfg: Config{Limits: guard.DefaultLimits()}, metrics: &Metrics{}, clientMem: clientmem.New(0)}
	f := &flooded{}
	c := &conn{srv: s, mem: s.clientMem.Account(nil)}
	c.w = writer{rc: f, mem: c.mem}
	f.c, c.out = c, newOutbox(c)
	c.out.running = true
	return f
}

func (f *flooded) WriteRaw([]byte) {
	if f.written++; f.written < 10_000 {
		f.c.out.push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+more\r\n")) })
	}
}

// TestOutbox_Flood checks that a pipeline ends although messages arrive faster
// than they are written.
func TestOutbox_Flood(t *testing.T) {
	f := newFlooded()
	c := f.c
	c.out.begin()
	c.out.push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+first\r\n")) })
	c.w.mu.Lock()
	c.out.release(0)
	c.w.mu.Unlock()
	if f.written != 1 {
		t.Errorf("%d messages were written before the pipeline ended, want 1", f.written)
	}
	if n, _ := c.out.pending(); n != 1 || len(c.out.wake) != 1 {
		t.Errorf("%d messages are left to the goroutine, which is woken %d times", n, len(c.out.wake))
	}
}

// TestOutbox_Begin checks that a message that was queued before a pipeline, and
// that the outbox's goroutine has not written yet, is written before the replies
// of the pipeline. After a blocking command it follows the reply.
func TestOutbox_Begin(t *testing.T) {
	for _, test := range []struct {
		name  string
		begin func(o *outbox)
		want  int
	}{
		{"pipeline", (*outbox).begin, 1},
		{"blocking command", func(o *outbox) { o.resume() }, 0},
	} {
		f := newFlooded()
		f.c.out.push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+first\r\n")) })
		test.begin(f.c.out)
		if f.written != test.want {
			t.Errorf("%s: %d messages were written, want %d", test.name, f.written, test.want)
		}
	}
}
