"""redis-py with Sentinel. The program uses one client object all the time."""
import sys

from redis.sentinel import Sentinel

addrs = [(a.rsplit(":", 1)[0], int(a.rsplit(":", 1)[1])) for a in sys.argv[1:]]
sentinel = Sentinel(addrs, socket_timeout=0.5, min_other_sentinels=1)
master = sentinel.master_for("mymaster", socket_timeout=5)
for line in sys.stdin:
    words = line.split()
    try:
        if words[0] == "set":
            assert master.set(words[1], words[2]) is True
            print("ok", flush=True)
        else:
            assert len(sentinel.discover_slaves("mymaster")) >= 1
            print("ok", master.info("server")["tcp_port"], flush=True)
    except Exception as e:
        print("error", repr(e).replace("\n", " "), flush=True)
