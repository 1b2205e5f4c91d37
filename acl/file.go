package acl

import (
	"errors"
	"fmt"
	"strings"
)

// ParseFile reads users from the text of an ACL file in Redis' form: on each
// line the word user, a name, and rules. Empty lines are passed over; a comment
// is an error, as in Redis. An error names the file, as name, and the line; all
// lines with errors are in it.
func ParseFile(c *Catalog, name, text string) ([]*User, error) {
	var users []*User
	var errs []error
	seen := make(map[string]bool)
	for i, line := range strings.Split(text, "\n") {
		words := fields(line)
		if len(words) == 0 {
			continue
		}
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: "+format, append([]any{name, i + 1}, args...)...))
		}
		switch {
		case words[0] != "user" || len(words) < 2:
			fail("should start with user keyword followed by the username")
			continue
		case seen[words[1]]:
			fail("user %q stands in the file twice", words[1])
			continue
		}
		seen[words[1]] = true
		u, err := NewUser(c, words[1], Options{}).Apply(c, words[2:], Options{})
		if err != nil {
			fail("user %q: %w", words[1], err)
			continue
		}
		users = append(users, u)
	}
	return users, errors.Join(errs...)
}
