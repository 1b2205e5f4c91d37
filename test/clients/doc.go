// Package clients tests real client libraries, with their default options,
// against a real node. It covers three things: the commands that a library
// sends when it connects, the replies that it needs, and its recovery after its
// connection was cut.
//
// The libraries for Go are modules. The others are Debian packages:
// python3-redis, ruby-redis, php-redis, node-redis, libhiredis-dev and
// redis-tools. If one is missing, its test is skipped, or fails if
// HOLDFAST_REQUIRE_CLIENTS is 1.
package clients
