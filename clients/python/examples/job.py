"""Does a piece of work in parts while it holds a lock: job.py HOST:PORT...

Start it several times: the processes work one after another, in the order in which
they began to wait. Kill a node meanwhile: the job continues.
"""

import os
import sys

from holdfast_lock import Lock, Nodes


def main(addresses, parts=10):
    pause = float(os.environ.get("PAUSE", "1"))  # seconds for each part
    with Lock(Nodes.from_addresses(addresses), "example:job", ttl=10, meta="example") as held:
        for part in range(parts):
            if held.lost.wait(pause):
                held.check()  # raises the error that says why held.lost is set
            print(f"part {part + 1} of {parts} with token {held.token}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
