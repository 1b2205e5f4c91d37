package dashboard

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuota checks the bound for all requests together and the bound for one
// address.
func TestQuota(t *testing.T) {
	q := quota{most: 10, mostEach: 6}
	from := func(addr string, units int) (share, bool) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr
		return q.try(r, units)
	}
	first, ok := from("[2001:db8::1]:1", 4)
	if !ok {
		t.Fatal("the first request is refused")
	}
	if _, ok := from("[2001:db8::2]:1", 3); ok {
		t.Error("another address of the same /64 network has a bound of its own")
	}
	if _, ok := from("192.0.2.1:1", 6); !ok {
		t.Error("another address is refused")
	}
	if _, ok := from("192.0.2.2:1", 1); ok {
		t.Error("the bound for all is exceeded")
	}
	first.keep(1)
	if _, ok := from("192.0.2.2:1", 3); !ok {
		t.Error("released units are not free")
	}
	first.release()
	first.release() // has no effect
	if q.used != 9 || len(q.by) != 2 {
		t.Errorf("%d units of %d addresses are used, want 9 of 2", q.used, len(q.by))
	}
}

// TestQuota_Waits checks that a request waits until units are free.
func TestQuota_Waits(t *testing.T) { synctest.Test(t, testQuotaWaits) }

func testQuotaWaits(t *testing.T) {
	q := quota{most: 1, mostEach: 1}
	r := httptest.NewRequest("GET", "/", nil)
	first, err := q.take(r, 1)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := q.take(r.WithContext(short), 1); !errors.Is(err, errBusy) {
		t.Errorf("take while no unit is free: error is %v, want errBusy", err)
	}
	got := make(chan error, 1)
	go func() {
		s, err := q.take(r, 1)
		s.release()
		got <- err
	}()
	synctest.Wait()
	if len(got) > 0 {
		t.Error("a request does not wait")
	}
	first.release()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestShown(t *testing.T) {
	if got := shown("a\u202eb\n\x00<é>"); got != `a\u202eb\n\u0000<é>` {
		t.Errorf("shown: %s", got)
	}
}

// TestEvents_KindsAreSeparate checks that many events of one kind do not displace
// those of another kind.
func TestEvents_KindsAreSeparate(t *testing.T) {
	var e Events
	e.add(Event{Kind: KindCluster, Text: "n1 leads"})
	for range 3 * maxEvents {
		e.add(Event{Kind: KindAudit})
	}
	all, last := e.since(0)
	if len(all) != maxEvents+1 || all[0].Text != "n1 leads" || last != 3*maxEvents+1 {
		t.Errorf("%d events, the first one %v, the last id %d", len(all), all[0], last)
	}
	if all, _ := e.since(last - 2); len(all) != 2 || all[1].ID != last {
		t.Errorf("the newest events: %v", all)
	}
}

func TestLimiter(t *testing.T) {
	l, now := limiter{burst: 3, every: time.Second}, time.Now()
	for i, want := range []bool{true, true, true, false} {
		if l.allow(now) != want {
			t.Errorf("request %d: want %v", i, want)
		}
	}
	if !l.allow(now.Add(time.Second)) || l.allow(now.Add(time.Second)) {
		t.Error("want exactly one more request after a second")
	}
}
