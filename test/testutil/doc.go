// Package testutil has the helpers that the tests of all packages share: waits,
// a Redis to compare with, connections in memory, and a log that a test can
// read. It imports nothing of the product, so that the tests inside a package
// of the product can import it too.
package testutil
