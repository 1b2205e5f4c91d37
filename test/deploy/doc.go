// Package deploy tests what is shipped around the program: that the files of
// deploy/ and docs/operations.md speak of flags and metrics that the program
// has, and that deploy/compose.yml keeps a lock when the leader's container is
// killed.
package deploy
