package output

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
	w       Writer
	out     *Outbox
	written int
}

// newFlooded returns a connection whose outbox's goroutine does not run.
func newFlooded() *flooded {
	limits := guard.DefaultLimits()
	node := &Node{Memory: clientmem.New(0), Limits: &limits}
	f := &flooded{}
	f.w.Init(WriterConfig{Redcon: f, Memory: node.Memory.Account(nil)})
	f.out = NewOutbox(node, 1, &f.w, nil)
	f.out.running = true
	return f
}

func (f *flooded) WriteRaw([]byte) {
	if f.written++; f.written < 10_000 {
		f.out.Push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+more\r\n")) })
	}
}

// TestOutbox_Flood checks that a pipeline ends although messages arrive faster
// than they are written.
func TestOutbox_Flood(t *testing.T) {
	f := newFlooded()
	f.out.Begin()
	f.out.Push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+first\r\n")) })
	f.w.mu.Lock()
	f.out.release(0)
	f.w.mu.Unlock()
	if f.written != 1 {
		t.Errorf("%d messages were written before the pipeline ended, want 1", f.written)
	}
	if n, _ := f.out.Pending(); n != 1 || len(f.out.wake) != 1 {
		t.Errorf("%d messages are left to the outbox's goroutine, which is woken %d times, want 1 message and 1 time", n, len(f.out.wake))
	}
}

// TestOutbox_Begin checks a message that was queued before a pipeline and that
// the outbox's goroutine has not written yet. It is written before the replies
// of the pipeline. After a blocking command, the message follows the reply.
func TestOutbox_Begin(t *testing.T) {
	for _, test := range []struct {
		name  string
		begin func(o *Outbox)
		want  int
	}{
		{"pipeline", (*Outbox).Begin, 1},
		{"blocking command", func(o *Outbox) { o.Resume() }, 0},
	} {
		f := newFlooded()
		f.out.Push(pubsub.Cause{}, func(int) *pubsub.Payload { return pubsub.NewPayload([]byte("+first\r\n")) })
		test.begin(f.out)
		if f.written != test.want {
			t.Errorf("%s: %d messages were written before the replies, want %d", test.name, f.written, test.want)
		}
	}
}
