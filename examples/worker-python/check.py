"""Checks this worker, and with it docs/protocol.md, against a running server: `check.py --server http://127.0.0.1:8080`.

1. codec: each frame of protocol/tests/golden/frames.json is read and written alike, and each invalid one is refused with its code.
2. alone: its records, frames and time limits, without a server.
3. jobs: 200 jobs to success, with their output; one that fails; one that asks before it starts; inputs and results.
4. cancel: a running job and a queued one.
5. reconnect: the connection is cut while a job runs; the inventory keeps it, and it is reported once.
6. hostile: each bad frame is answered with the close code that the document names, and the server goes on.

The server needs the jobs file of this directory and no other worker. The first failure ends the program with status 1.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import codec
import records
from worker import GIVE_UP_OUTPUT_S, SUBPROTOCOL, Outbox, Worker, connect_address, key_of, uptime

JOBS = 200
TIMEOUT_S = 60
ENDS = ("succeeded", "failed", "cancelled", "expired", "lost")


class Failed(Exception):
    """A check found something else than the document says."""


def expect(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: expected {expected!r}, found {found!r}")


class Api:
    """The server's HTTP API; each call runs on a thread of its own."""

    def __init__(self, server, token):
        self.server = server.rstrip("/")
        self.token = token

    async def get(self, path):
        return json.loads(await asyncio.get_running_loop().run_in_executor(None, self.call, "GET", path, None))

    async def text(self, path):
        return await asyncio.get_running_loop().run_in_executor(None, self.call, "GET", path, None)

    async def post(self, path, body=None):
        answer = await asyncio.get_running_loop().run_in_executor(None, self.call, "POST", path, body)
        return json.loads(answer)

    def call(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as problem:
            raise Failed(f"{method} {path}: {problem.code} {problem.read().decode()}") from None

    async def submit(self, name, **body):
        return (await self.post(f"/api/jobs/{name}", body or None))["id"]

    async def until(self, job, *states):
        """The job, once it is in one of these states."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            shown = await self.get(f"/api/jobs/{job}")
            if shown["state"] in states:
                return shown
            if shown["state"] in ENDS or time.monotonic() > deadline:
                raise Failed(f"job {job} is {shown['state']}, not {' or '.join(states)}: {shown}")
            await asyncio.sleep(0.05)


async def holds(what, condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"still not after {TIMEOUT_S} s: {what}")
        await asyncio.sleep(0.02)


# 1. The codec against the frames of the project's own tests.


def check_codec(path):
    with open(path) as file:
        frames = json.load(file)
    for frame in frames["valid"]:
        data = bytes.fromhex(frame["hex"])
        is_order = frame["direction"] == "to_worker"
        decode, encode = (
            (codec.decode_order, codec.encode_order) if is_order else (codec.decode_report, codec.encode_report)
        )
        expect(data[0], frame["tag"], f"the tag of {frame['name']}")
        name, value = decode(data)
        expect(name, frame["name"], f"the name of tag {frame['tag']}")
        expect(plain(value), frame["fields"], f"the fields of {name}")
        expect(encode(name, value).hex(), frame["hex"], f"the bytes of {name}")
    for frame in frames["invalid"]:
        data = invalid_bytes(frame)
        decode = codec.decode_order if frame["direction"] == "to_worker" else codec.decode_report
        try:
            found = decode(data)
        except codec.BadFrame as bad:
            expect(bad.code, frame["close"], f"the close code of: {frame['why']}")
        else:
            raise Failed(f"{frame['why']}: it was read as {found}")
    return frames


def invalid_bytes(frame):
    return bytes.fromhex(frame["hex"]) + bytes(frame["zeros"])


def plain(value):
    """A decoded value as frames.json has it: bytes in hexadecimal."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value.hex() if isinstance(value, bytes) else value


# 2. The worker alone.


async def check_alone(directory):
    check_records(directory)
    check_frames()
    check_full_disk(directory)
    worker = alone(os.path.join(directory, "alone"))
    check_time_limits(worker)
    check_restart(worker, os.path.join(directory, "restarted"))
    await check_early_stop(worker)
    await check_errors_in_ticks(os.path.join(directory, "errors"))
    await check_end_of_ticks(os.path.join(directory, "ended"))


def alone(state):
    return Worker("http://127.0.0.1:1", "alone", state, log=lambda _: None)


def check_records(directory):
    path = os.path.join(directory, "record")
    os.makedirs(path)
    record = records.Record(path, {})
    pipe = record.stream("result.json")
    os.mkfifo(pipe)
    # With a writer that says nothing, a read of the pipe finds neither bytes nor an end.
    writer = os.open(pipe, os.O_RDWR)
    expect(record.result(), (None, "its result was left out: it is no plain file"), "a pipe as a result")
    os.close(writer)
    # The kernel cuts the name of a process at 15 bytes, here within a character.
    program = os.path.join(directory, "x" * 14 + "ü")
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "600"])
    try:
        if records.process_start(process.pid) is None:
            raise Failed("a process whose name is cut within a character has no start")
    finally:
        process.kill()
        process.wait()
    private = os.path.join(path, "private")
    with open(private, "w", opener=records.open_private):
        expect(oct(stat.S_IMODE(os.stat(private).st_mode)), oct(0o600), "the mode with which a file is made")


def check_frames():
    """However many long texts wait, each frame of reports can be sent."""
    token = {"job": 1, "fence": 1, "nonce": 1}
    entry = {"token": token, "ended_ago": 0, "ran": None, "stdout": 0, "stderr": 0, "note": None}
    entry["usage"] = codec.UNKNOWN_USAGE
    result = json.dumps("😀" * ((codec.RESULT_BYTES_MAX - 2) // 4), ensure_ascii=False)
    outbox = Outbox()
    for _ in range(20):
        outbox.add("Success", dict(entry, result=result), uptime())
    for _ in range(1000):
        outbox.add("Released", {"token": token, "cause": "Secrets", "why": "x" * codec.TEXT_BYTES_MAX})
    sent = 0
    for kind, numbered in outbox.frames():
        codec.encode_report(kind, numbered)
        sent += len(numbered["list"])
    expect(sent, 1020, "the reports in all frames")


SPEC = {
    "runtime": "Process",
    "entrypoint": None,
    "command": ["sleep", "600"],
    "environment": [],
    "input": None,
    "working_dir": None,
    "log_bytes_max": 1000,
    "ask_before_start": False,
    # A process that was started in the background may ignore SIGINT, and its children as well.
    "stop_signal": "SIGUSR1",
    "stop_grace": 600 * codec.SECOND,
    "self_fence": None,
}


def assign(worker, job, **spec):
    """An attempt that waits in the worker's backlog."""
    revision = f"{job:032x}"
    worker.definitions[revision] = dict(SPEC, **spec)
    token = {"job": job, "fence": 1, "nonce": 1}
    assignment = {"token": token, "priority": 0, "waited": 0, "revision": revision, "overrides": None}
    worker.on_Enqueue([dict(assignment, time_left=None, secrets=None)])
    return worker.attempts[key_of(token)]


def check_full_disk(directory):
    """An attempt that cannot be written down is given back."""
    worker = alone(os.path.join(directory, "full"))
    attempt = assign(worker, 1)
    shutil.rmtree(worker.state.attempts)
    with open(worker.state.attempts, "w"):
        pass
    worker.start(attempt)
    expect(list(worker.attempts), [], "the attempts that cannot be written down")
    expect([entry["cause"] for _, _, entry, _ in worker.outbox.kept], ["RuntimeUnavailable"], "why it was given back")


def check_time_limits(worker):
    # A short lease leaves a fence little time; a worker that is connected keeps to it.
    worker.intervals = {name: codec.SECOND * part // 10 for name, part in (("heartbeat", 5), ("lease", 30), ("start_gate", 3))}
    attempt = assign(worker, 1, self_fence=codec.SECOND, stop_grace=0)
    attempt.stage = "running"
    now = worker.lease_from = uptime()
    worker.watch(attempt, now)
    expect(attempt.stop_cause, None, "the stop of an attempt right after a heartbeat")
    del worker.attempts[attempt.key]
    # It ended while there was no connection for a long time.
    attempt = assign(worker, 2)
    attempt.record = worker.state.begin(attempt.token, 1000)
    long_ago = time.time_ns() - 2 * GIVE_UP_OUTPUT_S * codec.SECOND
    end = {"outcome": "Failed", "exit_code": 1, "message": "", "ran": 0}
    attempt.record.save(end=end, lengths={"stdout": 1, "stderr": 0}, ended_at=long_ago)
    worker.report_end(attempt)
    worker.on_Acknowledge(worker.outbox.last)
    worker.watch(attempt, uptime())
    expect(list(worker.attempts), [attempt.key], "the attempts whose output the server has not had time for")


def check_restart(worker, directory):
    """A worker that is started anew says when an attempt ended."""
    shutil.copytree(worker.state.directory, directory)
    restarted = alone(directory)
    _, numbered = next(restarted.outbox.frames())
    if numbered["list"][0]["ended_ago"] < 2 * GIVE_UP_OUTPUT_S * codec.SECOND:
        raise Failed(f"an attempt that ended long ago is reported as {numbered}")


async def check_early_stop(worker):
    """An attempt that is stopped before its process is there gets the signal of its definition."""
    attempt = assign(worker, 3)
    worker.start(attempt)
    worker.stop(attempt, "Cancel", None)
    await holds("it ends", lambda: attempt.stage == "ended")
    expect(attempt.record.facts["end"]["exit_code"], 128 + signal.SIGUSR1, "the exit code of an attempt that was stopped early")


async def check_errors_in_ticks(state):
    """An error of the system in the work for one attempt leaves the ticks going, and is logged once."""
    said = []
    worker = Worker("http://127.0.0.1:1", "errors", state, log=said.append)
    worker.is_reconciled = True
    worker.lease_from = 0
    broken, stopping = assign(worker, 1), assign(worker, 2)
    for attempt in (broken, stopping):
        attempt.stage = "running"
        attempt.started = uptime()
        attempt.record = worker.state.begin(attempt.token, 1000)
        with open(attempt.record.stream("stdout"), "wb") as file:
            file.write(b"x")
    # Its output cannot be read, and its process must not be signalled.
    shutil.rmtree(broken.record.path)
    with open(broken.record.path, "w"):
        pass
    signalled = []

    def signal_one(attempt, number):
        signalled.append((attempt.token["job"], number))
        if attempt is broken:
            raise PermissionError(1, "no permission")

    worker.signal = signal_one
    ticking = asyncio.ensure_future(worker.tick())
    for attempt in (broken, stopping):
        attempt.stop_cause, attempt.kill_at = "Cancel", 0
    await holds("the other attempt is killed", lambda: signalled.count((2, signal.SIGKILL)) > 2)
    expect(ticking.done(), False, "the end of the ticks")
    ticking.cancel()
    expect(sorted(text.split(",")[0] for text in said), ["cannot send the output of job 1", "cannot watch job 1"], "the log")


async def check_end_of_ticks(state):
    """A worker that watches nothing any more ends with an error."""
    worker = alone(state)

    async def tick():
        raise ValueError("broken")

    worker.tick = tick
    try:
        await asyncio.wait_for(worker.run(), TIMEOUT_S)
    except RuntimeError as error:
        return expect(str(error.__cause__), "broken", "the cause of the end")
    raise Failed("a worker without ticks has gone on")


# 3. to 5. A worker and its jobs.


class CutWorker(Worker):
    """A worker that can be kept from connecting again."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.may_connect = asyncio.Event()
        self.may_connect.set()

    async def session(self):
        await self.may_connect.wait()
        return await super().session()


async def check_jobs(api, worker):
    jobs = [await api.submit("hello") for _ in range(JOBS)]
    failing = await api.submit("fail")
    careful = await api.submit("careful")
    for job in jobs:
        shown = await api.until(job, "succeeded")
        expect(shown["attempt_count"], 1, f"the attempts of job {job}")
    shown = await api.until(failing, "failed")
    expect(shown["exit_code"], 3, "the exit code")
    await api.until(careful, "succeeded")
    await holds("all ends and all output are acknowledged", lambda: not worker.attempts)
    expect(os.listdir(worker.state.attempts), [], "what is left of ended attempts")
    for job in jobs:
        expect(await api.text(f"/api/jobs/{job}/logs"), f"hello from job {job}\n", f"the output of job {job}")


async def check_exchange(api, worker):
    """The input of a job or of its definition comes back as the result; what is no result is left out."""
    deep = "[" * 200 + "]" * 200
    for body, result, note in [
        ({}, {"pages": [1, 2]}, None),
        ({"input": {"k": "é"}}, {"k": "é"}, None),
        ({"input": None}, None, None),
        ({"environment": {"WITH": "{"}}, None, "it is not JSON"),
        ({"environment": {"WITH": "NaN"}}, None, "it is not JSON"),
        ({"environment": {"WITH": deep}}, None, "it is not JSON"),
        ({"args": ["large"]}, None, "larger than 65536 bytes"),
    ]:
        job = await api.submit("exchange", **body)
        shown = await api.until(job, "succeeded")
        expect(shown.get("result"), result, f"the result of job {job}, made with {str(body)[:40]}")
        if note is not None and note not in json.dumps(shown):
            raise Failed(f"job {job} does not say {note!r}: {shown}")
    await holds("nothing is left of them", lambda: not worker.attempts)


async def check_cancel(api, worker):
    running = [await api.submit("forever") for _ in range(worker.slots)]
    for job in running:
        await api.until(job, "running")
    queued = await api.submit("forever")
    await holds("the next one waits at the worker", lambda: any(it.stage == "backlog" for it in worker.attempts.values()))
    for job in [queued] + running:
        await api.post(f"/api/jobs/{job}/cancel")
    for job in [queued] + running:
        await api.until(job, "cancelled")
    await holds("nothing is left of them", lambda: not worker.attempts)


async def check_reconnect(api, worker, directory):
    go = os.path.join(directory, "go")
    job = await api.submit("until-go", environment={"GO": go})
    await api.until(job, "running")
    for number in range(3):
        before = worker.reconciled_count
        worker.socket.transport.abort()
        await holds("the worker is reconciled again", lambda: worker.reconciled_count > before)
        expect([it.phase() for it in worker.attempts.values()], ["Running"], f"the attempts after cut {number + 1}")
    # It ends while there is no connection: the report has to wait for the next one.
    worker.may_connect.clear()
    worker.socket.transport.abort()
    with open(go, "w"):
        pass
    await holds("it ends", lambda: any(it.stage == "ended" for it in worker.attempts.values()))
    worker.may_connect.set()
    shown = await api.until(job, "succeeded")
    expect(shown["attempt_count"], 1, "the attempts of a job whose worker lost its connection")
    await holds("it is forgotten", lambda: not worker.attempts)
    expect(await api.text(f"/api/jobs/{job}/logs"), "gone\n", "its output")


# 6. Frames that no server may believe.


class Peer:
    """A worker made by hand, so that it can be as bad as it has to be."""

    def __init__(self, server, token):
        self.address = connect_address(server)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.hello = {
            "format": codec.WIRE_FORMAT,
            "versions": {"lowest": codec.VERSION, "highest": codec.VERSION},
            "name": "hostile-" + secrets.token_hex(4),
            "secret": secrets.token_bytes(32),
            "cluster": None,
            "rejoin": False,
            "incarnation": 1,
            "process": 1,
            "engine": None,
            "version": "0",
            "slots": 1,
            "backlog": 0,
            "labels": [],
            "runtimes": [],
            "resources": {"cpus_milli": None, "memory_bytes": None, "gpus": [], "custom": []},
        }

    def knock(self):
        return connect(self.address, subprotocols=[SUBPROTOCOL], compression=None, additional_headers=self.headers)

    async def answer(self, messages, joined):
        """Sends messages, before or after Hello to Reconciled. The close code and reason that they are answered with."""
        async with self.knock() as socket:
            if joined:
                await socket.send(codec.encode_report("Hello", self.hello))
                await self.order(socket, "Welcome")
                inventory = {"runtimes": [], "attempts": [], "foreign": [], "last": True}
                await socket.send(codec.encode_report("Inventory", inventory))
                await self.order(socket, "Reconciled")
            try:
                for message in messages:
                    await socket.send(message)
                while True:
                    await asyncio.wait_for(socket.recv(), TIMEOUT_S)
            except ConnectionClosed as closed:
                if closed.rcvd is None:
                    raise Failed("the connection was cut without a close code") from None
                return closed.rcvd.code, closed.rcvd.reason

    async def order(self, socket, name):
        while True:
            order = codec.decode_order(await asyncio.wait_for(socket.recv(), TIMEOUT_S))
            if order and order[0] == name:
                return order[1]


async def check_hostile(api, server, token, frames):
    peer = Peer(server, token)
    beat = {"number": 1, "busy": 0, "queued": 0, "load_milli": None, "disk_free_bytes": None}
    beat = codec.encode_report("Heartbeat", beat)
    hello = codec.encode_report("Hello", peer.hello)
    alive = {"token": {"job": 1, "fence": 1, "nonce": 1}, "container": "", "ago": 0}
    gap = codec.encode_report("Running", {"first": 1, "list": [alive]})
    gap = [gap, codec.encode_report("Running", {"first": 3, "list": [alive]})]
    bad_result = {"token": alive["token"], "ended_ago": 0, "ran": None, "stdout": 0, "stderr": 0, "note": None}
    bad_result = {"first": 1, "list": [dict(bad_result, result="{not json", usage=codec.UNKNOWN_USAGE)]}
    for why, messages, code, words, joined in [
        ("text instead of Hello", ["hello"], 1003, "text_frame", False),
        ("a heartbeat instead of Hello", [beat], 4004, "the first message was another", False),
        ("a tag that may be skipped instead of Hello", [b"\xc8"], 4004, "the first message was another", False),
        ("text", ["{}"], 1003, "text_frame", True),
        ("a second Hello", [hello], 4003, "Hello is said once", True),
        ("a gap in the numbers of reports", gap, 4003, "beyond the next one, which is 2", True),
        ("a result that is not JSON", [codec.encode_report("Success", bad_result)], 4003, "it is not JSON", True),
        ("5,000 tags that may be skipped", [b"\xc8"] * 5000, 4008, "more than 1000 messages", True),
    ]:
        found, reason = await peer.answer(messages, joined)
        expect(found, code, f"{why} ({reason})")
        if words not in reason:
            raise Failed(f"{why}: the reason {reason!r} does not say {words!r}")
    await check_refusals(peer)
    for frame in frames["invalid"]:
        if frame["direction"] == "to_server":
            data = invalid_bytes(frame)
            joined = data[:1] != b"\x00"
            found, reason = await peer.answer([data], joined)
            expect(found, frame["close"], f"{frame['why']} ({reason})")
            if frame["reason"] not in reason:
                raise Failed(f"{frame['why']}: the reason {reason!r} does not say {frame['reason']!r}")
    job = await api.submit("hello")
    await api.until(job, "succeeded")


async def check_refusals(peer):
    """No subprotocol: no socket. Another wire format: Refused, with both named."""
    try:
        async with connect(peer.address, compression=None, additional_headers=peer.headers):
            raise Failed("there is a socket without the subprotocol")
    except InvalidStatus as answer:
        expect(answer.response.status_code, 400, "the answer without the subprotocol")
    hello = bytearray(codec.encode_report("Hello", peer.hello))
    hello[1] = 77
    async with peer.knock() as socket:
        await socket.send(bytes(hello))
        refused = await peer.order(socket, "Refused")
    expect(refused["code"], "unsupported_version", "the refusal of another wire format")
    if f"wire format {codec.WIRE_FORMAT}" not in refused["text"] or "77" not in refused["text"]:
        raise Failed(f"the refusal does not name both wire formats: {refused['text']}")


async def run(flags):
    here = os.path.dirname(os.path.abspath(__file__))
    # A worker of an earlier version has its frames beside it.
    golden = os.path.join(here, "..", "frames.json")
    if not os.path.exists(golden):
        golden = os.path.join(here, "..", "..", "protocol", "tests", "golden", "frames.json")
    token = None
    if flags.token_file:
        with open(flags.token_file) as file:
            token = file.read().strip()
    frames = check_codec(golden)
    print(f"codec      {len(frames['valid'])} frames, {len(frames['invalid'])} invalid ones")
    api = Api(flags.server, token)
    with tempfile.TemporaryDirectory(prefix="longshore-python-") as directory:
        await check_alone(directory)
        print("alone      records, frames and time limits")
        state = os.path.join(directory, "state")
        worker = CutWorker(flags.server, "python", state, slots=4, backlog=4, token=token, log=lambda _: None)
        running = asyncio.ensure_future(worker.run())
        checks = check_all(api, worker, directory, flags, token, frames)
        try:
            await until_done(checks, running)
        finally:
            running.cancel()


async def check_all(api, worker, directory, flags, token, frames):
    await holds("the worker is connected", lambda: worker.is_reconciled)
    await check_jobs(api, worker)
    print(f"jobs       {JOBS} succeeded, one failed, one asked before it started")
    await check_exchange(api, worker)
    print("exchange   inputs and results")
    await check_cancel(api, worker)
    print("cancel     running and queued jobs")
    await check_reconnect(api, worker, directory)
    print("reconnect  the job went on, and its end was reported once")
    await check_hostile(api, flags.server, token, frames)
    print("hostile    each with its close code, and the server goes on")


async def until_done(checks, worker):
    """Waits for the checks; a worker that ends before them has failed."""
    checks = asyncio.ensure_future(checks)
    done, _ = await asyncio.wait([checks, worker], return_when=asyncio.FIRST_COMPLETED)
    if checks not in done:
        checks.cancel()
        raise Failed(f"the worker ended: {worker.exception()!r}")
    checks.result()


def main():
    parser = argparse.ArgumentParser(description="Check the Python worker against a running server")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--token-file", help="a file with a token for workers and the API")
    try:
        asyncio.run(run(parser.parse_args()))
    except Failed as failed:
        print(f"check: {failed}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
