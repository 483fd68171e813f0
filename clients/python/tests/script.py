"""A server that gives scripted answers."""

from __future__ import annotations

import http.server
import unittest
from threading import Thread
from typing import Dict, List, Optional, Tuple, Type

import longshore


class Script(http.server.BaseHTTPRequestHandler):
    """Answers each request with the next of the answers: status, headers and body. `None` cuts the connection."""

    answers: List[Optional[Tuple[int, Dict[str, str], str]]]
    # Method and path, and the idempotency key or the id of the last event.
    seen: List[Tuple[str, Optional[str]]]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Idempotency-Key") or self.headers.get("Last-Event-ID")
        self.seen.append((f"{self.command} {self.path}", key))
        answer = self.answers.pop(0)
        self.close_connection = True
        if answer is None:
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


class ScriptCase(unittest.TestCase):
    """Tests with a scripted server."""

    script: Type[Script]

    def answering(self, *answers: Optional[Tuple[int, Dict[str, str], str]], retry_for: float = 30) -> longshore.Client:
        class Scripted(Script):
            pass

        Scripted.answers, Scripted.seen = list(answers), []
        self.script = Scripted
        server = http.server.HTTPServer(("127.0.0.1", 0), Scripted)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return longshore.Client(f"127.0.0.1:{server.server_port}", retry_for=retry_for)
