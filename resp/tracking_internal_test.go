package resp

import "testing"

// Connections that come, read a key that never changes, and go again leave nothing
// behind that grows.
func TestTracking_Sweep(t *testing.T) {
	h := &hub{local: true}
	h.track.init(h)
	tr := &h.track
	tr.onLocked(1, &tracker{}, nil)
	tr.reader("k", 1).hold(1)
	for id := uint64(2); id < 4*sweepReadings; id++ {
		tr.onLocked(id, &tracker{}, nil)
		tr.reader("k", id).hold(1)
		tr.offLocked(id)
	}
	keys, items, _ := h.trackedSizes()
	if keys != 1 || items > sweepReadings+2 || items != len(tr.keys["k"]) {
		t.Errorf("%d keys with %d readings, in truth %d, of one connection", keys, items, len(tr.keys["k"]))
	}
	if r := tr.keys["k"][1]; r == nil || !r.armed {
		t.Error("the connection that is still there was forgotten")
	}
	tr.offLocked(1)
	if keys, items, _ := h.trackedSizes(); keys != 0 || items != 0 {
		t.Errorf("%d keys with %d readings when nobody tracks", keys, items)
	}
}
