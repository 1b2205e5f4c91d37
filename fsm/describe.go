package fsm

import (
	"slices"
	"strings"
)

// named is a flag and the word for it in COMMAND INFO.
type named struct {
	flag Flags
	word string
}

// flagWords stand in the order in which Redis prints them.
var flagWords = []named{
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

// FlagWords returns the flags as COMMAND INFO prints them.
func (cmd *Command) FlagWords() []string {
	var words []string
	for _, f := range flagWords {
		if cmd.Flags&f.flag != 0 {
			words = append(words, f.word)
		}
	}
	return words
}

// categoryOrder is the order in which Redis prints ACL categories.
var categoryOrder = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// groupCategories are the groups that are ACL categories too.
var groupCategories = map[string]string{
	"string": "string", "bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "list": "list", "set": "set", "sorted-set": "sortedset", "hash": "hash", "stream": "stream", "scripting": "scripting",
}

// ACLCategories returns the categories as COMMAND INFO prints them, with the @.
// Flags imply most of them. A container (OBJECT) is of no category but its
// speed: its subcommands are.
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
			has[f.word] = true
		}
	}
	has["slow"] = cmd.Flags&Fast == 0
	if cmd.Group == "scripting" {
		has["read"] = false // a script is no read, whatever it may do
	}
	var out []string
	for _, c := range categoryOrder {
		if has[c] {
			out = append(out, "@"+c)
		}
	}
	return out
}

// KeySpecs returns the key specs that COMMAND INFO prints; none for commands
// without keys and for those that have only KeysOf.
func (cmd *Command) KeySpecs() []KeySpec {
	switch {
	case cmd.Specs != nil:
		return slices.Clone(cmd.Specs)
	case cmd.Keys.First == 0:
		return nil
	}
	return []KeySpec{{Keys: cmd.Keys, Access: cmd.Access}}
}

// AccessAt returns what the command does with the key at a position of args, the
// name being position 0.
func (cmd *Command) AccessAt(args [][]byte, pos int) Access {
	if cmd.Name == "set" && cmd.Flags&VariableFlags != 0 { // the row says the worst
		if slices.ContainsFunc(args[min(3, len(args)):], func(a []byte) bool { return strings.EqualFold(string(a), "get") }) {
			return Access{Mode: "RW", Flags: "access update"}
		}
		return Access{Mode: "OW", Flags: "update"}
	}
	if cmd.Name == "bitfield" {
		return bitfieldAccess(args)
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
