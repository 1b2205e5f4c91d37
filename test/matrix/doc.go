// Package matrix runs client and lock libraries against a real three-node cluster,
// connected to a follower, while the leader is killed with kill -9, and writes what
// it saw into docs/compatibility.md (go test ./test/matrix -update; make matrix).
//
// Libraries that cannot be installed here are replayed: what they send is sent, in
// their order, and what they look at in the replies is looked at. Their scripts are
// written anew from what they do.
package matrix
