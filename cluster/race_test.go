//go:build race

package cluster_test

// underRace: the race detector looks at every byte that is copied, which makes
// tests of many megabytes take minutes.
const underRace = true

// slowdown stretches the timeouts of the tests' clusters: the race detector makes
// everything several times as slow, and an election every half second helps nobody.
const slowdown = 3
