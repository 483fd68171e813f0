"""The exceptions. `LongshoreError` is the base of all; an `ApiError` is an answer of the server, with a class for each kind of refusal."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from ._types import BatchStatus, BulkResult, Job


class LongshoreError(Exception):
    """The base of all exceptions of this package."""

    # Of a failed submission or retry, after which the jobs may exist: the same call with this key makes no second ones.
    idempotency_key: Optional[str] = None

    # Of an operation on many jobs that needs several requests: what was done before this error.
    done_so_far: Optional[BulkResult] = None

    def _arguments(self) -> Tuple[Any, ...]:
        """The arguments of the class, which are not the message alone in some."""
        return self.args

    def __reduce__(self) -> Tuple[Any, ...]:
        # So that another process can raise it: exceptions are made again from their message otherwise.
        return type(self), self._arguments(), self.__dict__


class ConnectionFailed(LongshoreError):
    """The server gave no answer, or the connection broke."""

    # True if the server had the whole request, so the connection broke while it worked on it.
    was_sent: bool = False


class ApiError(LongshoreError):
    """The server refused a request. `code` is stable; `field` says where; `title`, `detail` and `hint` are for people."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None) -> None:
        self.status = status
        self.problem = problem  # The whole document, with `near`, `errors` and others.
        texts = (str(problem.get(key, "")) for key in ("code", "title", "detail", "hint"))
        self.code, self.title, self.detail, self.hint = texts
        self.field = str(problem.get("field") or "")  # Of the request, such as `labels.owner`; empty if none is at fault.
        self.retry_after = retry_after  # Seconds after which the same request may succeed.
        hint = f"; {self.hint}" if self.hint else ""
        where = f"{self.field}: " if self.field else ""
        super().__init__(f"{where}{self.detail or self.title} [{f'{status} {self.code}'.strip()}]{hint}")

    def _arguments(self) -> Tuple[Any, ...]:
        return self.status, self.problem, self.retry_after


class InvalidRequest(ApiError):
    """400, 413, 422 and others: the request itself is wrong. To repeat it is useless."""


class Unauthorized(ApiError):
    """401: the token is missing, wrong, expired or revoked."""


class Forbidden(ApiError):
    """403: the token does not allow this."""


class NotFound(ApiError):
    """404: there is no such job, batch, definition, worker or schedule."""


class Conflict(ApiError):
    """409: the state of a job, batch, definition or worker does not allow this now."""


class Gone(ApiError):
    """410: it was deleted by the retention of the server."""


class EventsGone(Gone):
    """Events in between are no longer kept. Read the lists again; go on with `events(after=error.problem["last_event_id"])`."""


class TooManyRequests(ApiError):
    """429: too many jobs wait, a limit is full, or too many wrong tokens came from this address."""


class ServerError(ApiError):
    """500, 502 and others: the server, or a proxy in front of it, failed."""


class Unavailable(ServerError):
    """503, 507: the server cannot do it now. A call has been repeated before, if the server advised it with `Retry-After`."""


def class_of(status: int, code: Any) -> type[ApiError]:
    """The exception for an answer."""
    if code == "events_gone":
        return EventsGone
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return InvalidRequest if 400 <= status < 500 else ServerError if status >= 500 else ApiError


_BY_STATUS = {
    401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone, 429: TooManyRequests, 503: Unavailable, 507: Unavailable,
}  # fmt: skip


class WaitTimeout(LongshoreError, TimeoutError):
    """A job has not ended in time. `job` is its last known state, if the server gave one."""

    def __init__(self, job_id: int, job: Optional[Job]) -> None:
        self.job_id, self.job = job_id, job
        super().__init__(f"job {job_id} has not ended in time" + (f", it is {job['state']}" if job else ""))

    def _arguments(self) -> Tuple[Any, ...]:
        return self.job_id, self.job


class BatchTimeout(LongshoreError, TimeoutError):
    """A batch has not ended in time, or its next result has not come. `batch` is its last known state, if it was read."""

    def __init__(self, batch_id: int, batch: Optional[BatchStatus] = None) -> None:
        self.batch_id, self.batch = batch_id, batch
        shown = f", it is {batch['state']} ({batch['progress']:.0%} have ended)" if batch else ""
        super().__init__(f"batch {batch_id} has not ended in time{shown}")

    def _arguments(self) -> Tuple[Any, ...]:
        return self.batch_id, self.batch


class JobFailed(LongshoreError):
    """A job of `map` has ended otherwise than `succeeded`. `job` has its `state`, `outcome`, `exit_code` and `reason`."""

    def __init__(self, job: Job) -> None:
        self.job, self.job_id, self.state = job, job["id"], job["state"]
        self.reason = job.get("reason", "")
        why = f": {self.reason}" if self.reason else ""
        super().__init__(f"job {job['id']} ({job['name']}) has {_PAST.get(self.state, self.state)}{why}")

    def _arguments(self) -> Tuple[Any, ...]:
        return (self.job,)


_PAST = {"cancelled": "been cancelled", "lost": "been lost"}
