"""The members of a batch, each as it ends: the list says which have ended, and the events say which end from then on."""

from __future__ import annotations

import time
from typing import Any, Generator, Iterator, Optional, Set

from ._base import Base
from ._encode import query
from ._errors import ApiError, BatchTimeout, ConnectionFailed, EventsGone
from ._http import DeadlinePassed, Request
from ._types import ENDED, BatchStatus, Job


def ended_members(client: Base, batch: int, timeout: Optional[float]) -> Generator[Job, None, None]:
    """Each member once, with its result, but none that retention deletes before it is read.

    Nothing is asked before the first step; the timeout counts from now."""
    until = float("inf") if timeout is None else time.monotonic() + timeout
    return _Members(client, batch, until).run()


def nothing() -> Generator[Job, None, None]:
    """The members of no batch."""
    yield from ()


class _Members:
    """What is known of the members of a batch."""

    def __init__(self, client: Base, batch: int, until: float) -> None:
        self._client, self._batch, self._until = client, batch, until
        self._seen: Set[int] = set()
        self._known: Optional[BatchStatus] = None
        self._read_at = float("-inf")  # When the last result was read.

    def run(self) -> Generator[Job, None, None]:
        while True:
            try:
                yield from self._follow()
                return
            except EventsGone:
                # The server was started again, or this program reads too slowly: the list has what was missed.
                pass
            except (DeadlinePassed, ConnectionFailed) as error:
                if isinstance(error, ConnectionFailed) and time.monotonic() < self._until:
                    raise
                raise BatchTimeout(self._batch, self._known) from error

    def _follow(self) -> Generator[Job, None, None]:
        # Connected before the list is read, so that no end falls in between.
        events = self._client._events(query(kind="job.ended,batch.ended", batch=self._batch), None, until=self._until)
        try:
            known = self._known = self._json(f"/api/batches/{self._batch:d}")
            yield from self._listed()
            if "ended_at" in known:
                return
            while len(self._seen) < known["count"]:
                if time.monotonic() >= self._until:
                    raise DeadlinePassed("the time is up")
                event = next(events)
                if event["kind"] == "batch.ended":
                    # Members whose end was not seen are in the list by now.
                    yield from self._listed()
                    return
                yield from self._read_ended(event["job"])
        finally:
            events.close()

    def _read_ended(self, ended: Job) -> Generator[Job, None, None]:
        """A member that has ended, with its result, unless it was seen. If ends come in quick succession, others with it."""
        if ended["id"] in self._seen:
            return
        if time.monotonic() - self._read_at < _QUICK_S:
            yield from self._listed(ended["ended_at"])
        if self._is_new(ended):
            try:
                job = self._json(f"/api/jobs/{ended['id']:d}")
            except ApiError as error:
                if error.code not in _NOT_KEPT:
                    raise
                # The retention of the server has deleted it since. The others go on.
            else:
                yield job
        self._read_at = time.monotonic()

    def _listed(self, since: Optional[str] = None) -> Iterator[Job]:
        """The members that have ended (since a time) and were not seen yet, read page by page."""
        choice = query(batch=self._batch, results=True, limit=500, state=ENDED, ended_since=since)
        return (job for job in self._client._pages("/api/jobs", choice, self._until) if self._is_new(job))

    def _is_new(self, job: Job) -> bool:
        # A job on several workers has members, which may belong to the same batch.
        if job["id"] in self._seen or "member_of" in job:
            return False
        self._seen.add(job["id"])
        return True

    def _json(self, path: str) -> Any:
        return self._client._http.json(Request("GET", path), until=self._until)


# Below this time between two ends they are read from the list, many in a request. To go through the list costs the server more than a job.
_QUICK_S = 0.1
_NOT_KEPT = ("pruned", "job_not_found")
