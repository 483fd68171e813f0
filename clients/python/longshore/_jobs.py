"""Calls about single jobs: submit, look at, wait, read the output, cancel, retry."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import datetime
from typing import Any, Dict, Generator, Iterator, Mapping, Optional, Sequence, Union, cast
from urllib.parse import quote

from ._base import Base
from ._encode import duration, instant, job_fields, query, to_json
from ._errors import LongshoreError, WaitTimeout
from ._http import Request
from ._types import ENDED, After, Duration, Filter, Job, Output, Wait


class Jobs(Base):
    """Single jobs."""

    def submit(
        self, name: str, *, params: Optional[Mapping[str, Any]] = None, environment: Optional[Mapping[str, str]] = None,
        args: Optional[Sequence[str]] = None, input: Any = None, priority: Optional[int] = None,
        timeout: Optional[Duration] = None, delay: Optional[Duration] = None, run_at: Union[str, datetime, None] = None,
        labels: Optional[Mapping[str, str]] = None, key: Optional[str] = None, idempotency_key: Optional[str] = None,
        after: After = (), workers: Optional[Sequence[Union[str, int]]] = None,
        requires: Union[Mapping[str, Any], Sequence[str], str, None] = None, wait: Wait = False,
    ) -> Job:  # fmt: skip
        """Makes a job, but no second one when a connection breaks. `key` is its unique key: one job that has it may be live.
        It starts `after` other jobs, or after a whole batch: `after=[12, {"job": 13, "outcome": "failed"}, {"batch": 100, "outcome": "ended"}]`."""
        fields: Dict[str, Any] = {"params": params, "environment": environment, "args": args, "input": input, "after": after}
        fields.update(priority=priority, timeout=timeout, delay=delay, run_at=run_at, labels=labels, key=key)
        fields.update(workers=workers, requires=requires)
        return self._make_job(f"/api/jobs/{quote(name, safe='')}", {}, job_fields(fields), idempotency_key, wait)

    def retry(
        self, job: int, *, changes: Optional[Mapping[str, Any]] = None, original: bool = False,
        idempotency_key: Optional[str] = None, wait: Wait = False,
    ) -> Job:  # fmt: skip
        """Makes a job like an ended one, with `changes` to its fields, of the definition of today or the `original` one."""
        choice = query(revision="original" if original else None)
        return self._make_job(f"/api/jobs/{job:d}/retry", choice, job_fields(changes or {}), idempotency_key, wait)

    def cancel(self, job: int) -> Job:
        """Cancels a job. If its container has to stop first, the job is not yet `cancelled`: wait for it."""
        return cast(Job, self._send("POST", f"/api/jobs/{job:d}/cancel"))

    def release(self, job: int) -> Job:
        """Lets a quarantined job go on, or gives up its unreachable attempt."""
        return cast(Job, self._send("POST", f"/api/jobs/{job:d}/release"))

    def acknowledge(self, job: int, reason: Optional[str] = None) -> Job:
        """Says that the failure of a job is dealt with. The first acknowledgement of a job stays."""
        return cast(Job, self._send("POST", f"/api/jobs/{job:d}/acknowledge", fields={"reason": reason}))

    def unacknowledge(self, job: int) -> Job:
        """Takes the acknowledgement of a job back. Unless it was retried, it is unresolved again."""
        return cast(Job, self._send("DELETE", f"/api/jobs/{job:d}/acknowledge"))

    def reschedule(
        self, job: int, *, run_at: Union[str, datetime, None] = None, delay: Optional[Duration] = None, priority: Optional[int] = None
    ) -> Job:  # fmt: skip
        """Changes the start or the priority of a job that waits. If the call is repeated, a `delay` counts from the last time."""
        fields = {"run_at": instant(run_at), "delay": duration(delay), "priority": priority}
        return cast(Job, self._send("PATCH", f"/api/jobs/{job:d}", fields=fields))

    def job(self, job: int) -> Job:
        """A job with its attempts and its timeline."""
        return cast(Job, self._get(f"/api/jobs/{job:d}"))

    def explain(self, job: int) -> Dict[str, Any]:
        """Why a job waits, and for each worker whether it could get it."""
        return cast("Dict[str, Any]", self._get(f"/api/jobs/{job:d}/explain"))

    def jobs(self, *, page_size: int = 100, **filters: Filter) -> Iterator[Job]:
        """Jobs, newest first, read page by page. The filters are those of the API: `state`, `name`, `worker`, `since`, …

        With `results=True` each has the `result` that it left, its `params`, and its `index` in its batch."""
        return self._pages("/api/jobs", query(limit=page_size, **filters))

    def wait(self, job: int, timeout: Optional[float] = None) -> Job:
        """Waits until a job has ended, however often connections break. Raises `WaitTimeout` after `timeout` seconds."""
        late = lambda known: WaitTimeout(job, known)  # noqa: E731
        return cast(Job, self._wait(f"/api/jobs/{job:d}", lambda shown: shown["state"] in ENDED, timeout, late))

    def logs(
        self, job: int, *, attempt: Optional[int] = None, stream: Optional[str] = None, tail: Optional[int] = None,
        timestamps: bool = False
    ) -> bytes:  # fmt: skip
        """The output of the latest attempt until now, byte for byte. With `timestamps` each line begins with its time in UTC."""
        choice = query(attempt=attempt, stream=stream, tail=tail, timestamps=1 if timestamps else None)
        return self._http.call(Request("GET", f"/api/jobs/{job:d}/logs", choice, headers={"Accept": "text/plain"}))[1]

    def follow(
        self, job: int, *, attempt: Optional[int] = None, stream: Optional[str] = None, tail: Optional[int] = None
    ) -> Generator[Output, None, None]:
        """Output as it arrives, until the job (or this attempt) has ended; without gap or repetition when connections break."""
        choice = query(encoding="base64", follow=1, attempt=attempt, stream=stream, tail=tail)
        begin = "1:0" if attempt is None and tail is None else None
        events = self._http.events(f"/api/jobs/{job:d}/logs", choice, begin, follows=True)
        next(events)
        return _read_output(events)

    def _make_job(self, path: str, choice: Dict[str, str], fields: Mapping[str, Any], key: Optional[str], wait: Wait) -> Job:
        key = key or secrets.token_hex(16)
        job: Job = self._create(path, choice, "application/json", to_json(fields), key)
        try:
            return job if wait is False else self.wait(job["id"], None if wait is True else wait)
        except LongshoreError as error:
            error.idempotency_key = key
            raise


def _read_output(events: Iterator[Mapping[str, str]]) -> Generator[Output, None, None]:
    attempt, withheld = 0, 0
    for event in events:
        kind, data = event.get("event"), json.loads(event.get("data", "{}"))
        attempt = data["attempt"] if kind == "attempt" else attempt
        if kind == "output":
            yield Output(attempt, data["stream"], base64.b64decode(data["base64"]))
        elif kind == "gap":
            absent = "cut" if "cut_at_bytes" in data else "missing"
            yield Output(attempt, data["stream"], b"", absent, data["missing_bytes"])
        elif kind == "withheld" and withheld != attempt:
            # A new connection says it again.
            withheld = attempt
            yield Output(attempt, "", b"", "withheld")
        elif kind == "late":
            yield Output(attempt, "", b"", "late", data["late_bytes"])
        elif kind == "end":
            return
