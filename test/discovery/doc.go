// Package discovery has real client libraries find the leader by themselves, by
// Redis Sentinel and as clients of Redis Cluster, in clusters of three real
// processes whose leader is killed in the middle; and compares what the nodes
// answer to the questions of such clients with a real Sentinel and a real cluster
// of one shard, byte for byte.
//
// Which libraries are needed is said in package clients.
package discovery
