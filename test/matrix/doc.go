// Package matrix runs client and lock libraries against a real cluster of three
// nodes. The libraries connect to a follower, and the leader is killed with
// kill -9 while they run. The results go into docs/compatibility.md (go test
// ./test/matrix -update; make matrix).
//
// Libraries that cannot be installed here are replayed. The tests send the
// commands that the library sends, in its order, and check the parts of the
// replies that the library checks. The scripts of these libraries are not copies:
// they were written from a description of their behavior.
package matrix
