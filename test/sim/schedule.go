package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Schedule contains every random choice of a history that can be made in
// advance. The same seed always gives the same schedule. The Go scheduler
// chooses the order in which ready goroutines run, so a second history from the
// same schedule is similar, but not identical.
type Schedule struct {
	Seed    uint64        `json:"seed"`
	Nodes   int           `json:"nodes"`
	Length  time.Duration `json:"length_ns"` // in virtual time, without the recovery
	Clients int           `json:"clients"`
	// Think is how long a client waits between two commands on average; 0
	// means the value of the constant busy.
	Think time.Duration `json:"think_ns,omitempty"`
	// Sluggish contains, for each node with slow timers, the factor by which
	// the timers of raft are slower.
	Sluggish map[string]int `json:"sluggish,omitempty"`
	Faults   []Fault        `json:"faults"`
	// Window is how many entries may be in flight in the log at a time; 0 means
	// the default.
	Window int `json:"window,omitempty"`
	// Features contains, for each node that starts with an older program, the
	// feature version that this program claims to know.
	Features map[string]int `json:"features,omitempty"`
	// Work contains the names of the workloads of remote clients: see the
	// variable workloads.
	Work []string `json:"work,omitempty"`
	// Lease is the length of the leases of locks with queues; 0 means that the
	// clients draw the lengths at random.
	Lease time.Duration `json:"lease_ns,omitempty"`
	// LockDelay is the lock delay of some locks with queues; 0 means none.
	LockDelay time.Duration `json:"lock_delay_ns,omitempty"`
	// LeaderLease is the value of cluster.Options.LeaderLease of the nodes
	// whose timers are not slow. 0 means that leaders have no lease.
	LeaderLease time.Duration `json:"leader_lease_ns,omitempty"`
	// Scenario names a scenario to run instead of a history, such as
	// lateSnapshotScenario.
	Scenario string `json:"scenario,omitempty"`
}

// Fault is one fault. The field Who names its target, if it has one: a role, a
// node or all nodes. A role is resolved when the fault begins: "leader" is the
// node that leads at that time.
type Fault struct {
	Kind string        `json:"kind"`
	At   time.Duration `json:"at_ns"`
	For  time.Duration `json:"for_ns"`
	Who  string        `json:"who,omitempty"` // a role ("leader", "follower"), "all", or a node's ID
	// Much is the strength of the fault: nanoseconds for delays and jumps,
	// a rate in millionths for drifts.
	Much int64 `json:"much,omitempty"`
	// Seed determines the random choices that the fault makes when it
	// begins.
	Seed uint64 `json:"seed"`
}

func (f Fault) String() string {
	s := fmt.Sprintf("%8.3fs +%.3fs %s", f.At.Seconds(), f.For.Seconds(), f.Kind)
	if f.Who != "" {
		s += " of the " + f.Who
		if strings.HasPrefix(f.Who, "n") {
			s = strings.Replace(s, "of the", "of", 1)
		}
	}
	if f.Much != 0 {
		s += fmt.Sprintf(" (%s)", f.amount())
	}
	return s
}

func (f Fault) amount() string {
	if f.Kind == "clock drift" {
		return fmt.Sprintf("×%g", float64(f.Much)/1e6)
	}
	return time.Duration(f.Much).String()
}

func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %d clients that think for %v, length %v", s.Seed, s.Nodes, s.Clients,
		s.think(), s.Length)
	var slow []string
	for id, by := range s.Sluggish {
		slow = append(slow, fmt.Sprintf("%s ×%d", id, by))
	}
	slices.Sort(slow)
	if len(slow) > 0 {
		fmt.Fprintf(&b, ", raft's timers slow: %s", strings.Join(slow, ", "))
	}
	if s.LeaderLease > 0 {
		fmt.Fprintf(&b, ", leader lease %v", s.LeaderLease)
	}
	for i, f := range s.Faults {
		fmt.Fprintf(&b, "\n%4d  %v", i, f)
	}
	return b.String()
}

// settle is the time before the first fault, in which the cluster forms. quiet is
// the time between the end of the last fault and the end of the history.
const (
	settle = 3 * time.Second
	quiet  = 5 * time.Second
)

// busy and sparse are average think times. With busy clients, the next write
// soon brings a node the entries that it missed, and advances the lease clock.
// Effects that depend on heartbeats, clock entries and TTLs therefore show only
// with sparse clients.
const (
	busy   = 300 * time.Millisecond
	sparse = 1500 * time.Millisecond
)

func (s *Schedule) think() time.Duration {
	if s.Think == 0 {
		return busy
	}
	return s.Think
}

// mix makes some nodes start with an older program, and upgrades them later.
// Below fsm.FeatureMend, the waiters of two starts of a node can be mixed up,
// so mix removes the workloads with blocking commands.
func (s *Schedule) mix(r *rand.Rand, span time.Duration) {
	s.Work = slices.DeleteFunc(s.Work, func(w string) bool { return w == "queues" || w == "streams" })
	s.Features = make(map[string]int)
	for _, i := range r.Perm(s.Nodes)[:1+r.IntN(s.Nodes)] {
		id := fmt.Sprintf("n%d", 1+i)
		s.Features[id] = fsm.FeatureMend - 1
		s.Faults = append(s.Faults, Fault{Kind: upgrade, At: settle + time.Duration(r.Int64N(int64(span))),
			For: between(r, 50*ms, 2*time.Second), Who: id, Seed: r.Uint64()})
	}
}

// recipe describes how a kind of fault is drawn.
type recipe struct {
	kind     string
	weight   int
	five     bool // true if the fault requires five nodes
	min, max time.Duration
	who      []string
	much     func(r *rand.Rand) int64
}

var anyRole = []string{"leader", "leader", "follower"}

// between draws a duration from lo to hi. The distribution is logarithmic, so
// that small values are as likely as large ones.
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	span := float64(hi) / float64(lo)
	f := r.Float64()
	d := float64(lo)
	for range 8 { // computes lo × span^f without math.Pow, whose last digit may differ between machines
		if f *= 2; f >= 1 {
			f--
			d *= root(span)
		}
		span = root(span)
	}
	return time.Duration(d)
}

// root returns the square root by Newton's method. The result is the same on
// every machine.
func root(x float64) float64 {
	y := x
	for range 40 {
		y = (y + x/y) / 2
	}
	return y
}

const ms = time.Millisecond

var recipes = []recipe{
	{kind: "isolation", weight: 6, min: 200 * ms, max: 6 * time.Second, who: anyRole},
	{kind: "split", weight: 4, min: 200 * ms, max: 6 * time.Second},
	{kind: "one-way loss out", weight: 3, min: 200 * ms, max: 5 * time.Second, who: anyRole},
	{kind: "one-way loss in", weight: 3, min: 200 * ms, max: 5 * time.Second, who: anyRole},
	{kind: "follower cut from leader", weight: 3, min: 200 * ms, max: 5 * time.Second},
	{kind: "shatter", weight: 2, min: 200 * ms, max: 4 * time.Second},
	{kind: "ring", weight: 5, five: true, min: 500 * ms, max: 6 * time.Second},
	{kind: "bridge", weight: 5, five: true, min: 500 * ms, max: 6 * time.Second},
	{kind: "reset of connections", weight: 3, min: ms, max: 2 * ms, who: anyRole},
	{kind: "slow links", weight: 4, min: 500 * ms, max: 6 * time.Second, who: append([]string{"all"}, anyRole...),
		much: func(r *rand.Rand) int64 { return int64(between(r, 2*ms, 400*ms)) }},
	{kind: "slow answers", weight: 3, min: 100 * ms, max: 2 * time.Second, who: anyRole,
		much: func(r *rand.Rand) int64 { return int64(between(r, 100*ms, 2*time.Second)) }},
	{kind: "replay of old requests", weight: 4, min: ms, max: 2 * ms},
	{kind: "kill", weight: 6, min: 50 * ms, max: 4 * time.Second, who: anyRole},
	{kind: "power failure", weight: 4, min: 200 * ms, max: 4 * time.Second, who: anyRole},
	{kind: "power failure of a majority", weight: 2, min: 200 * ms, max: 3 * time.Second},
	{kind: "power failure of all", weight: 1, min: 200 * ms, max: 2 * time.Second},
	{kind: "stall", weight: 4, min: 200 * ms, max: 6 * time.Second, who: anyRole},
	{kind: "slow disk", weight: 4, min: 500 * ms, max: 6 * time.Second, who: append([]string{"all"}, anyRole...),
		much: func(r *rand.Rand) int64 { return int64(between(r, 5*ms, 600*ms)) }},
	{kind: "clock jump", weight: 4, min: 500 * ms, max: 10 * time.Second, who: anyRole, much: func(r *rand.Rand) int64 {
		by := int64(between(r, 4*ms, time.Hour))
		if r.IntN(2) == 0 {
			by = -by
		}
		return by
	}},
	{kind: "clock drift", weight: 4, min: time.Second, max: 10 * time.Second, who: anyRole,
		much: func(r *rand.Rand) int64 {
			return [...]int64{0, 500_000, 900_000, 990_000, 1_000_400, 1_000_900}[r.IntN(6)]
		}},
	{kind: "transfer storm", weight: 3, min: 500 * ms, max: 4 * time.Second},
	{kind: "removal", weight: 3, min: 500 * ms, max: 4 * time.Second, who: []string{"leader", "follower", "follower"}},
	{kind: "addition", weight: 2, min: ms, max: 2 * ms},
	{kind: "island", weight: 2, min: time.Second, max: 6 * time.Second},
	{kind: "snapshot", weight: 3, min: ms, max: 2 * ms, who: anyRole},
}

// Plan draws the schedule of a seed.
func Plan(seed uint64, length time.Duration) *Schedule {
	r := stream(seed, "schedule")
	s := &Schedule{Seed: seed, Nodes: 3, Length: length, Clients: 4 + r.IntN(5), Sluggish: make(map[string]int)}
	if r.IntN(5) == 0 {
		s.Nodes = 5
	}
	// The think time comes from a separate random stream, so that the faults of
	// a seed do not depend on it.
	s.Think = [...]time.Duration{busy, sparse}[stream(seed, "pace").IntN(2)]
	if leases := stream(seed, "leader lease"); leases.IntN(2) == 0 {
		s.LeaderLease = between(leases, 20*ms, 120*ms)
	}
	if r.IntN(2) == 0 {
		// The first node must not be slow, because it alone can lead
		// until the cluster has formed.
		s.Sluggish[fmt.Sprintf("n%d", 2+r.IntN(s.Nodes-1))] = [...]int{2, 4, 12, 30}[r.IntN(4)]
	}
	var pot []recipe
	for _, c := range recipes {
		if c.five && s.Nodes < 5 {
			continue
		}
		for range c.weight {
			pot = append(pot, c)
		}
	}
	span := length - settle - quiet
	n := max(3, int(span/(4*time.Second))+r.IntN(1+int(span/(6*time.Second))))
	for range n {
		c := pot[r.IntN(len(pot))]
		f := Fault{Kind: c.kind, At: settle + time.Duration(r.Int64N(int64(span))),
			For: between(r, c.min, c.max), Seed: r.Uint64()}
		f.For = min(f.For, length-quiet-f.At)
		if len(c.who) > 0 {
			f.Who = c.who[r.IntN(len(c.who))]
		}
		if c.much != nil {
			f.Much = c.much(r)
		}
		s.Faults = append(s.Faults, f)
	}
	s.operate(span)
	s.serve(span)
	for i := range s.Faults {
		s.Faults[i].For = min(s.Faults[i].For, length-quiet-s.Faults[i].At)
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return s
}

// serve draws the workloads of the remote clients and the faults that go with
// them. It uses a separate random stream, so that the other faults of a seed do
// not depend on it.
func (s *Schedule) serve(span time.Duration) {
	r := stream(s.Seed, "served")
	s.Window = 1 + r.IntN(4)
	if delays := stream(s.Seed, "lock delay"); delays.IntN(2) == 0 { // only the workload lockWork uses the delay
		s.LockDelay = between(delays, 100*ms, 3*time.Second)
	}
	if r.IntN(3) > 0 {
		return // only some histories have client ports, which take as much processor time as all other parts
	}
	for _, i := range r.Perm(len(workloads) - 1)[:1+r.IntN(3)] { // all workloads except the last one, lockWork
		s.Work = append(s.Work, workloads[i].name)
	}
	slices.Sort(s.Work)
	if r.IntN(4) == 0 {
		s.mix(r, span)
		return
	}
	// The choice of lockWork comes from a separate random stream, as above.
	if stream(s.Seed, lockWork).IntN(2) == 0 {
		s.Work = append(s.Work[:len(s.Work)-1], lockWork)
	}
	for range 1 + r.IntN(3) {
		f := Fault{Kind: quickRestart, At: settle + time.Duration(r.Int64N(int64(span))),
			For: between(r, 50*ms, 250*ms), Who: "follower", Much: int64(between(r, 300*ms, 1200*ms)), Seed: r.Uint64()}
		s.Faults = append(s.Faults, f)
	}
}

// The methods serve and mix draw these kinds of faults.
const (
	quickRestart = "quick restart"
	upgrade      = "upgrade"
)

// Kinds returns all kinds of faults in a fixed order.
func Kinds() []string {
	kinds := []string{quickRestart, upgrade}
	for _, c := range recipes {
		kinds = append(kinds, c.kind)
	}
	return append(append(kinds, operatorKinds...), removalOfJoining)
}
