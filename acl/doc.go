// Package acl implements access control: users with their passwords and their
// rules, and the check of a command against the rules. The rules have the
// syntax of Redis' ACL.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// A User is made from rules in the syntax of ACL SETUSER. A User does not
// change once other goroutines can see it. Users are stored and sent as text
// (User.Rules). The replicated state contains that text and never interprets
// it. So during an upgrade, a node that knows more commands than another may
// allow its clients more, but the states of both nodes are equal.
//
// A Catalog gives meaning to the names of commands in rules. The client port
// has a catalog of all commands. A Guard, which checks the commands of scripts,
// needs only a catalog of the commands that scripts can call (ScriptCatalog). So
// it parses the rules leniently: a rule about another command has no effect.
//
// Statements about Redis in this package refer to version 7.0.15 and were found
// by experiment; test/compat compares Holdfast with that version.
package acl
