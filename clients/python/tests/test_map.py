"""`map` and `as_completed`: results in order, and as jobs end, over restarts of the server."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any, Dict, List

import longshore
from longshore import BatchTimeout, JobFailed, LongshoreError, NotFound

from .cluster import Cluster, ClusterCase, OwnClusterCase, until
from .test_streams import OnRetry


def gates(cluster: Cluster, test: unittest.TestCase, count: int) -> List[Path]:
    return [cluster.path(f"{test.id()}-{number}") for number in range(count)]


def through(gates: List[Path]) -> List[Dict[str, Any]]:
    return [{"file": str(gate), "value": number} for number, gate in enumerate(gates)]


class Map(ClusterCase):
    def test_results_come_in_the_order_of_the_parameters(self) -> None:
        results = self.client.map("square", ({"n": n} for n in range(12)), batch_name="squares", labels={"a": "b"})
        assert results.batch is not None
        self.assertEqual([*results], [n * n for n in range(12)])
        self.assertEqual((self.client.batch(results.batch["batch"])["name"], results.batch["count"]), ("squares", 12))
        # Members that ended before are read from the list.
        ended = sorted(job["result"] for job in self.client.as_completed(results.batch["batch"]))
        self.assertEqual(ended, [n * n for n in range(12)])

    def test_an_early_end_waits_for_its_turn(self) -> None:
        first, second = gates(self.cluster, self, 2)
        results = self.client.map("gate", through([first, second]))
        assert results.batch is not None
        second.touch()
        self.client.wait(results.batch["last"], 60)
        first.touch()
        self.assertEqual([*results], [0, 1])

    def test_results_come_as_jobs_end(self) -> None:
        files = gates(self.cluster, self, 4)
        results = self.client.map("gate", through(files), ordered=False)
        seen = []
        for number in (2, 0, 3, 1):
            files[number].touch()
            seen.append(next(results))
        self.assertEqual((seen, [*results]), ([2, 0, 3, 1], []))

    def test_no_parameters_make_no_batch(self) -> None:
        results = self.client.map("square", [])
        self.assertEqual((results.batch, [*results]), (None, []))

    def test_a_failure_is_raised_in_its_turn_and_ends_the_iteration(self) -> None:
        results = self.client.map("square", [{"n": 2}, {"n": 13}, {"n": 3}])
        self.assertEqual(next(results), 4)
        with self.assertRaises(JobFailed) as failed:
            next(results)
        error = failed.exception
        assert results.batch is not None
        self.assertEqual((error.job_id, error.state, error.job["exit_code"]), (results.batch["first"] + 1, "failed", 1))
        self.assertEqual(str(error), f"job {error.job_id} (square) has failed: exit code 1")
        self.assertEqual([*results], [])
        # The others were left alone.
        self.assertEqual(self.client.wait_batch(results.batch["batch"], 60)["counts"]["succeeded"], 2)

    def test_a_failure_can_take_the_place_of_the_result(self) -> None:
        results = [*self.client.map("square", [{"n": 2}, {"n": 13}, {"n": 3}], return_exceptions=True)]
        self.assertEqual((results[0], results[2]), (4, 9))
        self.assertIsInstance(results[1], JobFailed)

    def test_an_iteration_that_ends_early_can_cancel_the_rest(self) -> None:
        (gate,) = gates(self.cluster, self, 1)
        for cancel_rest in (True, False):
            with self.client.map("gate", [{"file": "/"}, {"file": str(gate)}], cancel_rest=cancel_rest) as results:
                self.assertEqual(next(results), 0)
            assert results.batch is not None
            if not cancel_rest:
                self.assertNotIn("ended_at", self.client.job(results.batch["last"]))
                gate.touch()
            state = "cancelled" if cancel_rest else "succeeded"
            self.assertEqual(self.client.wait(results.batch["last"], 60)["state"], state)

    def test_a_result_that_is_not_there_in_time_is_an_error(self) -> None:
        (gate,) = gates(self.cluster, self, 1)
        results = self.client.map("gate", [{"file": str(gate)}], wait_timeout=0.2, cancel_rest=True)
        with self.assertRaises(BatchTimeout) as late:
            next(results)
        assert results.batch is not None
        self.assertEqual(late.exception.batch_id, results.batch["batch"])
        self.assertEqual(self.client.wait(results.batch["last"], 60)["state"], "cancelled")

    def test_what_is_refused_makes_no_jobs(self) -> None:
        with self.assertRaises(NotFound):
            self.client.map("squire", [{"n": 1}])
        # Without a job for each of the parameters, results would have no positions.
        with self.assertRaisesRegex(LongshoreError, "unique keys"):
            self.client.map("single", [{}, {}])
        self.client.cancel_many(name="single")
        for job in self.client.jobs(name="single"):
            self.client.wait(job["id"], 60)

    def test_results_survive_broken_connections(self) -> None:
        proxy = self.proxy()
        files = gates(self.cluster, self, 6)
        seen = []
        results = self.cluster.client(server=proxy.address).map("gate", through(files), ordered=False)
        for file in files:
            file.touch()
            seen.append(next(results))
            proxy.cut()
        self.assertEqual(seen, [0, 1, 2, 3, 4, 5])


class Restarts(OwnClusterCase):
    def test_results_survive_a_killed_server(self) -> None:
        files = gates(self.cluster, self, 5)
        for ordered in (True, False):
            for file in files:
                file.unlink(missing_ok=True)
            results = self.client.map("gate", through(files), ordered=ordered)
            assert results.batch is not None
            batch = results.batch["batch"]
            until("all run", lambda: self.client.batch(batch)["counts"]["running"] == 5)
            files[0].touch()
            self.assertEqual(next(results), 0)
            self.cluster.kill("server")
            # These end while no server is there; the second failure is a refused connection.
            files[2].touch()
            files[1].touch()
            OnRetry(self, lambda count: self.cluster.start_server() if count == 2 else None)
            seen = [next(results) for _ in range(2)]
            self.assertEqual(seen if ordered else sorted(seen), [1, 2])
            files[3].touch()
            self.assertEqual(next(results), 3)
            files[4].touch()
            self.assertEqual([*results], [4])
            self.assertEqual(self.client.batch(batch)["counts"]["succeeded"], 5)

    def test_a_wait_survives_a_killed_server(self) -> None:
        (gate,) = gates(self.cluster, self, 1)
        job = self.client.submit("gate", params={"file": str(gate)})
        events = self.client.events(kind="job.started")
        if self.client.job(job["id"])["state"] != "running":
            next(events)
        events.close()

        def act(count: int) -> None:
            if count == 2:
                self.cluster.start_server()
                gate.touch()

        OnRetry(self, act)
        self.cluster.kill("server")
        ended = self.client.wait(job["id"], 60)
        self.assertEqual((ended["state"], ended["attempt_count"], ended["result"]), ("succeeded", 1, 0))

    def test_a_reader_that_misses_events_goes_on(self) -> None:
        """The loop of the README."""
        seen: List[bool] = []
        events = self.client.events(kind="job.ended")
        while len(seen) < 2:
            job = self.client.submit("quick", wait=True)
            try:
                seen.append(next(events)["job"]["id"] == job["id"])
                self.cluster.kill("server")
                self.cluster.start_server()
            except longshore.EventsGone as gone:
                events = self.client.events(kind="job.ended", after=gone.problem["last_event_id"])
        self.assertEqual(seen, [True, True])
        events.close()
