package resp_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
)

// BenchmarkServer_Pipeline measures a pipeline of one kind of command, from
// the client's socket through the command table and back. The cluster behind
// the port is a state machine in the same process. Allocations include those of
// the state machine.
func BenchmarkServer_Pipeline(b *testing.B) {
	const commands = 64
	for _, bench := range []struct{ name, command, reply string }{
		{"data", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$-1\r\n"},
		{"connection", "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
		{"subcommand", "*2\r\n$6\r\nCLIENT\r\n$7\r\nGETNAME\r\n", "$-1\r\n"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			nc, err := net.Dial("tcp", serve(b, newFake(b)).Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			pipeline := []byte(strings.Repeat(bench.command, commands))
			want := []byte(strings.Repeat(bench.reply, commands))
			got := make([]byte, len(want))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nc.Write(pipeline); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(nc, got); err != nil {
					b.Fatal(err)
				}
			}
			if !bytes.Equal(got, want) {
				b.Fatalf("replies: %q", got)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*commands), "ns/command")
		})
	}
}
