"""One request and its reply: by httpx, and without its cost for inference, where that would be half of all.

httpx takes a millisecond of processor time for a request on hosts where the server takes less. AsyncWire has the same form and rests on httpx.
"""
from __future__ import annotations

import asyncio
import collections
import json
import os
import re
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
LONGEST_LINE, MOST_HEADERS = 1 << 16, 200
_NO_PART = re.compile("[^!-~]")  # of an address


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


class _BadReply(Exception):
    """What came is no reply of HTTP."""


class _Connection:
    """A connection for one request at a time. http.client would take twice the time for each, most of it for the
    headers of replies, which it reads as those of a mail."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.sock.close()

    def send(self, head: bytes, content: bytes) -> None:
        """The head and a small body at once: the server wakes up once instead of twice."""
        if len(content) <= SMALL:
            self.sock.sendall(head + content)
            return
        self.sock.sendall(head)
        view = memoryview(content)
        for at in range(0, len(view), PIECE):  # a time limit is one of each piece, not of all
            self.sock.sendall(view[at:at + PIECE])

    def _line(self) -> bytes:
        line = self.file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise _BadReply("a line of its head is too long" if line else "the connection ended within it")
        return line.rstrip(b"\r\n")

    def _head(self) -> tuple[int, bool, dict[str, str]]:
        """(status, whether it is of HTTP/1.0, headers)"""
        line = self.file.readline(LONGEST_LINE)
        if not line:
            raise ConnectionResetError("the connection was closed without a reply")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise _BadReply(f"no reply of HTTP: {line[:80]!r}")
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
            if len(headers) > MOST_HEADERS:
                raise _BadReply("it has too many headers")
        return int(rest[:3]), version == b"HTTP/1.0", headers

    def _exactly(self, n: int) -> bytes:
        got = self.file.read(n)
        if len(got) < n:
            raise _BadReply(f"{n - len(got)} bytes of it are missing")
        return got

    def _chunks(self) -> bytes:
        parts = []
        while n := int(self._line().split(b";")[0], 16):
            parts.append(self._exactly(n))
            self._line()
        while self._line():  # trailers
            pass
        return b"".join(parts)

    def reply(self) -> tuple[Reply, bool]:
        """And whether the connection can be used again."""
        status, is_old, headers = self._head()
        while 100 <= status < 200:
            status, is_old, headers = self._head()
        said, size = headers.get("connection", "").lower(), headers.get("content-length")
        ends = "close" in said or is_old and "keep-alive" not in said
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return Reply(status, headers, self._chunks()), not ends
        if status in (204, 304):
            return Reply(status, headers, b""), not ends
        if size is None:
            return Reply(status, headers, self.file.read()), False
        if not size.isdigit():
            raise _BadReply(f"its length is {size[:40]!r}")
        return Reply(status, headers, self._exactly(int(size))), not ends


class Wire:
    """Connections that are kept for the next request. Threads may share it, and a fork makes its own."""

    def __init__(self, settings: Settings, pool: httpx.Client, timeout_s: float, max_idle: int) -> None:
        url = urllib.parse.urlsplit(settings.server)
        self.tls, self.timeout_s = tls_of(settings), timeout_s
        self.pool = pool
        self.host, self.base = url.hostname or "", url.path.rstrip("/")
        usual = 443 if self.tls else 80
        self.port = url.port or usual
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.own = {"Host": host if self.port == usual else f"{host}:{self.port}", "Accept-Encoding": "identity",
                    **{k: pool.headers[k] for k in ("Authorization", "User-Agent")}}
        self.idle: collections.deque[_Connection] = collections.deque(maxlen=max_idle)

    @staticmethod
    def place() -> Any:
        """Where connections may be used."""
        return os.getpid()

    def _connect(self) -> _Connection:
        sock = None
        try:
            sock = socket.create_connection((self.host, self.port), CONNECT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _Connection(self.tls.wrap_socket(sock, server_hostname=self.host) if self.tls else sock)
        except OSError as e:
            if sock:
                sock.close()
            if isinstance(e, TimeoutError):
                raise httpx.ConnectTimeout(str(e) or "no connection in time") from e
            raise httpx.ConnectError(str(e)) from e

    def _head_of(self, target: str, size: int, headers: Mapping[str, str]) -> bytes:
        text = "".join(f"{name}: {value}\r\n" for name, value in (*self.own.items(), *headers.items()))
        lines = len(self.own) + len(headers)
        if _NO_PART.search(target) or text.count("\n") != lines or text.count("\r") != lines:
            raise ValueError("a path or a header has a character that it must not have")
        return f"POST {target} HTTP/1.1\r\n{text}Content-Length: {size}\r\n\r\n".encode("latin-1")

    def post(self, path: str, params: Mapping[str, Any], content: bytes, headers: Mapping[str, str],
             timeout_s: float | None) -> Reply:
        target = self.base + path + ("?" + urllib.parse.urlencode(params) if params else "")
        head = self._head_of(target, len(content), headers)
        while True:
            try:
                c, is_fresh = self.idle.pop(), False
            except IndexError:
                c, is_fresh = self._connect(), True
            c.sock.settimeout(timeout_s or self.timeout_s)
            try:
                c.send(head, content)
                reply, may_stay = c.reply()
            except (_BadReply, OSError, ValueError) as e:
                c.close()
                if isinstance(e, TimeoutError):
                    raise httpx.ReadTimeout("no reply in time") from e
                if not is_fresh and isinstance(e, (ConnectionError, ssl.SSLEOFError)):
                    continue  # the server had closed it between two requests
                raise httpx.ReadError(str(e)) from e
            except BaseException:
                c.close()
                raise
            if may_stay:
                self.idle.append(c)
            else:
                c.close()
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
