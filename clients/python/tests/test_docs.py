"""The examples of docs/python.md and of the client's README run as they stand, one after the other, against a real server."""

from __future__ import annotations

import contextlib
import io
import json
import re
import unittest
from pathlib import Path
from typing import Any, Dict, List
from unittest import mock

import longshore

from .cluster import Cluster, until
from .script import ScriptCase

ROOT = Path(__file__).parents[3]


def blocks(page: str, language: str) -> List[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Types(unittest.TestCase):
    def test_a_job_has_each_field_of_the_description_of_the_api(self) -> None:
        schemas = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]

        def fields(schema: Dict[str, Any]) -> List[str]:
            if "$ref" in schema:
                return fields(schemas[schema["$ref"].rsplit("/", 1)[1]])
            return [*schema.get("properties", {}), *(name for part in schema.get("allOf", []) for name in fields(part))]

        described = {name for schema in ("FullJob", "ListedJob") for name in fields(schemas[schema])}
        self.assertIn("unresolved", described)
        self.assertEqual(described - set(longshore.Job.__annotations__), set())


class Examples(unittest.TestCase):
    def test_the_examples_run_and_print_what_they_say(self) -> None:
        cluster = Cluster()
        self.addCleanup(cluster.close)
        (definitions,) = blocks("docs/python.md", "yaml")
        # No Docker is needed, and programs of the system do.
        process = definitions.replace("image: busybox", "runtime: process")
        hello = "  hello: { runtime: process, command: [echo, hello] }\n"
        cluster.path("jobs.yaml").write_text(process + hello)
        cluster.start_server()
        cluster.start_worker()
        client = cluster.client()
        until("the worker is ready", lambda: [worker["state"] for worker in client.workers()] == ["ready"])
        with mock.patch.object(longshore, "Client", lambda _: client):
            printed = self.run_all(blocks("docs/python.md", "python"))
            for line in ("0\n1\n4\n9\n16\n", "has failed: exit code 1 1\n", "144\n", "failed 2\n", "2 {'n': 4} 16\n0 {'n': 3} 9\n"):
                self.assertIn(line, printed)
            self.assertRegex(printed, r'\[\{"batch":\d+,"state":"succeeded","count":3')
            self.assertRegex(printed, r"\d+ square succeeded\n└─ \d+ report cancelled, also after \d+\n\d+ square failed\n└─ \d+ report ")
            self.assertIn("if not_succeeded\n3\n", printed)
            self.assertIn('404 unknown_job did you mean "square"?\n', printed)
            printed = self.run_all(blocks("clients/python/README.md", "python"))
            self.assertIn("hello\nsucceeded 0\n1\n4\n", printed)
            self.assertIn('404 unknown_job', printed)

    def run_all(self, examples: List[str]) -> str:
        names: Dict[str, Any] = {}
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(printed):
            for example in examples:
                exec(compile(example, "example", "exec"), names)
        assert isinstance(printed.buffer, io.BytesIO)
        return printed.buffer.getvalue().decode()


class Loops(ScriptCase):
    def test_the_loop_over_events_survives_a_second_restart(self) -> None:
        (example,) = [it for it in blocks("docs/python.md", "python") if "def ended_jobs" in it]
        names: Dict[str, Any] = {"longshore": longshore}
        exec(compile(example[: example.index("\njobs = ")], "example", "exec"), names)
        gone = (410, {"Content-Type": "application/problem+json"}, '{"code":"events_gone","last_event_id":"3.0.0"}')
        last = (200, {}, 'event: change\nid: 3.1.0\ndata: {"id":"3.1.0","job":{"id":5}}\n\n')
        first = (200, {}, 'event: gone\ndata: {"last_event_id":"2.0.0"}\n\n')
        client = self.answering(first, (200, {}, "[]"), gone, last, (200, {}, "[]"))
        jobs = names["ended_jobs"](client, "a")
        self.assertEqual(next(jobs)["id"], 5)
        jobs.close()
        self.assertEqual([id for path, id in self.script.seen if path.startswith("GET /api/events")], [None, "2.0.0", "3.0.0"])
