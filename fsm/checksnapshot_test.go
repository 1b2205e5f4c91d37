package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// snapshotHead is the length in bytes of the magic string and the version, with
// which a snapshot begins.
const snapshotHead = 7

// varied returns a feed whose machine has stream groups, waiters, a script, and
// keys of all types except lock.
func varied(t testing.TB) *feed {
	f := furnished(t)
	f.do("HSET h f1 v1 f2 v2", "RPUSH l a b c", "SADD s 1 2 3", "SADD t a b", "ZADD z 1 a 2 b", "PFADD hll a b c", "SETBIT bits 100 1")
	f.do("XADD x 1-1 f v", "XADD x 2-1 f v", "XGROUP CREATE x g 0", "XREADGROUP GROUP g c1 COUNT 1 STREAMS x >")
	f.do("SADD big "+many(600), "SET volatile v PX 100000", "SET volatile2 v PX 200000")
	f.do("SCRIPT LOAD \"return 1\"")
	f.do("DEL a")
	return f
}

func many(n int) string {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "member%d ", i)
	}
	return b.String()
}

func TestCheckSnapshot_Info(t *testing.T) {
	f := varied(t)
	whole := snapshotOf(t, f.m)
	info, err := fsm.CheckSnapshot(bytes.NewReader(whole), command.NewTable())
	if err != nil {
		t.Fatal(err)
	}
	sessions := f.m.Sessions()
	if want := f.m.Clone().SnapshotInfo(sessions); info != want || info.Keys != f.m.Len() || info.Keys < 15 || info.Volatile < 3 || info.Waiters < 2 || info.Sessions != 1 {
		t.Errorf("CheckSnapshot returned %+v, want %+v and %d keys", info, want, f.m.Len())
	}
}

// TestCheckSnapshot_AsStrictAsReadSnapshot damages copies of a snapshot at
// random, and corrects the checksums of most of them. CheckSnapshot must refuse
// every copy that ReadSnapshot refuses.
func TestCheckSnapshot_AsStrictAsReadSnapshot(t *testing.T) {
	whole := snapshotOf(t, varied(t).m)
	rng, table := rand.New(rand.NewPCG(12, 1)), command.NewTable()
	refused, stricter := 0, 0
	for range 4000 {
		data := bytes.Clone(whole)
		for range 1 + rng.IntN(3) {
			at := snapshotHead + rng.IntN(len(data)-snapshotHead)
			switch rng.IntN(3) {
			case 0:
				data[at] ^= 1 << rng.IntN(8)
			case 1:
				data[at] = byte(rng.IntN(256))
			case 2:
				data = append(data[:at], data[min(at+1+rng.IntN(4), len(data)):]...)
			}
			if len(data) <= snapshotHead+8 {
				break
			}
		}
		if rng.IntN(20) > 0 {
			// The snapshot is one block.
			binary.LittleEndian.PutUint32(data[snapshotHead:], uint32(len(data)-snapshotHead-8))
			data = resealBlocks(data)
		}
		_, readErr := fsm.ReadSnapshot(bytes.NewReader(data), table)
		_, err := fsm.CheckSnapshot(bytes.NewReader(data), table)
		switch {
		case readErr != nil && err == nil:
			t.Fatalf("ReadSnapshot fails with %v, but CheckSnapshot does not fail", readErr)
		case readErr != nil:
			refused++
		case err != nil:
			stricter++
		}
	}
	if refused < 1000 {
		t.Errorf("%d of 4000 damaged snapshots were refused, want at least 1000", refused)
	}
	t.Logf("%d refused by both, %d by the check alone", refused, stricter)
}

func TestCheckSnapshot_KeyTwice(t *testing.T) {
	f := newFeed(t)
	f.do("SET onlykey value")
	whole := snapshotOf(t, f.m)
	// Write the record of the key twice, and add 1 to the number of objects.
	at := bytes.Index(whole, []byte("onlykey")) - 5
	end := len(whole) - 3
	data := append(bytes.Clone(whole[:end]), whole[at:end]...)
	data = append(data, whole[end:]...)
	data[len(data)-1]++
	binary.LittleEndian.PutUint32(data[snapshotHead:], uint32(len(data)-snapshotHead-8))
	data = resealBlocks(data)
	if _, err := fsm.ReadSnapshot(bytes.NewReader(data), command.NewTable()); !errors.Is(err, fsm.ErrFormat) {
		t.Fatalf("ReadSnapshot with a key twice: %v, want ErrFormat", err)
	}
	if _, err := fsm.CheckSnapshot(bytes.NewReader(data), command.NewTable()); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("CheckSnapshot with a key twice: %v, want ErrFormat", err)
	}
	if _, err := fsm.CheckSnapshot(&brokenReader{}, command.NewTable()); !errors.Is(err, errFull) {
		t.Errorf("check of a reader that fails: %v, want errFull", err)
	}
}

// BenchmarkCheckSnapshot reports the memory that CheckSnapshot, and for
// comparison ReadSnapshot, adds to the heap for a snapshot of a million keys.
func BenchmarkCheckSnapshot(b *testing.B) {
	f := newFeed(b)
	const keys = 1_000_000
	for i := 0; i < keys; i += 1000 {
		f.group.Reset(2, 1)
		for j := i; j < i+1000; j++ {
			f.add("SET", fmt.Sprintf("key:%d", j), fmt.Sprintf("value-of-one-hundred-bytes-%073d", j))
		}
		f.send()
	}
	data := snapshotOf(b, f.m)
	for _, check := range []struct {
		name string
		f    func(r io.Reader) error
	}{
		{"check", func(r io.Reader) error { _, err := fsm.CheckSnapshot(r, command.NewTable()); return err }},
		{"read", func(r io.Reader) error { _, err := fsm.ReadSnapshot(r, command.NewTable()); return err }},
	} {
		b.Run(check.name, func(b *testing.B) {
			for range b.N {
				runtime.GC()
				var before, now runtime.MemStats
				runtime.ReadMemStats(&before)
				stop, done := make(chan struct{}), make(chan struct{})
				peak := before.HeapAlloc
				go func() {
					defer close(done)
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-stop:
							return
						case <-tick.C:
							runtime.ReadMemStats(&now)
							peak = max(peak, now.HeapAlloc)
						}
					}
				}()
				if err := check.f(bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
				close(stop)
				<-done
				runtime.KeepAlive(f)
				b.ReportMetric(float64(before.HeapAlloc)/(1<<20), "MiB-before")
				b.ReportMetric(float64(peak-before.HeapAlloc)/(1<<20), "MiB-more")
				b.ReportMetric(float64(len(data))/(1<<20), "MiB-snapshot")
			}
		})
	}
}
