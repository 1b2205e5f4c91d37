//go:build race

package cluster_test

// underRace: the race detector looks at every byte that is copied, which makes
// tests of many megabytes take minutes.
const underRace = true
