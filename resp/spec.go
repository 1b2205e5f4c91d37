package resp

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// aclCategories are Redis' categories, in the order in which it prints them.
var aclCategories = []string{"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
	"stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting"}

// spec is a command as COMMAND describes it, whichever table it comes from.
type spec struct {
	cmd   *fsm.Command
	name  string // "client|list"
	flags []string
	acl   []string
	tips  []string
	subs  []*spec
	stats *series
}

// allSpecs returns the commands of both tables, sorted by name.
func (s *Server) allSpecs() []*spec {
	var out []*spec
	for _, cmd := range s.table.Rows() {
		if cmd.Flags&fsm.Internal == 0 {
			out = append(out, s.dataSpec(cmd))
		}
	}
	for _, r := range s.rows {
		if !r.hidden {
			out = append(out, rowSpec(r))
		}
	}
	slices.SortFunc(out, func(a, b *spec) int { return strings.Compare(a.name, b.name) })
	return out
}

// findSpec returns the command or subcommand ("client|list") of a name in any
// case, or nil.
func (s *Server) findSpec(name string) *spec {
	name, sub, isSub := strings.Cut(name, "|")
	var found *spec
	if cmd := s.table.Find([]byte(name)); cmd != nil && cmd.Flags&fsm.Internal == 0 {
		found = s.dataSpec(cmd)
	} else if r := s.findRow([]byte(name)); r != nil && !r.hidden {
		found = rowSpec(r)
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

// names returns the names of the specs for which keep says true.
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

// rowSpec describes a session command.
func rowSpec(r *row) *spec {
	s := &spec{cmd: &r.cmd, name: r.fullName(), flags: strings.Fields(r.words), tips: strings.Fields(r.tips), stats: r.stats}
	s.acl = categories(s.flags, strings.Fields(r.acl))
	for i := range r.sub {
		s.subs = append(s.subs, rowSpec(&r.sub[i]))
	}
	return s
}

// dataSpec describes a command of the machine, and its subcommands.
func (s *Server) dataSpec(cmd *fsm.Command) *spec {
	d := machineSpec(cmd, cmd.Name)
	d.stats = s.metrics.byCommand[cmd.ID()]
	for i := range cmd.Sub {
		sub := machineSpec(&cmd.Sub[i], cmd.Name+"|"+cmd.Sub[i].Name)
		if sub.cmd.Group == "" {
			c := *sub.cmd
			c.Group = cmd.Group
			sub.cmd = &c
		}
		d.subs = append(d.subs, sub)
	}
	return d
}

// groupCategories are the categories that a family of data commands has.
var groupCategories = map[string]string{"string": "string", "list": "list", "set": "set", "sorted-set": "sortedset", "hash": "hash",
	"bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "stream": "stream", "pubsub": "pubsub", "scripting": "scripting"}

func machineSpec(cmd *fsm.Command, name string) *spec {
	s := &spec{cmd: cmd, name: name}
	flags := cmd.Flags
	word := func(on bool, w string) {
		if on {
			s.flags = append(s.flags, w)
		}
	}
	hasKeys := cmd.Keys.First > 0 || cmd.KeysOf != nil
	word(flags&fsm.Write != 0, "write")
	word(flags&(fsm.Write|fsm.MayWrite) == 0 && (hasKeys || flags&fsm.KeyspaceCat != 0), "readonly")
	word(flags&fsm.DenyOOM != 0, "denyoom")
	word(flags&fsm.NoScript != 0, "noscript")
	word(flags&fsm.Fast != 0, "fast")
	word(flags&fsm.MayWrite != 0, "may_replicate")
	word(flags&fsm.MovableKeys != 0, "movablekeys")
	var extra []string
	if flags&fsm.KeyspaceCat != 0 {
		extra = append(extra, "keyspace")
	}
	if flags&fsm.Dangerous != 0 {
		extra = append(extra, "dangerous")
	}
	if c := groupCategories[cmd.Group]; c != "" {
		extra = append(extra, c)
	}
	s.acl = categories(s.flags, extra)
	return s
}

// categories derives the ACL categories from the flags, as Redis does, and adds
// those that do not follow from them.
func categories(flags, extra []string) []string {
	has := func(word string) bool { return slices.Contains(flags, word) }
	want := map[string]bool{
		"write": has("write"), "read": has("readonly"), "admin": has("admin"), "dangerous": has("admin"),
		"pubsub": has("pubsub"), "blocking": has("blocking"), "fast": has("fast"), "slow": !has("fast"),
	}
	for _, e := range extra {
		want[e] = true
	}
	var out []string
	for _, c := range aclCategories {
		if want[c] {
			out = append(out, c)
		}
	}
	return out
}
