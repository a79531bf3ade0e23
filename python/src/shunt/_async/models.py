"""Models, their versions and latency targets; datasets."""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from .._errors import ApiError, Conflict, ModelFailed, NotFound, ShuntError, WaitTimeout
from .._onnx import metadata, payload
from .._tensors import Payload, safetensors, stacked
from .http import AsyncHttp, checked, chosen, said, split

FAILED = "FAILED"


class AsyncModels:
    """A model is meant by its name, a version by NAME:VERSION; NAME alone is the newest version."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        async for m in self._http.pages("/api/v1/models", limit=limit):
            yield m

    async def get(self, model: str) -> dict[str, Any]:
        return await self._http.json("GET", self._path(model))

    def _path(self, model: str, more: str = "") -> str:
        name, version = split(model)
        return f"/api/v1/models/{name}" + (f"/versions/{version}" if version else "") + more

    async def push(self, name: str, path: str | os.PathLike[str], *, max_batch: int | None = None,
                   precision: str | None = None, buckets: Mapping[str, Sequence[int]] | None = None,
                   preprocess: Mapping[str, Any] | None = None, slo_ms: float | None = None, wait: bool = True,
                   timeout: float = 600.0) -> dict[str, Any]:
        """Uploads an ONNX file, and the files beside it that hold its weights, as the next version of a model,
        which is made if there is none. Answers with the version; with wait, once requests would be served.
        preprocess: inputs that requests bring as bytes (uint8), which the device normalises:
        {"image": "imagenet"}, or {"image": {"layout": "NHWC", "scale": 1 / 255, "mean": [...], "std": [...]}};
        {} takes back what the file declares."""
        said_of_inputs = metadata("shunt.preprocess", json.dumps(preprocess)) if preprocess is not None else b""
        body = payload(os.fspath(path), said_of_inputs)  # before anything is made: the file may be none
        try:
            await self._http.json("POST", "/api/v1/models", json={"name": checked(name, "model")})
        except Conflict:
            pass
        wish = {"max_batch": max_batch, "precision": precision,
                "buckets": {k: list(v) for k, v in buckets.items()} if buckets else None}
        version = await self._http.json("POST", self._path(name, "/versions"), json=said(wish))
        full = f"{name}:{version['version']}"
        try:
            version = await self._http.upload(self._path(full, "/artifact"), body)
        except ApiError as e:
            if e.status in (400, 413, 422):  # refused for good: no one needs it
                with contextlib.suppress(ShuntError):
                    await self.delete(full)
            raise
        if slo_ms is not None:
            await self.set_slo(name, slo_ms)
        return await self.wait_ready(full, timeout) if wait else version

    async def wait_ready(self, model: str, timeout: float = 600.0) -> dict[str, Any]:
        """Until a version is loaded. ModelFailed if it cannot be."""
        full = model if ":" in model else f"{model}:{await self._newest(model)}"
        end, pause = time.monotonic() + timeout, 0.05
        while True:
            version = await self.get(full)
            if version["state"] == "READY":
                return version
            if version["state"] == FAILED:
                raise ModelFailed(version)
            if time.monotonic() >= end:
                raise WaitTimeout(f"{full} is {version['state']} after {timeout:g} s")
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, 1.0)

    async def _newest(self, model: str) -> int:
        versions = (await self.get(model))["versions"]
        if not versions:
            raise NotFound(404, {"code": "NOTFOUND", "detail": f"model {model} has no version"})
        return max(int(v["version"]) for v in versions)

    async def delete(self, model: str) -> None:
        """The model with all its versions, or one version."""
        await self._http.send("DELETE", self._path(model))

    async def _act(self, model: str, action: str) -> dict[str, Any]:
        return await self._http.json("POST", self._path(model, "/" + action), again=True)

    async def load(self, model: str) -> dict[str, Any]:
        return await self._act(model, "load")

    async def unload(self, model: str) -> dict[str, Any]:
        return await self._act(model, "unload")

    async def pin(self, model: str) -> dict[str, Any]:
        """Keeps its weights in device memory."""
        return await self._act(model, "pin")

    async def unpin(self, model: str) -> dict[str, Any]:
        return await self._act(model, "unpin")

    async def set_slo(self, model: str, latency_ms: float, *, percentile: float | None = None,
                      on_miss: str | None = None, priority: int | None = None) -> dict[str, Any]:
        """on_miss: "reject", "delay" or "best-effort"."""
        body = {"latency_ms": latency_ms, "percentile": percentile, "on_miss": on_miss, "priority": priority}
        return await self._http.json("PUT", self._path(model, "/slo"), json=said(body))

    async def slo(self, model: str) -> dict[str, Any]:
        return await self._http.json("GET", self._path(model, "/slo"))

    # ---- aliases: a model is NAME:ALIAS, of which NAME alone is NAME:stable

    def _alias(self, model: str, more: str = "") -> str:
        name, alias = chosen(model)
        return f"/api/v1/models/{name}/aliases/{alias or 'stable'}" + more

    async def aliases(self, model: str) -> AsyncIterator[dict[str, Any]]:
        async for a in self._http.pages(f"/api/v1/models/{checked(model, 'model')}/aliases"):
            yield a

    async def alias(self, model: str) -> dict[str, Any]:
        return await self._http.json("GET", self._alias(model))

    async def set_alias(self, model: str, weights: Mapping[int, int], *, sticky: bool | None = None,
                        rollback: Mapping[str, float] | None = None) -> dict[str, Any]:
        """weights: by version. rollback: when it goes back by itself, such as {"min_requests": 50}, or {} for the
        server's numbers; without it never."""
        body = {"targets": [{"version": v, "weight": w} for v, w in weights.items()], "sticky": sticky,
                "rollback": None if rollback is None else dict(rollback)}
        return await self._http.json("PUT", self._alias(model), json=said(body))

    async def promote(self, model: str, to: int | str) -> dict[str, Any]:
        """From now on it stands for this version, or for what another alias stands for."""
        body = {"version": to} if isinstance(to, int) else {"from": to}
        return await self._http.json("POST", self._alias(model, "/promote"), json=body, again=True)

    async def rollback(self, model: str) -> dict[str, Any]:
        """Back to what it stood for before, which is one step; Conflict if there is none. It is sent once."""
        return await self._http.json("POST", self._alias(model, "/rollback"))

    async def delete_alias(self, model: str) -> None:
        await self._http.send("DELETE", self._alias(model))

    async def attainment(self, model: str) -> dict[str, Any]:
        """How requests met the latency target."""
        return await self._http.json("GET", self._path(model, "/slo/attainment"))


class AsyncDatasets:
    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        async for d in self._http.pages("/api/v1/datasets", limit=limit):
            yield d

    async def get(self, name: str) -> dict[str, Any]:
        return await self._http.json("GET", f"/api/v1/datasets/{checked(name, 'dataset')}")

    async def push(self, name: str, data: Any, names: Sequence[str] = ("x", "label")) -> dict[str, Any]:
        """data: tensors by their names, each with a sample in each row (NumPy, PyTorch); a safetensors file by its
        path; or a PyTorch dataset, whose samples are tuples with as many members as there are names."""
        body = _samples(data, names)
        path = f"/api/v1/datasets/{checked(name, 'dataset')}"
        is_new = await self._begin(name)
        try:
            return await self._http.upload(path + "/artifact", body, not is_new)
        except ApiError as e:
            if is_new and e.status in (400, 413, 422):
                with contextlib.suppress(ShuntError):
                    await self.delete(name)
            raise

    async def _begin(self, name: str) -> bool:
        """False: there is one already, which waits for its file since somebody stopped sending it."""
        try:
            await self._http.json("POST", "/api/v1/datasets", json={"name": name})
            return True
        except Conflict:
            if (await self.get(name)).get("state") != "UPLOADING":
                raise
            return False

    async def delete(self, name: str) -> None:
        await self._http.send("DELETE", f"/api/v1/datasets/{checked(name, 'dataset')}")


def _samples(data: Any, names: Sequence[str]) -> Payload:
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        with open(path, "rb"):  # before anything is made: it may be none
            pass
        return Payload([(path, os.path.getsize(path))])
    if isinstance(data, Mapping):
        return safetensors(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        names = (names,) if isinstance(names, str) else names
        rows = [data[i] for i in range(len(data))]
        if not rows or any(not isinstance(r, (tuple, list)) or len(r) != len(names) for r in rows):
            raise TypeError(f"each sample has to be a tuple of {len(names)}: {', '.join(names)}")
        return safetensors({n: stacked(n, [r[i] for r in rows]) for i, n in enumerate(names)})
    raise TypeError("a dataset is tensors by their names, the path of a safetensors file, or a PyTorch dataset")
