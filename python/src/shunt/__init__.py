"""Client of Shunt, the multi-tenant GPU scheduler.

    import shunt
    client = shunt.Client()                       # server and key as the command `shunt` finds them
    client.models.push("resnet50", "resnet50.onnx", max_batch=8)
    y = client.infer("resnet50", x)["logits"]     # x: a NumPy array or PyTorch tensor

`AsyncClient` is the same with `await`. shunt.torch pushes modules and loads trained weights back.
"""
from ._async.client import AsyncClient
from ._async.jobs import AsyncJob
from ._errors import (  # noqa: F401
    ApiError, Cancelled, ConfigError, Conflict, ConnectionFailed, DatabaseConflict, DatabaseDown, DeadlineMissed,
    DeviceLost, DiskFull, Forbidden, InputOutputFault, InvalidRequest, JobFailed, MethodNotAllowed, ModelFailed,
    NotANumber, NotFound, OutOfDeviceMemory, OutOfMemory, PreconditionFailed, ProtocolFault, QueueFull,
    QuotaExhausted, ServerFault, ServerTimeout, ShuntError, TooBig, TooManyGpus, Unauthenticated, Unavailable,
    Unsupported, WaitTimeout)
from ._shm import Region
from ._sync.client import Client
from ._sync.jobs import Job
from ._v2 import Result

__version__ = "0.1.0"
__all__ = ["AsyncClient", "AsyncJob", "Client", "Job", "Region", "Result", "ShuntError", "ApiError"]
