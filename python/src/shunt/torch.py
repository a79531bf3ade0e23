"""From a PyTorch module to a model that serves, and from a training job back into the module."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import ShuntError
from ._sync.client import Client
from ._sync.jobs import Job


def export(module: Any, example: Any, path: str, *, training: bool = False, **options: Any) -> None:
    """Writes the module as ONNX. example: what it is called with, a tensor or a tuple of them, each of two samples or
    more, so that their axis can be left open; with dynamic_shapes= or dynamic_axes= among the options it is as these
    say. training: so that its weights can be trained: the exporter computes nothing with them and folds no norms.
    options: further ones of torch.onnx.export."""
    import torch
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    options.setdefault("dynamo", True)
    if "dynamic_shapes" not in options and "dynamic_axes" not in options:
        options.update(_open_batch(args, options))
    if training and options["dynamo"]:
        options.setdefault("optimize", False)
    elif training:
        options.setdefault("training", torch.onnx.TrainingMode.TRAINING)
        options.setdefault("do_constant_folding", False)
    modes = {m: m.training for m in module.modules()}
    try:
        module.eval()
        torch.onnx.export(module, args, path, **options)
    finally:
        for m, mode in modes.items():  # a part that was held back stays so
            m.training = mode


def _open_batch(args: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    import torch
    if not all(a.ndim and len(a) > 1 for a in args):
        raise ValueError("an example needs two samples or more: an exporter fixes an axis of one; or say dynamic_shapes=")
    if options["dynamo"]:
        return {"dynamic_shapes": tuple({0: torch.export.Dim("batch")} for _ in args)}
    names = options.setdefault("input_names", [f"input{i}" if i else "input" for i in range(len(args))])
    return {"dynamic_axes": {n: {0: "batch"} for n in names}}


def push(module: Any, example: Any, name: str, *, client: Client | None = None, training: bool = False,
         export_options: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Exports a module and uploads it as the next version of a model. options: those of Client.models.push()."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        export(module, example, path, training=training, **(export_options or {}))
        if client is not None:
            return client.models.push(name, path, **options)
        with Client() as own:
            return own.models.push(name, path, **options)


def load(job: Job | int, module: Any, *, client: Client | None = None, strict: bool = True,
         ignore: Sequence[str] = ()) -> list[str]:
    """Brings what a job has trained into the module that was exported. Answers with the names of what it set.

    Weights are found by the names of module.state_dict(), which the exporter keeps for those that stand in the graph
    as they are. ShuntError, and the module is as it was, where a parameter that it trains is not found, unless it is in
    ignore or strict is False, or where one has another shape.
    """
    import torch
    if isinstance(job, int):
        if client is not None:
            job = client.jobs.get(job)
        else:
            with Client() as own:
                return load(own.jobs.get(job), module, client=own, strict=strict, ignore=ignore)
    trained = job.weights()
    state = module.state_dict()
    done = [n for n in state if n in trained]
    _check(module, state, trained, done, ignore if strict else None)
    with torch.no_grad():
        for name in done:
            value = trained[name]
            state[name].copy_(torch.from_numpy(np.array(value.astype(np.float32) if value.dtype.kind == "V" else value)))
    return done


def _check(module: Any, state: Any, trained: dict[str, Any], done: Sequence[str], ignore: Sequence[str] | None) -> None:
    """Before anything is set: a module is not left with some of both. Tied parameters have several names, of
    which one is enough. ignore None: none has to be there."""
    for name in done:
        had, has = tuple(trained[name].shape), tuple(state[name].shape)
        if had != has:
            raise ShuntError(f"{name} was trained as {had}, the module has {has}")
    held = {state[n].data_ptr() for n in done}
    missing = [] if ignore is None else [
        n for n, p in module.named_parameters() if p.requires_grad and n not in done and n not in ignore
        and p.data_ptr() not in held]
    if missing:
        raise ShuntError(f"the trained model has no {', '.join(missing[:5])}" + (" and more" if len(missing) > 5 else "")
                         + ": export with shunt.torch.push(..., training=True), which keeps the names of parameters")
