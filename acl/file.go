package acl

import (
	"errors"
	"fmt"
	"strings"
)

// ParseFile parses the text of an ACL file in Redis' format: each line has the
// word user, a name, and rules. Empty lines are skipped. A comment is an error,
// as in Redis. The returned error joins the errors of all lines. The error of a
// line begins with name, which is the name of the file, and the number of the
// line.
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
			fail("user %q occurs twice in the file", words[1])
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
