package acl

//lint:file-ignore ST1005 Redis begins these texts with a capital letter, and clients see them.

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DefaultUser is the user of a connection that has not authenticated as another
// user.
const DefaultUser = "default"

// maxPasswords bounds the passwords of a user. If a user had more passwords,
// its rules would be longer than fsm.MaxUserBytes. In the text that User.Rules
// returns, a password takes a blank, the character # and its hash.
const maxPasswords = 64 << 10 / (len(" #") + 2*sha256.Size)

// User is a user with its rules. It is immutable except for SetPassword: Apply
// returns a new User.
type User struct {
	Name string

	enabled, noPass bool
	// skipSanitize and sanitize have no effect. They are stored only so that
	// ACL LIST can print them.
	skipSanitize bool
	sanitize     bool
	passwords    []string // SHA-256, hexadecimal
	root         *selector
	more         []*selector
}

// Options affect how NewUser makes a user, and how Apply applies rules.
type Options struct {
	// AllChannels lets a new user, a new selector, or a reset user access all
	// channels (acl-pubsub-default allchannels).
	AllChannels bool
	// If Lenient is set, a rule about a command or category that the
	// catalog does not know has no effect. Otherwise, such a rule is an
	// error.
	Lenient bool
}

// NewUser returns a user that may do nothing, not even authenticate.
func NewUser(c *Catalog, name string, o Options) *User {
	return &User{Name: name, root: newSelector(c, o.AllChannels)}
}

// NewDefault returns the default user as it is before any change: it may do
// everything, and it has the given password. If password is empty, a client
// needs no password.
func NewDefault(c *Catalog, password string) *User {
	u := NewUser(c, DefaultUser, Options{AllChannels: true})
	u.enabled, u.root.allKeys = true, true
	u.root.setAll(true)
	u.SetPassword(password)
	return u
}

// SetPassword makes password the only password of the user. If password is
// empty, the user needs no password. CONFIG SET requirepass has the same
// effect. The user must not be visible to other goroutines yet.
func (u *User) SetPassword(password string) {
	u.noPass, u.passwords = password == "", nil
	if password != "" {
		u.passwords = []string{HashPassword(password)}
	}
}

// ValidName reports whether name is a valid name of a user.
func ValidName(name string) bool { return !hasBlank(name) }

// Apply returns the user that results from applying rules to u, which stays
// unchanged. The error is Redis' text for ACL SETUSER, without the code.
func (u *User) Apply(c *Catalog, rules []string, o Options) (*User, error) {
	rules, err := joinSelectors(rules)
	if err != nil {
		return nil, err
	}
	n := u.Clone()
	for _, rule := range rules {
		if err := n.apply(c, rule, o); err != nil {
			return nil, fmt.Errorf("Error in ACL SETUSER modifier '%s': %w", rule, err)
		}
	}
	return n, nil
}

// Parse makes a user from the text that Rules has returned. The user keeps rules
// about commands and categories that the catalog does not know, but these rules
// have no effect. Parse returns an error only for a text that Rules did not make.
func Parse(c *Catalog, name, rules string) (*User, error) {
	u, err := NewUser(c, name, Options{}).Apply(c, fields(rules), Options{Lenient: true})
	if err != nil {
		return nil, fmt.Errorf("rules of user %q: %w", name, err)
	}
	return u, nil
}

// Clone returns a copy that may be changed.
func (u *User) Clone() *User {
	n := *u
	n.passwords = slices.Clone(u.passwords)
	n.root = u.root.clone()
	n.more = slices.Clone(u.more) // a shallow copy suffices: these selectors do not change
	return &n
}

// joinSelectors joins the arguments of each selector that spans several
// arguments.
func joinSelectors(rules []string) ([]string, error) {
	var out []string
	open := -1
	for i, rule := range rules {
		switch {
		case open >= 0:
			out[len(out)-1] += " " + rule
			if strings.HasSuffix(rule, ")") {
				open = -1
			}
		case strings.HasPrefix(rule, "(") && !strings.HasSuffix(rule, ")"):
			open = i
			out = append(out, rule)
		default:
			out = append(out, rule)
		}
	}
	if open >= 0 {
		return nil, errors.New("Unmatched parenthesis in acl selector starting at '" + rules[open] + "'.")
	}
	return out, nil
}

func (u *User) apply(c *Catalog, rule string, o Options) error {
	if rule == "" {
		return nil
	}
	switch low := strings.ToLower(rule); {
	case low == "on":
		u.enabled = true
	case low == "off":
		u.enabled = false
	case low == "skip-sanitize-payload":
		u.skipSanitize, u.sanitize = true, false
	case low == "sanitize-payload":
		u.skipSanitize, u.sanitize = false, true
	case low == "nopass":
		u.noPass, u.passwords = true, nil
	case low == "resetpass":
		u.noPass, u.passwords = false, nil
	case rule[0] == '>' || rule[0] == '#':
		hash, err := passwordHash(rule)
		if err != nil {
			return err
		}
		if !slices.Contains(u.passwords, hash) {
			// Each new password is compared with all others. So the limit is
			// checked here, and not only after all rules.
			if len(u.passwords) >= maxPasswords {
				return errPasswords
			}
			u.passwords = append(u.passwords, hash)
		}
		u.noPass = false
	case rule[0] == '<' || rule[0] == '!':
		hash, err := passwordHash(rule)
		if err != nil {
			return err
		}
		i := slices.Index(u.passwords, hash)
		if i < 0 {
			return errNoPassword
		}
		u.passwords = slices.Delete(u.passwords, i, i+1)
	case rule[0] == '(' && rule[len(rule)-1] == ')':
		s := newSelector(c, o.AllChannels)
		for _, r := range fields(rule[1:max(1, len(rule)-1)]) {
			// Redis accepts a rule that ends with ). But Redis cannot parse the
			// text that ACL LIST then prints for this rule.
			if strings.HasSuffix(r, ")") {
				return errSyntax
			}
			if err := s.apply(c, r, o.Lenient); err != nil {
				return err
			}
		}
		u.more = append(u.more, s)
	case low == "clearselectors":
		u.more = nil
	case low == "reset":
		*u = User{Name: u.Name, root: newSelector(c, o.AllChannels), sanitize: true}
	default:
		return u.root.apply(c, rule, o.Lenient)
	}
	return nil
}

// passwordHash returns the hash of the password in a rule, or the hash that the
// rule contains.
func passwordHash(rule string) (string, error) {
	if rule[0] == '>' || rule[0] == '<' {
		return HashPassword(rule[1:]), nil
	}
	hash := rule[1:]
	if len(hash) != 2*sha256.Size || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", errHash
	}
	return hash, nil
}

// HashPassword returns the form in which passwords are stored.
func HashPassword(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// Authenticate reports whether the user may log in with password. The
// comparison takes the same time for all passwords.
func (u *User) Authenticate(password string) bool {
	given := HashPassword(password)
	same := 0
	for _, want := range u.passwords { // all hashes have the same length
		same |= subtle.ConstantTimeCompare([]byte(given), []byte(want))
	}
	return u.enabled && (u.noPass || same == 1)
}

// HasPassword reports whether the user has the given password.
func (u *User) HasPassword(password string) bool {
	return slices.Contains(u.passwords, HashPassword(password))
}

// SamePasswords reports whether u and other let a client log in with the same
// passwords.
func (u *User) SamePasswords(other *User) bool {
	return u.enabled == other.enabled && u.noPass == other.noPass && slices.Equal(u.passwords, other.passwords)
}

// Open reports whether a client can become this user without a password.
func (u *User) Open() bool { return u.enabled && u.noPass }

// NoPass reports whether the user accepts any password.
func (u *User) NoPass() bool { return u.noPass }

// Unrestricted reports whether the user may do everything.
func (u *User) Unrestricted() bool { return u.root.allCommands && u.root.allKeys && u.root.allChannels }

// Flags returns the user's flags, as ACL GETUSER prints them.
func (u *User) Flags() []string {
	words := []string{"off"}
	if u.enabled {
		words[0] = "on"
	}
	if u.noPass {
		words = append(words, "nopass")
	}
	if u.skipSanitize {
		words = append(words, "skip-sanitize-payload")
	}
	if u.sanitize {
		words = append(words, "sanitize-payload")
	}
	return words
}

// Passwords returns the hashes of the user's passwords.
func (u *User) Passwords() []string { return slices.Clone(u.passwords) }

// Selector is a part of a user's rules, as ACL GETUSER prints it.
type Selector struct{ Commands, Keys, Channels string }

// Selectors returns the root selector and the other selectors.
func (u *User) Selectors() (root Selector, more []Selector) {
	describe := func(s *selector) Selector { return Selector{s.commandRules(), s.keyRules(), s.channelRules()} }
	for _, s := range u.more {
		more = append(more, describe(s))
	}
	return describe(u.root), more
}

// String returns the user's line of ACL LIST.
func (u *User) String() string { return "user " + u.Name + " " + u.rules(false) }

// Rules returns a text from which Parse makes an equal user.
func (u *User) Rules() string { return u.rules(true) }

func (u *User) rules(exact bool) string {
	words := u.Flags()
	for _, hash := range u.passwords {
		words = append(words, "#"+hash)
	}
	words = append(words, u.root.ruleList(exact)...)
	for _, s := range u.more {
		words = append(words, "("+strings.Join(s.ruleList(exact), " ")+")")
	}
	return strings.Join(words, " ")
}
