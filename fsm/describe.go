package fsm

import (
	"slices"
)

// named is a flag and its name in COMMAND INFO.
type named struct {
	flag Flags
	name string
}

// flagNames are in the order in which Redis prints them.
var flagNames = []named{
	{Write, "write"},
	{ReadOnly, "readonly"},
	{DenyOOM, "denyoom"},
	{Admin, "admin"},
	{PubSub, "pubsub"},
	{NoScript, "noscript"},
	{Blocking, "blocking"},
	{Loading, "loading"},
	{Stale, "stale"},
	{SkipMonitor, "skip_monitor"},
	{SkipSlowlog, "skip_slowlog"},
	{Asking, "asking"},
	{Fast, "fast"},
	{NoAuth, "no_auth"},
	{NoMandatoryKeys, "no_mandatory_keys"},
	{NoAsyncLoading, "no_async_loading"},
	{NoMulti, "no_multi"},
	{MovableKeys, "movablekeys"},
	{AllowBusy, "allow_busy"},
}

// FlagNames returns the flags as COMMAND INFO prints them.
func (cmd *Command) FlagNames() []string {
	var names []string
	for _, f := range flagNames {
		if cmd.Flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// categoryOrder is the order in which Redis prints ACL categories.
var categoryOrder = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
	"stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// groupCategories are the command groups that are ACL categories too.
var groupCategories = map[string]string{
	"string": "string", "bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "list": "list",
	"set": "set", "sorted-set": "sortedset", "hash": "hash", "stream": "stream", "scripting": "scripting",
}

// ACLCategories returns the ACL categories as COMMAND INFO prints them, with
// the @. Flags imply most of them. A container such as OBJECT has only the
// category of its speed; its subcommands have the others.
func (cmd *Command) ACLCategories() []string {
	has := make(map[string]bool)
	for _, c := range cmd.Categories {
		has[c] = true
	}
	if len(cmd.Sub) == 0 {
		has[groupCategories[cmd.Group]] = true
	}
	for _, f := range []named{
		{Write, "write"}, {ReadOnly, "read"}, {KeyspaceCat, "keyspace"}, {Dangerous, "dangerous"},
		{Admin, "admin"}, {Admin, "dangerous"}, {PubSub, "pubsub"}, {Blocking, "blocking"}, {Fast, "fast"},
	} {
		if cmd.Flags&f.flag != 0 {
			has[f.name] = true
		}
	}
	has["slow"] = cmd.Flags&Fast == 0
	if cmd.Group == "scripting" {
		has["read"] = false // a script does not count as a read, even a read-only one
	}
	var out []string
	for _, c := range categoryOrder {
		if has[c] {
			out = append(out, "@"+c)
		}
	}
	return out
}

// KeySpecs returns the key specs that COMMAND INFO prints. Commands without
// keys, and commands that have only KeysOf, have none.
func (cmd *Command) KeySpecs() []KeySpec {
	switch {
	case cmd.Specs != nil:
		return slices.Clone(cmd.Specs)
	case cmd.Keys.First == 0:
		return nil
	}
	return []KeySpec{{Keys: cmd.Keys, Access: cmd.Access}}
}

// AccessAt returns the access of the command to the key at a position of args.
// The name is at position 0.
func (cmd *Command) AccessAt(args [][]byte, pos int) Access {
	if cmd.Flags&VariableFlags != 0 { // the row contains the most that a call may do
		switch cmd.Name {
		case "set":
			return setAccess(args)
		case "delex":
			return delexAccess(args)
		case "bitfield":
			return bitfieldAccess(args)
		}
	}
	for _, k := range cmd.KeySpecs() {
		if k.Unknown {
			continue
		}
		if k.NumKeys {
			if pos > k.Keys.First {
				return k.Access
			}
			continue
		}
		part := Command{Keys: k.Keys}
		if slices.Contains(part.KeyPositions(args), pos) {
			return k.Access
		}
	}
	return cmd.Access
}
