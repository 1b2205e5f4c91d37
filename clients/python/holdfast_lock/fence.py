"""Middleware that refuses the HTTP requests of former owners of a lock.

The owner sends its fencing token with each request, in the header Lock-Token. The
middleware keeps the highest token of each resource, and refuses lower tokens.

    app = Fence(app, lambda environ: environ["PATH_INFO"])        # WSGI
    app = AsyncFence(app, lambda scope: scope["path"])            # ASGI

The second argument is a function that returns the name of the resource that a
request changes. Each resource has its own highest token. A request without a valid
token gets 428 (Precondition Required), and a request with an old token gets 412
(Precondition Failed). The requests of one resource run one after another.
Otherwise, a request with an old token could still be running when a request with a
new token begins.

The middleware keeps the tokens in the memory of one process. A service that has
several processes, or keeps its data through a restart, must store the highest token
with the data, in the same transaction.
"""

import asyncio
import threading
from collections import defaultdict

HEADER = "Lock-Token"

_REQUIRED = ("428 Precondition Required", f"the header {HEADER} must contain the fencing token of the lock\n")


class _Highest:
    """The highest token of a resource. The attribute lock is locked while a request runs."""

    def __init__(self, lock):
        self.lock = lock
        self.token = 0

    def refuse(self, token):
        """Return the status and the text of a refusal. If the token is not old, record it
        and return None."""
        if token < self.token:
            text = f"the fencing token {token} is too old: the highest token so far is {self.token}\n"
            return "412 Precondition Failed", text
        self.token = token
        return None


def _parse(text):
    """Return the token, or 0 if the text is not a valid token."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return 0


class Fence:
    """WSGI middleware that checks the token of each request."""

    def __init__(self, app, resource):
        self._app = app
        self._resource = resource
        self._mutex = threading.Lock()
        self._seen = {}

    def __call__(self, environ, start_response):
        token = _parse(environ.get("HTTP_LOCK_TOKEN", ""))
        if token == 0:
            return _wsgi(start_response, *_REQUIRED)
        with self._mutex:
            seen = self._seen.setdefault(self._resource(environ), _Highest(threading.Lock()))
        with seen.lock:
            refusal = seen.refuse(token)
            if refusal is not None:
                return _wsgi(start_response, *refusal)
            body = self._app(environ, start_response)
            try:
                # The application may still work while it produces the body, so read
                # the whole body before the next request of the resource may run.
                return list(body)
            finally:
                close = getattr(body, "close", None)
                if close is not None:
                    close()


def _wsgi(start_response, status, text):
    body = text.encode()
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]


class AsyncFence:
    """ASGI middleware that checks the token of each HTTP request."""

    def __init__(self, app, resource):
        self._app = app
        self._resource = resource
        self._seen = defaultdict(lambda: _Highest(asyncio.Lock()))

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        token = _parse(headers.get(HEADER.lower().encode(), b"").decode("latin-1"))
        if token == 0:
            await _asgi(send, *_REQUIRED)
            return
        seen = self._seen[self._resource(scope)]
        async with seen.lock:
            refusal = seen.refuse(token)
            if refusal is not None:
                await _asgi(send, *refusal)
                return
            await self._app(scope, receive, send)


async def _asgi(send, status, text):
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": int(status.split()[0]), "headers": headers})
    await send({"type": "http.response.body", "body": body})
