"""Pipelines: jobs after jobs, after names of the same request, and after batches."""

from __future__ import annotations

from longshore import Conflict, InvalidRequest, Pipeline, tree

from .cluster import ClusterCase


class Pipelines(ClusterCase):
    def test_steps_name_each_other_and_are_shown_as_a_tree(self) -> None:
        batch = self.client.submit_many([
            {"name": "step", "as": "fetch"},
            {"name": "step", "as": "left", "after": ["fetch"]},
            {"name": "step", "as": "right", "after": ["fetch"], "environment": {"CODE": "3"}},
            {"name": "quick", "as": "join", "after": ["left", {"name": "right", "outcome": "ended"}]},
            {"name": "quick", "as": "alarm", "after": [{"name": "right", "outcome": "not_succeeded"}]},
        ])  # fmt: skip
        ended = self.client.wait_batch(batch["batch"], 60)
        self.assertEqual((ended["state"], ended["counts"]["succeeded"], ended["counts"]["failed"]), ("failed", 4, 1))
        first = batch["first"]
        pipeline = self.client.pipeline(first + 3)
        self.assertEqual([job["id"] for job in pipeline["jobs"]], [*range(first, first + 5)])
        self.assertEqual(tree(pipeline).splitlines(), [
            f"{first} step succeeded",
            f"├─ {first + 1} step succeeded",
            f"│  └─ {first + 3} quick succeeded, also after {first + 2} if ended",
            f"└─ {first + 2} step failed",
            f"   └─ {first + 4} quick succeeded if not_succeeded",
        ])  # fmt: skip

    def test_a_pipeline_goes_on_from_the_failed_step(self) -> None:
        flag = self.cluster.path("pipeline-flag")
        batch = self.client.submit_many([
            {"name": "step"},
            {"name": "exists", "params": {"file": str(flag)}, "after": ["step"]},
            {"name": "quick", "after": ["exists"]},
        ])  # fmt: skip
        self.assertEqual(self.client.wait_batch(batch["batch"], 60)["state"], "failed")
        flag.touch()
        again = self.client.retry_pipeline(batch["first"], idempotency_key="go-on")
        self.assertEqual(self.client.retry_pipeline(batch["first"], idempotency_key="go-on")["batch"], again["batch"])
        ended = self.client.wait_batch(again["batch"], 60)
        self.assertEqual((ended["state"], ended["count"]), ("succeeded", 2))
        shown = self.client.pipeline(batch["first"])["jobs"]
        self.assertEqual([job["retry_of"] for job in shown if "retry_of" in job], [batch["first"] + 1, batch["first"] + 2])
        with self.assertRaises(Conflict) as nothing:
            self.client.retry_pipeline(batch["first"])
        self.assertEqual(nothing.exception.code, "not_finished")

    def test_a_job_comes_after_a_batch_and_a_job(self) -> None:
        batch = self.client.submit_batch("square", each=[{"n": 13}, {"n": 1}])["batch"]
        before = self.client.submit("quick")
        report = self.client.submit("quick", after=[before["id"], {"batch": batch, "outcome": "failed"}], wait=60)
        self.assertEqual(report["state"], "succeeded")
        self.assertEqual([on.get("batch", on.get("job")) for on in report["after"]], [before["id"], batch])
        self.assertEqual([on["job"] for on in self.client.batch(batch)["dependents"]], [report["id"]])
        text = tree(self.client.pipeline(report["id"]))
        self.assertIn(f"also after batch {batch} (failed) if failed", text)
        members = self.client.submit_batch("quick", count=2, after=[{"batch": batch, "outcome": "ended"}])
        self.assertEqual(self.client.wait_batch(members["batch"], 60)["state"], "succeeded")
        with self.assertRaises(Conflict) as ended:
            self.client.submit("quick", after=[{"batch": batch}])
        self.assertEqual(ended.exception.code, "predecessor_ended")
        with self.assertRaises(InvalidRequest) as unknown:
            self.client.submit_many([{"name": "quick", "after": ["nobody"]}])
        self.assertEqual(unknown.exception.code, "invalid_dependency")

    def test_jobs_that_are_not_in_the_answer_are_named(self) -> None:
        pipeline: Pipeline = {"jobs": [
            {"id": 2, "name": "left", "state": "queued", "retry_of": 1},
            {"id": 3, "name": "join", "state": "queued", "after": [{"job": 1, "outcome": "succeeded"}, {"job": 2, "outcome": "failed"}]},
            {"id": 4, "name": "alone", "state": "queued", "after": [{"job": 1, "outcome": "ended"}]},
        ]}  # fmt: skip
        expected = ["2 left queued, retry of 1", "└─ 3 join queued if failed, also after 1", "4 alone queued, after 1 if ended"]
        self.assertEqual(tree(pipeline).splitlines(), expected)
