package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// Status asks a node for the status of all nodes.
func (o *LoginFlags) Status(ctx context.Context, addr string) ([]cluster.NodeStatus, error) {
	login, err := o.Login()
	if err != nil {
		return nil, err
	}
	nodes, err := Status(ctx, addr, login)
	if err != nil {
		return nil, fmt.Errorf("no status from %s: %w", addr, err)
	}
	return nodes, nil
}

// Status asks a node for the status of all nodes.
func Status(ctx context.Context, addr string, login load.Login) ([]cluster.NodeStatus, error) {
	c, err := Dial(ctx, addr, login)
	if err != nil {
		return nil, err
	}
	reply, err := c.Do(ctx, "HOLDFAST", "STATUS")
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	var nodes []cluster.NodeStatus
	if err := json.Unmarshal([]byte(reply), &nodes); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return nodes, nil
}

// LeaderOf returns the id of the leader with the highest term, or "" if there
// is none.
func LeaderOf(nodes []cluster.NodeStatus) string { return verdict.LeaderOf(nodes) }
