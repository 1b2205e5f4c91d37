package serve

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
)

// users reads the users of --acl-file. serve calls it before it opens a port or the
// data directory, so a mistake in the file has no effect besides the error.
func (o *options) users() ([]*acl.User, error) {
	if o.access.aclFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.access.aclFile)
	if err != nil {
		return nil, fmt.Errorf("--acl-file: %w", err)
	}
	users, err := acl.ParseFile(resp.NewCatalog(command.NewTable()), o.access.aclFile, string(text))
	if err != nil {
		return nil, fmt.Errorf("--acl-file: %w", err)
	}
	isDefault := func(u *acl.User) bool { return u.Name == acl.DefaultUser }
	if o.access.requirePass != "" && slices.ContainsFunc(users, isDefault) {
		return nil, errors.New("--requirepass is set and --acl-file has a user default: give its password in one place")
	}
	return users, nil
}

// open reports whether the flags let clients in without a password.
func (o *options) open(users []*acl.User) bool {
	i := slices.IndexFunc(users, func(u *acl.User) bool { return u.Name == acl.DefaultUser })
	if i >= 0 {
		return users[i].Open()
	}
	return o.access.requirePass == ""
}
