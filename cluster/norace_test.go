//go:build !race

package cluster_test

const underRace = false

// slowdown is a factor of the timeouts of the tests' clusters.
const slowdown = 1
