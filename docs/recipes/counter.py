"""Unique numbers that begin at a chosen value: python3 counter.py [host:port]"""
import sys

import redis

host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:6379").split(":")
client = redis.Redis(host=host, port=int(port), socket_timeout=30)


def next_number(key, first):
    with client.pipeline(transaction=True) as block:
        block.setnx(key, first - 1)
        block.incr(key)
        return block.execute()[1]


client.delete("recipe:py-counter")
drawn = []
for i in range(200):
    drawn.append(next_number("recipe:py-counter", 1000))
    if i == 100:
        print("half", flush=True)
# This client's node lived, so no number was drawn twice and none is missing.
assert drawn == list(range(1000, 1200)), drawn
print("200 numbers, none twice, none missing")
