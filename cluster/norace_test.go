//go:build !race

package cluster_test

const underRace = false

// slowdown multiplies the timeouts of the tests' clusters.
const slowdown = 1
