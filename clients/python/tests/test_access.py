"""Address, token and certificates; and answers that are errors."""

from __future__ import annotations

import json
import os
import secrets
import unittest
from typing import Dict, List, Tuple
from unittest import mock

import longshore
from longshore import ApiError, ConnectionFailed, LongshoreError, Output, WaitTimeout
from longshore._http import _parse_address

from .cluster import Cluster, ReservedPort
from .script import ScriptCase

TOKEN = secrets.token_hex(32)


class Tokens(unittest.TestCase):
    cluster: Cluster
    token_file: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.token_file = cls.file("api.token", TOKEN)
        worker = cls.file("worker.token", TOKEN[::-1])
        cls.cluster.start_server("--api-token-file", cls.token_file, "--worker-token-file", worker)

    @classmethod
    def file(cls, name: str, text: str, mode: int = 0o600) -> str:
        path = cls.cluster.path(name)
        path.write_text(text + "\n")
        path.chmod(mode)
        return str(path)

    def test_the_token_comes_from_an_argument_a_file_or_the_environment(self) -> None:
        choices: List[Tuple[Dict[str, str], Dict[str, str]]] = [
            ({"token": TOKEN}, {"LONGSHORE_TOKEN": "wrong"}),
            ({"token_file": self.token_file}, {"LONGSHORE_TOKEN": "wrong"}),
            ({}, {"LONGSHORE_TOKEN": TOKEN, "LONGSHORE_API_TOKEN_FILE": "/nowhere"}),
            ({}, {"LONGSHORE_API_TOKEN_FILE": self.token_file, "LONGSHORE_SERVER": self.cluster.address}),
        ]
        for options, variables in choices:
            with mock.patch.dict(os.environ, variables):
                server = None if "LONGSHORE_SERVER" in variables else self.cluster.address
                client = longshore.Client(server, token=options.get("token"), token_file=options.get("token_file"))
                self.assertEqual(client.workers(), [])

    def test_a_wrong_token_is_refused_and_not_shown(self) -> None:
        for client in (self.cluster.client(token="wrong-secret"), self.cluster.client()):
            for call in (lambda: client.submit("hello"), lambda: client.events()):
                with self.assertRaises(ApiError) as refused:
                    call()
                error = refused.exception
                self.assertEqual((error.status, error.code), (401, "invalid_token"))
                self.assertNotIn("wrong-secret", f"{error} {error.problem} {client!r}")

    def test_a_token_that_cannot_be_used_is_refused_before_it_is_sent(self) -> None:
        open_file = self.file("open.token", TOKEN, 0o644)
        for options in ({"token": ""}, {"token": "two\r\nlines"}, {"token": "ü"}, {"token_file": open_file}):
            with self.assertRaises(ValueError) as refused:
                self.cluster.client(**options)
            self.assertNotIn("lines", str(refused.exception))
            self.assertNotIn(TOKEN, str(refused.exception))


class Tls(unittest.TestCase):
    def test_a_server_is_trusted_by_its_authority_only(self) -> None:
        cluster = Cluster()
        self.addCleanup(cluster.close)
        cluster.run("cert", "--host", "127.0.0.1", "--dir", str(cluster.path("tls")))
        files = [str(cluster.path("tls") / name) for name in ("server.pem", "server-key.pem", "ca.pem")]
        cluster.start_server("--tls-cert", files[0], "--tls-key", files[1])
        server = f"https://{cluster.address}"
        self.assertIn("hello", [it["name"] for it in cluster.client(server=server, ca_file=files[2]).definitions()])
        with mock.patch.dict(os.environ, {"LONGSHORE_CA_FILE": files[2]}):
            self.assertEqual(cluster.client(server=server).workers(), [])
        # An untrusted server is not asked again: that would take an hour.
        with self.assertRaisesRegex(ConnectionFailed, "certificate verify failed"):
            cluster.client(server=server, retry_for=3600).workers()
        with self.assertRaises(ApiError) as plain:
            cluster.client().workers()
        self.assertEqual(plain.exception.status, 400)


class Addresses(unittest.TestCase):
    def test_an_address_is_what_it_is_for_the_command_line(self) -> None:
        for text, expected in [
            ("jobs.example", (False, "jobs.example", 8080, "")),
            ("127.0.0.1:81", (False, "127.0.0.1", 81, "")),
            ("[::1]:81/a/b/", (False, "::1", 81, "/a/b")),
            ("http://jobs.example/", (False, "jobs.example", 80, "")),
            ("wss://jobs.example", (True, "jobs.example", 443, "")),
            ("https://jobs.example:8443/base", (True, "jobs.example", 8443, "/base")),
        ]:
            self.assertEqual(_parse_address(text), expected, text)

    def test_other_addresses_are_refused_without_showing_a_password(self) -> None:
        for text in ("ftp://a", "", "http://", "a:b", "a:99999", "a?x", "a#x", "a b", "http://user:secret@a"):
            with self.assertRaises(ValueError) as refused:
                longshore.Client(text or " ")
            self.assertNotIn("secret", str(refused.exception))


class Answers(ScriptCase):
    def test_a_busy_server_is_asked_again_with_the_same_key(self) -> None:
        busy = (503, {"Retry-After": "0", "Content-Type": "application/problem+json"}, '{"code":"busy"}')
        client = self.answering(busy, None, busy, (201, {}, '{"id":7}'))
        self.assertEqual(client.submit("a b/c")["id"], 7)
        (request, key), *others = self.script.seen
        self.assertEqual(request, "POST /api/jobs/a%20b%2Fc")
        self.assertTrue(key)
        self.assertEqual(others, [(request, key)] * 3)

    def test_other_errors_are_final(self) -> None:
        kind = {"Content-Type": "application/problem+json"}
        for status, headers, body, code in [
            (503, kind, '{"code":"store_unavailable"}', "store_unavailable"),
            (429, {**kind, "Retry-After": "10"}, '{"code":"queue_full","title":"full"}', "queue_full"),
            (500, kind, "not JSON", ""),
            (502, {"Content-Type": "text/html"}, "<h1>Bad gateway</h1>", ""),
            (302, {"Location": "/login"}, "", ""),
        ]:
            client = self.answering((status, headers, body))
            with self.assertRaises(ApiError) as refused:
                client.submit("hello", idempotency_key="mine")
            error = refused.exception
            self.assertEqual((error.status, error.code, error.idempotency_key), (status, code, "mine"))
            self.assertEqual(error.retry_after, 10 if status == 429 else None)
            self.assertIn(str(status), str(error))

    def test_each_kind_of_refusal_has_its_class(self) -> None:
        kind = {"Content-Type": "application/problem+json"}
        for status, code, expected in [
            (400, "invalid_query", longshore.InvalidRequest), (401, "token_expired", longshore.Unauthorized),
            (403, "out_of_scope", longshore.Forbidden), (404, "job_not_found", longshore.NotFound),
            (409, "not_finished", longshore.Conflict), (410, "pruned", longshore.Gone), (410, "events_gone", longshore.EventsGone),
            (413, "body_too_large", longshore.InvalidRequest), (422, "invalid_param", longshore.InvalidRequest),
            (429, "queue_full", longshore.TooManyRequests), (500, "internal", longshore.ServerError),
            (502, "", longshore.ServerError), (503, "store_unavailable", longshore.Unavailable),
            (507, "storage_low", longshore.Unavailable), (302, "", ApiError),
        ]:  # fmt: skip
            client = self.answering((status, kind, json.dumps({"code": code, "hint": "h", "detail": "d"})))
            with self.assertRaises(ApiError) as refused:
                client.batch(1)
            error = refused.exception
            self.assertIs(type(error), expected)
            self.assertEqual((error.status, error.code, error.hint, error.detail), (status, code, "h", "d"))

    def test_a_wait_whose_connections_break_late_goes_on(self) -> None:
        # Without a new limit for each, the pauses would double, and the limit would end at the sixth connection.
        client = self.answering(*[None] * 12, (200, {}, '{"id":1,"state":"succeeded"}'), retry_for=2)
        with mock.patch("longshore._http._STABLE_AFTER_S", 0):
            self.assertEqual(client.wait(1)["state"], "succeeded")
        client = self.answering(*[None] * 12, retry_for=0.2)
        with self.assertRaises(ConnectionFailed):
            client.wait(1)

    def test_ends_in_quick_succession_are_read_in_one_request(self) -> None:
        jobs = [{"id": 7 + at, "name": "a", "state": "succeeded", "ended_at": f"2026-01-01T00:00:0{at}.000Z", "result": at} for at in range(4)]
        stream = ""
        for job in jobs:
            change = json.dumps({"id": f"1.{job['id']}.0", "kind": "job.ended", "job": job})
            stream += f"event: change\nid: 1.{job['id']}.0\ndata: {change}\n\n"
        batch = {"id": 7, "state": "running", "count": 4, "progress": 0.0}
        client = self.answering(*((200, {}, body) for body in (stream, json.dumps(batch), "[]", json.dumps(jobs[0]), json.dumps(jobs[:0:-1]))))
        with mock.patch("longshore._ends._QUICK_S", float("inf")):
            self.assertEqual([job["result"] for job in client.as_completed(7)], [0, 3, 2, 1])
        asked = [it.partition("?") for it, _ in self.script.seen]
        paths = ["GET /api/events", "GET /api/batches/7", "GET /api/jobs", "GET /api/jobs/7", "GET /api/jobs"]
        self.assertEqual([path for path, _, _ in asked], paths)
        self.assertIn("ended_since=2026-01-01T00%3A00%3A01.000Z", asked[-1][2])

    def test_an_error_between_two_requests_tells_what_was_done(self) -> None:
        part = '{"dry_run":false,"matched":5,"done":4,"stopping":1,"refused":0,"next":"abc"}'
        client = self.answering((200, {}, part), (503, {}, '{"code":"store_unavailable"}'))
        with self.assertRaises(longshore.Unavailable) as refused:
            client.cancel_many(name="a", label="b=c")
        done = refused.exception.done_so_far
        assert done is not None
        self.assertEqual((done["matched"], done["done"], done["stopping"]), (5, 4, 1))
        self.assertEqual([it for it, _ in self.script.seen], [f"POST /api/jobs/cancel?name=a&label=b%3Dc{more}" for more in ("", "&cursor=abc")])
        client = self.answering((200, {}, part), (200, {}, part.replace(',"next":"abc"', "")), (200, {}, '{"id":7,"state":"running"}'))
        self.assertEqual(client.cancel_batch(7)["state"], "running")
        paths = ["POST /api/batches/7/cancel", "POST /api/batches/7/cancel?cursor=abc", "GET /api/batches/7"]
        self.assertEqual([it for it, _ in self.script.seen], paths)

    def test_an_advice_to_come_later_than_the_limit_is_an_error_at_once(self) -> None:
        client = self.answering((503, {"Retry-After": "3600"}, ""))
        with self.assertRaises(ApiError) as refused:
            client.workers()
        self.assertEqual(refused.exception.retry_after, 3600)

    def test_an_answer_that_is_no_json_names_the_cause(self) -> None:
        with self.assertRaisesRegex(LongshoreError, "is this the address of a Longshore server"):
            self.answering((200, {}, "<html>")).definitions()
        with self.assertRaisesRegex(ConnectionFailed, "IncompleteRead"):
            self.answering((200, {"Content-Length": "10"}, "[]"), retry_for=0).definitions()

    def test_a_server_that_is_away_fails_after_the_limit(self) -> None:
        port = ReservedPort()
        self.addCleanup(port.close)
        client = longshore.Client(f"127.0.0.1:{port.number}", retry_for=0.2)
        with self.assertRaises(ConnectionFailed) as away:
            client.submit("hello")
        self.assertTrue(away.exception.idempotency_key)
        for call in (client.events, client.workers, lambda: client.follow(1), lambda: client.wait(1)):
            with self.assertRaises(ConnectionFailed):
                call()
        with self.assertRaises(WaitTimeout) as late:
            client.wait(1, 0.1)
        self.assertIsNone(late.exception.job)

    def test_a_large_event_and_an_unknown_one_and_a_part_of_one_are_read(self) -> None:
        large = "x" * 300_000
        body = ": hello\n\nid: 1.1.0\nretry: 1\n\nevent: new\ndata: x\n\n"
        body += f'event: change\nid: 1.1.1\ndata: {{"id":"1.1.1","name":"{large}"}}\n\nevent: change\nid: 1.1.2\ndata: {{"id'
        client = self.answering((200, {}, body), (200, {}, 'event: gone\ndata: {"last_event_id":"1.9.0"}\n\n'))
        events = client.events(tail=5)
        self.assertEqual(next(events), {"id": "1.1.1", "name": large})
        with self.assertRaises(longshore.EventsGone) as gone:
            next(events)
        self.assertEqual(gone.exception.problem["last_event_id"], "1.9.0")
        with self.assertRaises(StopIteration):
            next(events)
        self.assertEqual(self.script.seen, [("GET /api/events?tail=5", None), ("GET /api/events?tail=5", "1.1.1")])

    def test_output_that_ends_early_goes_on_and_tells_what_is_absent(self) -> None:
        first = 'event: attempt\ndata: {"attempt":1,"worker":"w"}\nid: 1:0\n\n'
        first += 'event: output\ndata: {"stream":"stderr","offset":0,"base64":"/w=="}\nid: 1:1\n\n'
        second = 'event: attempt\ndata: {"attempt":1,"worker":"w"}\nid: 1:1\n\n'
        second += 'event: gap\ndata: {"stream":"stdout","offset":1,"missing_bytes":null}\nid: 1:2\n\n'
        withheld = 'event: withheld\ndata: {"shown_bytes":1,"max_bytes":2,"text":"longshore: withheld"}\n\n'
        first, second = first + withheld, second + withheld
        second += 'event: late\ndata: {"late_bytes":9}\n\nevent: leaving\ndata: {}\n\nevent: output\ndata: no\n\n'
        third = 'event: end\ndata: {"job":3,"state":"failed"}\n\nevent: output\ndata: no\n\n'
        client = self.answering((200, {}, first), (200, {}, second), (200, {}, third))
        told_once = Output(1, "", b"", "withheld")
        expected = [Output(1, "stderr", b"\xff"), told_once, Output(1, "stdout", b"", "missing"), Output(1, "", b"", "late", 9)]
        self.assertEqual(list(client.follow(3)), expected)
        self.assertEqual([last_id for _, last_id in self.script.seen], ["1:0", "1:1", "1:2"])

    def test_the_limit_begins_anew_with_each_event(self) -> None:
        # Without that, the pauses would double, and the limit would end at the sixth connection.
        bodies = [f'event: change\nid: 1.{number}.0\ndata: {{"id":"1.{number}.0"}}\n\n' for number in range(12)]
        client = self.answering(*((200, {}, body) for body in bodies), retry_for=2)
        events = client.events()
        self.assertEqual([next(events)["id"] for _ in bodies], [f"1.{number}.0" for number in range(12)])
        events.close()
