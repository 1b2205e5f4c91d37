// Package verify tests the guarantees of a cluster for "holdfast verify": of a
// cluster that runs, or of clusters that it starts and injects faults into.
package verify
