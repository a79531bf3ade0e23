"""How far a job is: a line on standard error, or one that changes in a notebook."""
from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

WIDTH = 30


def text_of(title: str, job: Mapping[str, Any]) -> str:
    step, steps = job.get("step") or 0, job.get("steps")
    said = f"{title}: {job['state']}"
    if steps:
        full = min(WIDTH, WIDTH * step // steps)
        said += f" [{'#' * full}{'.' * (WIDTH - full)}] {step}/{steps}"
    elif step:
        said += f" step {step}"
    if job.get("loss") is not None:
        said += f" loss {job['loss']:.4g}"
    if job.get("samples_per_s"):
        said += f" {job['samples_per_s']:.0f} samples/s"
    if job["state"] == "QUEUED" and job.get("reason"):
        said += f" ({job['reason']})"
    return said


class Progress:
    def __init__(self, title: str, wanted: bool) -> None:
        self.title, self.wanted, self.last, self.state = title, wanted, "", ""
        self.handle: Any = None

    def __enter__(self) -> Progress:
        if self.wanted:
            try:
                from IPython import get_ipython
                from IPython.display import display
                if "IPKernelApp" in getattr(get_ipython(), "config", {}):
                    self.handle = display({"text/plain": ""}, raw=True, display_id=True)
            except ImportError:
                pass
        return self

    def show(self, job: Mapping[str, Any]) -> None:
        said = text_of(self.title, job)
        if not self.wanted or said == self.last:
            return
        if self.handle is not None:
            self.handle.update({"text/plain": said}, raw=True)
        elif sys.stderr.isatty():
            print("\r" + said.ljust(len(self.last)), end="", file=sys.stderr, flush=True)
        elif job["state"] != self.state:  # a log gets the changes of state
            print(said, file=sys.stderr, flush=True)
        self.last, self.state = said, job["state"]

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.wanted and self.handle is None and sys.stderr.isatty():
            print(file=sys.stderr)
