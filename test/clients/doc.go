// Package clients connects real client libraries, with their defaults, to a real
// node: what a library sends as it connects, what it needs of the answers, and
// that it finds its way back after its connection was cut.
//
// Libraries in Go come with the module. Those of other languages are what Debian
// packages: python3-redis, ruby-redis, php-redis, node-redis, libhiredis-dev and
// redis-tools. Where one is missing its test is skipped, unless
// HOLDFAST_REQUIRE_CLIENTS is 1.
package clients
