package attack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Plan is what an episode is going to do. It follows from seed and number alone.
type Plan struct {
	Number   int        `json:"number"`
	Seed     uint64     `json:"seed"`
	Nodes    int        `json:"nodes"`
	LogStore string     `json:"log_store"`
	Snapshot int        `json:"snapshot_bytes"` // of log, that make one due
	Trailing int        `json:"trailing_bytes"` // of log, that stay behind one
	Segment  int        `json:"segment_bytes"`  // of a file of the log, 0 for the usual
	Steps    [][]string `json:"steps"`          // classes at work at the same time
	// Points are those at which the strikes of killAtPoint end a process, in order,
	// each with at which time it comes there.
	Points []string `json:"points,omitempty"`
	// Forms is the point at which the first node ends while it forms the cluster, ""
	// for none.
	Forms string `json:"forms,omitempty"`
	// Control is "" for an episode that has to hold. The others must be caught: see
	// controls.go.
	Control string `json:"control,omitempty"`
}

func (p Plan) String() string {
	var steps []string
	for _, s := range p.Steps {
		steps = append(steps, strings.Join(s, " + "))
	}
	return fmt.Sprintf("%d nodes, %s, snapshots by %d bytes that leave %d: %s", p.Nodes, p.LogStore, p.Snapshot, p.Trailing, strings.Join(steps, "; "))
}

// Steps of an episode, and how many in a hundred of them have two faults at
// once.
const (
	stepsPerEpisode = 4
	pairsPerCent    = 60
)

// dealer deals classes of faults from shuffled decks, so that all are dealt before
// one is dealt again.
type dealer struct {
	rng    *rand.Rand
	all    []fault
	main   []fault
	beside []fault
}

// take removes and returns the first fault of a deck that fits; it shuffles a new
// deck behind the old one if none does.
func (d *dealer) take(deck *[]fault, from []fault, fits func(fault) bool) (fault, bool) {
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

// dealt leaves out what a run cannot have for lack of another build. What the
// machine lacks is dealt, so that a seed plans the same everywhere.
func dealt(cfg Config, faults []fault) []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.group == versions && f.needs(cfg) != "" })
}

// plans makes the plans of a run.
func plans(seed uint64, episodes int, faults []fault) []Plan {
	d := &dealer{rng: rand.New(rand.NewPCG(seed, 0)), all: faults}
	var side []fault
	for _, f := range faults {
		if f.group == links || f.group == clocks {
			side = append(side, f)
		}
	}
	points := newPointDealer(seed, faults)
	var all []Plan
	for i := range episodes {
		p := Plan{Number: i + 1, Seed: d.rng.Uint64(), Nodes: 3, LogStore: "wal", Snapshot: 128 << 20, Trailing: 16 << 20}
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
			if d.rng.IntN(100) < pairsPerCent {
				other, ok := d.take(&d.beside, side, func(f fault) bool {
					return f.group != main.group && (f.nodes == 0 || f.nodes == p.Nodes)
				})
				// Who joins or is replaced needs the others: with the network cut it
				// would only wait.
				if ok && (main.group != members || other.group == clocks) {
					step = append(step, other.class)
				}
			}
			p.Steps = append(p.Steps, step)
		}
		points.deal(&p)
		all = append(all, p)
	}
	return all
}

// choose returns the faults whose class has one of the words in it; "all" and
// "none" are words for themselves.
func choose(words []string) ([]fault, error) {
	var chosen []fault
	all := catalogue()
	for _, w := range words {
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
			return nil, fmt.Errorf("no class of faults is called %q: all, none, a group (%s) or part of a name: %s",
				w, "process, cpu, version, network, clock, disk, membership, operator", strings.Join(names(all), ", "))
		}
	}
	if len(words) == 0 {
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
