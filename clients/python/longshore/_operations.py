"""Calls for operators: workers, definitions, schedules, pauses; and the events of all of them."""

from __future__ import annotations

from datetime import datetime
from typing import Generator, Iterator, List, Mapping, Optional, Union, cast
from urllib.parse import quote

from ._base import Base
from ._encode import duration, instant, query, to_json
from ._errors import NotFound
from ._http import Request, parse_json
from ._types import Definition, DefinitionChange, Deployed, Duration, Event, Filter, Fire, Pause, Plan, Reloaded, Schedule, Worker

WorkerRef = Union[int, str]  # The number of a worker, or its name.
Instant = Union[str, datetime, None]


class Operations(Base):
    """Workers, definitions, schedules, pauses, events. A `reason` is one line of at most 300 characters.

    A pause ends by itself after `lasts` (such as `"2h"`, or seconds) or at the instant `until`, if it has one of them. A further pause of the
    same thing replaces the end, also by none. The result is False if that changed nothing."""

    def events(self, *, after: Optional[str] = None, follow: bool = True, **filters: Filter) -> Generator[Event, None, None]:
        """Changes from this call on, or `after` an event. Filters: `kind`, `name`, `state`, `worker`, `batch`, `member_of`, `tail`.

        After a broken connection it goes on with the next event. Raises `EventsGone` if that is impossible."""
        return self._events(query(**filters, follow=None if follow else 0), after, follow)

    def workers(self, *, all: bool = False) -> List[Worker]:
        """The workers that are connected or have attempts; or all."""
        return cast("List[Worker]", self._get("/api/workers", {"all": "1"} if all else {}))

    def worker(self, worker: WorkerRef) -> Worker:
        """One worker. Of several with a name it is the connected one, else the last."""
        return cast(Worker, self._get(f"/api/workers/{self._number(worker):d}"))

    def cordon(
        self, worker: WorkerRef, reason: Optional[str] = None, *, lasts: Optional[Duration] = None, until: Instant = None
    ) -> Worker:
        """Gives a worker no new jobs. The cordon ends by itself after `lasts` or at `until`, if it has one of them."""
        fields = {"reason": reason, "for": duration(lasts), "until": instant(until)}
        return cast(Worker, self._send("POST", f"/api/workers/{self._number(worker):d}/cordon", fields=fields))

    def uncordon(self, worker: WorkerRef) -> Worker:
        """Gives a worker jobs again. That also takes back a drain that is not finished."""
        return cast(Worker, self._send("POST", f"/api/workers/{self._number(worker):d}/uncordon"))

    def drain(self, worker: WorkerRef, reason: Optional[str] = None, *, deadline: Optional[Duration] = None) -> Worker:
        """Gives a worker no new jobs, and lets it leave when the others have ended; at the deadline they run again elsewhere."""
        path, choice = f"/api/workers/{self._number(worker):d}/drain", query(deadline=duration(deadline))
        return cast(Worker, self._send("POST", path, choice, {"reason": reason}))

    def definitions(self, *, tag: Optional[str] = None, last_ended: bool = False) -> List[Definition]:
        """The definitions of jobs.yaml, or those with a tag; each with its `last_ended` job if you ask for it."""
        choice = query(tag=tag, last_ended=1 if last_ended else None)
        return cast("List[Definition]", self._get("/api/definitions", choice))

    def definition(self, name: str) -> Definition:
        """One definition, with its `waiting` jobs by reason, `pauses`, `schedules`, `limits` and `last_ended` job."""
        return cast(Definition, self._get(_of(name)))

    def plan(self, text: Union[str, Mapping[str, str]]) -> Plan:
        """What a reload of this text of a jobs file, or of these texts by the names of their files, would change. Changes nothing."""
        return cast(Plan, parse_json(self._send_text("POST", "/api/definitions/plan", {}, text)))

    def deploy(
        self, text: str, *, reason: Optional[str] = None, expect: Optional[str] = None, max_removed: Optional[int] = None,
        dry_run: bool = False,
    ) -> Deployed:  # fmt: skip
        """Replaces the jobs file of the server by this text, and loads it; or only checks that.

        `expect` is the revision that the definitions must have, `max_removed` how many of them may go: else it raises `Conflict`."""
        choice = query(reason=reason, expect=expect, max_removed=max_removed, dry_run=1 if dry_run else None)
        return cast(Deployed, parse_json(self._send_text("PUT", "/api/definitions", choice, text)))

    def reload(
        self, *, reason: Optional[str] = None, expect: Optional[str] = None, expect_new: Optional[str] = None
    ) -> Reloaded:  # fmt: skip
        """Lets the server read its jobs file again. `expect` is the revision that the definitions must have, `expect_new` that of the file."""
        choice = query(expect=expect, expect_new=expect_new)
        return cast(Reloaded, self._send("POST", "/api/definitions/reload", choice, {"reason": reason}))

    def definition_changes(
        self, *, name: Filter = None, by: Optional[str] = None, since: Filter = None, page_size: int = 100
    ) -> Iterator[DefinitionChange]:  # fmt: skip
        """The loads that have changed definitions, newest first, read page by page."""
        return self._pages("/api/definitions/changes", query(name=name, by=by, since=since, limit=page_size))

    def pause_definition(
        self, name: str, reason: Optional[str] = None, *, schedule: Optional[str] = None,
        lasts: Optional[Duration] = None, until: Instant = None,
    ) -> bool:  # fmt: skip
        """Holds back the jobs and schedules of a definition, or only one of its schedules."""
        return self._pause(f"{_of(name)}/pause", reason, lasts, until, schedule=schedule)

    def resume_definition(self, name: str, *, schedule: Optional[str] = None) -> bool:
        """Ends a pause. False if there was none."""
        return self._pause(f"{_of(name)}/resume", schedule=schedule)

    def pause_group(
        self, group: str, reason: Optional[str] = None, *, lasts: Optional[Duration] = None, until: Instant = None
    ) -> bool:
        """Holds back the definitions whose `concurrency` names this group."""
        return self._pause("/api/pause", reason, lasts, until, group=group)

    def resume_group(self, group: str) -> bool:
        """Ends the pause of a group. False if there was none."""
        return self._pause("/api/resume", group=group)

    def pause_all(
        self, reason: Optional[str] = None, *, lasts: Optional[Duration] = None, until: Instant = None
    ) -> bool:
        """Holds back all jobs and schedules of the server."""
        return self._pause("/api/pause", reason, lasts, until)

    def resume_all(self) -> bool:
        """Ends the pause of the server; those of definitions, groups and schedules stay. False if there was none."""
        return self._pause("/api/resume")

    def pause_schedules(
        self, reason: Optional[str] = None, *, lasts: Optional[Duration] = None, until: Instant = None
    ) -> bool:
        """Holds back all schedules, and no submitted jobs."""
        return self._pause("/api/schedules/pause", reason, lasts, until)

    def resume_schedules(self) -> bool:
        """Ends the pause of all schedules; those of single ones stay. False if there was none."""
        return self._pause("/api/schedules/resume")

    def pause_batch(
        self, batch: int, reason: Optional[str] = None, *, lasts: Optional[Duration] = None, until: Instant = None
    ) -> bool:
        """Holds back the waiting jobs of a batch; those that run go on. The pause ends with the batch, too."""
        return self._pause(f"/api/batches/{batch:d}/pause", reason, lasts, until)

    def resume_batch(self, batch: int) -> bool:
        """Ends the pause of a batch. False if there was none."""
        return self._pause(f"/api/batches/{batch:d}/resume")

    def pauses(self) -> List[Pause]:
        """What is paused: since when, `until` when, by whom, and for which reason."""
        return cast("List[Pause]", self._get("/api/pauses"))

    def schedules(self, *, name: Optional[str] = None, next: Optional[int] = None, start: Filter = None) -> List[Schedule]:
        """Schedules with their `next` slots, this number of each (1 to 100); those at or after `start`, or those that have not fired."""
        return cast("List[Schedule]", self._get("/api/schedules", query(name=name, next=next, **{"from": start})))

    def fires(
        self, name: str, *, schedule: Optional[str] = None, since: Filter = None, until: Filter = None, failed: bool = False,
        page_size: int = 100,
    ) -> Iterator[Fire]:  # fmt: skip
        """What became of the slots of a definition, newest first, read page by page. `failed` leaves those whose last job is an
        unresolved failure."""
        chosen = query(schedule=schedule, since=since, until=until, failed=failed or None, limit=page_size)
        return self._pages(f"{_of(name)}/fires", chosen)

    def _pause(
        self, path: str, reason: Optional[str] = None, lasts: Optional[Duration] = None, until: Instant = None,
        **choice: Optional[str],
    ) -> bool:  # fmt: skip
        fields = {"reason": reason, "for": duration(lasts), "until": instant(until)}
        return cast(bool, self._send("POST", path, query(**choice), fields))

    def _send_text(self, method: str, path: str, choice: Mapping[str, str], text: Union[str, Mapping[str, str]]) -> bytes:
        if isinstance(text, str):
            kind, body = "application/yaml", text.encode()
        else:
            files = [{"name": name, "text": content} for name, content in text.items()]
            kind, body = "application/json", to_json({"files": files})
        return self._http.call(Request(method, path, choice, body, {"Content-Type": kind}))[1]

    def _number(self, worker: WorkerRef) -> int:
        if isinstance(worker, int):
            return worker
        named = [it for it in self.workers(all=True) if it["name"] == worker]
        if not named:
            detail = f"there is no worker with the name {worker!r}"
            problem = {"code": "unknown_worker", "title": "there is no worker with this name", "detail": detail}
            raise NotFound(404, {**problem, "status": 404, "hint": "workers(all=True) lists them"})
        return max(named, key=lambda it: (it.get("connected", False), it["id"]))["id"]


def _of(name: str) -> str:
    return f"/api/definitions/{quote(name, safe='')}"
