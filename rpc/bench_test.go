package rpc_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/rpc"
)

// BenchmarkStream_Throughput sends 64-byte frames one way over loopback TCP.
func BenchmarkStream_Throughput(b *testing.B) {
	from, to := listen(b, tcpNode("a")), listen(b, tcpNode("b"))
	streams := make(chan *rpc.Stream, 1)
	to.Handle(rpc.ServiceWrite, handOver(streams))
	ours := dial(b, from, to.Addr().String(), rpc.ServiceWrite, "b")
	theirs := <-streams
	payload := make([]byte, 64)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	b.ResetTimer()
	sent := make(chan error, 1)
	go func() {
		for range b.N {
			if err := ours.Send(1, payload); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range b.N {
		if _, _, err := theirs.Recv(); err != nil {
			b.Fatalf("recv: %v", err)
		}
	}
	if err := <-sent; err != nil {
		b.Fatalf("send: %v", err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// BenchmarkStream_RoundTrip sends a 64-byte frame and waits for its echo: what an idle stream costs in latency.
func BenchmarkStream_RoundTrip(b *testing.B) {
	from, to := listen(b, tcpNode("a")), listen(b, tcpNode("b"))
	to.Handle(rpc.ServiceWrite, echo)
	stream := dial(b, from, to.Addr().String(), rpc.ServiceWrite, "b")
	payload := make([]byte, 64)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := stream.Send(1, payload); err != nil {
			b.Fatalf("send: %v", err)
		}
		if _, _, err := stream.Recv(); err != nil {
			b.Fatalf("recv: %v", err)
		}
	}
}
