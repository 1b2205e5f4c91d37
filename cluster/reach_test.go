package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestReach(t *testing.T) {
	lost := errors.New("connection refused")
	dead := func() error { return lost }
	for _, how := range []struct {
		name string
		then func(r *reach, leads, there *atomic.Bool, cancel func())
		want error // of the second request, which is made if it is nil
	}{
		{"heard of again", func(r *reach, _, _ *atomic.Bool, _ func()) {
			r.heard("n2", lost)
			r.heard("n3", nil)
			r.heard("n2", nil)
		}, nil},
		{"another leader", func(_ *reach, leads, _ *atomic.Bool, _ func()) { leads.Store(false); <-time.After(feedCheck) }, errNotFed},
		{"node closes", func(_ *reach, _, _ *atomic.Bool, cancel func()) { cancel() }, context.Canceled},
		{"heartbeat of its own", func(_ *reach, _, there *atomic.Bool, _ func()) { there.Store(true) }, nil},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var leads, there atomic.Bool
				leads.Store(true)
				r := newReach(ctx, func(id raft.ServerID, term uint64) bool { return id == "n2" && term == 7 && leads.Load() })
				if err := r.feed("n2", 7, dead, func() error { return lost }); !errors.Is(err, lost) {
					t.Errorf("first request: %v", err)
				}
				probe := func() error {
					if there.Load() {
						return nil
					}
					return lost
				}
				sent := make(chan error, 1)
				requests := 0
				go func() { sent <- r.feed("n2", 7, probe, func() error { requests++; return nil }) }()
				<-time.After(time.Hour)
				if len(sent) > 0 || requests > 0 {
					t.Error("a request was sent to a member that is away")
				}
				if err := r.feed("n3", 7, dead, func() error { return nil }); err != nil {
					t.Errorf("another member: %v", err)
				}
				how.then(r, &leads, &there, cancel)
				if err := <-sent; !errors.Is(err, how.want) || (requests == 1) != (how.want == nil) {
					t.Errorf("got %v after %d requests, want %v", err, requests, how.want)
				}
			})
		})
	}
}
