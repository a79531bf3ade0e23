"""The client itself: settings, inference, and what it offers of everything else."""
from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import _v2
from .._config import find_settings
from .._errors import ApiError, ConnectionFailed, DeadlineMissed, InvalidRequest, ServerTimeout
from .._shm import Region
from .._tensors import Array, Tensor, cast, to_tensor
from .http import AsyncHttp, chosen
from .jobs import AsyncJobs
from .models import AsyncDatasets, AsyncModels


class AsyncClient:
    """A connection to a Shunt server.

    Without arguments: as the command `shunt` finds its server and key, from SHUNT_SERVER, SHUNT_KEY and the
    like, from the profile in use, or from the system that `shunt up` runs in the current folder.
    timeout: seconds without a byte from the server; retry_for: how many seconds requests that may be
    repeated are tried again, while the server is away or asks to come later.
    """

    def __init__(self, server: str | None = None, key: str | None = None, *, key_file: str | None = None,
                 tenant: str | None = None, profile: str | None = None, state_dir: str | None = None,
                 ca_file: str | None = None, timeout: float = 60.0, retry_for: float = 30.0,
                 max_connections: int = 64) -> None:
        settings = find_settings(server, key, key_file, tenant, ca_file, state_dir, profile)
        self._http = AsyncHttp(settings, timeout, retry_for, max_connections)
        self._known: dict[str, dict[str, Any]] = {}
        self._regions: list[Region] = []
        self.server = settings.server
        self.models = AsyncModels(self._http)
        self.datasets = AsyncDatasets(self._http)
        self.jobs = AsyncJobs(self._http)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        for region in list(self._regions):
            try:
                if region.is_own:
                    await self.release(region)
            except Exception:  # the server forgets it with its own end
                region.close()
        await self._http.aclose()

    async def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None,
                      json: Any = None) -> dict[str, Any]:
        """Any other route (docs/api.md), with the same retries and exceptions."""
        return await self._http.json(method, path, params=params, json=json)

    async def whoami(self) -> dict[str, Any]:
        return await self.request("GET", "/api/v1/whoami")

    async def gpus(self) -> list[dict[str, Any]]:
        return [g async for g in self._http.pages("/api/v1/gpus")]

    async def is_ready(self) -> bool:
        """Would the server serve every version that it has loaded?"""
        try:
            await self._http.send("GET", "/v2/health/ready", gives_up=lambda e: True)
            return True
        except (ApiError, ConnectionFailed):
            return False

    async def metadata(self, model: str) -> dict[str, Any]:
        """Inputs and outputs of a model with their types and shapes, of which -1 is open."""
        return await self._http.json("GET", _v2_path(model))

    async def infer(self, model: str, inputs: Any, *, outputs: Sequence[str] | Mapping[str, Array] | None = None,
                    id: str | None = None, priority: int | None = None,
                    timeout: float | None = None) -> _v2.Result:
        """One request, of as many samples as the first axis of the inputs has; a model is NAME, NAME:VERSION or
        NAME:ALIAS; NAME is its alias "stable", or the newest version if it has none.

        inputs: tensors by their names, or one tensor if the model has one input: arrays, PyTorch tensors,
        lists of numbers. float64 and lists are cast to what the model takes. Arrays of shared_memory() are not
        sent but read where they lie.
        outputs: which ones, if not all; or arrays of shared_memory() by their names, which they are written to.
        timeout: seconds after which the server gives the request up, and after which it is not tried again.
        DeadlineMissed: a latency target cannot be met, which is told at once and not tried again.
        """
        tensors = await self._tensors(model, inputs)
        placed = dict(outputs) if isinstance(outputs, Mapping) else {}
        outputs = [outputs] if isinstance(outputs, str) else outputs
        wish = _v2.Wish(None if outputs is None or placed else list(outputs),
                        {n: self._place(n, a) for n, a in placed.items()}, id, priority, timeout)
        ready = {n: (t, at) if (at := self._found(t.array)) else t for n, t in tensors.items()}
        headers, body = _v2.request(ready, wish)
        headers["X-Request-ID"] = uuid.uuid4().hex  # tried again it has the same one, and an alias's same version
        try:
            r = await self._http.send("POST", _v2_path(model, "/infer"), content=body, headers=headers, again=True,
                                      timeout_s=timeout + 5.0 if timeout is not None else None, within_s=timeout,
                                      gives_up=_is_final)
        except ApiError:
            self._known.pop(model, None)  # perhaps it is another model by now
            raise
        return _v2.answer(r.content, r.headers.get("inference-header-content-length"), placed)

    async def _tensors(self, model: str, inputs: Any) -> dict[str, Tensor]:
        if not isinstance(inputs, Mapping):
            takes = (await self._signature(model))["inputs"]
            if len(takes) != 1:
                raise InvalidRequest(400, {"code": "INVALID", "detail": "%s has inputs %s: give tensors by their names" % (
                    model, ", ".join(i["name"] for i in takes))})
            inputs = {takes[0]["name"]: inputs}
        found = {n: to_tensor(n, value) for n, value in inputs.items()}
        loose = [n for n, t in found.items() if isinstance(inputs[n], (list, tuple, int, float)) or t.datatype == "FP64"]
        if loose:
            kinds = {i["name"]: i["datatype"] for i in (await self._signature(model))["inputs"]}
            for n in loose:
                found[n] = cast(n, found[n], kinds.get(n, found[n].datatype))
        return found

    async def _signature(self, model: str) -> dict[str, Any]:
        """Asked for once: all versions of a model have the same inputs."""
        if model not in self._known:
            self._known[model] = await self.metadata(model)
        return self._known[model]

    # ---- shared memory

    async def shared_memory(self, nbytes: int) -> Region:
        """A region for inputs and outputs of requests to a server on this host, which has to allow it
        (--client-shm). Take arrays from it by Region.array()."""
        region = Region(nbytes)
        try:
            await self._http.send("POST", f"/v2/systemsharedmemory/region/{region.name}/register",
                                  json={"key": region.key, "offset": 0, "byte_size": region.nbytes})
        except BaseException:
            region.close()
            raise
        self._regions.append(region)
        return region

    async def release(self, region: Region) -> None:
        """The server forgets the region; its arrays must not be used any more."""
        if region in self._regions:
            self._regions.remove(region)
        try:
            await self._http.send("POST", f"/v2/systemsharedmemory/region/{region.name}/unregister", again=True)
        finally:
            region.close()

    def _found(self, array: Array) -> _v2.Placed | None:
        return next((at for region in self._regions if (at := region.place(array))), None)

    def _place(self, name: str, array: Array) -> _v2.Placed:
        at = self._found(array)
        if at is None:
            raise ValueError(f"the array for output {name} is none of shared_memory()")
        return at


def _is_final(e: ApiError) -> bool:
    return isinstance(e, DeadlineMissed) or isinstance(e, ServerTimeout) and "code" in e.problem


def _v2_path(model: str, more: str = "") -> str:
    name, choice = chosen(model)
    return f"/v2/models/{name}" + (f"/versions/{choice}" if choice else "") + more
