//go:build !race

package cluster_test

const underRace = false
