"""Client of Shunt, the multi-tenant GPU scheduler.

    import shunt
    client = shunt.Client()                       # server and key as the command `shunt` finds them
    client.models.push("resnet50", "resnet50.onnx", max_batch=8)
    y = client.infer("resnet50", x)["logits"]     # x: a NumPy array or PyTorch tensor

`AsyncClient` is the same with `await`. shunt.torch pushes modules and loads trained weights back.
"""
from ._async.client import AsyncClient
from ._async.jobs import AsyncJob
from ._errors import (
    ApiError, Cancelled, ConfigError, Conflict, ConnectionFailed, DatabaseConflict, DatabaseDown, DeadlineMissed,
    DeviceLost, DiskFull, Forbidden, InputOutputFault, InvalidRequest, JobFailed, MethodNotAllowed, ModelFailed,
    NotANumber, NotFound, OutOfDeviceMemory, OutOfMemory, PreconditionFailed, ProtocolFault, QueueFull,
    QuotaExhausted, ServerFault, ServerTimeout, ShuntError, TooBig, TooManyGpus, Unauthenticated, Unavailable,
    Unsupported, WaitTimeout)
from ._shm import Region
from ._sync.client import Client
from ._sync.jobs import Job
from ._v2 import Result
from ._version import VERSION as __version__

__all__ = [
    "__version__", "ApiError", "AsyncClient", "AsyncJob", "Cancelled", "Client", "ConfigError", "Conflict", "ConnectionFailed",
    "DatabaseConflict", "DatabaseDown", "DeadlineMissed", "DeviceLost", "DiskFull", "Forbidden", "InputOutputFault",
    "InvalidRequest", "Job", "JobFailed", "MethodNotAllowed", "ModelFailed", "NotANumber", "NotFound",
    "OutOfDeviceMemory", "OutOfMemory", "PreconditionFailed", "ProtocolFault", "QueueFull", "QuotaExhausted", "Region",
    "Result", "ServerFault", "ServerTimeout", "ShuntError", "TooBig", "TooManyGpus", "Unauthenticated", "Unavailable",
    "Unsupported", "WaitTimeout"]
