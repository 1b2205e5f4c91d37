package discovery

import "testing"

// library is a client library of another language. testdata has a script for
// each way in which the library can find the leader.
type library struct{ name, program, probe, sentinel, cluster string }

var libraries = []library{
	{"python3-redis", "/usr/bin/python3", "import redis", "sentinel.py", "cluster.py"},
	{"ruby-redis", "ruby", "require 'redis'", "sentinel.rb", "cluster.rb"},
	{"php-redis", "php", "exit(class_exists('Redis') ? 0 : 1);", "sentinel.php", "cluster.php"},
	{"node-redis", "node", "require('redis')", "", "cluster.js"}, // node-redis 4.5 does not support Sentinel
}

func TestSentinel_Scripts(t *testing.T) {
	for _, l := range libraries {
		if l.sentinel == "" {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			c := sentinels(t)
			follow(t, c, startScript(t, l.name, l.program, l.probe, l.sentinel, c.addrs(sentinelOf)...))
		})
	}
}

func TestCluster_Scripts(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			c := shard(t)
			follow(t, c, startScript(t, l.name, l.program, l.probe, l.cluster, c.addrs(clientsOf)...))
		})
	}
}
