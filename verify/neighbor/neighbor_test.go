package neighbor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// limits contains the prefixes of the errors with which a node may answer a
// load, because of its limits or because the load is not logged in.
var limits = []string{"BUSY", "OOM", "WRONGPASS", "NOAUTH", "ERR script", "ERR too many", "ERR max number of clients"}

// TestLoads runs each load against a node for a short time. The node must
// understand the commands. If it refuses them as invalid, the load proves
// nothing. TestLoads also runs a victim and a bystander without a load.
func TestLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node")
	}
	dir := t.TempDir()
	program, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	login := load.Login{Password: "of-the-test"}
	c, err := process.New(process.Config{Program: program, Dir: dir, Nodes: 1, Password: login.Password})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	leader, err := c.Settled(ctx)
	if err != nil {
		t.Fatal(err)
	}
	to := neighbor.Target{Addr: leader.Clients, Login: login, Scale: 50, Prefix: "test:"}
	for _, l := range neighbor.All() {
		t.Run(l.Name, func(t *testing.T) {
			running, err := neighbor.Start(ctx, l, to)
			if err != nil {
				t.Fatal(err)
			}
			err = process.Poll(ctx, "an effect of the load", func() bool { return running.Effect().Rounds+running.Effect().Closed > 0 })
			effect := running.Stop()
			if err != nil {
				t.Fatal(err)
			}
			if effect.Error != "" && !startsWithOne(effect.Error, limits) {
				t.Errorf("the node answered %q", effect.Error)
			}
		})
	}
	if err := neighbor.Clean(ctx, to); err != nil {
		t.Fatal(err)
	}
	v, err := neighbor.NewVictim(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if times, err := v.Run(short); err != nil || len(times) == 0 {
		t.Errorf("the victim took %d locks: %v", len(times), err)
	}
	b, err := neighbor.NewBystander(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	also, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	others, err := b.Run(also)
	if err != nil || others.Login == 0 || others.Script == 0 || others.Message == 0 {
		t.Errorf("the bystander: %+v, %v", others, err)
	}
}

func startsWithOne(text string, words []string) bool {
	for _, w := range words {
		if strings.HasPrefix(text, w) {
			return true
		}
	}
	return false
}
