package acl

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// Reason says why a command is denied. If several selectors deny the command,
// the verdict contains the largest of their reasons, because the selector with
// that reason came closest to allowing the command.
type Reason int

// The reasons, in the order in which a selector checks them.
const (
	Allowed Reason = iota
	DeniedCommand
	DeniedKey
	DeniedChannel
	DeniedSteps // the patterns took too many steps to match: see matching
)

// Verdict is the result of a check.
type Verdict struct {
	Reason  Reason
	Command *Command // the command that was checked
	Object  string   // the command name, key or channel that was denied
}

// Check reports whether the user may run a command. args are its arguments,
// with the name as args[0]. The caller has checked the arity and holds no lock:
// Check yields while it matches patterns.
func (u *User) Check(cmd *Command, args [][]byte) Verdict {
	m := newMatching(len(args))
	m.yields = true
	return u.check(cmd, args, m)
}

func (u *User) check(cmd *Command, args [][]byte, m *matching) Verdict {
	at := 0
	worst := DeniedCommand
	ask := func(s *selector) bool {
		if m.left < 0 {
			return false // the remaining selectors are not checked
		}
		reason, pos := s.check(cmd, args, m)
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

// check returns Allowed, or the reason why the selector denies the command and
// the index of the denied argument.
func (s *selector) check(cmd *Command, args [][]byte, m *matching) (Reason, int) {
	m.spend(1)
	if !s.allCommands && cmd.Flags&fsm.NoAuth == 0 && !s.has(cmd) &&
		(len(args) < 2 || !s.hasFirstArg(cmd, codec.View(args[1]))) {
		return DeniedCommand, 0
	}
	if !s.allKeys {
		for _, k := range m.keysOf(cmd, args) {
			if !s.allowsKey(codec.View(args[k.pos]), k.need, m) {
				return m.denial(DeniedKey), k.pos
			}
		}
	}
	if !s.allChannels {
		from, to, pattern := channels(cmd, args)
		for pos := from; pos < to; pos++ {
			if !s.allowsChannel(codec.View(args[pos]), pattern, m) {
				return m.denial(DeniedChannel), pos
			}
		}
	}
	return Allowed, 0
}

// CheckPatterns checks a call that reads the values of keys that are not among its
// arguments. Such calls are SORT and SORT_RO with a pattern after BY or GET, and
// LOCK LIST, which returns the owners of all locks. The call is allowed if one
// selector allows both the command and reading all keys. CheckPatterns returns ""
// for a call that is allowed, and otherwise the error text. The text for SORT is
// Redis' own.
func (u *User) CheckPatterns(cmd *Command, args [][]byte) string {
	if cmd.KeyPattern == nil {
		return ""
	}
	option := cmd.KeyPattern(args)
	if option == "" {
		return ""
	}
	m := newMatching(len(args))
	ask := func(s *selector) bool {
		if m.left < 0 {
			return false
		}
		if reason, _ := s.check(cmd, args, m); reason != Allowed {
			return false
		}
		return s.allKeys || slices.ContainsFunc(s.keys,
			func(p keyPattern) bool { return p.pattern.String() == "*" && p.access&mayRead != 0 })
	}
	if ask(u.root) || slices.ContainsFunc(u.more, ask) {
		return ""
	}
	if m.left < 0 {
		return "NOPERM " + Verdict{Reason: DeniedSteps}.Denial()
	}
	if cmd.Full != "sort" && cmd.Full != "sort_ro" {
		return "NOPERM " + option + " needs the permission to read all keys (~* or %R~*)"
	}
	return "ERR " + option + " option of SORT denied due to insufficient ACL permissions."
}

// need returns the access that a key pattern must grant to a command. The
// argument a describes how the command uses the key. need returns 0 for a
// command that neither reads nor changes the value (EXISTS, TYPE). Then any
// pattern that matches the key suffices.
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

func (s *selector) allowsKey(key string, need access, m *matching) bool {
	if s.allKeys {
		return true
	}
	for i := range s.keys {
		p := &s.keys[i]
		if m.spend(1); p.access&need == need && m.match(&p.pattern, key) {
			return true
		}
	}
	return false
}

// allowsChannel reports whether the selector allows a channel. If pattern is
// true, channel is a pattern, and the selector must contain exactly this
// pattern.
func (s *selector) allowsChannel(channel string, pattern bool, m *matching) bool {
	if s.allChannels {
		return true
	}
	for i := range s.channels {
		p := &s.channels[i]
		if m.spend(1); p.String() == channel || !pattern && m.match(p, channel) {
			return true
		}
	}
	return false
}

// channels returns the range of a command's arguments that are channels, and
// whether they are patterns. The range is empty for commands that unsubscribe,
// because they are always allowed.
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

// AllowsChannel reports whether one of the user's selectors allows a channel or
// a pattern of channels. The client port calls it to decide whether a
// subscription may stay after a change of the user.
func (u *User) AllowsChannel(channel string, pattern bool) bool {
	m := newMatching(1)
	allows := func(s *selector) bool { return s.allowsChannel(channel, pattern, m) }
	return allows(u.root) || slices.ContainsFunc(u.more, allows)
}

// MayRead reports whether one of the user's selectors allows reading a key.
// Only then may the user receive the name of the key in an invalidation.
func (u *User) MayRead(key string) bool {
	m := newMatching(1)
	allows := func(s *selector) bool { return s.allowsKey(key, mayRead, m) }
	return allows(u.root) || slices.ContainsFunc(u.more, allows)
}

// Denial returns the text of the NOPERM error, without the code.
func (v Verdict) Denial() string {
	switch v.Reason {
	case DeniedCommand:
		return "this user has no permissions to run the '" + v.Command.Full + "' command"
	case DeniedKey:
		return "this user has no permissions to access one of the keys used as arguments"
	case DeniedChannel:
		return "this user has no permissions to access one of the channels used as arguments"
	case DeniedSteps:
		return "the patterns of this user take too many steps to match, use fewer or simpler patterns, or fewer keys"
	}
	return ""
}

// Explanation returns the reply of ACL DRYRUN. The reply names the denied
// command, key or channel.
func (v Verdict) Explanation() string {
	switch v.Reason {
	case DeniedCommand:
		return "This user has no permissions to run the '" + v.Command.Full + "' command"
	case DeniedKey:
		return "This user has no permissions to access the '" + v.Object + "' key"
	case DeniedChannel:
		return "This user has no permissions to access the '" + v.Object + "' channel"
	case DeniedSteps:
		return "The patterns of this user take too many steps to match '" + v.Object + "'"
	}
	return ""
}

// Script returns the error for a command that a script called. The text begins
// with the error code. The interpreter adds the position in the script.
func (v Verdict) Script() string {
	switch v.Reason {
	case DeniedCommand:
		return "ERR The user executing the script can't run this command or subcommand"
	case DeniedKey:
		return "ERR The user executing the script can't access at least one of the keys mentioned in the command " +
			"arguments"
	case DeniedChannel:
		return "ERR The user executing the script can't publish to the channel mentioned in the command"
	case DeniedSteps:
		return "ERR The patterns of the user executing the script take too many steps to match"
	}
	return ""
}
