"""The calls: what docs/http-api.md offers to programs that submit jobs and watch them."""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from datetime import datetime
from typing import Any, Dict, Generator, Iterable, Iterator, List, Mapping, Optional, Sequence, Union, cast
from urllib.parse import parse_qsl, quote, urlsplit

from ._http import Http, Request, check_token, parse_json
from ._types import Batch, ConnectionFailed, Definition, Event, EventsGone, Job, LongshoreError, Output, WaitTimeout, Worker

Duration = Union[str, float]  # Seconds, or a text such as `90s`.
Wait = Union[bool, float]  # True: without a limit; or at most so many seconds.
Filter = Union[str, bool, int, datetime, Iterable[str], None]


class Client:
    """A client of one server, for any number of threads.

    `server` is `host:port`, with the base path if it has one, or a URL. For arguments that are not given the client reads what
    the command line reads: LONGSHORE_SERVER, LONGSHORE_API_TOKEN_FILE, LONGSHORE_CA_FILE; and before the file LONGSHORE_TOKEN.
    If the server does not answer (for `timeout` seconds), or answers 503, a call tries again for `retry_for` seconds."""

    def __init__(
        self, server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[str] = None,
        ca_file: Optional[str] = None, timeout: float = 30, retry_for: float = 30,
    ) -> None:  # fmt: skip
        env = {name: value for name, value in os.environ.items() if value}
        if token is None and token_file is None:
            token, token_file = env.get("LONGSHORE_TOKEN"), env.get("LONGSHORE_API_TOKEN_FILE")
        server, ca_file = server or env.get("LONGSHORE_SERVER", "127.0.0.1:8080"), ca_file or env.get("LONGSHORE_CA_FILE")
        self._http = Http(server, check_token(token, token_file), ca_file, timeout, retry_for)

    def submit(
        self, name: str, *, params: Optional[Mapping[str, Any]] = None, environment: Optional[Mapping[str, str]] = None,
        args: Optional[Sequence[str]] = None, input: Any = None, priority: Optional[int] = None,
        timeout: Optional[Duration] = None, delay: Optional[Duration] = None, run_at: Union[str, datetime, None] = None,
        labels: Optional[Mapping[str, str]] = None, key: Optional[str] = None, idempotency_key: Optional[str] = None,
        after: Iterable[Union[int, Mapping[str, Any]]] = (), wait: Wait = False,
    ) -> Job:  # fmt: skip
        """Makes a job, but no second one when a connection breaks. `key` is its unique key. It starts `after` other jobs,
        or after a whole batch: `after=[{"batch": 100, "outcome": "ended"}]`."""
        fields: Dict[str, Any] = {"params": params, "environment": environment, "args": args, "input": input, "after": [*after] or None}
        fields.update(priority=priority, timeout=_duration(timeout), delay=_duration(delay), labels=labels, unique_key=key)
        fields["run_at"] = _rfc3339(run_at) if isinstance(run_at, datetime) else run_at
        return self._make_job(f"/api/jobs/{quote(name, safe='')}", {}, fields, idempotency_key, wait)

    def submit_many(
        self, jobs: Iterable[Mapping[str, Any]], *, batch_name: Optional[str] = None,
        max_failures: Optional[int] = None, concurrency: Optional[int] = None, idempotency_key: Optional[str] = None,
    ) -> Batch:  # fmt: skip
        """Makes all of these jobs or none. Each has a `name`, and the fields that the API takes for a job."""
        lines = "".join(json.dumps(job, allow_nan=False) + "\n" for job in jobs)
        query = _query(batch_name=batch_name, max_failures=max_failures, concurrency=concurrency)
        return cast(Batch, self._create("/api/jobs", query, "application/x-ndjson", lines, idempotency_key))

    def retry(
        self, job: int, *, changes: Optional[Mapping[str, Any]] = None, original: bool = False,
        idempotency_key: Optional[str] = None, wait: Wait = False,
    ) -> Job:  # fmt: skip
        """Makes a job like an ended one, with `changes` to its fields, of the definition of today or the `original` one."""
        query = _query(revision="original" if original else None)
        return self._make_job(f"/api/jobs/{job:d}/retry", query, changes or {}, idempotency_key, wait)

    def cancel(self, job: int) -> Job:
        """Cancels a job. If its container has to stop first, the job is not yet `cancelled`: wait for it."""
        return cast(Job, self._http.json(Request("POST", f"/api/jobs/{job:d}/cancel")))

    def job(self, job: int) -> Job:
        """A job with its attempts and its timeline."""
        return cast(Job, self._http.json(Request("GET", f"/api/jobs/{job:d}")))

    def jobs(self, *, page_size: int = 100, **filters: Filter) -> Iterator[Job]:
        """Jobs, newest first, read page by page. The filters are those of the API: `state`, `name`, `worker`, `since`, …"""
        query = _query(limit=page_size, **filters)
        while True:
            headers, body = self._http.call(Request("GET", "/api/jobs", query))
            yield from parse_json(body)
            if 'rel="next"' not in (headers.get("Link") or ""):
                return
            query = dict(parse_qsl(urlsplit(headers["Link"].strip("< ").partition(">")[0]).query, keep_blank_values=True))

    def wait(self, job: int, timeout: Optional[float] = None) -> Job:
        """Waits until a job has ended, however often connections break. Raises `WaitTimeout` after `timeout` seconds."""
        known: Optional[Job] = None
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            asked_at = time.monotonic()
            left_s = max(until - asked_at, 0)
            wait_s = min(left_s, _WAIT_MAX_S)
            request = Request("GET", f"/api/jobs/{job:d}", {"wait": f"{wait_s * 1000:.0f}ms"})
            try:
                known = shown = self._http.json(request, wait_s, left_s)
            except ConnectionFailed as error:
                if time.monotonic() < until:
                    raise
                raise WaitTimeout(job, known) from error
            if shown["state"] in _ENDED:
                return known
            if time.monotonic() >= until:
                raise WaitTimeout(job, known)
            # A server that is stopping answers at once.
            time.sleep(_PACE_S if time.monotonic() - asked_at < min(wait_s, _PACE_S) else 0)

    def logs(
        self, job: int, *, attempt: Optional[int] = None, stream: Optional[str] = None, tail: Optional[int] = None,
        timestamps: bool = False
    ) -> bytes:  # fmt: skip
        """The output of the latest attempt until now, byte for byte. With `timestamps` each line begins with its time in UTC."""
        query = _query(attempt=attempt, stream=stream, tail=tail, timestamps=1 if timestamps else None)
        return self._http.call(Request("GET", f"/api/jobs/{job:d}/logs", query, headers={"Accept": "text/plain"}))[1]

    def follow(
        self, job: int, *, attempt: Optional[int] = None, stream: Optional[str] = None, tail: Optional[int] = None
    ) -> Generator[Output, None, None]:
        """Output as it arrives, until the job (or this attempt) has ended; without gap or repetition when connections break."""
        query = _query(encoding="base64", follow=1, attempt=attempt, stream=stream, tail=tail)
        begin = "1:0" if attempt is None and tail is None else None
        events = self._http.events(f"/api/jobs/{job:d}/logs", query, begin, follows=True)
        next(events)
        return _read_output(events)

    def events(self, *, after: Optional[str] = None, follow: bool = True, **filters: Filter) -> Generator[Event, None, None]:
        """Changes from this call on, or `after` an event. Filters: `kind`, `name`, `state`, `worker`, `batch`, `tail`.

        After a broken connection it goes on with the next event. Raises `EventsGone` if that is impossible."""
        query = _query(**filters, follow=None if follow else 0)
        events = self._http.events("/api/events", query, after, follow)
        next(events)
        return _read_changes(events)

    def workers(self, *, all: bool = False) -> List[Worker]:
        """The workers that are connected or have attempts; or all."""
        return cast(List[Worker], self._http.json(Request("GET", "/api/workers", {"all": "1"} if all else {})))

    def definitions(self) -> List[Definition]:
        """The definitions of jobs.yaml."""
        return cast(List[Definition], self._http.json(Request("GET", "/api/definitions")))

    def _make_job(self, path: str, query: Dict[str, str], fields: Mapping[str, Any], key: Optional[str], wait: Wait) -> Job:
        body = json.dumps({name: value for name, value in fields.items() if value is not None}, allow_nan=False)
        key = key or secrets.token_hex(16)
        job: Job = self._create(path, query, "application/json", body, key)
        try:
            return job if wait is False else self.wait(job["id"], None if wait is True else wait)
        except LongshoreError as error:
            error.idempotency_key = key
            raise

    def _create(self, path: str, query: Mapping[str, str], kind: str, body: str, key: Optional[str]) -> Any:
        key = key or secrets.token_hex(16)
        try:
            return self._http.json(Request("POST", path, query, body.encode(), {"Content-Type": kind, "Idempotency-Key": key}))
        except LongshoreError as error:
            error.idempotency_key = key
            raise


def _read_output(events: Iterator[Mapping[str, str]]) -> Generator[Output, None, None]:
    attempt = 0
    for event in events:
        kind, data = event.get("event"), json.loads(event.get("data", "{}"))
        attempt = data["attempt"] if kind == "attempt" else attempt
        if kind == "output":
            yield Output(attempt, data["stream"], base64.b64decode(data["base64"]))
        elif kind == "gap":
            absent = "cut" if "cut_at_bytes" in data else "missing"
            yield Output(attempt, data["stream"], b"", absent, data["missing_bytes"])
        elif kind == "late":
            yield Output(attempt, "", b"", "late", data["late_bytes"])
        elif kind == "end":
            return


def _read_changes(events: Iterator[Mapping[str, str]]) -> Generator[Event, None, None]:
    for event in events:
        if event.get("event") == "change":
            yield json.loads(event["data"])
        elif event.get("event") == "gone":
            raise EventsGone(410, {"code": "events_gone", "title": "events are missing", **json.loads(event["data"])})


def _duration(value: Optional[Duration]) -> Optional[str]:
    return value if value is None or isinstance(value, str) else f"{value * 1000:.0f}ms"


def _rfc3339(at: datetime) -> str:
    """A time without a zone is one of this machine."""
    return (at if at.tzinfo else at.astimezone()).isoformat()


def _query(**values: Filter) -> Dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: Union[str, bool, int, datetime, Iterable[str]]) -> str:
    if isinstance(value, datetime):
        return _rfc3339(value)
    # A bool is an int, and the API takes 1 and 0.
    return str(int(value)) if isinstance(value, int) else value if isinstance(value, str) else ",".join(value)


_ENDED = ("succeeded", "failed", "cancelled", "expired", "lost")
_WAIT_MAX_S, _PACE_S = 30.0, 0.2
