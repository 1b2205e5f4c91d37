package checker

import (
	"fmt"
	"sort"
	"time"
)

// Append is an attempt to append a unique id to a list.
type Append struct {
	List, ID     string
	Client       int
	Call, Return time.Duration
	Outcome      Outcome
}

// Once checks the outcome of appends against the final content of the lists. An
// acknowledged id is in its list once, a refused one never, and one of unknown
// outcome at most once. The order of the ids agrees with real time, and the
// lists contain nothing else. A list that is missing from lists could not be
// read, and Once does not check it.
func Once(appends []Append, lists map[string][]string) []Violation {
	var bad []Violation
	say := func(a Append, format string, args ...any) {
		bad = append(bad, Violation{"at most once", a.List, fmt.Sprintf(format, args...), a.Call, a.Return})
	}
	type place struct {
		at    int
		times int
	}
	found := make(map[string]map[string]place)
	for list, ids := range lists {
		found[list] = make(map[string]place)
		for i, id := range ids {
			p := found[list][id]
			p.times++
			if p.times == 1 {
				p.at = i
			}
			found[list][id] = p
		}
	}
	tried := make(map[string]map[string]bool)
	placed := make(map[string][]Append) // acknowledged appends that are in the list
	for _, a := range appends {
		if _, read := lists[a.List]; !read {
			continue
		}
		if tried[a.List] == nil {
			tried[a.List] = make(map[string]bool)
		}
		tried[a.List][a.ID] = true
		switch n := found[a.List][a.ID].times; {
		case n > 1:
			say(a, "%s was appended %d times by one command", a.ID, n)
		case n == 0 && a.Outcome == Done:
			say(a, "%s was acknowledged and is missing", a.ID)
		case n == 1 && a.Outcome == Refused:
			say(a, "%s was refused as not executed, but it was executed", a.ID)
		case n == 1 && a.Outcome == Done:
			placed[a.List] = append(placed[a.List], a)
		}
	}
	names := make([]string, 0, len(lists))
	for list := range lists {
		names = append(names, list)
	}
	sort.Strings(names)
	for _, list := range names {
		for _, id := range lists[list] {
			if !tried[list][id] {
				say(Append{List: list}, "%s is in the list, but no client appended it", id)
			}
		}
		// No element of the list may have been acknowledged before an element
		// in front of it was sent.
		ids := placed[list]
		at := func(a Append) int { return found[list][a.ID].at }
		sort.Slice(ids, func(i, j int) bool { return at(ids[i]) < at(ids[j]) })
		var latest Append
		for i, a := range ids {
			if i > 0 && a.Return < latest.Call {
				say(a, "%s was acknowledged at %v, but %s, which is before it in the list, was sent later, at %v", a.ID,
					a.Return, latest.ID, latest.Call)
			}
			if i == 0 || a.Call > latest.Call {
				latest = a
			}
		}
	}
	return bad
}
