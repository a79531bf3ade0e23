"""Requests with their retries."""
from __future__ import annotations

import asyncio
import base64
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import httpx

from .._config import Settings
from .._errors import ApiError, ConnectionFailed, InvalidRequest, ServerFault, api_error
from .._tensors import Payload
from .._wire import CONNECT_S, AsyncWire, Reply, tls_of

FIRST_DELAY_S, MOST_DELAY_S = 0.1, 5.0
UPLOAD_PATIENCE_S = 60.0  # without a byte more
TRIED_AGAIN = (429, 502, 503, 504)
Got = TypeVar("Got")


def _problem(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    import json
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": body[:200].decode("utf-8", "replace").strip()}
    after = headers.get("retry-after", "")
    return api_error(status, problem, float(after) if after.isdigit() else None)


class _Patience:
    """How long to go on trying, and when next."""

    def __init__(self, limit_s: float) -> None:
        self.end, self.delay = time.monotonic() + limit_s, FIRST_DELAY_S

    def next_s(self, after_s: float | None) -> float | None:
        """Seconds until the next try; None: it would be too late."""
        wait = self.delay * random.uniform(0.5, 1.0) if after_s is None else after_s
        self.delay = min(2 * self.delay, MOST_DELAY_S)
        return wait if time.monotonic() + wait <= self.end else None


class AsyncHttp:
    """A connection pool to one server, with its key. Threads may share it."""

    def __init__(self, settings: Settings, timeout_s: float, retry_s: float, max_connections: int) -> None:
        self.settings, self.retry_s = settings, retry_s
        self.pool = httpx.AsyncClient(
            base_url=settings.server, verify=tls_of(settings) or True, timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            trust_env=False,
            headers={"Authorization": "Bearer " + settings.key, "User-Agent": "shunt-python"},
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections))
        self.wire = AsyncWire(settings, self.pool, timeout_s, max_connections)

    async def aclose(self) -> None:
        await self.wire.aclose()
        await self.pool.aclose()

    def with_tenant(self, path: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Those that are None are left out; routes of /api/v1/tenants and /gpus name what they are about."""
        found = {k: v for k, v in (params or {}).items() if v is not None}
        scoped = ("/api/v1/models", "/api/v1/datasets", "/api/v1/jobs", "/api/v1/job-", "/api/v1/queues",
                  "/api/v1/events", "/v2/models/", "/v2/repository", "/v2/systemsharedmemory")
        if self.settings.tenant and path.startswith(scoped):
            found.setdefault("tenant", self.settings.tenant)
        return found

    async def send(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: Any = None,
                   content: bytes | None = None, headers: Mapping[str, str] | None = None,
                   again: bool | None = None, timeout_s: float | None = None,
                   gives_up: Callable[[ApiError], bool] = lambda e: False) -> Reply:
        """again: may be carried out twice; default: every method but POST, and POST with an Idempotency-Key.
        content: of a request that is sent often."""
        own = dict(headers or {})
        if again is None:
            if method == "POST" and path.startswith("/api/v1/") and not path.endswith("/simulate"):
                own.setdefault("Idempotency-Key", uuid.uuid4().hex)
            again = method != "POST" or "Idempotency-Key" in own
        patience = _Patience(self.retry_s)
        while True:
            after: float | None = None
            try:
                r = await self._exchange(method, path, self.with_tenant(path, params), json, content, own, timeout_s)
                if r.status < 400:
                    return r
                error: Exception = _problem(r.status, r.content, r.headers)
                assert isinstance(error, ApiError)
                after = error.retry_after_s
                if r.status not in TRIED_AGAIN or not again or gives_up(error):
                    raise error
            except httpx.TransportError as e:
                error = ConnectionFailed(f"{self.settings.server}: {e or type(e).__name__}")
                error.__cause__ = e
                if not again and not isinstance(e, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
                    raise error from e
            wait = patience.next_s(after)
            if wait is None:
                raise error
            await asyncio.sleep(wait)

    async def _exchange(self, method: str, path: str, params: Mapping[str, Any], json: Any, content: bytes | None,
                        headers: Mapping[str, str], timeout_s: float | None) -> Reply:
        if content is not None:
            return await self.wire.post(path, params, content, headers, timeout_s)
        r = await self.pool.request(method, path, params=params, json=json, headers=headers,
                                    timeout=timeout_s if timeout_s is not None else httpx.USE_CLIENT_DEFAULT)
        return Reply(r.status_code, r.headers, r.content)

    async def json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        r = await self.send(method, path, **more)
        return dict(r.json()) if r.content else {}

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

    async def upload(self, path: str, payload: Payload) -> dict[str, Any]:
        """PUT, and after a broken connection the rest of it, as long as the server receives more."""
        digest = payload.sha256()
        headers = {"Content-Type": "application/octet-stream",
                   "Content-Digest": "sha-256=:%s:" % base64.b64encode(digest).decode()}
        patience, has = _Patience(UPLOAD_PATIENCE_S), 0
        error: ApiError | ConnectionFailed
        while True:
            if has:
                headers["Content-Range"] = f"bytes {has}-{payload.size - 1}/{payload.size}"
            headers["Content-Length"] = str(payload.size - has)
            after: float | None = None
            try:
                r = await self.pool.put(path, params=self.with_tenant(path, None), headers=headers,
                                        content=self._content(payload, has), timeout=httpx.Timeout(600.0, connect=CONNECT_S))
                if r.status_code < 400:
                    return dict(r.json())
                refused = _problem(r.status_code, r.content, r.headers)
                after, error = refused.retry_after_s, refused
                if r.status_code not in TRIED_AGAIN and "bytes" not in refused.problem:
                    raise refused
            except httpx.TransportError as e:
                error = ConnectionFailed(f"{self.settings.server}: the upload broke off: {e or type(e).__name__}")
            wait = patience.next_s(after)
            if wait is None:
                raise error
            await asyncio.sleep(wait)
            before, has = has, await self._arrived(f"{path}/parts/{digest.hex()}")
            if has == payload.size:
                has = payload.size - 1  # the last byte asks for the whole
            if has > before:
                patience = _Patience(UPLOAD_PATIENCE_S)
            elif not has:
                headers.pop("Content-Range", None)

    async def _content(self, payload: Payload, start: int) -> AsyncIterator[bytes]:
        for chunk in payload.chunks(start):
            yield bytes(chunk)

    async def _arrived(self, path: str) -> int:
        try:
            return int((await self.json("GET", path))["bytes"])
        except (ApiError, ConnectionFailed):
            return 0

    async def download(self, path: str, to: str) -> None:
        """Into a file, which has its name only when it is whole."""
        import os
        patience, part = _Patience(max(self.retry_s, UPLOAD_PATIENCE_S)), f"{to}.part-{uuid.uuid4().hex[:8]}"
        try:
            with open(part, "wb") as f:
                while True:
                    try:
                        await self._rest(path, f)
                        break
                    except httpx.TransportError as e:
                        wait = patience.next_s(None)
                        if wait is None:
                            raise ConnectionFailed(f"{self.settings.server}: the download broke off: {e}") from e
                        await asyncio.sleep(wait)
            os.replace(part, to)
        finally:
            if os.path.exists(part):
                os.remove(part)

    async def _rest(self, path: str, f: Any) -> None:
        at = f.tell()
        headers = {"Range": f"bytes={at}-"} if at else {}
        async with self.pool.stream("GET", path, params=self.with_tenant(path, None), headers=headers) as r:
            if r.status_code >= 400:
                raise _problem(r.status_code, await r.aread(), r.headers)
            if at and r.status_code != 206:
                f.seek(0)
                f.truncate()
            async for chunk in r.aiter_bytes():
                f.write(chunk)

    async def events(self, path: str, last: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """A stream of events, taken up again behind the last one when it breaks; it ends when the server says
        that there will be no more."""
        patience = _Patience(max(self.retry_s, UPLOAD_PATIENCE_S))
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            after: float | None = None
            error: Exception = ConnectionFailed(f"{self.settings.server}: the stream ended")
            try:
                async with self.pool.stream("GET", path, params=self.with_tenant(path, None), headers=headers,
                                            timeout=httpx.Timeout(45.0, connect=CONNECT_S)) as r:
                    if r.status_code == 204:
                        return
                    if r.status_code >= 400:
                        error = _problem(r.status_code, await r.aread(), r.headers)
                        assert isinstance(error, ApiError)
                        after = error.retry_after_s
                        if r.status_code not in TRIED_AGAIN:
                            raise error
                    else:
                        fields: dict[str, str] = {}
                        async for line in r.aiter_lines():
                            if line:
                                name, _, value = line.partition(":")
                                fields[name] = value.removeprefix(" ")
                                continue
                            last = fields.get("id", last)
                            if "data" in fields:
                                patience = _Patience(max(self.retry_s, UPLOAD_PATIENCE_S))
                                yield parsed(fields["data"])
                            fields = {}
            except httpx.TransportError as e:
                error = ConnectionFailed(f"{self.settings.server}: {e or type(e).__name__}")
            wait = patience.next_s(after)
            if wait is None:
                raise error
            await asyncio.sleep(wait)


def parsed(text: str) -> dict[str, Any]:
    import json
    got = json.loads(text)
    if not isinstance(got, dict):
        raise ServerFault(200, {"detail": "an event is no object"})
    return got


def checked(name: str, what: str) -> str:
    """A name as part of a path."""
    if not name or "/" in name or name in (".", ".."):
        raise InvalidRequest(400, {"code": "INVALID", "detail": f"{name!r} is no name of a {what}"})
    return name
