package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// clusterAdapter adapts a node to resp.Cluster and topology.Source.
type clusterAdapter struct{ *cluster.Node }

// NewExecutor implements resp.Cluster.
func (a clusterAdapter) NewExecutor() resp.Executor { return a.NewSession() }

// Listen implements resp.Cluster.
func (a clusterAdapter) Listen(l resp.Listener) { a.Node.Listen(l) }

// State implements resp.Cluster.
func (a clusterAdapter) State() resp.State {
	st := a.Status()
	s := resp.State{
		NodeID: st.ID, ClusterID: st.ClusterID, Role: st.Role, Leader: st.Leader, Version: st.Version,
		Term: st.Term, Commit: st.Commit, Applied: st.Applied, Ready: st.Ready, LogBytes: st.LogBytes,
		DiskFree: st.DiskFree, DiskTotal: st.DiskTotal, DiskReserve: st.DiskReserve, WritesRefused: a.WritesRefused(),
		Dataset: st.DatasetBytes, MaxMemory: st.MaxMemory,
	}
	for _, c := range a.Acknowledging() {
		host, port := hostPort(c.ClientAddr)
		if port == "" { // the address is not known yet, but WAIT must count the node
			host, port = "0.0.0.0", "0"
		}
		s.Replicas = append(s.Replicas, resp.Replica{Host: host, Port: port})
	}
	a.View(func(m *fsm.Machine) {
		for db := range s.Keys {
			s.Keys[db] = resp.DBState{Keys: m.DBSize(db), Volatile: m.VolatileIn(db)}
		}
		s.Expired, s.Operations = m.Stats().Expired, m.Stats().Ops
		s.Scripts, s.ScriptBytes = m.Scripts()
		s.Libraries, s.Functions, s.LibraryBytes = m.Libraries()
	})
	return s
}

// Admin implements resp.Cluster.
func (a clusterAdapter) Admin(ctx context.Context, args []string) (string, error) {
	switch op := strings.ToLower(args[0]); {
	case op == "status" && len(args) == 2 && strings.EqualFold(args[1], "local"):
		b, err := json.Marshal([]cluster.NodeStatus{a.Status()})
		return string(b), err
	case op == "status" && len(args) == 1:
		b, err := json.Marshal(a.ClusterStatus(ctx))
		return string(b), err
	case op == "add" && len(args) == 3:
		return a.Add(ctx, args[1], args[2], false)
	case op == "add" && len(args) == 4 && strings.EqualFold(args[3], "learner"):
		return a.Add(ctx, args[1], args[2], true)
	case op == "promote" && len(args) == 2:
		return a.Promote(ctx, args[1])
	case op == "remove" && len(args) == 2:
		return a.Remove(ctx, args[1], false)
	case op == "remove" && len(args) == 3 && strings.EqualFold(args[2], "force"):
		return a.Remove(ctx, args[1], true)
	case op == "transfer" && len(args) == 1:
		return a.Transfer(ctx, "")
	case op == "transfer" && len(args) == 2:
		return a.Transfer(ctx, args[1])
	case op == "snapshot" && len(args) == 1:
		return "OK", a.Snapshot()
	case op == "backup" && len(args) > 1:
		return a.backup(ctx, args[1:])
	case op == "restore" && len(args) > 1:
		return a.restore(ctx, args[1:])
	}
	return "", unknownAdmin(args[0])
}

func unknownAdmin(op string) error {
	return fmt.Errorf("HOLDFAST %s: unknown subcommand or wrong number of arguments", strings.ToUpper(op))
}

// maxBackupPiece bounds the bytes of a backup in one reply.
const maxBackupPiece = 4 << 20

// backup executes a step of "holdfast backup".
func (a clusterAdapter) backup(ctx context.Context, args []string) (string, error) {
	switch op := strings.ToLower(args[0]); {
	case op == "begin" && len(args) == 1:
		info, err := a.BeginBackup(ctx)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(info)
		return string(b), err
	case op == "read" && len(args) == 3:
		n, err := strconv.Atoi(args[2])
		if err != nil || n < 1 || n > maxBackupPiece {
			return "", fmt.Errorf("number of bytes to read is %q, want 1 to %d", args[2], maxBackupPiece)
		}
		b, err := a.ReadBackup(args[1], n)
		return string(b), err
	case op == "end" && len(args) == 2:
		a.CloseBackup(args[1])
		return "OK", nil
	}
	return "", unknownAdmin("backup " + args[0])
}

// restoreArgs contains, for each step of a restore, the number of arguments. The
// name of the step is one of them.
var restoreArgs = map[string]int{"begin": 4, "data": 4, "apply": 5, "drop": 2}

// restore executes a step of "holdfast restore".
func (a clusterAdapter) restore(ctx context.Context, args []string) (string, error) {
	op := strings.ToLower(args[0])
	if op == "check" && len(args) == 1 {
		return "OK", a.CheckEmpty(ctx)
	}
	if restoreArgs[op] != len(args) {
		return "", unknownAdmin("restore " + args[0])
	}
	words := [][]byte{[]byte(op)}
	for _, arg := range args[1:] {
		words = append(words, []byte(arg))
	}
	return "OK", a.Restore(ctx, words)
}
