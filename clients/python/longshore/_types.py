"""Answers of the server, as docs/http-api.md describes them, and what callers give. An absent value is an absent key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, TypedDict, Union

Duration = Union[str, float]  # Seconds, or a text such as `90s`.
Wait = Union[bool, float]  # True: without a limit; or at most this number of seconds.
Filter = Union[str, bool, int, datetime, Iterable[str], None]
After = Iterable[Union[int, Mapping[str, Any]]]  # Jobs; `{"job": 12, "outcome": "ended"}`; `{"batch": 100}`.

ENDED = ("succeeded", "failed", "cancelled", "expired", "lost")  # The states of a job that has ended.

# What a submission says about a job: the keyword arguments of `submit`.
JobFields = TypedDict("JobFields", {
    "params": Optional[Mapping[str, Any]], "environment": Optional[Mapping[str, str]], "args": Optional[Sequence[str]], "input": Any,
    "priority": Optional[int], "timeout": Optional[Duration], "delay": Optional[Duration], "run_at": Union[str, datetime, None],
    "labels": Optional[Mapping[str, str]], "key": Optional[str], "after": After, "workers": Optional[Sequence[Union[str, int]]],
    "requires": Union[Mapping[str, Any], Sequence[str], str, None],
}, total=False)  # fmt: skip

# A job. `args` and the keys after it are only in answers about a single job; `params`, `result` and `note` in lists with `results=1`,
# `index` also in those of a batch.
Job = TypedDict("Job", {
    "id": int, "name": str, "revision": str, "state": str, "queuing": bool, "running": bool, "success": bool,
    "priority": int, "labels": "dict[str, str]", "batch": int, "schedule": str, "scheduled_at": str, "timeout": Any, "parent_scheduled_at": str,
    "created_at": str, "due_at": str, "expires_at": str, "assigned_at": str, "started_at": str, "ended_at": str, "ran_ms": int,
    "attempt_count": int, "worker": "dict[str, Any]", "worker_unreachable_since": str, "phase": "dict[str, Any]",
    "outcome": str, "exit_code": int, "reason": str, "confirmed": bool, "stopping": str, "unresolved": bool, "acknowledged": "dict[str, str]",
    "pending_reason": "dict[str, str]", "warning": "dict[str, str]", "duplicate": bool, "replayed": bool, "retry_of": int, "index": int,
    "args": "list[str]", "environment": "list[str]", "params": "dict[str, Any]", "input": Any, "result": Any, "cancel": str,
    "attempts": "list[dict[str, Any]]", "timeline": "list[dict[str, Any]]", "late_reports": "list[dict[str, Any]]",
    "late_reports_left_out": int, "note": str, "hooks": "list[dict[str, Any]]", "parent": "dict[str, Any]", "retry_of_removed": bool, "submitted_by": str,
    "retried_as": int, "retried_as_state": str,
    "after": "list[Dependency]", "dependents": "list[Dependency]", "members": "dict[str, Any]", "member_of": int, "pinned_worker": Any,
    "workers": "list[Any]", "requires": Any, "request_id": str, "traceparent": str,
}, total=False)  # fmt: skip

# Many jobs of one request: the ids from `first` to `last`.
Batch = TypedDict("Batch", {
    "batch": int, "count": int, "first": int, "last": int, "created_at": str, "replayed": bool, "duplicates": int, "duplicate_of": int,
    "existing": bool, "replaces": int, "warning": "dict[str, str]",
}, total=False)  # fmt: skip

# A batch. `failures`, `outcomes` and `dependents` are only in the answer about one batch.
BatchStatus = TypedDict("BatchStatus", {
    "id": int, "name": str, "definition": str, "definitions_differ": bool, "state": str, "created_at": str, "ended_at": str,
    "submitted_by": str, "count": int, "counts": "dict[str, int]", "progress": float, "eta": str, "max_failures": int, "max_failures_reached": bool,
    "cancelled_by": str, "cancelled_at": str, "unique_key": str, "on_duplicate": str, "replaced_by": int, "concurrency": int, "retry_of": int, "retried_as": int, "removed": int, "skipped": int,
    "failures": "list[Job]", "outcomes": "dict[str, int]", "dependents": "list[Dependency]", "pause": "Pause",
}, total=False)  # fmt: skip

# The retry of a batch: the new one, and how many members were to be retried. Without `batch` none was made.
RetriedBatch = TypedDict("RetriedBatch", {
    "batch": int, "count": int, "first": int, "last": int, "created_at": str, "replayed": bool, "duplicates": int, "duplicate_of": int,
    "existing": bool, "warning": "dict[str, str]", "retry_of": int, "dry_run": bool, "matched": int, "refused": int, "refusals": "list[dict[str, Any]]", "cancelled": int,
    "unended": int,
}, total=False)  # fmt: skip

# A job or a batch that another one comes after, or that comes after it, and the `outcome` that the later one requires.
Dependency = TypedDict("Dependency", {"job": int, "batch": int, "name": str, "outcome": str, "state": str}, total=False)

PipelineJob = TypedDict("PipelineJob", {
    "id": int, "name": str, "state": str, "retry_of": int, "retried_as": int, "retried_as_state": str, "after": "list[Dependency]",
}, total=False)  # fmt: skip

# The jobs before and after a job; `truncated` if there are more.
Pipeline = TypedDict("Pipeline", {"jobs": "list[PipelineJob]", "truncated": bool}, total=False)

# What became of an operation on many jobs. `results` is the effect on each job of `ids`; `jobs` are those that a retry made.
BulkResult = TypedDict("BulkResult", {
    "dry_run": bool, "matched": int, "done": int, "stopping": int, "refused": int, "out_of_scope": int,
    "refusals": "list[dict[str, Any]]", "results": "list[dict[str, Any]]", "jobs": "list[int]", "next": str,
    "ordered": bool, "retries": "list[dict[str, int]]", "retried_before": int, "left_out": "list[dict[str, Any]]",
}, total=False)  # fmt: skip

# A pause: `of` is `server`, `schedules`, `group`, `definition`, `schedule` or `batch`.
Pause = TypedDict(
    "Pause", {"of": str, "name": str, "schedule": str, "batch": int, "since": str, "until": str, "by": str, "reason": str}, total=False
)

# A schedule with its `next` slots.
Schedule = TypedDict("Schedule", {
    "name": str, "id": str, "rule": str, "description": str, "timezone": str, "state": str, "paused_since": str,
    "decided_until": str, "start_at": str, "end_at": str, "jitter_ms": int, "args": "list[str]", "environment": "list[str]",
    "next": "list[str]", "next_due": "list[str]", "last_fire": "dict[str, Any]",
}, total=False)  # fmt: skip

# Consecutive slots of a schedule that became the same.
Fire = TypedDict("Fire", {
    "schedule": str, "from": str, "to": str, "count": int, "at_least": bool, "verdict": str, "reason": str, "job": int,
    "state": str, "outcome": str, "exit_code": int, "retry": "dict[str, Any]", "unresolved": bool, "timezone": str,
    "decided_at": str, "lateness_ms": int,
}, total=False)  # fmt: skip

Worker = TypedDict("Worker", {
    "id": int, "name": str, "state": str, "connected": bool, "working": bool, "cordoned": bool, "cordon": "dict[str, Any]",
    "slots": int, "busy": int,
    "backlog": int, "queued": int, "since": str, "joined_at": str, "drain_deadline": str, "labels": "dict[str, str]",
    "labels_set": "dict[str, str]", "labels_granted": "dict[str, str]", "revoked_at": str,
    "runtimes": "list[dict[str, Any]]", "unmanaged": "list[dict[str, Any]]",
    "suspect": "dict[str, Any]", "exclusions": "list[dict[str, Any]]", "copies": "list[str]", "version": str, "address": str,
    "engine_id": str, "load_milli": int, "disk_free_bytes": int, "set_aside_for": int, "resources": "dict[str, Any]",
}, total=False)  # fmt: skip

# A committed change. `kind` decides which objects it has: see docs/events.md.
Event = TypedDict("Event", {
    "id": str, "at": str, "kind": str, "job": Job, "job_id": int, "attempt": "dict[str, Any]", "worker": Worker, "by": str,
    "batch": "dict[str, Any]", "hook": "dict[str, Any]", "fire": "dict[str, Any]", "schedules": "dict[str, Any]", "said": str,
    "definition": "dict[str, Any]", "expectation": "dict[str, Any]", "forgotten": "dict[str, Any]", "name": str,
    "pause": Pause,
}, total=False)  # fmt: skip

Definition = Dict[str, Any]

# What a reload or a deploy would change, or has changed.
Plan = Dict[str, Any]
Deployed = Dict[str, Any]
Reloaded = TypedDict("Reloaded", {
    "definitions": int, "revision": str, "added": "list[str]", "changed": "list[str]", "removed": "list[str]", "policy_changed": bool,
    "warnings": "list[str]",
}, total=False)  # fmt: skip

# A load that has changed definitions: `cause` is `start`, `reload`, `watch` or `deploy`.
DefinitionChange = TypedDict("DefinitionChange", {
    "id": int, "at": str, "cause": str, "by": str, "reason": str, "before": str, "after": str, "added": "list[str]", "added_more": int,
    "changed": "list[str]", "changed_more": int, "removed": "list[str]", "removed_more": int, "policy_changed": bool,
}, total=False)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """A part of the output of a job. Without `data` it says that bytes are absent."""

    attempt: int
    stream: str  # `stdout` or `stderr`; empty where late bytes may be of both.
    data: bytes = b""
    absent: str = ""  # `missing`: lost. `cut`: beyond `log.max_bytes` of the definition. `late`: may still arrive.
    # `withheld`: further output of the running attempt; its last part comes at the end.
    absent_bytes: Optional[int] = None
