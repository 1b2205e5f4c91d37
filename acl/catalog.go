package acl

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Categories are Redis' categories of commands, in the order in which Redis
// prints them.
var Categories = []string{"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
	"hyperloglog", "geo",
	"stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting"}

// Command is a command or subcommand to which rules can refer.
type Command struct {
	*fsm.Command
	Full string // full name, such as "config|get"

	id         int
	parent     *Command
	subs       map[string]*Command
	categories uint32 // bit i is set if the command is in Categories[i]
}

// Catalog finds commands and subcommands by name. It is immutable.
type Catalog struct {
	commands []*Command // by id
	index    map[string]*Command
}

// NewCatalog returns a catalog of the given commands and their subcommands.
func NewCatalog(rows []*fsm.Command) *Catalog {
	c := &Catalog{index: make(map[string]*Command)}
	for _, row := range rows {
		cmd := c.add(row, nil)
		c.index[row.Name] = cmd
	}
	return c
}

func (c *Catalog) add(row *fsm.Command, parent *Command) *Command {
	cmd := &Command{Command: row, Full: row.Name, id: len(c.commands), parent: parent}
	if parent != nil {
		cmd.Full = parent.Full + "|" + row.Name
	}
	for _, word := range row.ACLCategories() {
		if i := slices.Index(Categories, strings.TrimPrefix(word, "@")); i >= 0 {
			cmd.categories |= 1 << i
		}
	}
	c.commands = append(c.commands, cmd)
	if len(row.Sub) > 0 {
		cmd.subs = make(map[string]*Command, len(row.Sub))
	}
	for i := range row.Sub {
		cmd.subs[row.Sub[i].Name] = c.add(&row.Sub[i], cmd)
	}
	return cmd
}

// find returns the command that a rule names: "config" or "config|get". It
// ignores the case of the name.
func (c *Catalog) find(name string) *Command {
	name, sub, isSub := strings.Cut(strings.ToLower(name), "|")
	cmd := c.index[name]
	if cmd == nil || !isSub {
		return cmd
	}
	return cmd.subs[sub]
}

// Resolve returns the command that a client calls with args. If args name a
// subcommand of a container, it returns the subcommand. It returns nil for an
// unknown command.
func (c *Catalog) Resolve(args [][]byte) *Command {
	cmd := c.index[string(args[0])]
	if cmd == nil {
		if cmd = c.index[strings.ToLower(string(args[0]))]; cmd == nil {
			return nil
		}
	}
	if cmd.subs != nil && len(args) > 1 {
		if sub := cmd.subs[strings.ToLower(string(args[1]))]; sub != nil {
			return sub
		}
	}
	return cmd
}

// Lookup is like Resolve, but returns nil for an unknown subcommand.
func (c *Catalog) Lookup(args [][]byte) *Command {
	cmd := c.Resolve(args)
	if cmd != nil && cmd.subs != nil && len(args) > 1 {
		return nil
	}
	return cmd
}

// category returns the bit of a category. name may be in any case.
func category(name string) (bit uint32, ok bool) {
	i := slices.Index(Categories, strings.ToLower(name))
	if i < 0 {
		return 0, false
	}
	return 1 << i, true
}
