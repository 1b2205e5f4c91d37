// Package matrix runs client and lock libraries against a real cluster of three
// nodes. The libraries connect to a follower, or to the node that they find by
// Sentinel or cluster commands. The leader is killed with kill -9 while they run.
// The results go into docs/compatibility.md (go test ./test/matrix -update; make
// matrix).
//
// Some libraries cannot be installed on the test machine. The tests replay
// them: they send the commands of the library in its order, and check the parts
// of the replies that the library checks. The scripts in these replays are not
// copies. They were written from a description of what the library's scripts
// do.
package matrix
