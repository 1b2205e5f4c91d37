package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// verdict is what the status of all nodes says about the cluster as a whole.
type verdict struct {
	// numbers of voters; reachable are those that answer and accept entries, and
	// current are those of them that are not far behind the leader
	voters, majority, reachable, current int
	leader                               string
	problems                             []string // why the cluster is degraded
	advice                               []string
}

// maxHealthyLag is the number of entries that a member may be behind the leader
// without the cluster counting as degraded. A busy cluster commits several
// thousand entries a second, and a member reports its state up to a second
// late.
const maxHealthyLag = 20_000

// assess returns the verdict about a cluster.
func assess(nodes []cluster.NodeStatus) verdict {
	v := verdict{leader: client.LeaderOf(nodes)}
	for _, n := range nodes {
		voter := n.Voter && n.Role != "removed" // a removed node may have been asked, which lists itself and others
		if voter {
			v.voters++
		}
		if voter && n.Reachable && (!n.DiskFull || n.Role == "leader") {
			v.reachable++
			if n.Role != "starting" && n.Lag <= maxHealthyLag {
				v.current++
			}
		}
		switch {
		case !n.Reachable:
			v.problem("%s is unreachable: %s", n.ID, n.Detail)
		case n.Role == "removed":
			v.problem("%s was removed from the cluster", n.ID)
		case n.Role == "starting":
			v.problem("%s is starting: %s", n.ID, n.Detail)
		case n.Lag > maxHealthyLag:
			v.problem("%s is %d entries behind", n.ID, n.Lag)
		}
		switch {
		case n.DiskFull && n.Role != "leader":
			v.problem("%s has only %s of disk space left and accepts no entries", n.ID,
				units.BytesSize(float64(n.DiskFree)))
		case n.DiskLow:
			v.problem("%s has %s of disk space left, less than its reserve of %s", n.ID,
				units.BytesSize(float64(n.DiskFree)), units.BytesSize(float64(n.DiskReserve)))
		}
		if n.WritesRefused != "" {
			v.problem("commands that add data are refused")
		}
		if n.MemoryRefused {
			v.problem("commands that add data are refused, because the data set takes %s and maxmemory is %s",
				units.BytesSize(float64(n.DatasetBytes)), units.BytesSize(float64(n.MaxMemory)))
		} else if n.Role == "leader" && n.MaxMemory > 0 && n.DatasetBytes > n.MaxMemory/10*9 {
			v.advice = append(v.advice, fmt.Sprintf("the data set takes %s, and above %s (maxmemory) commands that "+
				"add data are refused",
				units.BytesSize(float64(n.DatasetBytes)), units.BytesSize(float64(n.MaxMemory))))
		}
		if n.SnapshotError != "" {
			v.problem("%s: %s", n.ID, n.SnapshotError)
		}
		if n.FeaturesBlocked != "" {
			v.advice = append(v.advice, "the feature version cannot be raised: "+n.FeaturesBlocked)
		}
	}
	for _, n := range nodes {
		if n.Quarantine > 0 {
			left := time.Duration(n.Quarantine * float64(time.Second)).Round(time.Second)
			v.advice = append(v.advice, fmt.Sprintf("quarantine: no lock is granted for another %v, because the data "+
				"was restored", left))
			break
		}
	}
	v.majority = v.voters/2 + 1
	if v.leader != "" && v.voters > 0 && v.voters%2 == 0 {
		v.advice = append(v.advice, fmt.Sprintf("%d voters tolerate no more failures than %d: "+
			"add a node, or remove one", v.voters, v.voters-1))
	}
	return v
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, strings.TrimSuffix(fmt.Sprintf(format, args...), ": "))
}

// tolerates is the number of further voters that may fail while the cluster
// continues to accept writes. A voter that is far behind does not count: if
// another one failed, writes would wait until it has caught up, and a voter that
// cannot catch up would never take that one's place.
func (v *verdict) tolerates() int { return max(v.current-v.majority, 0) }

// code is the exit code of status.
func (v *verdict) code() terminal.ExitCode {
	switch {
	case v.leader == "":
		return exitNoLeader
	case len(v.problems) > 0:
		return exitDegraded
	}
	return 0
}

// headline is the verdict in one sentence.
func (v *verdict) headline() string {
	switch v.code() {
	case exitNoLeader:
		return fmt.Sprintf("No leader: writes wait until a majority of the voters is up and connected "+
			"(%d of %d voters are reachable, %d are needed)", v.reachable, v.voters, v.majority)
	case exitDegraded:
		return fmt.Sprintf("Degraded: %s; %s", strings.Join(v.problems, "; "), v.tolerance())
	}
	return "Healthy: " + v.tolerance()
}

func (v *verdict) tolerance() string {
	switch n := v.tolerates(); n {
	case 0:
		return "tolerates no more failures"
	case 1:
		return "tolerates 1 more failure"
	default:
		return fmt.Sprintf("tolerates %d more failures", n)
	}
}
