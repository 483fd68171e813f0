"""Answers of the server, as docs/http-api.md describes them, and the exceptions. An absent value is an absent key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, TypedDict

# A job. `args` and the keys behind it are only in answers about a single job; `index`, `params` and `result` in lists with `results=1`.
Job = TypedDict("Job", {
    "id": int, "name": str, "revision": str, "state": str, "queuing": bool, "running": bool, "success": bool,
    "priority": int, "labels": "dict[str, str]", "batch": int, "schedule": str, "scheduled_at": str, "timeout": Any,
    "created_at": str, "due_at": str, "expires_at": str, "started_at": str, "ended_at": str, "ran_ms": int,
    "attempt_count": int, "worker": "dict[str, Any]", "worker_unreachable_since": str, "phase": "dict[str, Any]",
    "outcome": str, "exit_code": int, "reason": str, "confirmed": bool, "stopping": str,
    "pending_reason": "dict[str, str]", "warning": "dict[str, str]", "duplicate": bool, "retry_of": int, "index": int,
    "args": "list[str]", "environment": "list[str]", "params": "dict[str, Any]", "input": Any, "result": Any, "cancel": str,
    "attempts": "list[dict[str, Any]]", "timeline": "list[dict[str, Any]]", "late_reports": "list[dict[str, Any]]",
    "late_reports_left_out": int, "hooks": "list[dict[str, Any]]", "parent": "dict[str, Any]", "retry_of_removed": bool,
}, total=False)  # fmt: skip

# Many jobs of one request: the ids from `first` to `last`.
Batch = TypedDict("Batch", {
    "batch": int, "count": int, "first": int, "last": int, "created_at": str, "duplicates": int, "duplicate_of": int,
    "warning": "dict[str, str]",
}, total=False)  # fmt: skip

Worker = TypedDict("Worker", {
    "id": int, "name": str, "state": str, "connected": bool, "working": bool, "cordoned": bool, "cordon": "dict[str, Any]",
    "slots": int, "busy": int,
    "backlog": int, "queued": int, "since": str, "joined_at": str, "drain_deadline": str, "labels": "dict[str, str]",
    "labels_set": "dict[str, str]", "labels_granted": "dict[str, str]", "revoked_at": str,
    "runtimes": "list[dict[str, Any]]", "unmanaged": "list[dict[str, Any]]",
    "suspect": "dict[str, Any]", "exclusions": "list[dict[str, Any]]", "copies": "list[str]", "version": str, "address": str,
    "engine_id": str, "load_milli": int, "disk_free_bytes": int, "set_aside_for": int,
}, total=False)  # fmt: skip

# A committed change. `kind` decides which objects it has: see docs/events.md.
Event = TypedDict("Event", {
    "id": str, "at": str, "kind": str, "job": Job, "job_id": int, "attempt": "dict[str, Any]", "worker": Worker, "by": str,
    "batch": "dict[str, Any]", "hook": "dict[str, Any]", "fire": "dict[str, Any]", "schedules": "dict[str, Any]", "said": str,
    "definition": "dict[str, Any]", "expectation": "dict[str, Any]", "forgotten": "dict[str, Any]", "name": str,
}, total=False)  # fmt: skip

Definition = Dict[str, Any]


@dataclass(frozen=True)
class Output:
    """A part of the output of a job. Without `data` it says that bytes are absent."""

    attempt: int
    stream: str  # `stdout` or `stderr`; empty where late bytes may be of both.
    data: bytes = b""
    absent: str = ""  # `missing`: lost. `cut`: beyond `log.max_bytes` of the definition. `late`: may still arrive.
    absent_bytes: Optional[int] = None


class LongshoreError(Exception):
    """The base of all exceptions of this package."""

    # Of a failed submission or retry, after which the job may exist: the same call with this key makes no second job.
    idempotency_key: Optional[str] = None


class ConnectionFailed(LongshoreError):
    """The server gave no answer, or the connection broke."""


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


class EventsGone(ApiError):
    """Events in between are no longer kept. Read the lists again; go on with `events(after=error.problem["last_event_id"])`."""


class WaitTimeout(LongshoreError, TimeoutError):
    """A job has not ended in time. `job` is its last known state, if the server gave one."""

    def __init__(self, job_id: int, job: Optional[Job]) -> None:
        self.job_id, self.job = job_id, job
        super().__init__(f"job {job_id} has not ended in time" + (f", it is {job['state']}" if job else ""))
