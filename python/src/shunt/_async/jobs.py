"""Jobs: training and batch inference."""
from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .._errors import JobFailed, WaitTimeout
from .._onnx import initializers
from .._progress import Progress
from .._tensors import Array, read_safetensors
from .http import AsyncHttp, said, split

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
LOSSES_AT_ONCE = 100_000


class AsyncJob:
    """A job as it was when the server last told. `data` is all of it (schema Job in /openapi.json)."""

    def __init__(self, http: AsyncHttp, data: Mapping[str, Any]) -> None:
        self._http = http
        self.data: dict[str, Any] = dict(data)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} {self.state}>"

    @property
    def id(self) -> int:
        return int(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def state(self) -> str:
        return str(self.data["state"])

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def step(self) -> int:
        return int(self.data["step"])

    @property
    def steps(self) -> int | None:
        """None until it is known."""
        return self.data.get("steps")

    @property
    def loss(self) -> float | None:
        return self.data.get("loss")

    @property
    def result_version(self) -> int | None:
        """The version of its model that its training has made."""
        return self.data.get("result_version")

    def _path(self, more: str = "") -> str:
        return f"/api/v1/jobs/{self.id}{more}"

    async def refresh(self) -> AsyncJob:
        return await self._refresh(None)

    async def _refresh(self, within_s: float | None) -> AsyncJob:
        self.data = await self._http.json("GET", self._path(), within_s=within_s)
        return self

    async def wait(self, timeout: float | None = None, *, progress: bool = False, check: bool = True) -> AsyncJob:
        """Until it has ended. WaitTimeout after so many seconds; JobFailed unless it has SUCCEEDED or check is
        False. progress: shows steps and loss on standard error, or in the notebook."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        with Progress(self.name or f"job {self.id}", progress) as shown:
            while True:
                await self._refresh(None if end is None else max(0.0, end - time.monotonic()))
                shown.show(self.data)
                if self.has_ended:
                    break
                if end is not None and time.monotonic() >= end:
                    raise WaitTimeout(f"job {self.id} is {self.state} after {timeout:g} s")
                await asyncio.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
                pause = min(1.5 * pause, 1.0)
        if check and self.state != "SUCCEEDED":
            raise JobFailed(self.data)
        return self

    async def _act(self, action: str) -> AsyncJob:
        self.data = await self._http.json("POST", self._path("/" + action), again=True)
        return self

    async def cancel(self) -> AsyncJob:
        return await self._act("cancel")

    async def hold(self) -> AsyncJob:
        """Keeps a queued job from starting."""
        return await self._act("hold")

    async def release(self) -> AsyncJob:
        """Lets a held job start."""
        return await self._act("release")

    async def suspend(self) -> AsyncJob:
        """Takes it from its GPU with a checkpoint."""
        return await self._act("suspend")

    async def resume(self) -> AsyncJob:
        return await self._act("resume")

    async def requeue(self) -> AsyncJob:
        """Takes it from its GPU with a checkpoint, to the end of its queue."""
        return await self._act("requeue")

    async def checkpoint(self) -> AsyncJob:
        """Writes a checkpoint after the next step."""
        return await self._act("checkpoint")

    async def explain(self) -> dict[str, Any]:
        """Why it waits, for what, and when it may start."""
        return await self._http.json("GET", self._path("/explain"))

    async def losses(self) -> npt.NDArray[np.float64]:
        """Of the committed steps so far, one after the other; beyond a million steps every k-th."""
        found: list[Any] = []
        while True:
            page = await self._http.json("GET", self._path("/losses"),
                                         params={"offset": len(found), "limit": LOSSES_AT_ONCE})
            found += page["losses"]
            if not page["losses"] or len(found) >= page["total"]:
                return np.array([np.nan if x is None else x for x in found], np.float64)

    async def log(self) -> str:
        return (await self._http.send("GET", self._path("/log"))).text

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Every change of its state, those that were first, until the last one."""
        async for event in self._http.events(self._path("/events")):
            yield event

    async def checkpoints(self) -> list[dict[str, Any]]:
        return [c async for c in self._http.pages(self._path("/checkpoints"))]

    async def result(self) -> dict[str, Any]:
        """What it has to say at its end; Conflict before that."""
        return await self._http.json("GET", self._path("/result"))

    async def download(self, path: str | os.PathLike[str]) -> str:
        """Its file: the trained model (ONNX), or the outputs of batch inference (safetensors)."""
        await self._http.download(self._path("/result/artifact"), os.fspath(path))
        return os.fspath(path)

    async def weights(self) -> dict[str, Array]:
        """The trained weights by the names that they have in the model's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = await self.download(os.path.join(folder, "trained.onnx"))
            return {k: v.copy() for k, v in initializers(path).items()}

    async def outputs(self) -> dict[str, Array]:
        """The outputs of batch inference, in the order of its dataset."""
        with tempfile.TemporaryDirectory() as folder:
            path = await self.download(os.path.join(folder, "result.safetensors"))
            return {k: v.copy() for k, v in read_safetensors(path).items()}


class AsyncJobs:
    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def get(self, job: int) -> AsyncJob:
        return AsyncJob(self._http, await self._http.json("GET", f"/api/v1/jobs/{int(job)}"))

    async def list(self, *, state: str | None = None, queue: str | None = None,
                   labels: Mapping[str, str] | None = None, array: int | None = None,
                   limit: int | None = None) -> AsyncIterator[AsyncJob]:
        """Newest first, a page at a time. state: one or more, with commas."""
        label = ",".join(f"{k}={v}" for k, v in labels.items()) if labels else None
        async for j in self._http.pages("/api/v1/jobs", {"state": state, "queue": queue, "label": label,
                                                         "array": array}, limit):
            yield AsyncJob(self._http, j)

    async def submit(self, body: Mapping[str, Any]) -> AsyncJob:
        """A job as POST /api/v1/jobs takes it. It is submitted once, even where the connection breaks."""
        return AsyncJob(self._http, await self._http.json("POST", "/api/v1/jobs", json=dict(body)))

    async def _submit(self, kind: str, model: str, dataset: str, spec: Mapping[str, Any], *,
                      labels: Mapping[str, str] | None, **more: Any) -> AsyncJob:
        base, version = split(model)
        return await self.submit(said({"kind": kind, "model": base, "version": version, "dataset": dataset, **more,
                                       "labels": dict(labels) if labels else None, "spec": spec}))

    async def train(self, model: str, dataset: str, *, steps: int | None = None, epochs: int | None = None,
                    optimizer: str | Mapping[str, Any] = "sgd", lr: float | None = None,
                    eval_dataset: str | None = None, name: str | None = None, queue: str | None = None,
                    priority: int | None = None, labels: Mapping[str, str] | None = None,
                    publish: bool | None = None, publish_as: str | None = None, gpus: int | None = None, **spec: Any) -> AsyncJob:
        """Trains MODEL or MODEL:VERSION. spec: what else docs/training.md lists, such as batch=, loss=, seed=.
        publish=False: the result is only the job's, and makes no version. publish_as: the alias that stands for the
        new version from then on."""
        if (steps is None) == (epochs is None):
            raise TypeError("say steps= or epochs=")
        named: dict[str, Any] = dict(optimizer) if isinstance(optimizer, Mapping) else {"name": optimizer}
        if lr is not None:
            named["lr"] = lr
        spec.update({"steps": steps, "epochs": epochs, "publish": publish, "publish_as": publish_as,
                     "optimizer": named})
        return await self._submit("training", model, dataset, said(spec), name=name, queue=queue, priority=priority,
                                  labels=labels, eval_dataset=eval_dataset, gpus=gpus)

    async def infer(self, model: str, dataset: str, *, name: str | None = None, queue: str | None = None,
                    priority: int | None = None, labels: Mapping[str, str] | None = None, **spec: Any) -> AsyncJob:
        """Batch inference: every sample of a dataset through a model, where no requests are."""
        return await self._submit("batch_inference", model, dataset, spec, name=name, queue=queue, priority=priority,
                                  labels=labels)
