package transport

import (
	"context"

	"github.com/hashicorp/raft"
)

// Silent is the transport of a node that is settling when it starts: its log
// ends before the change that admitted it. Silent refuses pre-votes until the
// node has settled.
//
// raft does not ask the store before it grants a pre-vote. With the pre-votes
// of nodes that know no leader, a candidate could raise the term again and
// again, and so depose the leader for which this node waits.
type Silent struct {
	*Transport
	settling func() bool
	heard    chan raft.RPC
}

// Silent returns a transport that refuses pre-votes while settling reports
// true. The caller must call Run.
func (t *Transport) Silent(settling func() bool) *Silent {
	return &Silent{Transport: t, settling: settling, heard: make(chan raft.RPC)}
}

// Consumer implements raft.Transport.
func (t *Silent) Consumer() <-chan raft.RPC { return t.heard }

// Run passes requests to raft until ctx ends. ctx must end when the node stops:
// until then, each request passes through Run, even if the node has settled.
func (t *Silent) Run(ctx context.Context) {
	for {
		var r raft.RPC
		select {
		case r = <-t.Transport.Consumer():
		case <-ctx.Done():
			return
		}
		if _, pre := r.Command.(*raft.RequestPreVoteRequest); pre && t.settling() {
			r.Respond(&raft.RequestPreVoteResponse{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			}, nil)
			continue
		}
		select {
		case t.heard <- r:
		case <-ctx.Done():
			return
		}
	}
}
