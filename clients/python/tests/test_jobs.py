"""Calls about jobs against a real server and a real worker."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from threading import Thread
from typing import List

from longshore import ApiError, Job, WaitTimeout

from .cluster import ClusterCase, until


class Jobs(ClusterCase):
    def test_a_job_is_submitted_and_succeeds(self) -> None:
        job = self.client.submit("hello", labels={"team": "web"}, priority=5, wait=True)
        self.assertEqual((job["state"], job["exit_code"], job["priority"]), ("succeeded", 0, 5))
        self.assertEqual(job["labels"], {"team": "web"})
        self.assertEqual(self.client.job(job["id"]), job)
        output = b"".join(part.data for part in self.client.follow(job["id"]))
        self.assertEqual(output, f"hello from job {job['id']}\n".encode())
        self.assertEqual(self.client.logs(job["id"]), output)
        time, _, line = self.client.logs(job["id"], timestamps=True).partition(b" ")
        self.assertRegex(time.decode(), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(line, output)

    def test_overrides_reach_the_job(self) -> None:
        job = self.client.submit("show", params={"size": 7}, environment={"A": "b c"}, args=["x", "ü"], input=[1, {}], wait=60)
        self.assertEqual(job["state"], "succeeded", job)
        list(self.client.follow(job["id"]))
        self.assertEqual(self.client.logs(job["id"], stream="stdout", tail=1).decode(), "b c 7 x ü\n")
        self.assertEqual((job["args"], job["input"], job["params"]), (["x", "ü"], [1, {}], {"size": 7}))

    def test_a_failure_has_its_exit_code_and_can_be_retried(self) -> None:
        job = self.client.submit("fail", wait=True)
        self.assertEqual((job["state"], job["outcome"], job["exit_code"]), ("failed", "failed", 3))
        again = self.client.retry(job["id"], changes={"environment": {"CODE": "0"}}, wait=True)
        self.assertEqual((again["state"], again["retry_of"]), ("succeeded", job["id"]))
        original = self.client.retry(job["id"], original=True, wait=True)
        self.assertEqual((original["state"], original["exit_code"]), ("failed", 3))

    def test_a_running_job_is_cancelled(self) -> None:
        job = self.client.submit("forever")
        output = self.client.follow(job["id"])
        self.assertEqual(next(output).data, b"started\n")
        self.client.cancel(job["id"])
        self.assertEqual(list(output), [])
        ended = self.client.wait(job["id"], 60)
        self.assertEqual(ended["state"], "cancelled")
        # A second cancel is no error, so a cancel may be sent again.
        self.assertEqual(self.client.cancel(job["id"])["state"], "cancelled")
        with self.assertRaises(ApiError) as refused:
            self.client.cancel(self.client.submit("quick", wait=True)["id"])
        self.assertEqual((refused.exception.status, refused.exception.code), (409, "already_finished"))

    def test_a_job_starts_later(self) -> None:
        late = self.client.submit("hello", delay=3600)
        at = self.client.submit("hello", run_at=datetime.now(timezone.utc) + timedelta(hours=1))
        self.assertEqual((late["state"], at["state"]), ("scheduled", "scheduled"))
        for job in (late, at):
            self.assertEqual(self.client.cancel(job["id"])["state"], "cancelled")

    def test_a_wait_has_a_deadline(self) -> None:
        job = self.client.submit("hello", delay="1h")
        for wait_s in (0, 0.01):
            with self.assertRaises(WaitTimeout) as late:
                self.client.wait(job["id"], wait_s)
            self.assertEqual(late.exception.job_id, job["id"])
            known = late.exception.job
            assert known is not None
            self.assertEqual(known["state"], "scheduled")
        self.client.cancel(job["id"])

    def test_a_wait_survives_broken_connections(self) -> None:
        proxy = self.proxy()
        client = self.cluster.client(server=proxy.address)
        job = self.client.submit("forever")
        ended: List[Job] = []
        waiting = Thread(target=lambda: ended.append(client.wait(job["id"])))
        waiting.start()
        for number in range(1, 4):
            until("the client waits", lambda: proxy.accepted >= number)
            proxy.cut()
        until("the client waits again", lambda: proxy.accepted >= 4)
        self.client.cancel(job["id"])
        waiting.join(60)
        self.assertEqual([job["state"] for job in ended], ["cancelled"])

    def test_many_jobs_are_listed_page_by_page(self) -> None:
        entries = [{"name": "quick", "labels": {"number": str(number)}} for number in range(7)]
        batch = self.client.submit_many(entries, batch_name="seven")
        self.assertEqual((batch["count"], batch["last"] - batch["first"]), (7, 6))
        ids = list(range(batch["last"], batch["first"] - 1, -1))
        proxy = self.proxy()
        client = self.cluster.client(server=proxy.address)
        for page_size, pages in ((3, 3), (7, 1), (100, 1)):
            before = proxy.accepted
            self.assertEqual([job["id"] for job in client.jobs(batch=batch["batch"], page_size=page_size)], ids)
            self.assertEqual(proxy.accepted - before, pages)
        for id in ids:
            self.client.wait(id)
        states = ["succeeded", "failed"]
        self.assertEqual(len(list(self.client.jobs(batch=batch["batch"], name="quick", state=states, page_size=2))), 7)
        self.assertEqual(list(self.client.jobs(batch=batch["batch"], state="failed")), [])

    def test_filters_may_be_times(self) -> None:
        job = self.client.submit("quick", wait=True)
        hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
        # Without a zone it is a time of this machine.
        for at in (hour_ago, hour_ago.astimezone(timezone(timedelta(hours=5))), datetime.now() - timedelta(hours=1)):
            self.assertIn(job["id"], [found["id"] for found in self.client.jobs(since=at)])
        self.assertEqual(list(self.client.jobs(since=hour_ago + timedelta(hours=2))), [])

    def test_a_job_comes_after_others(self) -> None:
        first = self.client.submit("quick", wait=True)
        second = self.client.submit("quick", after=[{"job": first["id"], "outcome": "ended"}], wait=True)
        self.assertEqual(self.client.job(second["id"])["after"][0]["job"], first["id"])

    def test_a_job_comes_after_a_whole_batch(self) -> None:
        batch = self.client.submit_many([{"name": "quick"}, {"name": "quick"}])["batch"]
        report = self.client.submit("quick", after=[{"batch": batch, "outcome": "ended"}], wait=True)
        after = self.client.job(report["id"])["after"]
        self.assertEqual(after, [{"batch": batch, "outcome": "ended", "state": "succeeded"}])

    def test_the_same_idempotency_key_is_the_same_job(self) -> None:
        first = self.client.submit("quick", labels={"a": "1"}, idempotency_key="once")
        self.assertEqual(self.client.submit("quick", labels={"a": "1"}, idempotency_key="once")["id"], first["id"])
        with self.assertRaises(ApiError) as refused:
            self.client.submit("quick", labels={"a": "2"}, idempotency_key="once")
        self.assertEqual((refused.exception.status, refused.exception.code), (409, "idempotency_mismatch"))
        self.assertEqual(refused.exception.idempotency_key, "once")
        self.assertNotEqual(self.client.submit("quick", labels={"a": "1"})["id"], first["id"])

    def test_a_lost_answer_makes_no_second_job(self) -> None:
        proxy = self.proxy()
        client = self.cluster.client(server=proxy.address)
        proxy.drop_answers(2)
        job = client.submit("quick", labels={"answer": "lost"}, wait=True)
        self.assertEqual([found["id"] for found in self.client.jobs(label="answer=lost")], [job["id"]])
        self.assertGreaterEqual(proxy.accepted, 3)
        proxy.drop_answers(2)
        batch = client.submit_many([{"name": "quick", "labels": {"answers": "lost"}}] * 2)
        self.assertEqual(len(list(self.client.jobs(label="answers=lost"))), 2)
        self.assertEqual(batch["count"], 2)

    def test_a_job_that_waits_is_changed_and_explained(self) -> None:
        job = self.client.submit("hello", delay="1h", workers=["w1"])
        self.assertEqual(self.client.explain(job["id"])["reason"]["code"], "not_due")
        changed = self.client.reschedule(job["id"], delay=7200, priority=7)
        self.assertEqual((changed["state"], changed["priority"], changed["workers"]), ("scheduled", 7, ["w1"]))
        self.assertGreater(changed["due_at"], job["due_at"])
        self.assertEqual(self.client.release(job["id"])["state"], "scheduled")
        self.client.cancel(job["id"])

    def test_a_unique_key_stands_for_one_job(self) -> None:
        first = self.client.submit("single", key="a")
        second = self.client.submit("single", key="a")
        self.assertEqual((second["id"], second["duplicate"]), (first["id"], True))
        self.client.cancel(first["id"])
        self.client.wait(first["id"])

    def test_an_unknown_name_lists_near_names(self) -> None:
        with self.assertRaises(ApiError) as refused:
            self.client.submit("helo")
        error = refused.exception
        self.assertEqual((error.status, error.code, error.problem["near"]), (404, "unknown_job", ["hello"]))
        self.assertIn("hello", error.hint)
        self.assertTrue(error.title and "helo" in error.detail)
        self.assertIn(error.detail, str(error))
        with self.assertRaises(ApiError) as odd:
            self.client.submit("../jobs?x=/%")
        self.assertEqual(odd.exception.status, 404)

    def test_all_faults_of_a_submission_are_told(self) -> None:
        with self.assertRaises(ApiError) as refused:
            self.client.submit("hello", timeout="5 parsecs", priority=1000)
        self.assertEqual(refused.exception.status, 422)
        self.assertEqual({fault["field"] for fault in refused.exception.problem["errors"]}, {"timeout", "priority"})

    def test_workers_and_definitions_are_listed(self) -> None:
        until("the worker is ready", lambda: [worker["state"] for worker in self.client.workers()] == ["ready"])
        (worker,) = self.client.workers(all=True)
        self.assertEqual((worker["name"], worker["slots"], worker["connected"]), ("w1", 8, True))
        self.assertIn("hello", [definition["name"] for definition in self.client.definitions()])
