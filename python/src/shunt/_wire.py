"""One request and its reply: by httpx, and without its cost for inference, where that would be half of all.

httpx takes a millisecond of processor time for a request on hosts where the server takes less; the standard
library's client takes a quarter of that. AsyncWire has the same form and rests on httpx.
"""
from __future__ import annotations

import asyncio
import collections
import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

import httpx

from ._config import Settings
from ._errors import ConfigError

CONNECT_S = 5.0
SMALL = 1 << 16
PIECE = 1 << 20


class Reply:
    """headers: by their names in lower case."""

    __slots__ = ("status", "headers", "content")

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.status, self.headers, self.content = status, headers, content

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.content)


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """None: the server speaks plain HTTP."""
    if not settings.server.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as e:
        raise ConfigError(f"cannot use the authorities in {settings.ca_file}: {e}") from e


def is_distrust(error: BaseException | None) -> bool:
    """Did a connection fail because the server's certificate is not trusted? The next one would too."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__
    return False


class _Joined:
    """Sends the head of a request and a small body at once: the server wakes up once instead of twice."""

    def send(self, data: Any) -> None:
        if not hasattr(self, "waits"):
            self.waits: bytes = data
            return
        first, one = self.waits, len(data) <= SMALL
        del self.waits
        send: Any = super().send  # type: ignore[misc]
        send(first + data if one else first)
        if not one:
            view = memoryview(data)
            for at in range(0, len(view), PIECE):  # a time limit is one of each piece, not of all
                send(view[at:at + PIECE])

    def flush(self) -> None:
        if hasattr(self, "waits"):
            first = self.waits
            del self.waits
            super().send(first)  # type: ignore[misc]


class _Connection(_Joined, http.client.HTTPConnection):
    pass


class _TlsConnection(_Joined, http.client.HTTPSConnection):
    pass


class Wire:
    """Connections that are kept for the next request. Threads may share it, and a fork makes its own."""

    def __init__(self, settings: Settings, pool: httpx.Client, timeout_s: float, max_idle: int) -> None:
        url = urllib.parse.urlsplit(settings.server)
        self.tls, self.timeout_s = tls_of(settings), timeout_s
        self.pool = pool
        self.host, self.base = url.hostname or "", url.path.rstrip("/")
        self.port = url.port or (443 if self.tls else 80)  # without it, http.client reads one in "::1"
        self.own = {k: pool.headers[k] for k in ("Authorization", "User-Agent")}
        self.idle: collections.deque[_Connection | _TlsConnection] = collections.deque(maxlen=max_idle)

    @staticmethod
    def place() -> Any:
        """Where connections may be used."""
        return os.getpid()

    def _connect(self) -> _Connection | _TlsConnection:
        c: _Connection | _TlsConnection
        if self.tls:
            c = _TlsConnection(self.host, self.port, timeout=CONNECT_S, context=self.tls)
        else:
            c = _Connection(self.host, self.port, timeout=CONNECT_S)
        try:
            c.connect()
        except TimeoutError as e:
            raise httpx.ConnectTimeout(str(e) or "no connection in time") from e
        except OSError as e:
            raise httpx.ConnectError(str(e)) from e
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return c

    def post(self, path: str, params: Mapping[str, Any], content: bytes, headers: Mapping[str, str],
             timeout_s: float | None) -> Reply:
        target = self.base + path + ("?" + urllib.parse.urlencode(params) if params else "")
        while True:
            try:
                c, is_fresh = self.idle.pop(), False
            except IndexError:
                c, is_fresh = self._connect(), True
            c.sock.settimeout(timeout_s or self.timeout_s)
            try:
                c.request("POST", target, content, {**self.own, **headers})
                c.flush()
                r = c.getresponse()
                reply = Reply(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
            except (http.client.HTTPException, OSError) as e:
                c.close()
                if isinstance(e, TimeoutError):
                    raise httpx.ReadTimeout("no reply in time") from e
                if not is_fresh and isinstance(e, (http.client.RemoteDisconnected, ConnectionError,
                                                   ssl.SSLEOFError)):
                    continue  # the server had closed it between two requests
                raise httpx.ReadError(str(e)) from e
            except BaseException:
                c.close()
                raise
            if r.will_close:
                c.close()
            else:
                self.idle.append(c)
            return reply

    def request(self, method: str, path: str, timeout_s: float | None, **more: Any) -> Reply:
        r = self.pool.request(method, path, timeout=timeout_s if timeout_s is not None else httpx.USE_CLIENT_DEFAULT,
                              **more)
        return Reply(r.status_code, r.headers, r.content)

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class _Call:
    """A request that may be cancelled. httpx keeps a connection busy for ever whose request is cancelled just
    before it begins or just as it ends, so it is cancelled only while it waits for its reply."""

    def __init__(self, pool: httpx.AsyncClient, request: httpx.Request) -> None:
        self.waits = self.is_unwanted = False
        request.extensions = {**request.extensions, "trace": self._trace}
        self.task: asyncio.Future[httpx.Response] = asyncio.ensure_future(pool.send(request))

    async def _trace(self, event: str, about: Mapping[str, Any]) -> None:
        self.waits = event.endswith("receive_response_headers.started")
        if self.waits and self.is_unwanted:
            self.task.cancel()

    def cancel(self) -> None:
        self.is_unwanted = True
        if self.waits:
            self.task.cancel()


class AsyncWire:
    def __init__(self, settings: Settings, pool: httpx.AsyncClient, timeout_s: float, max_idle: int) -> None:
        self.pool = pool
        self.running: set[asyncio.Future[httpx.Response]] = set()

    @staticmethod
    def place() -> Any:
        """Where connections may be used."""
        try:
            return os.getpid(), asyncio.get_running_loop()
        except RuntimeError:
            return os.getpid(), None

    async def request(self, method: str, path: str, timeout_s: float | None, **more: Any) -> Reply:
        call = _Call(self.pool, self.pool.build_request(
            method, path, timeout=timeout_s if timeout_s is not None else httpx.USE_CLIENT_DEFAULT, **more))
        self.running.add(call.task)
        call.task.add_done_callback(self._has_ended)
        try:
            r = await asyncio.shield(call.task)
        except asyncio.CancelledError:
            call.cancel()
            raise
        return Reply(r.status_code, r.headers, r.content)

    def _has_ended(self, task: asyncio.Future[httpx.Response]) -> None:
        self.running.discard(task)
        if not task.cancelled():
            task.exception()  # or asyncio would complain that nobody has asked for it

    async def post(self, path: str, params: Mapping[str, Any], content: bytes, headers: Mapping[str, str],
                   timeout_s: float | None) -> Reply:
        return await self.request("POST", path, timeout_s, params=params, content=content, headers=headers)

    async def aclose(self) -> None:
        pass
