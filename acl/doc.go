// Package acl says who may run what: users, their passwords and their rules, in
// the language of Redis' ACL, and the check of a command against them.
//
// A User is made by rules, as ACL SETUSER takes them, and does not change once
// others can see it. Users are kept and travel as text (User.Rules): the
// replicated state holds that text and never interprets it. So a node that knows
// more commands than another, during an upgrade, may let its clients do more,
// but both hold the same state.
//
// A Catalog gives meaning to the names of commands in rules. The client port has
// one of all commands; a leader that checks what scripts call needs only the
// commands on data, and reads the rules leniently: a name that it does not know
// cannot be called through it.
//
// What is said of Redis here is 7.0.15's, found out by asking it: test/compat
// holds the two beside each other.
package acl
