"""Operations on many jobs, selected by filters or by their numbers. The server does a part in each request; these calls send them all."""

from __future__ import annotations

import secrets
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, cast

from ._base import Base
from ._encode import query, to_json
from ._errors import LongshoreError
from ._http import Request
from ._types import BulkResult, Filter

Confirm = Callable[[int], bool]


class Bulk(Base):
    """Operations on many jobs. Each takes `ids`, or the filters of `jobs`; never both, and never neither.

    With `dry_run` the answer only counts in `matched`. `confirm` is called with that number before anything is changed: unless it
    returns true, nothing is. If an error comes after a part was done, `done_so_far` of the error has the result of that part."""

    def cancel_many(
        self, ids: Optional[Iterable[int]] = None, *, dry_run: bool = False, confirm: Optional[Confirm] = None, **filters: Filter
    ) -> BulkResult:  # fmt: skip
        """Cancels jobs; without `state`, those that have not ended. `stopping` counts those whose containers have to stop first."""
        return self._operate("cancel", ids, dry_run, confirm, filters)

    def retry_many(
        self, ids: Optional[Iterable[int]] = None, *, original: bool = False, dry_run: bool = False,
        confirm: Optional[Confirm] = None, idempotency_key: Optional[str] = None, **filters: Filter,
    ) -> BulkResult:  # fmt: skip
        """Makes jobs like ended ones; without `state`, like those that failed, expired or were lost and were not retried.

        `jobs` are the first 1,000 new ones. By filters, jobs of slots are retried in the order of the slots, and the last retry of a job
        stands for it while that is kept: `retries` has the pairs, `left_out` jobs that are left to earlier retries. `ordered` is false if
        they were too many for that order."""
        if filters.get("revision") is not None:
            # The server would take it for the choice of the definition, and without another filter for no selection.
            raise ValueError("retry_many takes no filter revision; original=True retries with the definitions of then")
        options = query(revision="original" if original else None)
        return self._operate("retry", ids, dry_run, confirm, filters, idempotency_key, options)

    def release_many(
        self, ids: Optional[Iterable[int]] = None, *, dry_run: bool = False, confirm: Optional[Confirm] = None, **filters: Filter
    ) -> BulkResult:  # fmt: skip
        """Lets jobs go on that wait for a person; without `state`, quarantined ones."""
        return self._operate("release", ids, dry_run, confirm, filters)

    def acknowledge_many(
        self, ids: Optional[Iterable[int]] = None, *, reason: Optional[str] = None, dry_run: bool = False,
        confirm: Optional[Confirm] = None, **filters: Filter,
    ) -> BulkResult:  # fmt: skip
        """Says that failures are dealt with: by filters, those that are unresolved. `unresolved=True` is a filter, too."""
        return self._operate("acknowledge", ids, dry_run, confirm, filters, fields=query(reason=reason))

    def unacknowledge_many(
        self, ids: Optional[Iterable[int]] = None, *, dry_run: bool = False, confirm: Optional[Confirm] = None, **filters: Filter
    ) -> BulkResult:  # fmt: skip
        """Takes acknowledgements back."""
        return self._operate("acknowledge", ids, dry_run, confirm, filters, options={"undo": "1"})

    def _operate(
        self, verb: str, ids: Optional[Iterable[int]], dry_run: bool, confirm: Optional[Confirm], filters: Dict[str, Filter],
        key: Optional[str] = None, options: Optional[Dict[str, str]] = None, fields: Optional[Dict[str, str]] = None,
    ) -> BulkResult:  # fmt: skip
        selection = query(**filters)
        selects = not _FILTERS.isdisjoint(selection)
        # Without both, the server would take the request for the submission of a job of that name.
        if (ids is None and not selects) or (ids is not None and selection):
            raise ValueError(f"{verb}_many takes either ids, or filters such as name=…")
        numbers = None if ids is None else [int(id) for id in ids]
        if numbers == []:
            return _sum([], dry_run)
        choice = {**selection, **(options or {})}
        key = key or secrets.token_hex(16)
        if confirm is not None and not dry_run:
            counted = self._send_all(verb, numbers, {**choice, "dry_run": "1"}, key, fields)
            # Jobs that match from now on were not counted, so nobody was asked about them.
            if counted["matched"] == 0 or not confirm(counted["matched"]):
                return counted
        return self._send_all(verb, numbers, {**choice, **query(dry_run=dry_run or None)}, key, fields)

    def _send_all(
        self, verb: str, ids: Optional[List[int]], choice: Dict[str, str], key: str, fields: Optional[Dict[str, str]]
    ) -> BulkResult:  # fmt: skip
        answers: List[BulkResult] = []
        try:
            for part, body in enumerate(_bodies(ids, fields or {})):
                cursor: Optional[str] = None
                while True:
                    headers = {"Content-Type": "application/json"} if body else {}
                    headers["Idempotency-Key"] = f"{key}.{part}" if part else key
                    request = Request("POST", f"/api/jobs/{verb}", {**choice, **query(cursor=cursor)}, body, headers)
                    answers.append(cast(BulkResult, self._http.json(request, _REQUEST_MAX_S)))
                    cursor = answers[-1].get("next")
                    if cursor is None:
                        break
        except LongshoreError as error:
            error.done_so_far, error.idempotency_key = _sum(answers, "dry_run" in choice), key
            raise
        return _sum(answers, "dry_run" in choice)


def _bodies(ids: Optional[List[int]], fields: Dict[str, str]) -> List[bytes]:
    if ids is None:
        return [to_json(fields) if fields else b""]
    return [to_json({**fields, "ids": ids[at : at + _IDS_MAX]}) for at in range(0, len(ids), _IDS_MAX)]


def _sum(answers: List[BulkResult], dry_run: bool) -> BulkResult:
    """The answers as one."""
    total: Dict[str, Any] = {"dry_run": dry_run}
    for name in ("matched", "done", "stopping", "refused", "out_of_scope", "retried_before"):
        total[name] = sum(cast("Dict[str, int]", answer).get(name, 0) for answer in answers)
    ordered = [answer["ordered"] for answer in answers if "ordered" in answer]
    if ordered:
        total["ordered"] = all(ordered)
    for name, most in _LISTS:
        total[name] = [entry for answer in answers for entry in cast("Dict[str, List[Any]]", answer).get(name, ())][:most]
    return cast(BulkResult, total)


_LISTS: Tuple[Tuple[str, Optional[int]], ...] = (
    ("refusals", 20), ("results", None), ("jobs", 1_000), ("retries", 1_000), ("left_out", 20)
)  # fmt: skip
# Of lists of jobs: see docs/http-api.md. What else is given selects nothing, and the server says what it is.
_FILTERS = frozenset({
    "state", "name", "worker", "label", "batch", "index", "member_of", "schedule", "submitted_by", "revision", "outcome", "exit_code",
    "since", "until", "accepted_since", "accepted_until", "ended_since", "ended_until", "text", "unresolved", "backoff",
})  # fmt: skip
_IDS_MAX = 10_000  # Of one request.
_REQUEST_MAX_S = 30.0  # The server answers after 20 seconds at the latest, and then the next request goes on.
