// Package deploy tests the files that are shipped with the program. The files
// in deploy/ and docs/operations.md must name only flags and metrics that the
// program has. The cluster of deploy/compose.yml must keep a lock when the
// leader's container is killed.
package deploy
