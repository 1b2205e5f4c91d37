package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
)

// users reads --acl-file. serve calls it before it opens anything, so that a
// mistake in the file leaves nothing behind.
func (o *serveOptions) users() ([]*acl.User, error) {
	if o.aclFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.aclFile)
	if err != nil {
		return nil, fmt.Errorf("--acl-file: %w", err)
	}
	users, err := acl.ParseFile(resp.NewCatalog(command.NewTable()), o.aclFile, string(text))
	if err != nil {
		return nil, fmt.Errorf("--acl-file: %w", err)
	}
	if o.requirePass != "" && slices.ContainsFunc(users, func(u *acl.User) bool { return u.Name == acl.DefaultUser }) {
		return nil, errors.New("--requirepass is set and --acl-file has a user default: give its password in one place")
	}
	return users, nil
}

// open reports whether the flags let clients in without a password.
func (o *serveOptions) open(users []*acl.User) bool {
	i := slices.IndexFunc(users, func(u *acl.User) bool { return u.Name == acl.DefaultUser })
	if i >= 0 {
		return users[i].Open()
	}
	return o.requirePass == ""
}
