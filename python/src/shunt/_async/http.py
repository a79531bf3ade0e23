"""Requests with their retries."""
from __future__ import annotations

import asyncio
import base64
import json as jsons
import os
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import httpx

from .._config import Settings
from .._errors import ApiError, ConnectionFailed, InvalidRequest, ServerFault, api_error
from .._tensors import Payload
from .._wire import CONNECT_S, AsyncWire, Reply, is_distrust, tls_of

FIRST_DELAY_S, MOST_DELAY_S = 0.1, 5.0
ANEW = ("/simulate", "/rotate")  # what the server does again each time that it is asked
UPLOAD_PATIENCE_S = 60.0  # without a byte more
TRIED_AGAIN = (429, 502, 503, 504)
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
Got = TypeVar("Got")


def _problem(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    try:
        problem = jsons.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": body[:200].decode("utf-8", "replace").strip()}
    if status < 400 and "location" in headers:
        problem = {"detail": f"the server says that it is at {headers['location']}: give that as server"}
    after = headers.get("retry-after", "")
    return api_error(status, problem, float(after) if after.isascii() and after.isdigit() else None)


def _may_come_later(e: ApiError) -> bool:
    """A server that has a reason says when to come again, unless that does not help."""
    return e.status in TRIED_AGAIN and (e.status not in (429, 503) or e.retry_after_s is not None
                                        or "code" not in e.problem)


def _is_under_way(e: ApiError) -> bool:
    """The first of two requests with one Idempotency-Key is still being carried out."""
    return e.status == 409 and "Idempotency-Key" in e.detail


class _Patience:
    """How long to go on trying, and when next."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.renew(True)

    def renew(self, is_good: bool) -> None:
        """Something has arrived; where it is no good sign, tries do not become more frequent."""
        self.end = time.monotonic() + self.limit_s
        if is_good:
            self.delay = FIRST_DELAY_S

    def next_s(self, after_s: float | None) -> float | None:
        """Seconds until the next try; None: it would be too late."""
        wait = after_s * random.uniform(1.0, 1.2) if after_s else self.delay * random.uniform(0.5, 1.0)
        self.delay = min(2 * self.delay, MOST_DELAY_S)
        return wait if time.monotonic() + wait <= self.end else None


class AsyncHttp:
    """A connection pool to one server, with its key. Threads may share it; a process that was forked gets its
    own: on a connection of both, one would read the other's answers. So does the next event loop: connections
    end with the one that they were made in."""

    def __init__(self, settings: Settings, timeout_s: float, retry_s: float, max_connections: int) -> None:
        self.settings, self.retry_s, self.timeout_s, self.max_connections = settings, retry_s, timeout_s, max_connections
        self._open()

    def _open(self) -> None:
        settings, timeout_s, max_connections = self.settings, self.timeout_s, self.max_connections
        self._pool = httpx.AsyncClient(
            base_url=settings.server, verify=tls_of(settings) or True, timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            trust_env=False,
            headers={"Authorization": "Bearer " + settings.key, "User-Agent": "shunt-python"},
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections))
        self._wire = AsyncWire(settings, self._pool, timeout_s, max_connections)
        self._place = AsyncWire.place()

    @property
    def pool(self) -> httpx.AsyncClient:
        if self._place != AsyncWire.place():
            self._open()
        return self._pool

    @property
    def wire(self) -> AsyncWire:
        if self._place != AsyncWire.place():
            self._open()
        return self._wire

    async def aclose(self) -> None:
        await self.wire.aclose()
        await self.pool.aclose()

    def with_tenant(self, path: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Those that are None are left out; routes of /api/v1/tenants and /gpus name what they are about."""
        found = said(params or {})
        scoped = ("/api/v1/models", "/api/v1/datasets", "/api/v1/jobs", "/api/v1/job-", "/api/v1/queues",
                  "/api/v1/events", "/v2/models/", "/v2/repository", "/v2/systemsharedmemory")
        if self.settings.tenant and path.startswith(scoped):
            found.setdefault("tenant", self.settings.tenant)
        return found

    async def send(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: Any = None,
                   content: bytes | None = None, headers: Mapping[str, str] | None = None,
                   again: bool | None = None, timeout_s: float | None = None, within_s: float | None = None,
                   gives_up: Callable[[ApiError], bool] = lambda e: False) -> Reply:
        """again: may be carried out twice; default: every method but POST, and POST with an Idempotency-Key.
        content: of a request that is sent often. within_s: when the last try may begin, if that is sooner."""
        own = dict(headers or {})
        if again is None:
            if method == "POST" and path.startswith("/api/v1/") and not path.endswith(ANEW):
                own.setdefault("Idempotency-Key", uuid.uuid4().hex)
            again = method != "POST" or "Idempotency-Key" in own
        patience = _Patience(self.retry_s if within_s is None else min(self.retry_s, within_s))
        is_repeat = False  # of one that may have been carried out
        while True:
            error: ApiError | ConnectionFailed
            try:
                r = await self._exchange(method, path, self.with_tenant(path, params), json, content, own, timeout_s)
                if r.status < 300 or r.status == 404 and is_repeat and method == "DELETE":
                    return r
                error = _problem(r.status, r.content, r.headers)
                if not again or gives_up(error) or not (_may_come_later(error) or is_repeat and _is_under_way(error)):
                    raise error
                is_repeat = is_repeat or r.status in (502, 504)
            except httpx.TransportError as e:
                error = self._broken(e)
                if not again and not isinstance(e, NOT_SENT):
                    raise error from e
                is_repeat = is_repeat or not isinstance(e, NOT_SENT)
            await self._pause(patience, error)

    def _long(self) -> _Patience:
        return _Patience(max(self.retry_s, UPLOAD_PATIENCE_S))

    def _broken(self, e: httpx.TransportError, what: str = "") -> ConnectionFailed:
        """Raises it where the next try would end as this one did."""
        error = ConnectionFailed(f"{self.settings.server}: {what}{e or type(e).__name__}")
        error.__cause__ = e
        if isinstance(e, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)) or is_distrust(e):
            raise error
        return error

    async def _pause(self, patience: _Patience, error: ApiError | ConnectionFailed) -> None:
        """Before the next try. Raises the error if that would be too late."""
        wait = patience.next_s(error.retry_after_s if isinstance(error, ApiError) else None)
        if wait is None:
            raise error
        await asyncio.sleep(wait)

    async def _exchange(self, method: str, path: str, params: Mapping[str, Any], json: Any, content: bytes | None,
                        headers: Mapping[str, str], timeout_s: float | None) -> Reply:
        if content is not None:
            return await self.wire.post(path, params, content, headers, timeout_s)
        return await self.wire.request(method, path, timeout_s, params=params, json=json, headers=headers)

    async def json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        r = await self.send(method, path, **more)
        return parsed(r.text) if r.content else {}

    async def pages(self, path: str, params: Mapping[str, Any] | None = None,
                    limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """All items of a list, a page at a time; at most limit of them."""
        cursor: str | None = None
        while limit is None or limit > 0:
            size = 1000 if limit is None else min(limit, 1000)
            page = await self.json("GET", path, params={**(params or {}), "limit": size, "cursor": cursor})
            for item in page["items"]:
                yield item
                if limit is not None:
                    limit -= 1
            cursor = page.get("next_cursor")
            if not cursor:
                return

    async def upload(self, path: str, payload: Payload, begun: bool = False) -> dict[str, Any]:
        """PUT, and after a broken connection the rest of it, as long as the server receives more.
        begun: the server may have a part of it from before."""
        digest = await asyncio.to_thread(payload.sha256)
        headers = {"Content-Type": "application/octet-stream",
                   "Content-Digest": "sha-256=:%s:" % base64.b64encode(digest).decode()}
        patience, most = _Patience(UPLOAD_PATIENCE_S), 0
        has = await self._arrived(path, payload, digest) if begun else 0
        error: ApiError | ConnectionFailed
        while True:
            try:
                return await self._put(path, payload, has, headers)
            except ApiError as e:
                if not _may_come_later(e) and "bytes" not in e.problem:
                    raise
                error = e
            except httpx.TransportError as e:
                error = self._broken(e, "the upload broke off: ")
            await self._pause(patience, error)
            whole = await self._whole(path, digest)
            if whole is not None:
                return whole
            has = await self._arrived(path, payload, digest)
            if has > most:
                most, patience = has, _Patience(UPLOAD_PATIENCE_S)

    async def _put(self, path: str, payload: Payload, has: int, headers: Mapping[str, str]) -> dict[str, Any]:
        own = {**headers, "Content-Length": str(payload.size - has)}
        if has:
            own["Content-Range"] = f"bytes {has}-{payload.size - 1}/{payload.size}"
        r = await self.pool.put(path, params=self.with_tenant(path, None), headers=own,
                                content=self._content(payload, has), timeout=httpx.Timeout(600.0, connect=CONNECT_S))
        if r.status_code >= 300:
            raise _problem(r.status_code, r.content, r.headers)
        return parsed(r.text)

    async def _content(self, payload: Payload, start: int) -> AsyncIterator[bytes]:
        for chunk in payload.chunks(start):
            yield bytes(chunk)

    async def _whole(self, path: str, digest: bytes) -> dict[str, Any] | None:
        """What the file was sent for, if the server has it all and only the answer was lost."""
        try:
            found = await self.json("GET", path.rpartition("/")[0])
        except (ApiError, ConnectionFailed):
            return None
        return found if found.get("digest") == digest.hex() else None

    async def _arrived(self, path: str, payload: Payload, digest: bytes) -> int:
        """How many bytes the server has; at most all but one: the last byte asks for the whole."""
        try:
            has = (await self.json("GET", f"{path}/parts/{digest.hex()}")).get("bytes")
        except (ApiError, ConnectionFailed):
            return 0
        return max(0, min(has, payload.size - 1)) if isinstance(has, int) else 0

    async def download(self, path: str, to: str) -> None:
        """Into a file, which has its name only when it is whole."""
        part = f"{to}.part-{uuid.uuid4().hex[:8]}"
        try:
            with open(part, "wb") as f:
                await self._fetch(path, f)
            os.replace(part, to)
        finally:
            if os.path.exists(part):
                os.remove(part)

    async def _fetch(self, path: str, f: Any) -> None:
        """All of it, by as many requests as it takes while more arrives."""
        patience, most, tag = self._long(), 0, ""
        error: ApiError | ConnectionFailed
        while True:
            try:
                async with self.pool.stream("GET", path, params=self.with_tenant(path, None),
                                            headers=_wanted(f.tell(), tag)) as r:
                    await self._check(r)
                    tag = _begin(r, f)
                    async for chunk in r.aiter_raw():
                        f.write(chunk)
                return
            except ApiError as e:
                if not _may_come_later(e) and not (e.status == 416 and tag):
                    raise
                error, tag = e, tag if e.status != 416 else ""
            except httpx.TransportError as e:
                error = self._broken(e, "the download broke off: ")
            if f.tell() > most:
                most, patience = f.tell(), self._long()
            await self._pause(patience, error)

    async def _check(self, r: httpx.Response) -> None:
        if r.status_code >= 300:
            raise _problem(r.status_code, await r.aread(), r.headers)

    async def events(self, path: str, last: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """A stream of events, taken up again behind the last one when it breaks; it ends when the server says
        that there will be no more."""
        patience = self._long()
        error: ApiError | ConnectionFailed
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            error = ConnectionFailed(f"{self.settings.server}: the stream ended")
            try:
                async with self.pool.stream("GET", path, params=self.with_tenant(path, None), headers=headers,
                                            timeout=httpx.Timeout(45.0, connect=CONNECT_S)) as r:
                    if r.status_code == 204:
                        return
                    await self._check(r)
                    async for fields in self._blocks(r):
                        last = fields.get("id", last)
                        patience.renew("data" in fields)
                        if "data" in fields:
                            yield parsed(fields["data"])
            except ApiError as e:
                if not _may_come_later(e):
                    raise
                error = e
            except httpx.TransportError as e:
                error = self._broken(e)
            await self._pause(patience, error)

    async def _blocks(self, r: httpx.Response) -> AsyncIterator[dict[str, str]]:
        """The fields of each event, and of each comment. httpx ends lines at more than a newline."""
        fields: dict[str, str] = {}
        rest = b""
        async for chunk in r.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    name, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                    fields[name] = value.removeprefix(" ")
                else:
                    yield fields
                    fields = {}


def _wanted(at: int, tag: str) -> dict[str, str]:
    """Not compressed, so that the place in the file is that in the answer."""
    return {"Accept-Encoding": "identity", **({"Range": f"bytes={at}-", "If-Range": tag} if at and tag else {})}


def _begin(r: httpx.Response, f: Any) -> str:
    """Brings the file to where the answer begins; the tag of this state of it, "" if it has none."""
    tag = str(r.headers.get("etag", ""))
    if r.status_code != 206:
        f.seek(0)
        f.truncate()
    elif not r.headers.get("content-range", "").startswith(f"bytes {f.tell()}-"):
        raise ServerFault(206, {"detail": "the server sent another part of the file than it was asked for"})
    return tag if tag.startswith('"') else ""


def parsed(text: str) -> dict[str, Any]:
    try:
        got = jsons.loads(text)
    except ValueError:
        got = None
    if not isinstance(got, dict):
        raise ServerFault(200, {"detail": f"this is no answer of a Shunt server: {text[:200]}"})
    return got


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not None: for the others the server's default holds."""
    return {k: v for k, v in fields.items() if v is not None}


def checked(name: str, what: str) -> str:
    """A name as part of a path: what no name may have could mean another path."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
        raise InvalidRequest(400, {"code": "INVALID", "detail": f"{name!r} is no name of a {what}"})
    return name


def chosen(model: str) -> tuple[str, str | None]:
    """NAME, NAME:VERSION or NAME:ALIAS."""
    name, colon, choice = model.partition(":")
    if colon and not re.fullmatch(r"[1-9][0-9]{0,9}|[a-z][a-z0-9-]{0,62}", choice):
        raise InvalidRequest(400, {"code": "INVALID", "detail": f"{choice!r} is no version and no alias of a model"})
    return checked(name, "model"), choice if colon else None


def split(model: str) -> tuple[str, int | None]:
    """NAME or NAME:VERSION."""
    name, colon, version = model.partition(":")
    if colon and not (version.isascii() and version.isdigit() and int(version)):
        raise InvalidRequest(400, {"code": "INVALID", "detail": f"{version!r} is no version of a model"})
    return checked(name, "model"), int(version) if colon else None
