package attack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Plan is the plan of an episode. The seed of the run, the selected faults and
// the number of the episode determine it.
type Plan struct {
	Number   int        `json:"number"`
	Seed     uint64     `json:"seed"`
	Nodes    int        `json:"nodes"`
	LogStore string     `json:"log_store"`
	Snapshot int        `json:"snapshot_bytes"` // log size that triggers a snapshot
	Trailing int        `json:"trailing_bytes"` // log size that a snapshot leaves
	Segment  int        `json:"segment_bytes"`  // size of a log segment, 0 for the default
	Steps    [][]string `json:"steps"`          // classes of each step, which are active at the same time
	// Points are the failpoints at which the faults of class killAtPoint end a
	// process, in order. Each has the form name:count. The process ends when it
	// reaches the failpoint for the count-th time.
	Points []string `json:"points,omitempty"`
	// Forms is the failpoint at which the first node ends while it forms the
	// cluster, or "" for none.
	Forms string `json:"forms,omitempty"`
	// Control is "" for an episode that must pass. Any other value names a
	// negative control, in which the checkers must find a violation: see
	// controls.go.
	Control string `json:"control,omitempty"`
}

func (p Plan) String() string {
	var steps []string
	for _, s := range p.Steps {
		steps = append(steps, strings.Join(s, " + "))
	}
	return fmt.Sprintf("%d nodes, %s, snapshots at %d bytes that leave %d: %s", p.Nodes, p.LogStore, p.Snapshot,
		p.Trailing, strings.Join(steps, "; "))
}

// stepsPerEpisode is the number of steps in an episode. pairsPerCent is the
// percentage of the steps that have two faults at once, if the first fault
// permits a second one.
const (
	stepsPerEpisode = 4
	pairsPerCent    = 60
)

// faultChooser chooses classes of faults from shuffled lists. It appends a
// newly shuffled list when none of the remaining classes fits.
type faultChooser struct {
	rng    *rand.Rand
	all    []fault
	main   []fault
	beside []fault
}

// take removes and returns the first fault of the list that fits. If no fault
// fits, take appends a newly shuffled list and searches again.
func (d *faultChooser) take(deck *[]fault, from []fault, fits func(fault) bool) (fault, bool) {
	for range 2 {
		for i, f := range *deck {
			if fits(f) {
				*deck = slices.Delete(slices.Clone(*deck), i, i+1)
				return f, true
			}
		}
		more := slices.Clone(from)
		d.rng.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		*deck = append(*deck, more...)
	}
	return fault{}, false
}

// chosen removes the faults that need a second build, if the run has no second
// build. Faults for which this machine lacks something else stay in the list, so
// that a seed produces the same plan on every machine.
func chosen(cfg Config, faults []fault) []fault {
	return slices.DeleteFunc(slices.Clone(faults),
		func(f fault) bool { return f.group == versions && f.needs(cfg) != "" })
}

// Planned returns the plans of the episodes of a run, in order. It does not
// return the plans of the controls.
func Planned(cfg Config) ([]Plan, error) {
	faults, err := choose(cfg.Faults)
	if err != nil {
		return nil, err
	}
	return plans(cfg.Seed, cfg.Episodes, chosen(cfg, faults)), nil
}

// Faults returns the number of faults in the plan.
func (p Plan) Faults() int { return len(slices.Concat(p.Steps...)) }

// PowerCuts returns the number of faults in the plan that count as power cuts.
func (p Plan) PowerCuts() (n int) {
	for _, class := range slices.Concat(p.Steps...) {
		n += b2i(find(class).cutsPower())
	}
	return n
}

// plans returns the plans of a run.
func plans(seed uint64, episodes int, faults []fault) []Plan {
	d := &faultChooser{rng: rand.New(rand.NewPCG(seed, 0)), all: faults}
	var side []fault
	for _, f := range faults {
		if f.group == links && !f.long || f.group == clocks {
			side = append(side, f)
		}
	}
	points := newPointChooser(seed, faults)
	var all []Plan
	for i := range episodes {
		p := Plan{Number: i + 1, Seed: d.rng.Uint64(), Nodes: 3, LogStore: "wal", Snapshot: 128 << 20,
			Trailing: 16 << 20}
		if i%5 == 4 {
			p.Nodes = 5
		}
		if d.rng.IntN(4) == 0 {
			p.LogStore = "boltdb"
		}
		if i%2 == 1 {
			p.Snapshot, p.Trailing, p.Segment = 32<<10, 4<<10, 32<<10
		}
		mixed := false
		for range stepsPerEpisode {
			main, ok := d.take(&d.main, faults, func(f fault) bool {
				return (f.nodes == 0 || f.nodes == p.Nodes) && !(mixed && f.group == versions)
			})
			if !ok {
				break
			}
			mixed = mixed || main.group == versions
			step := []string{main.class}
			if d.rng.IntN(100) < pairsPerCent && main.group != neighborGroup && !main.alone {
				other, ok := d.take(&d.beside, side, func(f fault) bool {
					return f.group != main.group && (f.nodes == 0 || f.nodes == p.Nodes)
				})
				// A node that joins or is replaced needs the other nodes. If
				// the network were cut at the same time, the node would only
				// wait.
				if ok && (main.group != members || other.group == clocks) {
					step = append(step, other.class)
				}
			}
			p.Steps = append(p.Steps, step)
		}
		points.choose(&p)
		all = append(all, p)
	}
	return all
}

// choose returns the faults that args select. An argument selects the faults
// whose class contains it, and the faults of the group that it names. "all", an
// empty argument, and no argument at all select all faults. "none" selects no
// faults.
func choose(args []string) ([]fault, error) {
	var chosen []fault
	all := allFaults()
	for _, w := range args {
		w = strings.TrimSpace(w)
		switch w {
		case "", "all":
			return all, nil
		case "none":
			return nil, nil
		}
		found := false
		for _, f := range all {
			if strings.Contains(f.class, w) || string(f.group) == w {
				found = true
				if !slices.ContainsFunc(chosen, func(c fault) bool { return c.class == f.class }) {
					chosen = append(chosen, f)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("no class of faults is named %q: use all, none, a group (%s), or part of a "+
				"name (%s)",
				w, "process, cpu, version, network, clock, disk, membership, operator, neighbor",
				strings.Join(names(all), ", "))
		}
	}
	if len(args) == 0 {
		return all, nil
	}
	return chosen, nil
}

func names(faults []fault) []string {
	var all []string
	for _, f := range faults {
		all = append(all, f.class)
	}
	return all
}
