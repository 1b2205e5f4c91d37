package resp

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// spec is a command as COMMAND describes it, of either table.
type spec struct {
	cmd  *fsm.Command
	name string // "client|list"
	subs []*spec
}

// newSpec returns the spec of a command and its subcommands.
func newSpec(cmd *fsm.Command) *spec {
	s := &spec{cmd: cmd, name: cmd.Name}
	for i := range cmd.Sub {
		sub := &cmd.Sub[i]
		s.subs = append(s.subs, &spec{cmd: sub, name: cmd.Name + "|" + sub.Name})
	}
	return s
}

// in reports whether the command belongs to an ACL category.
func (s *spec) in(category string) bool {
	return slices.Contains(s.cmd.ACLCategories(), "@"+category)
}

// allSpecs returns the commands of both tables, sorted by name.
func (s *Server) allSpecs() []*spec {
	var out []*spec
	for _, cmd := range s.cmds.table.Rows() {
		if cmd.Flags&fsm.Internal == 0 {
			out = append(out, newSpec(cmd))
		}
	}
	for _, r := range s.cmds.rows {
		if !r.hidden {
			out = append(out, newSpec(&r.cmd))
		}
	}
	slices.SortFunc(out, func(a, b *spec) int { return strings.Compare(a.name, b.name) })
	return out
}

// findSpec returns the command or subcommand ("client|list") with a name, in
// any case, or nil.
func (s *Server) findSpec(name string) *spec {
	name, sub, isSub := strings.Cut(name, "|")
	var found *spec
	if cmd := s.cmds.table.Find([]byte(name)); cmd != nil && cmd.Flags&fsm.Internal == 0 {
		found = newSpec(cmd)
	} else if r := s.findRow([]byte(name)); r != nil && !r.hidden {
		found = newSpec(&r.cmd)
	}
	if found == nil || !isSub {
		return found
	}
	for _, c := range found.subs {
		if c.cmd.Name == strings.ToLower(sub) {
			return c
		}
	}
	return nil
}

// names returns the names of the specs that keep accepts.
func names(specs []*spec, keep func(*spec) bool) []string {
	out := []string{}
	for _, s := range specs {
		if keep(s) {
			out = append(out, s.name)
		}
		out = append(out, names(s.subs, keep)...)
	}
	return out
}
