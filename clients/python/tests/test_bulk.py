"""Operations on many jobs: counted, confirmed, and applied by filters or numbers."""

from __future__ import annotations

from typing import Any, Dict, List

from longshore import Conflict, InvalidRequest

from .cluster import ClusterCase


class Bulk(ClusterCase):
    def waiting(self, label: str, count: int) -> List[int]:
        batch = self.client.submit_batch("hello", count=count, delay="1h", labels={"bulk": label})
        return [*range(batch["first"], batch["last"] + 1)]

    def states(self, ids: List[int]) -> List[str]:
        return [self.client.job(id)["state"] for id in ids]

    def test_jobs_are_counted_and_cancelled_by_filters(self) -> None:
        ids = self.waiting("filters", 3)
        counted = self.client.cancel_many(label="bulk=filters", name="hel*", dry_run=True)
        self.assertEqual((counted["dry_run"], counted["matched"], counted["done"]), (True, 3, 0))
        self.assertEqual(self.states(ids), ["scheduled"] * 3)
        done = self.client.cancel_many(label="bulk=filters", state=["scheduled", "queued"])
        self.assertEqual((done["dry_run"], done["matched"], done["done"], done["refused"]), (False, 3, 3, 0))
        self.assertEqual(self.states(ids), ["cancelled"] * 3)

    def test_a_question_comes_before_the_operation(self) -> None:
        ids = self.waiting("confirm", 2)
        asked: List[int] = []

        def answer(count: int) -> bool:
            asked.append(count)
            return len(asked) > 1

        for is_refused, state in ((True, "scheduled"), (False, "cancelled")):
            result = self.client.cancel_many(label="bulk=confirm", confirm=answer)
            self.assertEqual((result["dry_run"], result["matched"]), (is_refused, 2))
            self.assertEqual(self.states(ids), [state] * 2)
        # Nothing matches, so nobody is asked.
        self.client.cancel_many(label="bulk=confirm", confirm=answer)
        self.assertEqual(asked, [2, 2])

    def test_without_a_selection_nothing_is_sent(self) -> None:
        proxy = self.proxy()
        client = self.cluster.client(server=proxy.address)
        for call in (client.cancel_many, client.retry_many, client.release_many, client.acknowledge_many, client.unacknowledge_many):
            with self.assertRaisesRegex(ValueError, "either ids, or filters"):
                call()
            with self.assertRaisesRegex(ValueError, "either ids, or filters"):
                call([1], name="hello")
            with self.assertRaisesRegex(ValueError, "either ids, or filters"):
                call(name=None)
            # A misspelt filter selects nothing, and is none beside numbers.
            with self.assertRaisesRegex(ValueError, "either ids, or filters"):
                call(nane="hello")
            with self.assertRaisesRegex(ValueError, "either ids, or filters"):
                call([1], nane="hello")
        wrong: List[Dict[str, Any]] = [{}, {"name": "hello"}, {"original": True}]
        for options in wrong:
            with self.assertRaisesRegex(ValueError, "no filter revision"):
                client.retry_many(revision="original", **options)
        self.assertEqual(client.cancel_many([])["matched"], 0)
        self.assertEqual(proxy.accepted, 0)

    def test_jobs_are_operated_on_by_number(self) -> None:
        ids = self.waiting("numbers", 2)
        ended = self.client.submit("quick", wait=True)["id"]
        # These numbers take two requests.
        result = self.client.cancel_many([*ids, ended, *([ids[0]] * 10_000)])
        self.assertEqual(result["refused"], 1)
        self.assertEqual(result["refusals"], [{"job": ended, "code": "already_finished", "detail": result["refusals"][0]["detail"]}])
        effects = {effect["job"]: effect.get("state") for effect in result["results"]}
        self.assertEqual(effects, {ids[0]: "cancelled", ids[1]: "cancelled", ended: None})
        self.assertEqual(self.client.release_many(ids)["refused"], 2)

    def test_failed_jobs_are_retried_once_although_answers_are_lost(self) -> None:
        batch = self.client.submit_batch("square", each=[{"n": 13}] * 3)["batch"]
        self.client.wait_batch(batch, 60)
        proxy = self.proxy()
        proxy.drop_answers(1)
        client = self.cluster.client(server=proxy.address)
        retried = client.retry_many(range(batch, batch + 3), idempotency_key="bulk")
        self.assertEqual((retried["done"], len(retried["jobs"])), (3, 3))
        self.assertEqual(proxy.accepted, 2)
        made = [effect["made"] for effect in retried["results"]]
        self.assertEqual(client.retry_many(range(batch, batch + 3), idempotency_key="bulk")["jobs"], retried["jobs"])
        for id in made:
            self.assertEqual(self.client.wait(id, 60)["state"], "failed")
        # By filters, the retries stand for what was retried: they have failed, too.
        again = self.client.retry_many(batch=batch)
        self.assertEqual(sorted(self.client.job(id)["retry_of"] for id in again["jobs"]), sorted(made))

    def test_failures_are_acknowledged_until_that_is_taken_back(self) -> None:
        batch = self.client.submit_batch("square", each=[{"n": 13}] * 3, labels={"bulk": "failures"})["batch"]
        self.client.wait_batch(batch, 60)

        def unresolved() -> List[int]:
            return [job["id"] for job in self.client.jobs(unresolved=True, label="bulk=failures")]

        self.assertEqual(unresolved(), [batch + 2, batch + 1, batch])
        acknowledged = self.client.acknowledge(batch, "disk swap")
        self.assertEqual((acknowledged["acknowledged"]["reason"], unresolved()), ("disk swap", [batch + 2, batch + 1]))
        counted = self.client.acknowledge_many(batch=batch, dry_run=True)
        self.assertEqual((counted["matched"], unresolved()), (2, [batch + 2, batch + 1]))
        done = self.client.acknowledge_many(label="bulk=failures", unresolved=True, reason="the same", confirm=lambda count: count == 2)
        self.assertEqual((done["done"], unresolved()), (2, []))
        self.assertEqual(self.client.job(batch + 1)["acknowledged"]["reason"], "the same")
        self.assertEqual(self.client.unacknowledge_many([batch, batch + 1])["done"], 2)
        self.assertEqual(unresolved(), [batch + 1, batch])
        self.assertNotIn("acknowledged", self.client.unacknowledge(batch + 2))
        done = self.client.acknowledge_many([batch, batch + 1, batch + 2])
        self.assertEqual((done["done"], unresolved()), (3, []))
        ended = self.client.submit("quick", wait=True)["id"]
        with self.assertRaises(Conflict) as refused:
            self.client.acknowledge(ended)
        self.assertEqual(refused.exception.code, "not_failed")

    def test_an_error_says_what_was_done_before(self) -> None:
        with self.assertRaises(InvalidRequest) as refused:
            self.client.retry_many(state="nonsense", idempotency_key="mine")
        self.assertEqual(refused.exception.code, "invalid_state")
        done = refused.exception.done_so_far
        assert done is not None
        self.assertEqual((done["matched"], refused.exception.idempotency_key), (0, "mine"))
