// Package verify implements "holdfast verify", which tests the guarantees of a
// running cluster, or of clusters that it starts and injects faults into.
package verify
