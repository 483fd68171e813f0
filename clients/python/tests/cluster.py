"""A server and a worker for tests: the program that LONGSHORE_BINARY names, in a directory of their own, on a port of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Callable, Dict, List

import longshore

BASE_PATH = "/jobs-of-all"
BINARY = os.environ.get("LONGSHORE_BINARY") or str(Path(__file__).parents[3] / "target/debug/longshore")
DEADLINE_S = 60
JOBS = """
version: 1
defaults: { runtime: process }
jobs:
  hello: { command: [sh, -c, 'echo "hello from job $$LONGSHORE_JOB"'] }
  fail: { command: [sh, -c, 'echo oops >&2; exit $${CODE:-3}'] }
  show: { command: [sh, -c, 'echo "$$A $$*"', sh, "${params.size}"], params: { size: { type: integer, default: 1 } } }
  forever: { command: [sh, -c, 'echo started; while :; do sleep 0.05; done'], stop_grace_period: 2s }
  # Counts until the file $STOP exists.
  count: { command: [sh, -c, 'i=0; while [ ! -e "$$STOP" ]; do i=$$((i+1)); echo "line $$i"; sleep 0.01; done; echo done'] }
  bytes: { command: [sh, -c, 'printf "a\\\\377\\\\000b"'] }
  # Fails in its first attempt.
  twice: { command: [sh, -c, 'echo "attempt $$LONGSHORE_ATTEMPT"; test "$$LONGSHORE_ATTEMPT" = 2'], retry: { max: 2, backoff: { initial: 10ms } } }
  single: { command: [sleep, "600"], unique: {} }
  quick: { runtime: fake }
  # Its result is the square of n; it fails for 13.
  square: { command: [sh, -c, 'echo $$(($$1 * $$1)) > "$$LONGSHORE_RESULT"; test "$$1" != 13', sh, "${params.n}"], params: { n: { type: integer, required: true } } }
  # Ends when the file exists; its result is the parameter "value".
  gate: { command: [sh, -c, 'while [ ! -e "$$1" ]; do sleep 0.01; done; echo "$$2" > "$$LONGSHORE_RESULT"', sh, "${params.file}", "${params.value}"], params: { file: { required: true }, value: { type: integer, default: 0 } } }
  exists: { command: [test, -e, "${params.file}"], params: { file: { required: true } } }
  step: { command: [sh, -c, 'exit $${CODE:-0}'] }
  grouped: { runtime: fake, concurrency: { limit: 1, group: db } }
  yearly: { runtime: fake, schedule: { id: main, cron: "0 2 1 1 *" }, tags: [report] }
"""


def until(what: str, condition: Callable[[], bool]) -> None:
    """Waits for a condition, at most a minute."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not after {DEADLINE_S} s: {what}")
        time.sleep(0.01)


def environment() -> Dict[str, str]:
    """Our environment without settings of Longshore."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}


class ReservedPort:
    """A port that stays ours while nothing listens on it: testkit/src/port.rs reserves in the same way."""

    def __init__(self) -> None:
        for step in range(20_000):
            self.number = 11_000 + (os.getpid() + step) % 20_000
            self._lock = socket.socket(socket.AF_UNIX)
            try:
                self._lock.bind(f"\0longshore-test-port-{self.number}")
                self._lock.listen()
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", self.number))
                return
            except OSError:
                self._lock.close()
        raise AssertionError("no port is free")

    def close(self) -> None:
        self._lock.close()


class Cluster:
    """A directory, a port, and the processes that it starts; it ends them by their id."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="longshore-python-client-"))
        self.port = ReservedPort()
        self.path("jobs.yaml").write_text(JOBS)
        self._processes: Dict[str, subprocess.Popen[bytes]] = {}
        # For a Ctrl-C, after which unittest cleans nothing up.
        atexit.register(self.close)

    def path(self, name: str) -> Path:
        return self.directory / name

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port.number}{BASE_PATH}"

    def client(self, **options: Any) -> longshore.Client:
        return longshore.Client(options.pop("server", self.address), **options)

    def start(self) -> longshore.Client:
        """Starts a server and a worker."""
        self.start_server()
        self.start_worker()
        return self.client()

    def start_server(self, *more_flags: str) -> None:
        flags = ["--listen", f"127.0.0.1:{self.port.number}", "--base-path", BASE_PATH, "--data", str(self.path("data"))]
        self._start("server", ["server", *flags, "--jobs", str(self.path("jobs.yaml")), *more_flags])
        until("the server is ready", self._answers if "--tls-cert" in more_flags else self._is_ready)

    def start_worker(self, *flags: str) -> None:
        state = str(self.path("worker"))
        slots = ["--name", "w1", "--slots", "8", "--no-docker", "--allow-process", "--allow-fake"]
        self._start("worker", ["worker", "--server", self.address, "--state-dir", state, *slots, *flags])

    def run(self, *arguments: str) -> None:
        """Runs the program to its end."""
        subprocess.run([BINARY, *arguments], check=True, capture_output=True, env=environment())

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        atexit.unregister(self.close)
        with suppress(longshore.LongshoreError, AssertionError):
            self._end_jobs()
        # The worker stops what runs at its second signal.
        for name in ("worker", "worker", "server"):
            process = self._processes.get(name)
            if process is not None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self.port.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_jobs(self) -> None:
        """Ends what a failed test has left running: a worker that is stopped leaves processes to its successor."""
        if "worker" not in self._processes:
            return
        if "server" not in self._processes:
            self.start_server()
        client = self.client(retry_for=0)
        client.cancel_many(state=["scheduled", "queued", "assigned", "running", "quarantined"])
        until("no job runs", lambda: not any(worker["busy"] for worker in client.workers()))

    def _start(self, name: str, arguments: List[str]) -> None:
        with open(self.path(f"{name}.log"), "ab") as log:
            self._processes[name] = subprocess.Popen(
                [BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )

    def _check_alive(self) -> None:
        code = self._processes["server"].poll()
        if code is not None:
            raise AssertionError(f"the server ended with {code}: {self.path('server.log').read_text()[-2000:]}")

    def _answers(self) -> bool:
        self._check_alive()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port.number)) == 0

    def _is_ready(self) -> bool:
        self._check_alive()
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class ClientCase(unittest.TestCase):
    """Tests with a client of a server."""

    cluster: Cluster
    client: longshore.Client

    def proxy(self) -> Proxy:
        proxy = Proxy(self.cluster.port.number)
        self.addCleanup(proxy.close)
        return proxy


class ClusterCase(ClientCase):
    """Tests that share a server and a worker."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.start()


class OwnClusterCase(ClientCase):
    """Tests that each have a server and a worker of their own, for example to end them."""

    def setUp(self) -> None:
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.start()


class Proxy:
    """A TCP proxy that can cut its connections, and swallow answers."""

    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self._open: List[socket.socket] = []
        self._answers_to_drop = 0
        # How many connections there were.
        self.accepted = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}{BASE_PATH}"
        Thread(target=self._accept, daemon=True).start()

    def drop_answers(self, count: int) -> None:
        """Cuts the next connections when their answer begins, before the client sees any of it."""
        with self._lock:
            self._answers_to_drop = count

    def cut(self) -> None:
        """Cuts all connections."""
        with self._lock:
            for side in self._open:
                _shut(side)
            self._open.clear()

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            with self._lock:
                self._open += [client, server]
                self.accepted += 1
            Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            answers = Thread(target=self._pump, args=(server, client, True), daemon=True)
            answers.start()
            self._pump(client, server, False)
            answers.join()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while True:
                data = source.recv(1 << 16)
                if not data or (is_answer and self._takes_drop()):
                    break
                sink.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(sink)

    def _takes_drop(self) -> bool:
        with self._lock:
            self._answers_to_drop -= 1
            return self._answers_to_drop >= 0


def _shut(side: socket.socket) -> None:
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
