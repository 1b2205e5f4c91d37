package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
)

// TestShortReason checks that the reason in the status says why a request
// failed, but not which request.
func TestShortReason(t *testing.T) {
	for want, err := range map[string]error{
		"connection refused":         &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"no such host: n9":           &net.DNSError{Err: "no such host", Name: "n9"},
		"no answer within 1s":        context.DeadlineExceeded,
		"belongs to another cluster": &rpc.RefusedError{Addr: "n1:7379", Text: "belongs to another cluster"},
		"tls: failed to verify certificate: x509: certificate signed by unknown authority": &tls.CertificateVerificationError{
			Err: x509.UnknownAuthorityError{},
		},
	} {
		if got := shortReason(fmt.Errorf("dial admin at n1:7379: %w", err)); got != want {
			t.Errorf("shortReason returned %q, want %q", got, want)
		}
	}
}

// TestMemoryReader checks that the memory is measured again after memoryEvery, and
// that it counts as unknown if it cannot be measured.
func TestMemoryReader(t *testing.T) {
	var mr memoryReader
	measured, result, err := 0, uint64(100), error(nil)
	measure := func() (uint64, error) { measured++; return result, err }
	for _, step := range []struct {
		at       time.Duration
		result   uint64
		err      error
		want     uint64
		measured int
	}{
		{0, 100, nil, 100, 1},
		{memoryEvery - 1, 50, nil, 100, 1},
		{memoryEvery, 50, nil, 50, 2},
		{2*memoryEvery - 1, 50, errors.New("no file"), 50, 2},
		{2 * memoryEvery, 50, errors.New("no file"), 0, 3},
		{3 * memoryEvery, 70, nil, 70, 4},
	} {
		result, err = step.result, step.err
		if got := mr.read(step.at, measure); got != step.want || measured != step.measured {
			t.Errorf("at %v: read returned %d after %d measurements, want %d after %d", step.at, got, measured, step.want, step.measured)
		}
	}
}
