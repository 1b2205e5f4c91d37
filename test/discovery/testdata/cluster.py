"""The cluster client of redis-py. The first of its addresses is that of a follower.

Version 4.3.4 queries the nodes again when its master is gone, but then fails with
"cannot pickle", because of its own locks. So after an error, the program makes a new
client.
"""
import sys

from redis.cluster import ClusterNode, RedisCluster

addrs = [a.rsplit(":", 1) for a in sys.argv[1:]]
cluster = None
for line in sys.stdin:
    words = line.split()
    try:
        if cluster is None:
            cluster = RedisCluster(startup_nodes=[ClusterNode(h, int(p)) for h, p in addrs])
        if words[0] == "set":
            assert cluster.set(words[1], words[2]) is True
            print("ok", flush=True)
        else:
            node = cluster.get_node_from_key("any")
            assert node.server_type == "primary", node
            print("ok", node.port, flush=True)
    except Exception as e:
        cluster = None
        print("error", repr(e).replace("\n", " "), flush=True)
