"""redis-py over TLS: by address, by Sentinel, and both with asyncio.

Each line of standard input is a word. For each word, the script writes four keys,
one through each of its four clients, and reads them back. It never makes new clients.
"""
import asyncio
import sys

import redis
import redis.asyncio
import redis.asyncio.sentinel
from redis.sentinel import Sentinel

ca, cert, key, node = sys.argv[1:5]
host, port = node.rsplit(":", 1)
sentinels = [(a.rsplit(":", 1)[0], int(a.rsplit(":", 1)[1])) for a in sys.argv[5:]]
tls = dict(ssl=True, ssl_ca_certs=ca, ssl_certfile=cert, ssl_keyfile=key, socket_timeout=10)
ask = dict(tls, socket_timeout=1)

one = redis.Redis(host, int(port), **tls)
master = Sentinel(sentinels, sentinel_kwargs=ask, **tls).master_for("mymaster")


async def retry(attempt):
    """Repeat an attempt: a client that uses Sentinel gets errors while no node leads."""
    for n in range(100):
        try:
            return await attempt()
        except (redis.RedisError, OSError):
            if n == 99:
                raise
            await asyncio.sleep(0.1)


async def main():
    aone = redis.asyncio.Redis(host=host, port=int(port), **tls)
    amaster = redis.asyncio.sentinel.Sentinel(sentinels, sentinel_kwargs=ask, **tls).master_for("mymaster")

    async def sync_write(name):
        return master.set(name, "v")

    for line in sys.stdin:
        word = line.strip()
        try:
            assert one.set(word + "1", "v", nx=True, ex=600) is True
            assert await aone.set(word + "2", "v", nx=True, ex=600) is True
            assert await retry(lambda: sync_write(word + "3")) is True
            assert await retry(lambda: amaster.set(word + "4", "v")) is True
            values = await aone.mget(*[word + str(i) for i in range(1, 5)])
            assert values == [b"v"] * 4, values
            print("ok", flush=True)
        except Exception as e:
            print("error", repr(e).replace("\n", " "), flush=True)


asyncio.run(main())
