// Package recipes holds the patterns that people build on Redis commands (locks,
// leader election, queues, counters, …) as code that runs: each is shown on a page
// of docs/recipes, can be tried on a running cluster (go run ./test/recipes/try),
// and is run by this package's test on three nodes whose leader is killed with
// kill -9 in the middle.
//
// A recipe brings a demonstration that fails by itself when the promise of its page
// is broken: two owners at a time, a lost update, a job done twice.
package recipes
