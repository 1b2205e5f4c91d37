package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/rpc"
)

func transport(t *testing.T, m *rpc.Mux) *raft.NetworkTransport {
	t.Helper()
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: m.RaftLayer(), MaxPool: 3, MaxRPCsInFlight: 1, Timeout: 3 * time.Second, Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(func() {
		if err := trans.Close(); err != nil {
			t.Errorf("close transport: %v", err)
		}
	})
	return trans
}

// serveRaft answers AppendEntries with the index of the request's last entry.
// Its answer to InstallSnapshot says whether as many bytes arrived as the
// request announced.
func serveRaft(t *testing.T, trans *raft.NetworkTransport) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case call := <-trans.Consumer():
				switch req := call.Command.(type) {
				case *raft.AppendEntriesRequest:
					last := req.Entries[len(req.Entries)-1]
					call.Respond(&raft.AppendEntriesResponse{Term: req.Term, LastLog: last.Index, Success: string(last.Data) == "payload"}, nil)
				case *raft.InstallSnapshotRequest:
					n, err := io.Copy(io.Discard, call.Reader)
					call.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: err == nil && n == req.Size}, nil)
				default:
					call.Respond(nil, errors.New("unexpected"))
				}
			case <-done:
				return
			}
		}
	}()
}

func appendEntries(trans *raft.NetworkTransport, addr raft.ServerAddress) (raft.AppendEntriesResponse, error) {
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, Addr: []byte(trans.LocalAddr())},
		Term:      4, PrevLogEntry: 11, PrevLogTerm: 3, LeaderCommitIndex: 10,
		Entries: []*raft.Log{{Index: 12, Term: 4, Type: raft.LogCommand, Data: []byte("payload")}},
	}
	var resp raft.AppendEntriesResponse
	err := trans.AppendEntries("b", addr, req, &resp)
	return resp, err
}

func TestRaftLayer_NetworkTransport(t *testing.T) {
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	transA, transB := transport(t, a), transport(t, b)
	serveRaft(t, transB)
	if got, want := string(transA.LocalAddr()), a.Addr().String(); got != want {
		t.Errorf("local address: got %q, want %q", got, want)
	}
	for range 3 { // the second and third use the pooled connection
		resp, err := appendEntries(transA, transB.LocalAddr())
		if err != nil {
			t.Fatalf("append entries: %v", err)
		}
		if resp.Term != 4 || resp.LastLog != 12 || !resp.Success {
			t.Errorf("got %+v, want term 4, last log 12, success", resp)
		}
	}
	snapshot := bytes.Repeat([]byte("snap"), 1<<18)
	var resp raft.InstallSnapshotResponse
	err := transA.InstallSnapshot("b", transB.LocalAddr(), &raft.InstallSnapshotRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, Term: 5, Size: int64(len(snapshot)),
	}, &resp, bytes.NewReader(snapshot))
	if err != nil || !resp.Success {
		t.Errorf("install snapshot: got %+v, %v, want success", resp, err)
	}
}

func TestRaftLayer_BesideFramedStreams(t *testing.T) {
	a, b := listen(t, tcpNode("a")), listen(t, tcpNode("b"))
	b.Handle(rpc.ServiceWrite, echo)
	transA, transB := transport(t, a), transport(t, b)
	serveRaft(t, transB)
	stream := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")
	mustSend(t, stream, 1, "framed")
	if _, err := appendEntries(transA, transB.LocalAddr()); err != nil {
		t.Errorf("append entries: %v", err)
	}
	if _, got := mustRecv(t, stream); got != "framed" {
		t.Errorf("got %q, want %q", got, "framed")
	}
	// When raft stops, the streams continue.
	if err := transB.Close(); err != nil {
		t.Errorf("close transport: %v", err)
	}
	mustSend(t, stream, 1, "still")
	if _, got := mustRecv(t, stream); got != "still" {
		t.Errorf("got %q, want %q", got, "still")
	}
}

func TestRaftLayer_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		layerA, layerB := a.RaftLayer(), b.RaftLayer()
		if got := b.RaftLayer(); got != layerB {
			t.Error("RaftLayer returned a second layer while the first layer is open")
		}
		dialled, err := layerA.Dial("b:1", time.Second)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		accepted, err := layerB.Accept()
		if err != nil {
			t.Fatalf("accept: %v", err)
		}
		if _, err := layerB.Dial("a:1", time.Second); err != nil {
			t.Fatalf("dial back: %v", err)
		}
		errs := make(chan error, 3)
		go func() { _, err := layerB.Accept(); errs <- err }()
		go func() { _, err := accepted.Read(make([]byte, 1)); errs <- err }()
		go func() { _, err := dialled.Read(make([]byte, 1)); errs <- err }()
		synctest.Wait()

		for range 2 {
			if err := layerB.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		for range 3 {
			if err := <-errs; err == nil {
				t.Error("a call outlived the layer without an error")
			}
		}
		var refused *rpc.RefusedError
		if _, err := layerA.Dial("b:1", time.Second); !errors.As(err, &refused) || refused.Reason != rpc.ReasonNoService {
			t.Errorf("dial a closed layer: got %v, want ReasonNoService", err)
		}
		if _, err := layerB.Dial("a:1", time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial from a closed layer: got %v, want %v", err, net.ErrClosed)
		}

		again := b.RaftLayer() // raft may be started again on the same port
		if _, err := layerA.Dial("b:1", time.Second); err != nil {
			t.Fatalf("dial the new layer: %v", err)
		}
		if _, err := again.Accept(); err != nil {
			t.Errorf("accept on the new layer: %v", err)
		}
	})
}

func TestRaftLayer_ConnectionNobodyAcceptsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		b.RaftLayer()
		c, err := a.RaftLayer().Dial("b:1", time.Second)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		begin := time.Now()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %v, want %v", err, io.EOF)
		}
		if got, want := time.Since(begin), 5*time.Second; got != want {
			t.Errorf("dropped after %v, want %v", got, want)
		}
	})
}

// TestRaftLayer_RaftPeer checks that raft does not talk to a node that has
// taken over the address of another node.
func TestRaftLayer_RaftPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		cfg := network.node("a")
		expected := "b"
		cfg.RaftPeer = func(addr string) string {
			if got, want := addr, "b:1"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			return expected
		}
		a, b := listen(t, cfg), listen(t, network.node("b"))
		b.RaftLayer()
		if _, err := a.RaftLayer().Dial("b:1", time.Second); err != nil {
			t.Errorf("right node: %v", err)
		}
		expected = "c"
		_, err := a.RaftLayer().Dial("b:1", time.Second)
		var refused *rpc.RefusedError
		if !errors.As(err, &refused) || refused.Reason != rpc.ReasonWrongNode || !strings.Contains(refused.Text, `"b", not "c"`) {
			t.Errorf("wrong node: got %v, want ReasonWrongNode", err)
		}
	})
}
