// Package discovery tests how real client libraries find the leader by
// themselves, as clients of Redis Sentinel and as clients of Redis Cluster. The
// tests use clusters of three real processes and kill the leader. The package
// also compares the replies of the nodes to the queries of such clients with
// those of a real Sentinel and of a real Redis Cluster of one shard. Values that
// must differ, such as ids and times, are left out.
//
// The comment of package clients says which libraries the tests need.
package discovery
