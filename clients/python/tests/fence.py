"""Checks holdfast_lock.fence. It needs no cluster."""

import asyncio
import sys
import threading
import urllib.error
import urllib.request
from wsgiref.simple_server import WSGIRequestHandler, make_server

from holdfast_lock.fence import HEADER, AsyncFence, Fence

STEPS = [  # path, token, and the status that the middleware must return
    ("/a", "", 428),
    ("/a", "0", 428),
    ("/a", "-1", 428),
    ("/a", "x", 428),
    ("/a", "9" * 30, 428),
    ("/a", "5", 200),
    ("/a", "5", 200),
    ("/a", "4", 412),
    ("/b", "4", 200),
    ("/a", "6", 200),
    ("/a", "5", 412),
]


def check(what, got, want):
    if got != want:
        sys.exit(f"FAILED: {what}: {got!r}, want {want!r}")


def wsgi():
    done = []

    def app(environ, start_response):
        done.append(environ["HTTP_LOCK_TOKEN"])
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"done"

    class Quiet(WSGIRequestHandler):
        def log_message(self, *args):
            pass

    fence = Fence(app, lambda environ: environ["PATH_INFO"])
    with make_server("127.0.0.1", 0, fence, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for path, token, want in STEPS:
                url = f"http://127.0.0.1:{server.server_port}{path}"
                request = urllib.request.Request(url, method="PUT", headers={HEADER: token} if token else {})
                try:
                    with urllib.request.urlopen(request, timeout=10) as reply:
                        got = reply.status
                        check("body", reply.read(), b"done")
                except urllib.error.HTTPError as err:
                    got = err.code
                check(f"WSGI {path} with token {token!r}", got, want)
        finally:
            server.shutdown()
            thread.join()
    check("requests that ran", done, ["5", "5", "4", "6"])


async def asgi():
    done = []

    async def app(scope, receive, send):
        done.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    fence = AsyncFence(app, lambda scope: scope["path"])
    for path, token, want in STEPS:
        sent = []

        async def send(message):
            sent.append(message)

        headers = [(HEADER.lower().encode(), token.encode())] if token else []
        await fence({"type": "http", "path": path, "headers": headers}, None, send)
        check(f"ASGI {path} with token {token!r}", sent[0]["status"], want)
    check("requests that ran", done, ["/a", "/a", "/b", "/a"])


async def one_after_another():
    """Check that a request with a new token waits until the request with the old token
    has ended."""
    begun, go_on, order = asyncio.Event(), asyncio.Event(), []

    async def app(scope, receive, send):
        order.append(("begin", scope["n"]))
        if scope["n"] == 1:
            begun.set()
            await go_on.wait()
        order.append(("end", scope["n"]))

    async def send(message):
        pass

    fence = AsyncFence(app, lambda scope: scope["path"])
    scope = {"type": "http", "path": "/a"}
    first = asyncio.create_task(fence({**scope, "n": 1, "headers": [(b"lock-token", b"1")]}, None, send))
    await begun.wait()
    second = asyncio.create_task(fence({**scope, "n": 2, "headers": [(b"lock-token", b"2")]}, None, send))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, second)
    check("order", order, [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)])


wsgi()
asyncio.run(asgi())
asyncio.run(one_after_another())
print("ok")
