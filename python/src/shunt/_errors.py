"""What can go wrong, by the reason codes of the server (`common/err.h`)."""
from __future__ import annotations

from typing import Any, Mapping


class ShuntError(Exception):
    """The root of all exceptions of this package. They can be pickled, so a worker process may raise them."""

    made_of: tuple[Any, ...] | None = None

    def __reduce__(self) -> Any:
        return (type(self), self.args if self.made_of is None else self.made_of)


class ConfigError(ShuntError):
    """Neither arguments nor environment nor profile say which server or key to use, or they contradict."""


class ConnectionFailed(ShuntError):
    """No server answered, or the connection broke and the request may not be sent again."""


class WaitTimeout(ShuntError, TimeoutError):
    """What was waited for did not happen in time; it may still happen."""


class JobFailed(ShuntError):
    """A job that was waited for has ended, and not well. `job` is its last state."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = dict(job)
        self.made_of = (self.job,)
        why = job.get("error") or job.get("reason") or "no reason given"
        super().__init__(f"job {job['id']} is {job['state']}: {why}")


class ModelFailed(ShuntError):
    """A version that was waited for cannot be loaded. `version` is its last state."""

    def __init__(self, version: Mapping[str, Any]) -> None:
        self.version = dict(version)
        self.made_of = (self.version,)
        super().__init__(f"{version['model']}:{version['version']} is {version['state']}: {version.get('reason')}")


class ApiError(ShuntError):
    """The server refused a request.

    code: its reason code, such as "NOTFOUND"; status: of HTTP; detail: what was wrong and what to do;
    problem: the whole answer; retry_after_s: when to come again, None where that does not help.
    """

    code = ""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code") or self.code)
        self.detail = str(problem.get("detail") or problem.get("error") or "")
        self.request_id = problem.get("request_id")
        self.reason_code = problem.get("reason_code")
        self.errors = list(problem.get("errors") or ())
        self.retry_after_s = retry_after_s
        self.made_of = (status, self.problem, retry_after_s)
        said = [f"{e.get('pointer') or '/'}: {e.get('detail')}" for e in self.errors[1:]]
        super().__init__("; ".join([f"{self.detail or 'HTTP status'} ({self.code or status})", *said]))


class InvalidRequest(ApiError):
    """The request makes no sense; `errors` lists all that is wrong in it."""

    code = "INVALID"


class Unauthenticated(ApiError):
    """The API key is missing or wrong."""

    code = "UNAUTHENTICATED"


class Forbidden(ApiError):
    """This key may not do that."""

    code = "FORBIDDEN"


class NotFound(ApiError):
    """There is no such thing, or it belongs to another tenant."""

    code = "NOTFOUND"


class Conflict(ApiError):
    """The state of the thing does not allow it, or its name is taken."""

    code = "CONFLICT"


class TooBig(ApiError):
    """Larger than the server or the device takes."""

    code = "TOOBIG"


class Unsupported(ApiError):
    """The model, its file or the option is not supported."""

    code = "UNSUPPORTED"


class QuotaExhausted(ApiError):
    """A limit of the tenant is reached."""

    code = "QUOTA"


class Cancelled(ApiError):
    """The request was cancelled."""

    code = "CANCELLED"


class ServerFault(ApiError):
    """A fault of the server."""

    code = "BUG"


class InputOutputFault(ServerFault):
    """The server could not read or write a file."""

    code = "IO"


class DeviceLost(ServerFault):
    """The device failed under the request."""

    code = "DEVLOST"


class ProtocolFault(ServerFault):
    """Processes of the server did not understand each other."""

    code = "PROTO"


class Unavailable(ApiError):
    """Not now: try again after `retry_after_s`."""

    code = "UNAVAILABLE"


class OutOfMemory(Unavailable):
    """No host memory for it now."""

    code = "NOMEM"


class OutOfDeviceMemory(Unavailable):
    """No device memory for it now."""

    code = "DEVMEM"


class DatabaseConflict(Unavailable):
    """The database could not do it beside what others did."""

    code = "DBSOFT"


class DatabaseDown(Unavailable):
    """The database does not answer."""

    code = "DBDOWN"


class QueueFull(Unavailable):
    """Too many requests wait."""

    code = "QUEUEFULL"


class DeadlineMissed(Unavailable):
    """The latency target cannot be met; retry_after_s is None where the model alone takes longer."""

    code = "SLO"


class ServerTimeout(ApiError):
    """The server gave up within its own time limit."""

    code = "TIMEOUT"


class DiskFull(ApiError):
    """No space is left on the server."""

    code = "DISKFULL"


class NotANumber(ApiError):
    """The loss is not a number."""

    code = "NAN"


class PreconditionFailed(ApiError):
    """Somebody else has changed it meanwhile."""

    code = "PRECONDITION"


class MethodNotAllowed(ApiError):
    """The path exists, but not this method."""

    code = "METHOD"


class TooManyGpus(ApiError):
    """More GPUs than a job can have."""

    code = "MULTIGPU"


def _all(of: type[ApiError]) -> list[type[ApiError]]:
    return [of, *(sub for child in of.__subclasses__() for sub in _all(child))]


BY_CODE: dict[str, type[ApiError]] = {c.code: c for c in _all(ApiError) if c.code}
BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooBig,
    429: QuotaExhausted, 503: Unavailable, 504: ServerTimeout}


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None) -> ApiError:
    """The exception of an answer; of a code that this release does not know, that of its HTTP status."""
    found = BY_CODE.get(str(problem.get("code"))) or BY_STATUS.get(status)
    return (found or (ServerFault if status >= 500 else ApiError))(status, problem, retry_after_s)
