package acl

//lint:file-ignore ST1005 Redis begins these texts with a capital letter, and clients see them.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/glob"
)

// Errors of rules, in Redis' words.
var (
	errUnknown = errors.New("Unknown command or category name in ACL")
	errSyntax  = errors.New("Syntax error")
	errAllKeys = errors.New("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does " +
		"not have any effect. Try 'resetkeys' to start with an empty list of patterns")
	errAllChannels = errors.New("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and " +
		"does not have any effect. Try 'resetchannels' to start with an empty list of channels")
	errNoPassword = errors.New("The password you are trying to remove from the user does not exist")
	errPasswords  = fmt.Errorf("a user may have at most %d passwords", maxPasswords)
	errHash       = errors.New("The password hash must be exactly 64 characters and contain only lowercase " +
		"hexadecimal characters")
	errFirstArg = errors.New("Allowing first-arg of a subcommand is not supported")
)

// access is the kind of access that a key pattern grants.
type access byte

const (
	mayRead access = 1 << iota
	mayWrite
	mayAll = mayRead | mayWrite
)

// keyPattern is a pattern of keys and the access that it grants.
type keyPattern struct {
	pattern glob.Pattern
	access  access
}

func (p keyPattern) String() string {
	switch p.access {
	case mayRead:
		return "%R~" + p.pattern.String()
	case mayWrite:
		return "%W~" + p.pattern.String()
	}
	return "~" + p.pattern.String()
}

// selector is a set of commands with the keys and channels that they may
// access. A user has a root selector, and one more for each list of rules in
// parentheses. A user may run a command if a single selector allows the command
// and all its keys and channels.
type selector struct {
	allCommands, allKeys, allChannels bool

	// future is set if +@all was the last rule about all commands. Such a rule
	// also allows the commands of later versions.
	future bool

	allowed   []uint64         // bit Command.id is set for each allowed command
	firstArgs map[int][]string // key: Command.id
	// rules contains the + and - rules since the last rule about @all, as ACL
	// LIST prints them. It does not contain rules that a later rule replaces.
	rules    []string
	keys     []keyPattern
	channels []glob.Pattern
}

func newSelector(c *Catalog, allChannels bool) *selector {
	return &selector{allChannels: allChannels, allowed: make([]uint64, len(c.commands)/64+1)}
}

func (s *selector) clone() *selector {
	n := *s
	n.allowed = slices.Clone(s.allowed)
	n.rules, n.keys, n.channels = slices.Clone(s.rules), slices.Clone(s.keys), slices.Clone(s.channels)
	n.firstArgs = make(map[int][]string, len(s.firstArgs))
	for id, args := range s.firstArgs {
		n.firstArgs[id] = slices.Clone(args)
	}
	return &n
}

func (s *selector) has(cmd *Command) bool { return s.allowed[cmd.id/64]&(1<<(cmd.id%64)) != 0 }

func (s *selector) setBit(cmd *Command, allow bool) {
	if allow {
		s.allowed[cmd.id/64] |= 1 << (cmd.id % 64)
		return
	}
	s.allowed[cmd.id/64] &^= 1 << (cmd.id % 64)
	s.allCommands = false
}

// set allows or forbids a command and its subcommands.
func (s *selector) set(cmd *Command, allow bool) {
	s.setBit(cmd, allow)
	delete(s.firstArgs, cmd.id)
	for _, sub := range cmd.subs {
		s.setBit(sub, allow)
	}
}

// setAll applies +@all or -@all.
func (s *selector) setAll(allow bool) {
	var bits uint64
	if allow {
		bits = ^uint64(0)
	}
	for i := range s.allowed {
		s.allowed[i] = bits
	}
	s.allCommands, s.future = allow, allow
	s.rules, s.firstArgs = nil, nil
}

// recordRule adds a rule to s.rules. The new rule replaces earlier rules about
// the same category, or about the same command and its subcommands.
func (s *selector) recordRule(sign byte, name string) {
	s.rules = slices.DeleteFunc(s.rules, func(r string) bool {
		r = r[1:]
		return len(r) >= len(name) && strings.EqualFold(r[:len(name)], name) &&
			(len(r) == len(name) || r[len(name)] == '|')
	})
	s.rules = append(s.rules, string(sign)+name)
}

// apply applies one rule of a selector. If lenient is set, a rule about a
// command or category that the catalog does not know has no effect.
func (s *selector) apply(c *Catalog, rule string, lenient bool) error {
	switch low := strings.ToLower(rule); {
	case low == "allkeys" || low == "~*":
		s.allKeys, s.keys = true, nil
	case low == "resetkeys":
		s.allKeys, s.keys = false, nil
	case low == "allchannels" || low == "&*":
		s.allChannels, s.channels = true, nil
	case low == "resetchannels":
		s.allChannels, s.channels = false, nil
	case low == "allcommands" || low == "+@all":
		s.setAll(true)
	case low == "nocommands" || low == "-@all":
		s.setAll(false)
	case rule[0] == '~' || rule[0] == '%':
		return s.addKeys(rule)
	case rule[0] == '&':
		return s.addChannels(rule[1:])
	case rule[0] == '+' || rule[0] == '-':
		err := s.applyCommand(c, rule[0], rule[1:])
		if lenient && errors.Is(err, errUnknown) {
			s.recordRule(rule[0], low[1:])
			return nil
		}
		return err
	default:
		return errSyntax
	}
	return nil
}

func (s *selector) addKeys(rule string) error {
	if s.allKeys {
		return errAllKeys
	}
	may, pattern := mayAll, rule[1:]
	if rule[0] == '%' {
		may = 0
	loop:
		for i := 1; ; i++ {
			switch {
			case i == len(rule): // "%R" without ~ is a pattern that matches the empty key
				pattern = ""
				break loop
			case (rule[i] == 'R' || rule[i] == 'r') && may&mayRead == 0:
				may |= mayRead
			case (rule[i] == 'W' || rule[i] == 'w') && may&mayWrite == 0:
				may |= mayWrite
			case rule[i] == '~':
				pattern = rule[i+1:]
				break loop
			default:
				return errSyntax
			}
		}
		if may == 0 {
			return errSyntax
		}
	}
	if hasBlank(pattern) {
		return errSyntax
	}
	for i := range s.keys {
		if s.keys[i].pattern.String() == pattern {
			s.keys[i].access |= may
			return nil
		}
	}
	s.keys = append(s.keys, keyPattern{glob.NewPattern(pattern), may})
	return nil
}

func (s *selector) addChannels(pattern string) error {
	switch {
	case s.allChannels:
		return errAllChannels
	case hasBlank(pattern):
		return errSyntax
	case !slices.ContainsFunc(s.channels, func(p glob.Pattern) bool { return p.String() == pattern }):
		s.channels = append(s.channels, glob.NewPattern(pattern))
	}
	return nil
}

// applyCommand applies a rule about a command or a category. name is the rule
// without its sign.
func (s *selector) applyCommand(c *Catalog, sign byte, name string) error {
	allow := sign == '+'
	if cat, ok := strings.CutPrefix(name, "@"); ok {
		bit, ok := category(cat)
		if !ok {
			return errUnknown
		}
		for _, cmd := range c.commands {
			if cmd.categories&bit != 0 {
				s.set(cmd, allow)
			}
		}
		s.recordRule(sign, strings.ToLower(name))
		return nil
	}
	bar := strings.LastIndexByte(name, '|')
	if !allow || bar < 0 {
		cmd := c.find(name)
		if cmd == nil {
			return errUnknown
		}
		s.set(cmd, allow)
		s.recordRule(sign, cmd.Full)
		return nil
	}
	cmd, sub := c.find(name[:bar]), name[bar+1:]
	switch {
	case cmd == nil:
		return errUnknown
	case cmd.parent != nil:
		return errFirstArg
	// Redis accepts a name with blanks. But Redis cannot parse the text that
	// ACL LIST then prints for this rule.
	case sub == "" || hasBlank(sub):
		return errSyntax
	case cmd.subs == nil:
		if s.addFirstArg(cmd, sub) {
			s.recordRule(sign, cmd.Full+"|"+sub)
		}
		return nil
	default:
		if cmd = cmd.subs[strings.ToLower(sub)]; cmd == nil {
			return errUnknown
		}
		s.set(cmd, true)
	}
	s.recordRule(sign, cmd.Full)
	return nil
}

// addFirstArg allows a command only with one first argument ("+select|0"). It
// reports whether the selector has changed.
func (s *selector) addFirstArg(cmd *Command, arg string) bool {
	if s.hasFirstArg(cmd, arg) {
		return false
	}
	if s.firstArgs == nil {
		s.firstArgs = make(map[int][]string)
	}
	s.firstArgs[cmd.id] = append(s.firstArgs[cmd.id], arg)
	return true
}

func (s *selector) hasFirstArg(cmd *Command, arg string) bool {
	return slices.ContainsFunc(s.firstArgs[cmd.id], func(a string) bool { return strings.EqualFold(a, arg) })
}

// commandRules returns the rules about commands as text.
func (s *selector) commandRules() string {
	first := "-@all"
	if s.future {
		first = "+@all"
	}
	return strings.Join(append([]string{first}, s.rules...), " ")
}

// keyRules returns the key patterns as text.
func (s *selector) keyRules() string {
	if s.allKeys {
		return "~*"
	}
	words := make([]string, len(s.keys))
	for i, p := range s.keys {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}

// channelRules returns the channel patterns as text.
func (s *selector) channelRules() string {
	if s.allChannels {
		return "&*"
	}
	words := make([]string, len(s.channels))
	for i, p := range s.channels {
		words[i] = "&" + p.String()
	}
	return strings.Join(words, " ")
}

// ruleList returns the selector's rules as ACL LIST prints them. If exact is set,
// parsing the result yields an equal selector. Without exact, a selector with the
// key pattern * may become one with allkeys, because Redis prints that pattern in
// a form that parses as allkeys.
func (s *selector) ruleList(exact bool) []string {
	var out []string
	switch {
	case s.allKeys:
		out = append(out, "~*")
	default:
		for _, p := range s.keys {
			if exact && p.access == mayAll && p.pattern.String() == "*" {
				out = append(out, "%RW~*")
			} else {
				out = append(out, p.String())
			}
		}
	}
	if !s.allChannels {
		out = append(out, "resetchannels")
	}
	if rules := s.channelRules(); rules != "" {
		out = append(out, rules)
	}
	return append(out, s.commandRules())
}

// hasBlank reports whether s contains a character that separates rules, or a
// zero byte.
func hasBlank(s string) bool { return strings.ContainsAny(s, " \t\n\v\f\r\x00") }

// fields splits s at the characters that hasBlank finds.
func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r < 0x80 && hasBlank(string(r)) })
}
