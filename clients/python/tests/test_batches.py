"""Batches against a real server and a real worker: submit, count, wait, read results, cancel, retry."""

from __future__ import annotations

import itertools
from pathlib import Path
from threading import Thread
from typing import List

from longshore import ApiError, BatchStatus, BatchTimeout, Conflict, InvalidRequest, NotFound

from .cluster import ClusterCase, until


class Batches(ClusterCase):
    def file(self, name: str) -> Path:
        return self.cluster.path(f"{self._testMethodName}-{name}")

    def test_a_count_of_jobs_is_submitted_and_waited_for(self) -> None:
        batch = self.client.submit_batch("quick", count=5, batch_name="five", labels={"of": "five"}, concurrency=2)
        self.assertEqual((batch["count"], batch["last"] - batch["first"]), (5, 4))
        ended = self.client.wait_batch(batch["batch"], 60)
        self.assertEqual((ended["state"], ended["name"], ended["concurrency"]), ("succeeded", "five", 2))
        self.assertEqual((ended["counts"]["succeeded"], ended["progress"]), (5, 1.0))
        self.assertEqual(len([*self.client.jobs(label="of=five")]), 5)
        (found,) = self.client.batches(name="five", state=["succeeded", "failed"])
        self.assertEqual((found["id"], found["definition"]), (batch["batch"], "quick"))
        self.assertEqual([it["id"] for it in self.client.batches(name="fi*", label="of=five")], [batch["batch"]])
        self.assertEqual([*self.client.batches(label="of=six")], [])
        self.assertGreaterEqual(len([*self.client.batches(page_size=1)]), 1)

    def test_a_batch_with_a_unique_key_is_returned_kept_or_replaced(self) -> None:
        key = f"ci/{self._testMethodName}"
        held = self.client.submit_batch("quick", count=1, delay="1h", batch_unique_key=key)
        again = self.client.submit_many([{"name": "quick"}, {"name": "quick"}], batch_unique_key=key)
        self.assertEqual((again["batch"], again["count"], again["existing"]), (held["batch"], 1, True))
        with self.assertRaises(Conflict) as refused:
            self.client.submit_batch("quick", count=2, batch_unique_key=key, on_duplicate="reject")
        self.assertEqual(refused.exception.code, "duplicate_batch")
        newer = self.client.submit_many([{"name": "quick"}], batch_unique_key=key, on_duplicate="replace")
        self.assertEqual(newer["replaces"], held["batch"])
        ended = self.client.wait_batch(held["batch"], 60)
        self.assertEqual((ended["state"], ended["replaced_by"], ended["unique_key"]), ("cancelled", newer["batch"], key))
        self.assertEqual(self.client.wait_batch(newer["batch"], 60)["state"], "succeeded")
        self.assertEqual([it["id"] for it in self.client.batches(unique_key=key)], [newer["batch"], held["batch"]])

    def test_a_job_for_each_of_an_iterable_of_parameters(self) -> None:
        each = ({"n": n} if n else {} for n in range(4))
        batch = self.client.submit_batch("square", each=each, params={"n": 10})
        self.client.wait_batch(batch["batch"], 60)
        results = [(job["index"], job["params"], job["result"]) for job in self.client.batch_results(batch["batch"])]
        self.assertEqual(results, [(3, {"n": 3}, 9), (2, {"n": 2}, 4), (1, {"n": 1}, 1), (0, {"n": 10}, 100)])

    def test_results_are_read_page_by_page_as_they_are_asked_for(self) -> None:
        batch = self.client.submit_batch("square", each=[{"n": n} for n in range(7)])
        self.client.wait_batch(batch["batch"], 60)
        proxy = self.proxy()
        results = self.cluster.client(server=proxy.address).batch_results(batch["batch"], page_size=3)
        self.assertEqual(proxy.accepted, 0)
        self.assertEqual([job["result"] for job in itertools.islice(results, 3)], [36, 25, 16])
        self.assertEqual(proxy.accepted, 1)
        self.assertEqual([job["result"] for job in results], [9, 4, 1, 0])
        self.assertEqual(proxy.accepted, 3)

    def test_a_large_batch_of_a_generator_is_made_once_although_answers_are_lost(self) -> None:
        proxy = self.proxy()
        proxy.drop_answers(2)
        each = ({"file": "x" * 1_000, "value": n} for n in range(2_000))
        client = self.cluster.client(server=proxy.address)
        batch = client.submit_batch("gate", each=each, labels={"large": "1"}, delay="1h", batch_name="large")
        self.assertGreaterEqual(proxy.accepted, 3)
        self.assertEqual((batch["count"], [found["id"] for found in self.client.batches(name="large")]), (2_000, [batch["batch"]]))
        last = self.client.job(batch["last"])
        self.assertEqual((last["params"]["value"], last["labels"]), (1_999, {"large": "1"}))
        # The server goes on with it by itself.
        self.assertIn("cancelled_by", self.client.cancel_batch(batch["batch"]))
        cancelled = self.client.wait_batch(batch["batch"], timeout=60)
        self.assertEqual((cancelled["state"], cancelled["counts"]["cancelled"]), ("cancelled", 2_000))

    def test_a_batch_that_is_too_large_is_refused_before_it_is_sent(self) -> None:
        endless = ({"n": n} for n in itertools.count())
        with self.assertRaisesRegex(ValueError, "at most 100,000 jobs"):
            self.client.submit_batch("square", each=endless)
        with self.assertRaisesRegex(ValueError, "at most 64 MiB"):
            self.client.submit_many({"name": "quick", "labels": {"a": "x" * 1_000_000}} for _ in itertools.count())
        with self.assertRaisesRegex(ValueError, "either count, or each"):
            self.client.submit_batch("square")

    def test_after_too_many_failures_the_rest_is_cancelled_and_retried(self) -> None:
        each = [{"n": 13}, {"n": 13}, {"n": 1}, {"n": 2}]
        batch = self.client.submit_batch("square", each=each, max_failures=2, concurrency=1)["batch"]
        ended = self.client.wait_batch(batch, 60)
        self.assertEqual((ended["state"], ended["max_failures_reached"]), ("failed", True))
        self.assertEqual((ended["counts"]["failed"], ended["counts"]["cancelled"]), (2, 2))
        failures = [*self.client.batch_failures(batch)]
        self.assertEqual([(job["index"], job["exit_code"]) for job in failures], [(1, 1), (0, 1)])
        self.assertEqual(self.client.batch_member(batch, 1)["id"], batch + 1)
        some = [job["index"] for job in self.client.jobs(batch=batch, index="0,2-3")]
        self.assertEqual(some, [3, 2, 0])
        with self.assertRaises(NotFound) as missing:
            self.client.batch_member(batch, 4)
        self.assertIn("has 4 members, and none with the index 4", missing.exception.detail)
        counted = self.client.retry_batch(batch, dry_run=True)
        self.assertEqual((counted["matched"], "batch" in counted), (4, False))
        again = self.client.retry_batch(batch, max_failures=100, idempotency_key="again")
        self.assertEqual((again["count"], again["retry_of"]), (4, batch))
        self.assertEqual(self.client.retry_batch(batch, max_failures=100, idempotency_key="again")["batch"], again["batch"])
        self.assertEqual(self.client.batch_member(again["batch"], 2)["id"], again["batch"] + 2)
        states = sorted(job["state"] for job in self.client.as_completed(again["batch"], 60))
        self.assertEqual(states, ["failed", "failed", "succeeded", "succeeded"])
        self.assertEqual(self.client.batch(batch)["retried_as"], again["batch"])
        latest = [(job["index"], job["id"]) for job in self.client.batch_results(batch, latest=True, order="oldest")]
        self.assertEqual(latest, [(index, again["batch"] + index) for index in range(4)])

    def test_a_wait_for_a_batch_has_a_deadline_and_survives_broken_connections(self) -> None:
        gate = self.file("gate")
        batch = self.client.submit_batch("gate", count=2, params={"file": str(gate)})["batch"]
        with self.assertRaises(BatchTimeout) as late:
            self.client.wait_batch(batch, 0.05)
        known = late.exception.batch
        assert known is not None
        self.assertEqual((late.exception.batch_id, known["count"]), (batch, 2))
        self.assertIsInstance(late.exception, TimeoutError)
        proxy = self.proxy()
        ended: List[BatchStatus] = []
        waiting = Thread(target=lambda: ended.append(self.cluster.client(server=proxy.address).wait_batch(batch)))
        waiting.start()
        for number in (1, 2):
            until("the client waits", lambda: proxy.accepted >= number)
            proxy.cut()
        gate.touch()
        waiting.join(60)
        self.assertEqual([batch["state"] for batch in ended], ["succeeded"])

    def test_the_progress_of_a_batch_is_shown_until_its_end(self) -> None:
        gates = [self.file(str(number)) for number in range(2)]
        batch = self.client.submit_batch("gate", each=[{"file": str(gate)} for gate in gates])["batch"]
        seen: List[float] = []
        for shown in self.client.batch_progress(batch, every=0.05):
            seen.append(shown["progress"])
            gates[shown["progress"] > 0].touch()
        self.assertEqual((seen[0], sorted(seen), seen[-1]), (0.0, seen, 1.0))
        self.assertIn(0.5, seen)

    def test_a_running_batch_is_cancelled(self) -> None:
        batch = self.client.submit_batch("forever", count=3)["batch"]
        until("all run", lambda: self.client.batch(batch)["counts"]["running"] == 3)
        self.client.cancel_batch(batch)
        self.assertEqual(self.client.wait_batch(batch, 60)["counts"]["cancelled"], 3)
        # A second cancel is no error, so a cancel may be sent again.
        self.assertEqual(self.client.cancel_batch(batch)["state"], "cancelled")

    def test_limits_of_a_batch_are_changed_while_it_runs(self) -> None:
        batch = self.client.submit_batch("forever", count=3, concurrency=1)["batch"]
        changed = self.client.change_batch(batch, concurrency=2, max_failures=5)
        self.assertEqual((changed["concurrency"], changed["max_failures"]), (2, 5))
        until("two run", lambda: self.client.batch(batch)["counts"]["running"] == 2)
        explained = self.client.explain_batch(batch)
        self.assertEqual((explained["limit"]["in_use"], explained["counted"]), (2, 1))
        (waiting,) = explained["waiting"]
        self.assertEqual((waiting["reason"]["code"], waiting["count"], waiting["example"]), ("limit", 1, batch + 2))
        changed = self.client.change_batch(batch, max_failures=None)
        self.assertEqual((changed["concurrency"], "max_failures" in changed), (2, False))
        with self.assertRaises(InvalidRequest) as refused:
            self.client.change_batch(batch, concurrency=0)
        self.assertEqual(refused.exception.code, "out_of_range")
        self.client.cancel_batch(batch)
        self.client.wait_batch(batch, 60)
        with self.assertRaises(Conflict):
            self.client.change_batch(batch, concurrency=3)

    def test_errors_have_a_class_for_each_kind(self) -> None:
        with self.assertRaises(NotFound) as missing:
            self.client.batch(1_000_000)
        self.assertEqual((missing.exception.status, missing.exception.code), (404, "batch_not_found"))
        self.assertTrue(missing.exception.hint)
        with self.assertRaises(NotFound):
            next(self.client.as_completed(1_000_000))
        with self.assertRaises(InvalidRequest) as wrong:
            self.client.submit_batch("square", each=[{"n": 1}, {"n": "x"}])
        self.assertEqual((wrong.exception.status, wrong.exception.code, wrong.exception.field), (422, "invalid_param", "jobs[1].params.n"))
        ended = self.client.submit("quick", wait=True)
        with self.assertRaises(Conflict):
            self.client.cancel(ended["id"])
        self.assertTrue(issubclass(Conflict, ApiError))
