package rpc_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/rpc"
)

// BenchmarkStream_Throughput sends frames one way over loopback TCP.
func BenchmarkStream_Throughput(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, name := range []string{"plain", "secret"} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) { throughput(b, size, name == "secret") })
		}
	}
}

// benchNode returns the config of tcpNode, with a secret if keyed is true.
func benchNode(id string, keyed bool) rpc.Config {
	cfg := tcpNode(id)
	if keyed {
		cfg.Secret = secret(1)
	}
	return cfg
}

func throughput(b *testing.B, size int, keyed bool) {
	from, to := listen(b, benchNode("a", keyed)), listen(b, benchNode("b", keyed))
	streams := make(chan *rpc.Stream, 1)
	to.Handle(rpc.ServiceWrite, handOver(streams))
	ours := dial(b, from, to.Addr().String(), rpc.ServiceWrite, "b")
	theirs := <-streams
	payload := make([]byte, size)
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

// BenchmarkStream_RoundTrip sends a 64-byte frame and waits for its echo. It
// measures the latency of an idle stream.
func BenchmarkStream_RoundTrip(b *testing.B) {
	b.Run("plain", func(b *testing.B) { roundTrip(b, false) })
	b.Run("secret", func(b *testing.B) { roundTrip(b, true) })
}

// BenchmarkDial connects, completes the handshake and closes.
func BenchmarkDial(b *testing.B) {
	for _, name := range []string{"plain", "secret"} {
		b.Run(name, func(b *testing.B) {
			from, to := listen(b, benchNode("a", name == "secret")), listen(b, benchNode("b", name == "secret"))
			to.Handle(rpc.ServiceWrite, echo)
			for b.Loop() {
				s, err := from.Dial(b.Context(), to.Addr().String(), rpc.ServiceWrite, "b")
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

func roundTrip(b *testing.B, keyed bool) {
	from, to := listen(b, benchNode("a", keyed)), listen(b, benchNode("b", keyed))
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
