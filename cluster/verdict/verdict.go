// Package verdict summarizes the status of all nodes in sentences: whether the
// cluster is healthy, how many more failures it tolerates, what is wrong, and
// what an operator should do.
package verdict

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/holdfast-kv/holdfast/cluster/health"
)

// States of a cluster.
const (
	Healthy  = "healthy"
	Degraded = "degraded"  // there is a leader, and something needs attention
	NoLeader = "no_leader" // the asked node reaches no leader
)

// Verdict describes the cluster as a whole, according to the status of all nodes.
type Verdict struct {
	State    string `json:"state"`    // Healthy, Degraded or NoLeader
	Sentence string `json:"sentence"` // the verdict in one sentence
	Leader   string `json:"leader,omitempty"`
	// Voters, Majority and Reachable are numbers of voters. Reachable counts
	// the voters that answer and accept entries.
	Voters    int `json:"voters"`
	Majority  int `json:"majority"`
	Reachable int `json:"reachable"`
	// Tolerates is the number of further voters that may fail while the cluster
	// continues to accept writes. A voter that is starting or far behind does
	// not count: if another voter failed, writes would have to wait for the
	// voter that is starting or far behind, and it may never catch up.
	Tolerates int       `json:"tolerates"`
	Problems  []Problem `json:"problems"` // reasons why the cluster is not healthy
	Advice    []string  `json:"advice"`
}

// Problem is one reason why a cluster is not healthy.
type Problem struct {
	Node   string `json:"node"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"` // what an operator should do
}

// MaxHealthyLag is the number of entries that a member may be behind the leader
// without the cluster counting as degraded. A busy cluster commits several
// thousand entries a second, and a member reports its state up to a second
// late.
const MaxHealthyLag = 20_000

// Assess returns the verdict about a cluster. nodes contains the status of all
// nodes, as one node reports it. So the verdict depends on the nodes that this
// node reaches.
func Assess(nodes []health.NodeStatus) Verdict {
	v := Verdict{Leader: LeaderOf(nodes), Problems: []Problem{}, Advice: []string{}}
	current := 0 // voters that accept entries, and are neither starting nor far behind
	for _, n := range nodes {
		if !n.Voter || n.Role == "removed" { // the status may come from a removed node, which still lists itself
			continue
		}
		v.Voters++
		if n.Reachable && (!n.DiskFull || n.Role == "leader") {
			v.Reachable++
			if n.Role != "starting" && n.Lag <= MaxHealthyLag {
				current++
			}
		}
	}
	v.Majority = v.Voters/2 + 1
	v.Tolerates = max(current-v.Majority, 0)
	for _, n := range nodes {
		v.assessReach(n, nodes)
		v.assessLinks(n, nodes)
		v.assessRoom(n)
		if n.SnapshotError != "" {
			v.problem(n, "see the log of the node; without snapshots its log grows until the disk is full",
				"%s: %s", n.ID, n.SnapshotError)
		}
		if n.FeaturesBlocked != "" {
			v.Advice = append(v.Advice, "the feature version cannot be raised: "+n.FeaturesBlocked)
		}
	}
	for _, n := range nodes {
		if n.Quarantine > 0 {
			left := time.Duration(n.Quarantine * float64(time.Second)).Round(time.Second)
			v.Advice = append(v.Advice, fmt.Sprintf("quarantine: no lock is granted for another %v, because the data "+
				"was restored", left))
			break
		}
	}
	if v.Leader != "" && v.Voters > 0 && v.Voters%2 == 0 {
		v.Advice = append(v.Advice, fmt.Sprintf("%d voters tolerate no more failures than %d: "+
			"add a node, or remove one", v.Voters, v.Voters-1))
	}
	v.conclude(nodes)
	return v
}

// assessReach adds a problem if a node is unreachable, removed, starting or far
// behind.
func (v *Verdict) assessReach(n health.NodeStatus, nodes []health.NodeStatus) {
	switch witness := reachedBy(n.ID, nodes); {
	case !n.Reachable && witness != "":
		v.problem(n, "the process of "+n.ID+" runs, because "+witness+" gets answers from it: check the network to "+
			n.PeerAddr, "%s is unreachable: %s", n.ID, n.Detail)
	case !n.Reachable:
		// A change of the members needs a majority of the voters.
		lost := "if the node is lost, remove it (holdfast member remove) and add another"
		if v.Reachable < v.Majority {
			lost = "if a majority of the disks is lost for good, make a new cluster (holdfast recover)"
		}
		v.problem(n, "check that the process of "+n.ID+" runs and that the network to "+n.PeerAddr+" works; "+lost,
			"%s is unreachable: %s", n.ID, n.Detail)
	case n.Role == "removed":
		v.problem(n, "stop the process; to add the node again, delete its data directory first",
			"%s was removed from the cluster", n.ID)
	case n.Role == "starting":
		v.problem(n, "wait, or start the nodes that it waits for", "%s is starting: %s", n.ID, n.Detail)
	case n.Lag > MaxHealthyLag:
		v.problem(n, "compare its disk and its network with those of the other nodes", "%s is %d entries behind",
			n.ID, n.Lag)
	}
}

// reachedBy returns the id of a node that gets answers from the node with the
// given id. It returns "" if there is none.
func reachedBy(id string, nodes []health.NodeStatus) string {
	for _, n := range nodes {
		for _, l := range n.Links {
			if n.Reachable && l.To == id && l.Alive {
				return n.ID
			}
		}
	}
	return ""
}

const (
	// maxSilence is the time without an answer from one member to another after
	// which the cluster counts as degraded. Members ask each other once a
	// second.
	maxSilence = 3.0 // seconds
	// maxRoundTrip is the shortest round trip between two members at which the
	// verdict advises to place the voters closer together.
	maxRoundTrip = 100.0 // milliseconds
)

// assessLinks adds problems and advice about the links from a node to other
// nodes that answer the asked node.
func (v *Verdict) assessLinks(n health.NodeStatus, nodes []health.NodeStatus) {
	if !n.Reachable || n.Role == "removed" {
		return
	}
	for _, l := range n.Links {
		for _, to := range nodes {
			switch {
			case to.ID != l.To || !to.Reachable || to.Role == "removed":
			case !l.Alive && l.Silent >= maxSilence:
				v.problem(n, "check the network from "+n.ID+" to "+to.PeerAddr, "%s gets no answers from %s",
					n.ID, l.To)
			case l.RoundTrip >= maxRoundTrip && n.ID < l.To:
				v.Advice = append(v.Advice, fmt.Sprintf("a round trip between %s and %s takes %.0f ms, and writes "+
					"wait for a majority: place the voters closer together", n.ID, l.To, l.RoundTrip))
			}
		}
	}
}

// assessRoom adds problems and advice about the disk and the memory of a node.
func (v *Verdict) assessRoom(n health.NodeStatus) {
	size := func(n int64) string { return units.BytesSize(float64(n)) }
	const freeDisk = "free space on the disk of the data directory, or move the node to a larger disk"
	switch {
	case n.DiskFull && n.Role != "leader":
		v.problem(n, freeDisk, "%s has only %s of disk space left and accepts no entries", n.ID, size(n.DiskFree))
	case n.DiskLow && n.DiskFree >= n.DiskReserve:
		v.problem(n, freeDisk, "%s has %s of disk space left and needs %s before it counts as having room", n.ID,
			size(n.DiskFree), size(n.Enough()))
	case n.DiskLow:
		v.problem(n, freeDisk, "%s has %s of disk space left, less than its reserve of %s", n.ID,
			size(n.DiskFree), size(n.DiskReserve))
	}
	if n.WritesRefused != "" {
		v.problem(n, "free disk space on the leader and on a majority of the nodes",
			"commands that add data are refused")
	}
	if n.MemoryRefused {
		v.problem(n, "delete keys, or raise the limit with CONFIG SET maxmemory",
			"commands that add data are refused, because the data set takes %s and maxmemory is %s",
			size(n.DatasetBytes), size(n.MaxMemory))
	} else if n.Role == "leader" && n.MaxMemory > 0 && n.DatasetBytes > n.MaxMemory/10*9 {
		v.Advice = append(v.Advice, fmt.Sprintf("the data set takes %s, and above %s (maxmemory) commands that "+
			"add data are refused", size(n.DatasetBytes), size(n.MaxMemory)))
	}
}

func (v *Verdict) problem(n health.NodeStatus, remedy, format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), ": ")
	v.Problems = append(v.Problems, Problem{Node: n.ID, Text: text, Remedy: remedy})
}

// conclude sets the state and the sentence, and may add advice.
func (v *Verdict) conclude(nodes []health.NodeStatus) {
	tolerance := fmt.Sprintf("tolerates %d more failures", v.Tolerates)
	switch v.Tolerates {
	case 0:
		tolerance = "tolerates no more failures"
	case 1:
		tolerance = "tolerates 1 more failure"
	}
	answering, witnessed := votersThatAnswer(nodes)
	switch {
	case v.Reachable >= v.Majority:
	case answering < v.Majority && v.Reachable+witnessed >= v.Majority:
		tolerance = fmt.Sprintf("this node reaches only %d of %d voters", answering, v.Voters)
	default: // if this node leads, it steps down when it notices the lost majority
		tolerance = fmt.Sprintf("writes through this node wait, because only %d of %d voters are known to accept "+
			"entries and %d are needed", v.Reachable, v.Voters, v.Majority)
	}
	switch hidden := leaderOutOfReach(nodes); {
	case v.Leader != "":
	case hidden != "":
		v.State = NoLeader
		v.Sentence = fmt.Sprintf("No leader in reach: other nodes follow %s, which this node does not reach; writes "+
			"through this node wait", hidden)
		return
	case answering < v.Majority:
		v.State = NoLeader
		v.Sentence = fmt.Sprintf("No leader in reach: writes through this node wait until it reaches a majority of "+
			"the voters (%d of %d voters are reachable, %d are needed)", answering, v.Voters, v.Majority)
		v.Advice = append(v.Advice, "ask other nodes too: voters that reach each other may have a leader")
		return
	default:
		v.State = NoLeader
		v.Sentence = fmt.Sprintf("No leader: writes wait until the voters have elected one (%d of %d voters accept "+
			"entries, %d are needed)", v.Reachable, v.Voters, v.Majority)
		return
	}
	if len(v.Problems) > 0 {
		texts := make([]string, len(v.Problems))
		for i, p := range v.Problems {
			texts[i] = p.Text
		}
		v.State, v.Sentence = Degraded, fmt.Sprintf("Degraded: %s; %s", strings.Join(texts, "; "), tolerance)
		return
	}
	v.State, v.Sentence = Healthy, "Healthy: "+tolerance
}

// votersThatAnswer returns how many voters answer the asked node, and how many
// of the other voters answer another node.
func votersThatAnswer(nodes []health.NodeStatus) (answering, witnessed int) {
	for _, n := range nodes {
		switch {
		case !n.Voter || n.Role == "removed":
		case n.Reachable:
			answering++
		case reachedBy(n.ID, nodes) != "":
			witnessed++
		}
	}
	return answering, witnessed
}

// leaderOutOfReach returns the id of a leader that does not answer the asked
// node, or "" if there is none. It is the leader of the reachable follower with
// the highest term. It counts only if some node gets answers from it.
func leaderOutOfReach(nodes []health.NodeStatus) string {
	leader, highest := "", uint64(0)
	for _, n := range nodes {
		if n.Reachable && n.Role == "follower" && n.Leader != "" && n.Term >= highest {
			leader, highest = n.Leader, n.Term
		}
	}
	for _, n := range nodes {
		if n.ID == leader && !n.Reachable && reachedBy(leader, nodes) != "" {
			return leader
		}
	}
	return ""
}

// LeaderOf returns the id of the leader with the highest term, or "" if there
// is none. A deposed leader that still believes that it leads has a lower term.
func LeaderOf(nodes []health.NodeStatus) string {
	leader, highest := "", uint64(0)
	for _, n := range nodes {
		if n.Role == "leader" && n.Term >= highest {
			leader, highest = n.ID, n.Term
		}
	}
	return leader
}
