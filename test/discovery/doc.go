// Package discovery tests how real client libraries find the leader by
// themselves, as clients of Redis Sentinel and as clients of Redis Cluster.
// They use clusters of three real processes whose leader is killed during the
// test. The package also compares the replies of the nodes to the queries of
// such clients with the replies of a real Sentinel and of a real cluster of one
// shard, byte for byte.
//
// Package clients says which libraries the tests need.
package discovery
