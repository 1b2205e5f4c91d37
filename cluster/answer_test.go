package cluster

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/metrics"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/pulse"
	"github.com/holdfast-kv/holdfast/fsm"
)

// TestForwarder_AnswersEarly checks that deliver passes the reply of each call
// with an early function to that function once, before it ends the call. It must
// not pass replies that are not for clients.
func TestForwarder_AnswersEarly(t *testing.T) {
	const n = 100
	stats := metrics.New()
	fw := &forwarder{clock: systemClock{}, pulse: pulse.New(time.Hour, time.Hour), opts: DefaultOptions(), stats: stats, first: 1}
	fw.linked(new(numbers), 0)
	var mu sync.Mutex
	early := make([][]string, n)
	calls := make([]*call, n)
	results := []fsm.GroupResult{{Seq: 1, Status: fsm.StatusDone}} // the node's start
	for i := range calls {
		c := &call{forwarder: fw, body: noop, done: make(chan struct{}, 1)}
		c.early = func(replies []byte) {
			mu.Lock()
			defer mu.Unlock()
			if len(c.done) > 0 {
				t.Errorf("call %d was ended before its reply was passed to early", i)
			}
			early[i] = append(early[i], string(replies))
		}
		calls[i] = c
		fw.write(c)
		r := fsm.GroupResult{Seq: uint64(i + 2), Status: fsm.StatusDone, Reply: []byte(":" + strconv.Itoa(i) + "\r\n")}
		switch i {
		case 7:
			r = fsm.GroupResult{Seq: r.Seq, Status: fsm.StatusReplyLost}
		case 8:
			r.Reply = nil
		case 9:
			r.Reply = []byte{0} // fsm.TooLong
		}
		results = append(results, r)
	}
	if !fsm.TooLong(results[10].Reply) {
		t.Fatal("fsm.TooLong does not recognize the reply: the test must use the reply of a script that takes too long")
	}
	if fw.deliver(slices.Concat(results[:60], results[50:])) { // ten results arrive twice
		t.Error("deliver wants a new link, although no group was refused")
	}
	fw.close()
	for i, c := range calls {
		<-c.done
		want, wantErr, wantEarly := ":"+strconv.Itoa(i)+"\r\n", error(nil), 1
		switch i {
		case 7:
			want, wantErr, wantEarly = "", outcome.ErrReplyLost, 0
		case 8:
			want, wantErr, wantEarly = "", outcome.ErrRefused, 0
		case 9:
			want, wantEarly = "\x00", 0
		}
		if string(c.reply) != want || !errors.Is(c.err, wantErr) {
			t.Errorf("call %d ended with the wrong reply or error: %q, %v", i, c.reply, c.err)
		}
		if len(early[i]) != wantEarly || wantEarly == 1 && early[i][0] != want {
			t.Errorf("call %d: early received the wrong replies: %q", i, early[i])
		}
	}
}
