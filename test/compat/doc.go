// Package compat sends the same commands to a real Redis and to Holdfast, in
// RESP2 and in RESP3, and compares the replies byte for byte. Replies without an
// order are sorted first, and times may differ a little. permitted_test.go lists
// the other replies that may differ, each with the reason.
//
// The tests need redis-server. Without it they are skipped, or fail if
// HOLDFAST_REQUIRE_REDIS is 1.
package compat
