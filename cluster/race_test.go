//go:build race

package cluster_test

// underRace is true under the race detector. The detector checks every byte that
// is copied, so tests with many megabytes take minutes.
const underRace = true

// slowdown multiplies the timeouts of the tests' clusters. The race detector makes
// everything several times slower. Without longer timeouts, followers would often
// campaign although their leader is alive.
const slowdown = 3
