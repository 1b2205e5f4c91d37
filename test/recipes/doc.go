// Package recipes contains the patterns that people build on Redis commands,
// such as locks, leader election, queues and counters, as code that runs. A
// page of docs/recipes shows the code of each recipe, and go run
// ./test/recipes/try runs it on a running cluster. The tests of this package
// run every recipe on three nodes and kill the leader with kill -9 in the
// middle of the run.
//
// Every recipe has a demonstration that fails if the promise of its page is
// broken, for example by two owners at a time, a lost update, or a job that is
// done twice.
package recipes
