package acl

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Reason says why a command is denied. Of several selectors that deny it, the
// one that came furthest is told of: they are in that order.
type Reason int

// The reasons.
const (
	Allowed Reason = iota
	DeniedCommand
	DeniedKey
	DeniedChannel
)

// Verdict is the answer to whether a user may run a command.
type Verdict struct {
	Reason  Reason
	Command *Command // that was asked about, nil if it is not known
	Object  string   // the key or channel in question
}

// Check says whether the user may run a command with its arguments, args[0]
// being the name. The number of arguments must be right.
func (u *User) Check(cmd *Command, args [][]byte) Verdict {
	at := 0
	worst := DeniedCommand
	ask := func(s *selector) bool {
		reason, pos := s.check(cmd, args)
		if reason > worst || reason == worst && pos > at {
			worst, at = reason, pos
		}
		return reason == Allowed
	}
	if ask(u.root) || slices.ContainsFunc(u.more, ask) {
		return Verdict{Command: cmd}
	}
	return Verdict{Reason: worst, Command: cmd, Object: string(args[at])}
}

// check returns the reason and the position of the argument in question.
func (s *selector) check(cmd *Command, args [][]byte) (Reason, int) {
	if !s.allCommands && cmd.Flags&fsm.NoAuth == 0 && !s.has(cmd) && (len(args) < 2 || !s.hasFirstArg(cmd, string(args[1]))) {
		return DeniedCommand, 0
	}
	if !s.allKeys {
		for _, pos := range cmd.KeyPositions(args) {
			how := cmd.AccessAt(args, pos)
			if how.Mode == "not_key" {
				continue // the shard channels of SPUBLISH and SSUBSCRIBE
			}
			if !s.allowsKey(string(args[pos]), need(how)) {
				return DeniedKey, pos
			}
		}
	}
	if !s.allChannels {
		from, to, pattern := channels(cmd, args)
		for pos := from; pos < to; pos++ {
			if !s.allowsChannel(string(args[pos]), pattern) {
				return DeniedChannel, pos
			}
		}
	}
	return Allowed, 0
}

// CheckPatterns says why the user may not give a SORT that it may run otherwise a
// pattern of other keys, in Redis' words, or "": for BY and GET a selector must
// allow reading all keys.
func (u *User) CheckPatterns(cmd *Command, args [][]byte) string {
	option := sortPattern(cmd.Command, args)
	if option == "" {
		return ""
	}
	ask := func(s *selector) bool {
		if reason, _ := s.check(cmd, args); reason != Allowed {
			return false
		}
		return s.allKeys || slices.ContainsFunc(s.keys, func(p keyPattern) bool { return p.pattern == "*" && p.access&mayRead != 0 })
	}
	if ask(u.root) || slices.ContainsFunc(u.more, ask) {
		return ""
	}
	return "ERR " + option + " option of SORT denied due to insufficient ACL permissions."
}

func sortPattern(cmd *fsm.Command, args [][]byte) string {
	if cmd.Name != "sort" && cmd.Name != "sort_ro" {
		return ""
	}
	return fsm.SortPattern(args)
}

// need is what a pattern must allow for an access. A command that looks at no
// value and changes none (EXISTS, TYPE) is content with any pattern.
func need(a fsm.Access) (n access) {
	for _, flag := range strings.Fields(a.Flags) {
		switch flag {
		case "access":
			n |= mayRead
		case "insert", "delete", "update":
			n |= mayWrite
		}
	}
	return n
}

func (s *selector) allowsKey(key string, need access) bool {
	return s.allKeys || slices.ContainsFunc(s.keys, func(p keyPattern) bool {
		return p.access&need == need && fsm.Glob(p.pattern, key)
	})
}

// allowsChannel reports whether a channel may be used. A pattern to subscribe to
// must be there to the letter.
func (s *selector) allowsChannel(channel string, pattern bool) bool {
	return s.allChannels || slices.ContainsFunc(s.channels, func(p string) bool {
		return p == channel || !pattern && fsm.Glob(p, channel)
	})
}

// channels returns the arguments of a command that are channels, and whether
// they are patterns. Who unsubscribes is not asked.
func channels(cmd *Command, args [][]byte) (from, to int, pattern bool) {
	if cmd.parent != nil {
		return 0, 0, false
	}
	switch cmd.Name {
	case "publish", "spublish":
		return 1, min(2, len(args)), false
	case "subscribe", "ssubscribe":
		return 1, len(args), false
	case "psubscribe":
		return 1, len(args), true
	}
	return 0, 0, false
}

// AllowsChannel reports whether one of the user's selectors allows a channel, or
// a pattern of channels: whether an open subscription may stay.
func (u *User) AllowsChannel(channel string, pattern bool) bool {
	return u.root.allowsChannel(channel, pattern) || slices.ContainsFunc(u.more, func(s *selector) bool {
		return s.allowsChannel(channel, pattern)
	})
}

// Denial is the text of NOPERM, without the code.
func (v Verdict) Denial() string {
	switch v.Reason {
	case DeniedCommand:
		return "this user has no permissions to run the '" + v.Command.Full + "' command"
	case DeniedKey:
		return "this user has no permissions to access one of the keys used as arguments"
	case DeniedChannel:
		return "this user has no permissions to access one of the channels used as arguments"
	}
	return ""
}

// Explanation is the answer of ACL DRYRUN: it names the object.
func (v Verdict) Explanation() string {
	switch v.Reason {
	case DeniedCommand:
		return "This user has no permissions to run the '" + v.Command.Full + "' command"
	case DeniedKey:
		return "This user has no permissions to access the '" + v.Object + "' key"
	case DeniedChannel:
		return "This user has no permissions to access the '" + v.Object + "' channel"
	}
	return ""
}

// Script is the error of a command that a script called, with its code; the
// interpreter adds where it was.
func (v Verdict) Script() string {
	switch v.Reason {
	case DeniedCommand:
		return "ERR The user executing the script can't run this command or subcommand"
	case DeniedKey:
		return "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
	case DeniedChannel:
		return "ERR The user executing the script can't publish to the channel mentioned in the command"
	}
	return ""
}
