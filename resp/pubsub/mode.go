package pubsub

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Mode is the tracking mode of a connection, as CLIENT TRACKING sets it.
type Mode struct {
	On, BCast, OptIn, OptOut, NoLoop bool
	// Caching is true if the last command was CLIENT CACHING; other CLIENT commands
	// after it do not count. CLIENT CACHING decides whether the next command or
	// transaction is tracked. It has no effect on later commands, even if the next
	// command is refused.
	Caching  bool
	Redirect uint64
	Prefixes []string
}

// Reads reports whether the node must remember the keys that the connection reads
// now.
func (t *Mode) Reads() bool {
	return t.On && !t.BCast && (!t.OptIn || t.Caching) && (!t.OptOut || !t.Caching)
}

// Add replaces the mode with next and turns tracking on. The connection keeps its
// current prefixes in addition to those of next, and the current value of Caching.
func (t *Mode) Add(next *Mode) {
	prefixes := t.Prefixes
	if len(next.Prefixes) == 1 {
		at, _ := slices.BinarySearch(prefixes, next.Prefixes[0])
		prefixes = slices.Insert(prefixes, at, next.Prefixes[0])
	} else {
		prefixes = slices.Concat(prefixes, next.Prefixes)
		slices.Sort(prefixes)
	}
	caching := t.Caching
	*t = *next
	t.On, t.Caching, t.Prefixes = true, caching, prefixes
}

// Size returns an estimate of the memory of the prefixes.
func (t *Mode) Size() int {
	n := 0
	for _, p := range t.Prefixes {
		n += subscriptionSize(p)
	}
	return n
}

// sortedIDs returns the sorted keys of a map, so that clients receive messages
// in a reproducible order.
func sortedIDs[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Refuses returns the error for a change from the mode t to the mode next, or
// "" if the change is allowed.
func (t *Mode) Refuses(next *Mode) string {
	switch {
	case !next.BCast && len(next.Prefixes) > 0:
		return "ERR PREFIX option requires BCAST mode to be enabled"
	case t.On && t.BCast != next.BCast:
		return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, " +
			"and then re-enabling it with a different mode."
	case next.BCast && (next.OptIn || next.OptOut):
		return "ERR OPTIN and OPTOUT are not compatible with BCAST"
	case next.OptIn && next.OptOut:
		return "ERR You can't specify both OPTIN mode and OPTOUT mode"
	case next.OptIn && t.OptOut || next.OptOut && t.OptIn:
		return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, " +
			"and then re-enabling it with a different mode."
	}
	return overlapRefusal(t.Prefixes, next.Prefixes)
}

// overlapRefusal returns the error for a new prefix that overlaps with another
// prefix of the connection, or "". The error names the first such prefix, and
// the prefix with which it overlaps: an existing prefix if possible, otherwise
// another new prefix.
func overlapRefusal(there, added []string) string {
	i := firstOverlap(there, added)
	if i < 0 {
		return ""
	}
	p := added[i]
	for _, old := range there {
		if overlap(p, old) {
			return "ERR Prefix '" + p + "' overlaps with an existing prefix '" + old +
				"'. Prefixes for a single client must not overlap."
		}
	}
	for _, other := range added[i+1:] {
		if overlap(p, other) {
			return "ERR Prefix '" + p + "' overlaps with another provided prefix '" + other +
				"'. Prefixes for a single client must not overlap."
		}
	}
	panic("pubsub: firstOverlap returned a prefix that overlaps with no other")
}

// firstOverlap returns the index in added of the first new prefix that overlaps
// with another prefix of either list, or -1. The existing prefixes, in there, are
// sorted. They do not overlap with each other, except that "" may be one of
// them. Both lists may be very long.
func firstOverlap(there, added []string) int {
	first := len(added)
	for i, p := range added {
		at, _ := slices.BinarySearch(there, p)
		if len(there) > 0 && there[0] == "" ||
			at > 0 && overlap(p, there[at-1]) || at < len(there) && overlap(p, there[at]) {
			first = i
			break
		}
	}
	sorted := make([]int, len(added)) // indices of added
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return strings.Compare(added[a], added[b]) })
	// All strings that begin with a prefix directly follow it in sorted order,
	// so the prefixes of the current string form a stack.
	var above []int
	for _, i := range sorted {
		for len(above) > 0 && !strings.HasPrefix(added[i], added[above[len(above)-1]]) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			first = min(first, i, above[len(above)-1])
		}
		above = append(above, i)
	}
	if first == len(added) {
		return -1
	}
	return first
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
