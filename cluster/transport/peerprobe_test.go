package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestPeerProbe(t *testing.T) {
	lost := errors.New("connection refused")
	dead := func() error { return lost }
	for _, how := range []struct {
		name string
		then func(p *peerProbe, leads, there *atomic.Bool, cancel func())
		want error // error of the second request; nil if the request is made
	}{
		{"heartbeat of raft succeeds", func(p *peerProbe, _, _ *atomic.Bool, _ func()) {
			p.heard("n2", lost)
			p.heard("n3", nil)
			p.heard("n2", nil)
		}, nil},
		{"another leader", func(_ *peerProbe, leads, _ *atomic.Bool, _ func()) { leads.Store(false); <-time.After(peerProbeEvery) }, errNotReplicating},
		{"node closes", func(_ *peerProbe, _, _ *atomic.Bool, cancel func()) { cancel() }, context.Canceled},
		{"heartbeat of peerProbe succeeds", func(_ *peerProbe, _, there *atomic.Bool, _ func()) { there.Store(true) }, nil},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var leads, there atomic.Bool
				leads.Store(true)
				p := newPeerProbe(ctx, func(id raft.ServerID, term uint64) bool { return id == "n2" && term == 7 && leads.Load() })
				if err := p.send("n2", 7, dead, func() error { return lost }); !errors.Is(err, lost) {
					t.Errorf("first request: %v, want the error of the request", err)
				}
				probe := func() error {
					if there.Load() {
						return nil
					}
					return lost
				}
				sent := make(chan error, 1)
				requests := 0
				go func() { sent <- p.send("n2", 7, probe, func() error { requests++; return nil }) }()
				<-time.After(time.Hour)
				if len(sent) > 0 || requests > 0 {
					t.Error("send ended or made a request while the member was away")
				}
				if err := p.send("n3", 7, dead, func() error { return nil }); err != nil {
					t.Errorf("request to another member: %v, want success", err)
				}
				how.then(p, &leads, &there, cancel)
				if err := <-sent; !errors.Is(err, how.want) || (requests == 1) != (how.want == nil) {
					t.Errorf("error %v after %d requests, want error %v", err, requests, how.want)
				}
			})
		})
	}
}
