"""Streams of output and of events, over broken connections and restarts of the server."""

from __future__ import annotations

import logging
import unittest
from typing import Callable, List

from longshore import ApiError, EventsGone

from .cluster import OwnClusterCase


class OnRetry(logging.Handler):
    """Calls a function when the client tells that it will try again."""

    def __init__(self, test: unittest.TestCase, act: Callable[[int], None]) -> None:
        super().__init__()
        self._act = act
        self.count = 0
        log = logging.getLogger("longshore")
        log.addHandler(self)
        level = log.level
        log.setLevel(logging.INFO)
        test.addCleanup(log.setLevel, level)
        test.addCleanup(log.removeHandler, self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self._act(self.count)


class Streams(OwnClusterCase):
    def check_count(self, output: bytes) -> None:
        """No line is missing, and none is there twice."""
        lines = output.decode().splitlines()
        self.assertEqual(lines, [f"line {number}" for number in range(1, len(lines))] + ["done"])

    def test_output_is_followed_over_a_restart_of_the_server(self) -> None:
        stop = self.cluster.path("stop")
        job = self.client.submit("count", environment={"STOP": str(stop)})
        # The second failure is the refused connection, so the client has met a server that is away.
        on_retry = OnRetry(self, lambda count: self.cluster.start_server() if count == 2 else None)
        output = b""
        restarted_at = -1
        for part in self.client.follow(job["id"]):
            output += part.data
            lines = output.count(b"\n")
            if lines >= 20 and restarted_at < 0:
                restarted_at = lines
                self.cluster.kill("server")
            elif on_retry.count >= 2 and lines >= restarted_at + 20:
                stop.touch()
        self.check_count(output)
        self.assertGreaterEqual(on_retry.count, 2)
        ended = self.client.wait(job["id"])
        self.assertEqual((ended["state"], ended["attempt_count"]), ("succeeded", 1))

    def test_output_is_followed_over_broken_connections(self) -> None:
        proxy = self.proxy()
        stop = self.cluster.path("stop")
        job = self.client.submit("count", environment={"STOP": str(stop)})
        output, cut_at = b"", 0
        for part in self.cluster.client(server=proxy.address).follow(job["id"]):
            output += part.data
            lines = output.count(b"\n")
            if lines >= cut_at + 10:
                cut_at = lines
                proxy.cut()
            if proxy.accepted >= 5:
                stop.touch()
        self.check_count(output)

    def test_output_of_all_attempts_streams_and_bytes(self) -> None:
        job = self.client.submit("twice", wait=True)
        parts = [(part.attempt, part.stream, part.data) for part in self.client.follow(job["id"])]
        self.assertEqual(parts, [(1, "stdout", b"attempt 1\n"), (2, "stdout", b"attempt 2\n")])
        second = [part.data for part in self.client.follow(job["id"], attempt=2)]
        self.assertEqual(second, [b"attempt 2\n"])
        job = self.client.submit("bytes")
        self.assertEqual(b"".join(part.data for part in self.client.follow(job["id"])), b"a\xff\0b")
        job = self.client.submit("fail")
        self.assertEqual([(part.stream, part.data) for part in self.client.follow(job["id"])], [("stderr", b"oops\n")])
        self.assertEqual(list(self.client.follow(job["id"], stream="stdout")), [])
        with self.assertRaises(ApiError) as refused:
            self.client.follow(1_000_000)
        self.assertEqual(refused.exception.code, "job_not_found")

    def test_events_go_on_after_a_broken_connection(self) -> None:
        proxy = self.proxy()
        events = self.cluster.client(server=proxy.address).events(kind=["job.accepted", "job.ended"], name="quick")
        accepted: List[int] = []
        ended: List[int] = []
        submitted: List[int] = []
        for round in range(1, 4):
            submitted += [self.client.submit("quick")["id"] for _ in range(3)]
            while len(ended) < len(submitted):
                event = next(events)
                (accepted if event["kind"] == "job.accepted" else ended).append(event["job"]["id"])
            proxy.cut()
            self.assertEqual(proxy.accepted, round)
        events.close()
        self.assertEqual(accepted, submitted)
        self.assertEqual(sorted(ended), submitted)

    def test_events_of_the_past_and_after_an_event(self) -> None:
        jobs = [self.client.submit("quick", wait=True)["id"] for _ in range(3)]
        kept = list(self.client.events(kind="job.accepted", tail=100, follow=False))
        self.assertEqual([event["job"]["id"] for event in kept], jobs)
        rest = self.client.events(kind="job.accepted", after=kept[0]["id"], follow=False)
        self.assertEqual([event["id"] for event in rest], [event["id"] for event in kept[1:]])
        # Summaries are no changes.
        for summary, count in ((True, 0), (False, 3)):
            self.assertEqual(len(list(self.client.events(kind="job.accepted", summary=summary, tail=100, follow=False))), count)
        with self.assertRaises(ApiError) as refused:
            self.client.events(name="quik")
        self.assertEqual((refused.exception.code, refused.exception.problem["near"]), ("unknown_name", ["quick"]))

    def test_events_of_before_a_restart_are_gone(self) -> None:
        events = self.client.events(kind="job.ended")
        first = self.client.submit("quick")
        self.assertEqual(next(events)["job"]["id"], first["id"])
        self.cluster.kill("server")
        self.cluster.start_server()
        with self.assertRaises(EventsGone) as gone:
            next(events)
        self.assertEqual((gone.exception.status, gone.exception.code), (410, "events_gone"))
        events = self.client.events(kind="job.ended", after=gone.exception.problem["last_event_id"])
        second = self.client.submit("quick", wait=True)
        self.assertEqual(next(events)["job"]["id"], second["id"])
        events.close()
