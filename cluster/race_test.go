//go:build race

package cluster_test

// underRace is true under the race detector. The detector looks at every byte
// that is copied, which makes tests with many megabytes take minutes.
const underRace = true

// slowdown is a factor of the timeouts of the tests' clusters. The race detector
// makes everything several times slower, and without longer timeouts there
// would be an election every half second.
const slowdown = 3
