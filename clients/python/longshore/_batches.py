"""Calls about batches: many jobs that are submitted, counted, waited for, cancelled and retried together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Generator, Iterable, Iterator, Mapping, Optional, Union, cast
from urllib.parse import quote

from ._base import Base
from ._encode import duration, job_fields, lines, query, to_json
from ._ends import ended_members, nothing
from ._errors import BatchTimeout, LongshoreError, NotFound
from ._http import Request
from ._map import Results, in_order
from ._types import Batch, BatchStatus, Filter, Job, JobFields, RetriedBatch

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Keep:
    """The value of a parameter that is not given, where None has a meaning."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP = Keep()


class Batches(Base):
    """Batches."""

    def submit_many(
        self, jobs: Iterable[Mapping[str, Any]], *, batch_name: Optional[str] = None,
        max_failures: Optional[int] = None, concurrency: Optional[int] = None, idempotency_key: Optional[str] = None,
        batch_unique_key: Optional[str] = None, on_duplicate: Optional[str] = None,
    ) -> Batch:  # fmt: skip
        """Makes all of these jobs or none. Each has a `name`, and the fields that the API takes for a job.

        `after` of a job may name others of the list, by their `as` or `name`. The jobs are read one by one, and a generator is
        never in memory as a whole. After `max_failures` the rest is cancelled; `concurrency` is how many run at once.

        At most one batch with a `batch_unique_key` has not ended. If another one has the key, `on_duplicate` says what happens: `"return"`,
        the default, gives that one, with `existing`; `"reject"` raises `Conflict`; `"replace"` cancels that one and makes the new one."""
        options = query(batch_name=batch_name, max_failures=max_failures, concurrency=concurrency)
        options.update(query(batch_unique_key=batch_unique_key, on_duplicate=on_duplicate))
        return self._submit_lines(jobs, options, idempotency_key)

    def submit_batch(
        self, name: str, *, count: Optional[int] = None, each: Optional[Iterable[Mapping[str, Any]]] = None,
        batch_name: Optional[str] = None, max_failures: Optional[int] = None, concurrency: Optional[int] = None,
        idempotency_key: Optional[str] = None, batch_unique_key: Optional[str] = None, on_duplicate: Optional[str] = None,
        **fields: Unpack[JobFields],
    ) -> Batch:  # fmt: skip
        """Makes `count` jobs of a definition, or one for `each` of these parameters, laid over `params`.

        The other fields are those of `submit`, for each of the jobs. After `max_failures` the rest is cancelled; `concurrency` is
        how many run at once. `batch_unique_key` and `on_duplicate` are those of `submit_many`."""
        if (count is None) == (each is None):
            raise ValueError("submit_batch takes either count, or each")
        batch = {"batch_name": batch_name, "max_failures": max_failures, "concurrency": concurrency}
        batch.update({"batch_unique_key": batch_unique_key, "on_duplicate": on_duplicate})
        if each is not None:
            return self._submit_lines(each_of(name, each, fields), query(**batch), idempotency_key)
        body = to_json(job_fields({**fields, **batch, "count": count}))
        return cast(Batch, self._create(f"/api/jobs/{quote(name, safe='')}", {}, "application/json", body, idempotency_key, _MAKE_MAX_S))

    def batch(self, batch: int) -> BatchStatus:
        """A batch: its `state`, its `counts` by state, `progress` from 0 to 1, `eta`, and its first `failures`."""
        return cast(BatchStatus, self._get(f"/api/batches/{batch:d}"))

    def batches(
        self, *, name: Optional[str] = None, state: Filter = None, submitted_by: Optional[str] = None, label: Optional[str] = None,
        unique_key: Optional[str] = None, page_size: int = 100,
    ) -> Iterator[BatchStatus]:  # fmt: skip
        """Batches, newest first, read page by page. `*` in the name stands for any text; `label` is `"key=value"`, of a member."""
        choice = query(name=name, state=state, submitted_by=submitted_by, label=label, unique_key=unique_key, limit=page_size)
        return self._pages("/api/batches", choice)

    def wait_batch(self, batch: int, timeout: Optional[float] = None) -> BatchStatus:
        """Waits until all jobs of a batch have ended. Raises `BatchTimeout` after `timeout` seconds."""
        late = lambda known: BatchTimeout(batch, known)  # noqa: E731
        return cast(BatchStatus, self._wait(f"/api/batches/{batch:d}", lambda shown: "ended_at" in shown, timeout, late))

    def batch_progress(self, batch: int, every: float = 1.0) -> Iterator[BatchStatus]:
        """A batch as it is now, then each time after `every` seconds (0.01 to 600), and when it has ended."""
        # A server waits for ten minutes at most; and a pause of zero would ask it as fast as it answers.
        if not 0.01 <= every <= 600:
            raise ValueError(f"every is a number of seconds from 0.01 to 600, not {every!r}")
        return self._progress(batch, every)

    def _progress(self, batch: int, every: float) -> Iterator[BatchStatus]:
        wait_s = 0.0
        while True:
            asked_at = time.monotonic()
            shown = cast(BatchStatus, self._http.json(Request("GET", f"/api/batches/{batch:d}", query(wait=duration(wait_s))), wait_s))
            yield shown
            if "ended_at" in shown:
                return
            # A server that is stopping answers at once.
            time.sleep(max(min(wait_s, 0.2) - (time.monotonic() - asked_at), 0))
            wait_s = every

    def batch_results(self, batch: int, *, latest: bool = False, page_size: int = 500, **filters: Filter) -> Iterator[Job]:
        """The jobs of a batch with `index`, `params` and `result`, the last position first, or the first one with `order="oldest"`, read page by
        page. With `latest`, the last retry of each job stands in its place, if it has any.

        They are the jobs as they are now. The filters are those of `jobs`, such as `state="succeeded"` or `index="3-9"`."""
        return self._pages("/api/jobs", query(batch=batch, results=True, latest=True if latest else None, limit=page_size, **filters))

    def batch_member(self, batch: int, index: int) -> Job:
        """The job of a batch with this position, from 0, as `batch_results` has it. Raises `NotFound` if the batch has none."""
        found = self._get("/api/jobs", query(batch=batch, index=index, results=True))
        if not found:
            raise NotFound(404, {"code": "job_not_found", "detail": f"the member of batch {batch} with the index {index} is no longer kept"})
        return cast(Job, found[0])

    def batch_failures(self, batch: int, *, page_size: int = 500) -> Iterator[Job]:
        """The jobs of a batch that failed, expired or were lost, as `batch_results` has them."""
        return self.batch_results(batch, page_size=page_size, state=["failed", "expired", "lost"])

    def as_completed(self, batch: int, timeout: Optional[float] = None) -> Generator[Job, None, None]:
        """The jobs of a batch, each when it has ended, with its `result`. Those that ended before come first.

        It survives broken connections and restarts of the server, and leaves out jobs that retention deletes before they are read.
        Raises `BatchTimeout` after `timeout` seconds."""
        return ended_members(self, batch, timeout)

    def cancel_batch(self, batch: int) -> BatchStatus:
        """Cancels the jobs of a batch that have not ended. None of them starts after this; the server goes on with it by itself, and those that
        run have to stop first: wait for the batch."""
        # Only a token that is not for all of the jobs takes more than one request.
        cursor: Optional[str] = None
        while True:
            answer = self._send("POST", f"/api/batches/{batch:d}/cancel", query(cursor=cursor))
            cursor = answer.get("next")
            if cursor is None:
                return self.batch(batch)

    def retry_batch(
        self, batch: int, *, batch_name: Optional[str] = None, max_failures: Optional[int] = None,
        concurrency: Optional[int] = None, original: bool = False, cancelled: bool = False, dry_run: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> RetriedBatch:  # fmt: skip
        """Makes a batch of the jobs of a batch that have not succeeded, of the definitions of today or the `original` ones.
        Those that somebody cancelled are left out, unless `cancelled` is set.

        The answer has no `batch` if nothing is left to retry, or with `dry_run`, which only counts in `matched`."""
        choice = query(batch_name=batch_name, max_failures=max_failures, concurrency=concurrency)
        choice.update(query(revision="original" if original else None, dry_run=True if dry_run else None))
        choice.update(query(cancelled=True if cancelled else None))
        path = f"/api/batches/{batch:d}/retry"
        return cast(RetriedBatch, self._create(path, choice, "application/json", b"", idempotency_key, _MAKE_MAX_S))

    def explain_batch(self, batch: int) -> Dict[str, Any]:
        """Why the jobs of a batch wait: the batch, its `limit`, and its first `waiting` jobs by `reason`, with a `count` and an `example`."""
        return cast("Dict[str, Any]", self._get(f"/api/batches/{batch:d}/explain"))

    def change_batch(self, batch: int, *, concurrency: Union[int, None, "Keep"] = KEEP, max_failures: Union[int, None, "Keep"] = KEEP) -> BatchStatus:
        """Changes limits of a batch that has not ended: how many jobs run at once, and after how many failures the rest is cancelled.

        None takes a limit away; one that is not given stays."""
        fields = {name: value for name, value in (("concurrency", concurrency), ("max_failures", max_failures)) if value is not KEEP}
        content = {"Content-Type": "application/json"}
        return cast(BatchStatus, self._http.json(Request("PATCH", f"/api/batches/{batch:d}", {}, to_json(fields), content)))

    def map(
        self, name: str, each: Iterable[Mapping[str, Any]], *, ordered: bool = True, wait_timeout: Optional[float] = None,
        return_exceptions: bool = False, cancel_rest: bool = False, batch_name: Optional[str] = None,
        max_failures: Optional[int] = None, concurrency: Optional[int] = None, idempotency_key: Optional[str] = None,
        **fields: Unpack[JobFields],
    ) -> Results:  # fmt: skip
        """Makes a job for each of these parameters, and iterates over what the jobs leave as their results.

        The jobs are one batch, which is submitted when this returns: `map(…).batch`. The results come in the order of the
        parameters; with `ordered=False` as the jobs end. A job that does not succeed raises `JobFailed`, which ends the iteration;
        with `return_exceptions` the exception takes the place of the result. `BatchTimeout` is raised if a result is not there
        `wait_timeout` seconds after the end of the submission. An iteration that ends early leaves the other jobs alone. With
        `cancel_rest` an exception of it cancels them, the end of a `with` block, and `close()`; a `break` alone cancels nothing.
        The other fields are those of `submit`, for each of the jobs."""
        options = query(batch_name=batch_name, max_failures=max_failures, concurrency=concurrency)
        file, count = lines(each_of(name, each, fields))
        with file:
            if count == 0:
                return Results(None, nothing(), None, return_exceptions)
            batch = self._submit_file(file, options, idempotency_key)
        number = batch.get("batch", 0)
        if batch.get("count", 0) != count:
            where = f" of batch {number}, whose other jobs go on," if number else ""
            raise LongshoreError(f"unique keys of some of the {count} jobs{where} are taken: there is no result for each of them")
        ended = ended_members(self, number, wait_timeout)
        cancel = (lambda: self.cancel_batch(number)) if cancel_rest else None
        return Results(batch, in_order(batch, ended) if ordered else ended, cancel, return_exceptions)

    def _submit_lines(self, jobs: Iterable[Mapping[str, Any]], options: Dict[str, str], key: Optional[str]) -> Batch:
        file, _ = lines(jobs)
        with file:
            return self._submit_file(file, options, key)

    def _submit_file(self, file: Any, options: Dict[str, str], key: Optional[str]) -> Batch:
        return cast(Batch, self._create("/api/jobs", options, "application/x-ndjson", file, key, _MAKE_MAX_S))


def each_of(name: str, each: Iterable[Mapping[str, Any]], fields: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """A job for each of these parameters, laid over those of the fields."""
    common = {**fields, "after": [*(fields.get("after") or ())]}
    for params in each:
        yield {**common, "name": name, "params": {**(fields.get("params") or {}), **params}}


_MAKE_MAX_S = 270.0  # For a large batch, which the server makes in slices, behind others.
