"""The time of the caller, and what is left of a batch when requests fail: against a scripted server."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Tuple, Type
from unittest import mock

import longshore
from longshore import BatchTimeout, Client, JobFailed, LongshoreError, Unavailable, WaitTimeout

from .script import ScriptCase

Answer = Tuple[int, Dict[str, str], str]
Call = Callable[[Client], Any]
KIND = {"Content-Type": "application/problem+json"}
BATCH = {"id": 7, "state": "running", "count": 2, "progress": 0.0}
MADE: Answer = (201, {}, '{"batch":7,"count":2,"first":7,"last":8}')
BROKEN: Answer = (500, KIND, '{"code":"internal"}')


def answer(body: Any) -> Answer:
    return 200, {}, json.dumps(body)


def busy(retry_after: int) -> Answer:
    return 503, {**KIND, "Retry-After": str(retry_after)}, '{"code":"busy"}'


def ended(id: int, state: str = "succeeded") -> Dict[str, Any]:
    return {"id": id, "name": "a", "state": state, "ended_at": "2026-01-01T00:00:00.000Z", "result": id}


def stream(*jobs: Dict[str, Any]) -> Answer:
    changes = [{"id": f"1.{job['id']}.0", "kind": "job.ended", "job": job} for job in jobs]
    return 200, {}, "".join(f"event: change\nid: {it['id']}\ndata: {json.dumps(it)}\n\n" for it in changes)


class Limits(ScriptCase):
    def polls(self) -> List[int]:
        """How many milliseconds the server was asked to wait, in each request."""
        return [int(path.partition("wait=")[2].partition("ms")[0]) for path, _ in self.script.seen]

    def test_a_repetition_asks_the_server_to_wait_only_for_the_time_that_is_left(self) -> None:
        calls: List[Tuple[Any, Call]] = [
            (ended(1), lambda client: client.wait(1, 20)),
            ({**BATCH, "ended_at": "now"}, lambda client: client.wait_batch(7, 20)),
        ]
        for body, wait in calls:
            self.assertEqual(wait(self.answering(None, None, answer(body))), body)
            first, second, third = self.polls()
            self.assertLessEqual(first, 20_000)
            self.assertLess(second, first)
            self.assertLess(third, second)

    def test_a_wait_without_a_limit_asks_for_the_longest_time_again(self) -> None:
        client = self.answering(None, answer(ended(1)))
        client.wait(1)
        self.assertEqual(self.polls(), [30_000, 30_000])

    def test_an_advice_to_come_after_the_deadline_ends_the_wait_at_the_deadline(self) -> None:
        calls: List[Tuple[Type[LongshoreError], Call]] = [
            (WaitTimeout, lambda client: client.wait(1, 0.5)),
            (BatchTimeout, lambda client: client.wait_batch(7, 0.5)),
            (BatchTimeout, lambda client: next(client.as_completed(7, 0.5))),
        ]
        for late, wait in calls:
            with self.assertRaises(late) as raised:
                wait(self.answering(busy(5)))
            self.assertIsInstance(raised.exception, TimeoutError)
            self.assertEqual(len(self.script.seen), 1)

    def test_an_advice_to_come_after_all_tries_is_an_error_at_once(self) -> None:
        calls: List[Call] = [lambda it: it.wait(1, 7200), lambda it: it.wait(1, 10), lambda it: next(it.as_completed(7, 10))]
        for wait in calls:
            with self.assertRaises(Unavailable):
                wait(self.answering(busy(3600)))

    def test_a_progress_is_asked_for_at_a_pace_that_the_server_takes(self) -> None:
        client = self.answering()
        for every in (0, -1, 0.0001, 601, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "from 0.01 to 600"):
                client.batch_progress(7, every=every)
        self.assertEqual(self.script.seen, [])


class Rests(ScriptCase):
    """Batches that are not read to their end."""

    def failing_map(self, *last: Answer) -> longshore.Results:
        """A map whose first job has failed."""
        client = self.answering(MADE, stream(), answer(BATCH), answer([ended(7, "failed")]), *last)
        return client.map("a", [{}, {}], cancel_rest=True)

    def test_a_failed_cancel_does_not_take_the_place_of_the_error_before_it(self) -> None:
        with self.assertLogs("longshore", "WARNING") as logged, self.assertRaises(JobFailed):
            with self.failing_map(BROKEN) as results:
                next(results)
        self.assertIn("batch 7 is not known to be cancelled", logged.output[0])
        self.assertEqual(self.script.seen[-1][0], "POST /api/batches/7/cancel")
        with self.assertLogs("longshore", "WARNING"), self.assertRaises(ZeroDivisionError):
            with self.answering(MADE, BROKEN).map("a", [{}, {}], cancel_rest=True):
                raise ZeroDivisionError

    def test_a_failed_cancel_after_no_other_error_is_raised(self) -> None:
        with self.assertRaises(longshore.ServerError):
            with self.answering(MADE, BROKEN).map("a", [{}, {}], cancel_rest=True):
                pass

    def test_a_job_that_retention_has_deleted_is_left_out(self) -> None:
        for status, code in ((410, "pruned"), (404, "job_not_found")):
            gone = (status, KIND, json.dumps({"code": code}))
            answers = (stream(ended(7), ended(8)), answer(BATCH), answer([]), gone, answer(ended(8)))
            with mock.patch("longshore._ends._QUICK_S", 0):
                self.assertEqual([job["id"] for job in self.answering(*answers).as_completed(7)], [8])
                self.assertEqual([*self.answering(MADE, *answers).map("a", [{}, {}], ordered=False)], [8])
                with self.assertRaisesRegex(LongshoreError, "job 7 of batch 7 is no longer kept"):
                    next(self.answering(MADE, *answers).map("a", [{}, {}]))

    def test_another_refusal_of_a_job_ends_the_iteration(self) -> None:
        with self.assertRaises(longshore.NotFound):
            next(self.answering(stream(ended(7)), answer(BATCH), answer([]), (404, {}, "a proxy")).as_completed(7))
