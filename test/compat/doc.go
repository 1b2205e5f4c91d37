// Package compat holds tests that send the same commands to a real Redis and to
// Holdfast and compare the replies byte for byte, in RESP2 and in RESP3. What may
// differ is in one list (permitted_test.go), with the reason.
//
// The tests need redis-server and are skipped without it, or fail if
// HOLDFAST_REQUIRE_REDIS=1 is set.
package compat
