"""A Longshore worker for plain processes, written from docs/protocol.md. It follows the rules of "The smallest correct worker" there.

It offers the runtime `process` only. What survives a kill of this worker: the ends that it has seen, with their output. A process that
still ran is killed by the next start and reported as Lost.
"""

import argparse
import asyncio
import base64
import collections
import os
import random
import secrets
import shutil
import signal
import sys
import time

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

import codec
from records import State, process_start

SUBPROTOCOL = "longshore.v1"
SECOND = codec.SECOND
TICK_S = 0.05
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.2, 15.0
GIVE_UP_OUTPUT_S = 600
TRY_AGAIN_S = 1
STREAMS = {"Stdout": "stdout", "Stderr": "stderr"}
# How the end of an attempt is classed that we have stopped.
STOPPED = {
    "Cancel": "Cancelled",
    "Timeout": "TimedOut",
    "Superseded": "Lost",
    "Pinning": "Interrupted",
    "Drain": "Interrupted",
    "SelfFence": "Interrupted",
}


def uptime():
    """Nanoseconds of a clock that goes on while the machine sleeps: leases are counted with it."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def key_of(token):
    return (token["job"], token["fence"], token["nonce"])


class Attempt:
    """One attempt that this worker knows.

    `stage` goes backlog → asking (Starting was sent) → granted (it was acknowledged) → running → ended.
    """

    def __init__(self, assignment, arrival):
        self.token = assignment["token"]
        self.assignment = assignment
        self.due = uptime() - assignment["waited"]
        self.arrival = arrival
        self.stage = "backlog"
        self.stop_cause = None
        self.record = None
        self.process = None
        self.started = None
        self.kill_at = None
        self.final_is_durable = False
        # Since when only its output is wanted.
        self.durable_since = None
        self.final = None
        self.lengths = None
        self.output = {name: OutputStream() for name in STREAMS}
        # The last error of each kind of work, until it succeeds.
        self.problems = {}

    @property
    def key(self):
        return key_of(self.token)

    @property
    def is_unstarted(self):
        return self.stage in ("backlog", "asking", "granted")

    @property
    def is_stopping(self):
        return self.stop_cause is not None and self.stage == "running"

    def phase(self):
        if self.is_stopping:
            return "Stopping"
        return {"backlog": "Backlog", "running": "Running", "ended": "Ended"}.get(self.stage, "Starting")

    def output_is_done(self):
        return all(self.output[name].durable >= self.lengths[field] for name, field in STREAMS.items())


class OutputStream:
    """How far a stream is sent on this connection, and durable on the server."""

    def __init__(self):
        self.sent = 0
        self.durable = 0


class Outbox:
    """Numbered reports: kept until they are acknowledged, sent again on a new connection under the same numbers."""

    def __init__(self):
        self.kept = collections.deque()
        self.last = 0
        self.sent = 0

    def add(self, kind, entry, at=None):
        """`at` is when it happened: the age in the report is computed each time it is sent."""
        self.last += 1
        self.kept.append((self.last, kind, entry, at))

    def has_released(self, token):
        """The attempt was given back, and the server may not know that yet."""
        return any(kind == "Released" and entry["token"] == token for _, kind, entry, _ in self.kept)

    def begin_again(self, last_report):
        """A new connection has heard nothing. What the server has is not sent again."""
        acknowledged = []
        if last_report > self.last:
            # This machine was set back: under these numbers it once said something else.
            renumbered = [(kind, entry, at) for _, kind, entry, at in self.kept]
            self.kept.clear()
            self.last = last_report
            for kind, entry, at in renumbered:
                self.add(kind, entry, at)
        else:
            acknowledged = self.acknowledge(last_report)
        self.sent = 0
        return acknowledged

    def acknowledge(self, number):
        acknowledged = []
        while self.kept and self.kept[0][0] <= number:
            _, kind, entry, _ = self.kept.popleft()
            acknowledged.append((kind, entry))
        return acknowledged

    def frames(self):
        """What this connection has not heard yet: lists of one kind with consecutive numbers."""
        unsent = [report for report in self.kept if report[0] > self.sent]
        while unsent:
            first, kind = unsent[0][0], unsent[0][1]
            entries, size = [], 0
            while unsent and unsent[0][1] == kind and size < codec.FRAME_BYTES_AIM and len(entries) < 1000:
                number, _, entry, at = unsent.pop(0)
                entries.append(aged(kind, entry, at))
                size += 100 + sum(len(text.encode()) for text in entry.values() if isinstance(text, str))
                self.sent = number
            yield kind, {"first": first, "list": entries}


def aged(kind, entry, at):
    if at is None:
        return entry
    field = "ago" if kind == "Running" else "ended_ago"
    return dict(entry, **{field: max(0, min(uptime() - at, codec.DURATION_MAX))})


class Worker:
    def __init__(self, server, name, state_dir, slots=4, backlog=4, token=None, log=print):
        self.address = connect_address(server)
        self.name = name
        self.state = State(state_dir)
        self.slots = slots
        self.backlog = backlog
        self.bearer = token
        self.log = log
        # Never kept: a copy of the state directory is told by it.
        self.process = secrets.randbits(64)
        self.attempts = {}
        self.definitions = {}
        self.outbox = Outbox()
        self.arrivals = 0
        self.socket = None
        self.outgoing = None
        self.reconnect_s = None
        self.is_reconciled = False
        self.reconciled_count = 0
        self.is_draining = False
        self.intervals = {"heartbeat": 5 * SECOND, "lease": 30 * SECOND, "start_gate": 3 * SECOND}
        self.lease_from = None
        self.beat = 0
        self.beats_sent = {}
        self.window_used = 0
        self.chunks_on_the_way = []
        self.failures = 0
        self.restore()

    # What earlier processes have left: before the first Hello.

    def restore(self):
        for record in self.state.records():
            self.arrivals += 1
            attempt = Attempt({"token": record.facts["token"], "waited": 0}, self.arrivals)
            attempt.record = record
            self.attempts[attempt.key] = attempt
            if "end" not in record.facts:
                record.kill_leftover()
                facts = {"outcome": "Lost", "exit_code": None, "message": "its worker was restarted"}
                record.save(end=dict(facts, ran=None), lengths=lengths_of(record), ended_at=time.time_ns())
            self.report_end(attempt)

    # The connection.

    async def run(self):
        ticking = asyncio.ensure_future(self.tick())
        serving = asyncio.ensure_future(self.serve())
        try:
            await asyncio.wait([ticking, serving], return_when=asyncio.FIRST_COMPLETED)
            if ticking.done():
                # Without it there are no time limits, so this worker must not take jobs.
                raise RuntimeError("the watch over the attempts has ended") from ticking.exception()
            serving.result()
        finally:
            ticking.cancel()
            serving.cancel()

    async def serve(self):
        while True:
            pause = await self.session()
            if self.is_draining and not self.attempts and not self.outbox.kept:
                return
            await asyncio.sleep(self.backoff() if pause is None else pause)

    def backoff(self):
        ceiling = min(BACKOFF_MIN_S * 2 ** min(self.failures, 16), BACKOFF_MAX_S)
        self.failures += 1
        return random.uniform(0, ceiling)

    def authorization(self):
        """A worker that has joined shows its own secret, and beside it the token for a server that does not know it any more."""
        identity = self.state.identity
        if identity["worker"] is None:
            return f"Bearer {self.bearer}" if self.bearer else None
        fields = {"id": str(identity["worker"]), "secret": base64url(bytes.fromhex(identity["secret"]))}
        if self.bearer:
            fields["token"] = base64url(self.bearer.encode())
        return "Longshore-Worker " + ", ".join(f'{name}="{value}"' for name, value in fields.items())

    async def session(self):
        """One connection, from the upgrade until it is lost. How long to wait then; None if nobody has said that."""
        authorization = self.authorization()
        headers = {"Authorization": authorization} if authorization else {}
        options = {
            "subprotocols": [SUBPROTOCOL],
            "compression": None,
            "max_size": codec.FRAME_BYTES_MAX,
            "ping_interval": self.intervals["lease"] / 6 / SECOND,
            "ping_timeout": self.intervals["lease"] / 3 / SECOND,
            "open_timeout": 10,
            "additional_headers": headers,
        }
        self.reconnect_s = None
        try:
            async with connect(self.address, **options) as socket:
                if socket.subprotocol != SUBPROTOCOL:
                    self.log(f"{self.address} does not speak {SUBPROTOCOL}")
                    return None
                await self.talk(socket)
        except InvalidStatus as answer:
            self.log(f"{self.address} answered {answer.response.status_code}")
            wait = answer.response.headers.get("Retry-After", "")
            return float(wait) + self.backoff() if wait.isdigit() else None
        except ConnectionClosed as closed:
            self.log(f"the connection was closed: {closed}")
        except codec.BadFrame as bad:
            self.log(f"the server sent what cannot be: {bad}")
        except (OSError, InvalidHandshake, asyncio.TimeoutError) as error:
            self.log(f"cannot connect: {error}")
        return self.reconnect_s

    async def talk(self, socket):
        self.socket = socket
        self.outgoing = asyncio.Queue()
        writing = asyncio.ensure_future(self.write(socket))
        try:
            hello_sent = uptime()
            await socket.send(codec.encode_report("Hello", self.hello()))
            first = codec.decode_order(await asyncio.wait_for(socket.recv(), 10))
            if first and first[0] == "Refused":
                return self.refused(first[1])
            if not first or first[0] != "Welcome":
                return await socket.close(codec.MALFORMED, "malformed: Welcome or Refused comes first")
            self.welcome(first[1], hello_sent)
            beating = asyncio.ensure_future(self.heartbeats())
            try:
                while self.reconnect_s is None:
                    await self.next_order(socket)
            finally:
                beating.cancel()
        finally:
            writing.cancel()
            self.socket = self.outgoing = None
            self.is_reconciled = False
            self.beats_sent.clear()

    async def next_order(self, socket):
        message = await socket.recv()
        if isinstance(message, str):
            await socket.close(1003, "text_frame")
            return
        try:
            order = codec.decode_order(message)
        except codec.BadFrame as bad:
            await socket.close(bad.code, f"{'too_large' if bad.code == 1009 else 'malformed'}: {bad}"[:120])
            raise
        if order:
            name, value = order
            getattr(self, "on_" + name, self.ignore)(value)
            self.go_on()

    async def write(self, socket):
        while True:
            await socket.send(await self.outgoing.get())

    def say(self, name, value):
        """Says a fact of the moment. Without a connection it is lost."""
        if self.outgoing is not None:
            self.outgoing.put_nowait(codec.encode_report(name, value))

    def say_numbered(self):
        if self.outgoing is not None:
            for kind, numbered in self.outbox.frames():
                self.say(kind, numbered)

    def hello(self):
        identity = self.state.identity
        return {
            "format": codec.WIRE_FORMAT,
            "versions": {"lowest": codec.VERSION, "highest": codec.VERSION},
            "name": self.name,
            "secret": bytes.fromhex(identity["secret"]),
            "cluster": identity["cluster"],
            "rejoin": False,
            "incarnation": identity["incarnation"],
            "process": self.process,
            "engine": None,
            "version": "python-0.1",
            "slots": self.slots,
            "backlog": self.backlog,
            "labels": [],
            "runtimes": [["Process", "Available"]],
            "resources": {"cpus_milli": None, "memory_bytes": None, "gpus": [], "custom": []},
        }

    def welcome(self, welcome, hello_sent):
        # Durable before anything is started: by these a later process is known.
        self.state.joined(welcome["cluster"], welcome["worker"])
        self.intervals = welcome["intervals"]
        self.lease_from = hello_sent
        self.acknowledged(self.outbox.begin_again(welcome["last_report"]))
        self.window_used = 0
        self.chunks_on_the_way.clear()
        for attempt in self.attempts.values():
            for stream in attempt.output.values():
                stream.sent = stream.durable
            if attempt.stage == "ended" and attempt.final_is_durable:
                # Only its output is still wanted; a server whose store went back may have lost how it ended.
                attempt.final_is_durable = False
                self.outbox.add(*attempt.final)
            elif attempt.stage == "running" and welcome["last_report"] == 0:
                self.report_running(attempt)
        self.say_numbered()
        self.say_inventory()
        wanted = {it.assignment["revision"] for it in self.attempts.values() if it.stage == "backlog"}
        wanted = sorted(wanted - set(self.definitions))
        if wanted:
            self.say("Wanted", wanted)

    def say_inventory(self):
        known = [[attempt.token, attempt.phase()] for attempt in self.attempts.values()]
        parts = [known[at : at + codec.ENTRIES_MAX] for at in range(0, len(known), codec.ENTRIES_MAX)] or [[]]
        for number, part in enumerate(parts, 1):
            inventory = {"runtimes": [["Process", "Available"]], "attempts": part, "foreign": []}
            self.say("Inventory", dict(inventory, last=number == len(parts)))

    async def heartbeats(self):
        while True:
            await asyncio.sleep(self.intervals["heartbeat"] / SECOND * random.uniform(0.8, 1.2))
            self.beat += 1
            self.beats_sent[self.beat] = uptime()
            queued = sum(attempt.stage == "backlog" for attempt in self.attempts.values())
            load = int(os.getloadavg()[0] * 1000)
            free = shutil.disk_usage(self.state.directory).free
            beat = {"number": self.beat, "busy": self.busy(), "queued": queued}
            self.say("Heartbeat", dict(beat, load_milli=load, disk_free_bytes=free))

    # Orders.

    def ignore(self, _value):
        """A second Welcome, or a Refused in the middle of a session, is followed by a close."""

    def refused(self, refused):
        self.log(f"refused ({refused['code']}): {refused['text']}")
        wait = max(0.2, refused["retry_after"] / SECOND)
        self.reconnect_s = wait + random.uniform(0, wait / 5)

    on_Refused = refused

    def on_GoAway(self, away):
        wait = away["reconnect_after"] / SECOND
        self.reconnect_s = wait + random.uniform(0, wait)

    def on_Pulse(self, number):
        sent = self.beats_sent.pop(number, None)
        if sent is not None:
            self.lease_from = max(self.lease_from, sent)
            self.beats_sent = {beat: at for beat, at in self.beats_sent.items() if beat > number}

    def on_Configure(self, configure):
        if configure["slots"] is not None:
            self.slots = configure["slots"]
        if configure["intervals"] is not None:
            self.intervals = configure["intervals"]
        self.is_draining = configure["drain"]
        runtimes = [["Process", "Available"]]
        self.say("Condition", {"runtimes": runtimes, "slots": self.slots, "draining": self.is_draining})
        if self.is_draining:
            for attempt in list(self.attempts.values()):
                if attempt.is_unstarted:
                    self.release(attempt.token, "Draining")

    def on_Acknowledge(self, number):
        self.acknowledged(self.outbox.acknowledge(number))

    def acknowledged(self, reports):
        for kind, entry in reports:
            attempt = self.attempts.get(key_of(entry["token"] if "token" in entry else entry))
            if attempt is None:
                continue
            if kind == "Starting" and attempt.stage == "asking":
                attempt.stage = "granted"
            elif kind in ("Success", "Failure"):
                attempt.final_is_durable = True
                attempt.durable_since = attempt.durable_since or uptime()
                self.forget_if_done(attempt)

    def on_Definitions(self, definitions):
        for definition in definitions:
            self.definitions[definition["revision"]] = definition["container"]

    def on_Enqueue(self, assignments):
        wanted = []
        for assignment in assignments:
            known = self.attempts.get(key_of(assignment["token"]))
            if known is not None:
                self.say("Status", [[known.token, known.phase()]])
            elif self.outbox.has_released(assignment["token"]):
                # It was sent again before the server had the answer.
                continue
            elif self.is_draining:
                self.release(assignment["token"], "Draining")
            elif self.load() >= self.slots + self.backlog:
                self.release(assignment["token"], "Full")
            else:
                self.arrivals += 1
                attempt = Attempt(assignment, self.arrivals)
                self.attempts[attempt.key] = attempt
                if assignment["revision"] not in self.definitions:
                    wanted.append(assignment["revision"])
        if wanted:
            self.say("Wanted", sorted(set(wanted)))

    def on_Reconciled(self, reconciled):
        for token, verdict in reconciled["attempts"]:
            attempt = self.attempts.get(key_of(token))
            if attempt is None or verdict == "Keep":
                continue
            if verdict == "Forget" and attempt.stage == "ended":
                self.give_up_output(attempt)
            else:
                self.stop(attempt, "Superseded", None)
        if reconciled["last"]:
            self.is_reconciled = True
            self.reconciled_count += 1
            self.failures = 0

    def on_Cancel(self, cancel):
        attempt = self.attempts.get(key_of(cancel["token"]))
        if attempt is None:
            self.say("Status", [[cancel["token"], "Unknown"]])
        elif attempt.stage == "ended" or attempt.is_stopping:
            self.say("Status", [[attempt.token, attempt.phase()]])
        else:
            self.stop(attempt, cancel["cause"], cancel["grace"])

    def on_Recall(self, tokens):
        for token in tokens:
            attempt = self.attempts.get(key_of(token))
            if attempt is not None and attempt.stage == "backlog":
                self.release(token, "Recalled")
            else:
                self.say("Status", [[token, attempt.phase() if attempt else "Unknown"]])

    def on_OutputAcknowledge(self, marks):
        for mark in marks:
            key = key_of(mark["token"])
            still = []
            for chunk in self.chunks_on_the_way:
                of, stream, end, weight = chunk
                if of == key and stream == mark["stream"] and end <= mark["offset"]:
                    self.window_used -= weight
                else:
                    still.append(chunk)
            self.chunks_on_the_way = still
            attempt = self.attempts.get(key)
            if attempt is not None:
                stream = attempt.output[mark["stream"]]
                stream.durable = max(stream.durable, mark["offset"])
                self.forget_if_done(attempt)

    # Attempts.

    def busy(self):
        busy = ("asking", "granted", "running")
        return sum(attempt.stage in busy for attempt in self.attempts.values())

    def load(self):
        return sum(attempt.stage != "ended" for attempt in self.attempts.values())

    def gate_is_open(self):
        """Whether a process may be created now: reconciled, and the lease has more than the start gate left."""
        if not self.is_reconciled or self.lease_from is None:
            return False
        return uptime() < self.lease_from + self.intervals["lease"] - self.intervals["start_gate"]

    def go_on(self):
        """Does whatever can be done now. It runs after each order and at each tick."""
        if self.gate_is_open():
            for attempt in [it for it in self.attempts.values() if it.stage == "granted"]:
                self.start(attempt)
            self.start_from_backlog()
        self.say_numbered()
        self.send_output()

    def start_from_backlog(self):
        ready = [it for it in self.attempts.values() if it.stage == "backlog"]
        ready = [it for it in ready if it.assignment["revision"] in self.definitions]
        ready.sort(key=lambda it: (-it.assignment["priority"], it.due, it.arrival))
        for attempt in ready:
            spec = self.definitions[attempt.assignment["revision"]]
            if spec["runtime"] != "Process":
                self.release(attempt.token, "Policy", "this worker runs plain processes only")
            elif attempt.assignment["secrets"] is not None:
                cause, why = self.without_secrets(attempt.assignment["secrets"])
                self.release(attempt.token, cause, why)
            elif self.busy() < self.slots:
                if spec["ask_before_start"]:
                    attempt.stage = "asking"
                    self.outbox.add("Starting", attempt.token)
                else:
                    self.start(attempt)

    def start(self, attempt):
        spec = self.definitions[attempt.assignment["revision"]]
        try:
            # Durable before the process exists.
            attempt.record = self.state.begin(attempt.token, spec["log_bytes_max"])
        except OSError as error:
            return self.release(attempt.token, "RuntimeUnavailable", f"it cannot be written down: {error}")
        attempt.stage = "running"
        attempt.started = uptime()
        asyncio.ensure_future(self.run_process(attempt, spec))

    async def run_process(self, attempt, spec):
        record, token, overrides = attempt.record, attempt.token, attempt.assignment["overrides"]
        words = (spec["entrypoint"] or []) + spec["command"] + (overrides["args"] if overrides else [])
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        environment.update(dict(spec["environment"]))
        environment.update(dict(overrides["environment"] if overrides else []))
        own_input = overrides["input"] if overrides else None
        end = None
        try:
            environment.update(record.exchange(spec["input"] if own_input is None else own_input))
            environment.update(LONGSHORE_JOB=str(token["job"]), LONGSHORE_ATTEMPT=str(token["fence"]))
            with open(record.stream("stdout"), "wb") as out, open(record.stream("stderr"), "wb") as err:
                attempt.process = await asyncio.create_subprocess_exec(
                    *(words or [""]),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    cwd=spec["working_dir"],
                    start_new_session=True,
                )
        except (FileNotFoundError, PermissionError, ValueError) as error:
            code = 126 if isinstance(error, PermissionError) else 127
            end = {"outcome": "StartFailed", "exit_code": code, "message": str(error), "ran": None}
        except OSError as error:
            end = {"outcome": "HostFailed", "exit_code": None, "message": str(error), "ran": None}
        if attempt.process is not None:
            end = await self.follow_process(attempt, spec)
        ended_at = time.time_ns()
        # Durable before it is reported, and reported once the disk has room again.
        while not self.keep(record, end=end, lengths=lengths_of(record), ended_at=ended_at):
            await asyncio.sleep(TRY_AGAIN_S)
        self.report_end(attempt)
        self.go_on()

    async def follow_process(self, attempt, spec):
        """How a process that was started has ended."""
        record, pid, from_start = attempt.record, attempt.process.pid, uptime()
        attempt.started = from_start
        if not self.keep(record, pid=pid, start=process_start(pid)):
            # The next start of the worker could not find it.
            self.signal(attempt, signal.SIGKILL)
            await attempt.process.wait()
            return {"outcome": "HostFailed", "exit_code": None, "message": "it cannot be written down", "ran": None}
        self.report_running(attempt)
        self.say_numbered()
        if attempt.stop_cause is not None:
            # It was told to stop before there was anything to stop.
            self.signal(attempt, stop_signal(spec["stop_signal"]))
        code = await attempt.process.wait()
        end = classify(attempt, code, uptime() - from_start)
        if end["outcome"] == "Succeeded":
            end["result"], end["note"] = record.result()
        return end

    def keep(self, record, **facts):
        """Writes facts of an attempt down. False if the disk does not take them."""
        try:
            record.save(**facts)
            return True
        except OSError as error:
            self.log(f"cannot write down an attempt: {error}")
            return False

    def report_running(self, attempt):
        container = f"pid {attempt.process.pid}" if attempt.process else ""
        entry = {"token": attempt.token, "container": container, "ago": 0}
        self.outbox.add("Running", entry, attempt.started)

    def report_end(self, attempt):
        facts = attempt.record.facts
        # Records of earlier versions do not say when it was.
        ago = max(0, time.time_ns() - facts["ended_at"]) if "ended_at" in facts else 0
        self.finish(attempt, dict(facts["end"]), facts["lengths"], uptime() - ago)

    def finish(self, attempt, end, lengths, at):
        attempt.stage = "ended"
        attempt.lengths = lengths
        entry = {"token": attempt.token, "ended_ago": 0, "ran": end["ran"], **lengths}
        # This worker measures nothing.
        entry["usage"] = codec.UNKNOWN_USAGE
        if end["outcome"] == "Succeeded":
            attempt.final = ("Success", dict(entry, result=end.get("result"), note=end.get("note")), at)
        else:
            facts = {name: end[name] for name in ("outcome", "exit_code", "message")}
            attempt.final = ("Failure", dict(entry, **facts), at)
        self.outbox.add(*attempt.final)

    @staticmethod
    def without_secrets(secrets):
        """Secrets need a tmpfs and masked output, which this example does not have."""
        if "Withheld" in secrets:
            return "Secrets", secrets["Withheld"]
        return "Policy", "this worker keeps no secrets"

    def release(self, token, cause, why=""):
        self.attempts.pop(key_of(token), None)
        self.outbox.add("Released", {"token": token, "cause": cause, "why": why})

    def stop(self, attempt, cause, grace):
        """Stops an attempt. The first cause decides how its end is classed."""
        if attempt.is_unstarted and cause == "Superseded":
            self.release(attempt.token, "Recalled", "not started, and not wanted any more")
        elif attempt.is_unstarted:
            end = {"outcome": STOPPED[cause], "exit_code": None, "message": "not started", "ran": None}
            self.finish(attempt, end, {"stdout": 0, "stderr": 0}, uptime())
        elif attempt.stage == "running" and attempt.stop_cause is None:
            if attempt.process is not None and attempt.process.returncode is not None:
                return
            spec = self.definitions[attempt.assignment["revision"]]
            attempt.stop_cause = cause
            # Durable before the process hears of it, unless the disk is full: the stop has to go on.
            self.keep(attempt.record, stop=cause)
            attempt.kill_at = uptime() + (spec["stop_grace"] if grace is None else grace)
            self.say("Progress", [[attempt.token, "Stopping"]])
            self.signal(attempt, stop_signal(spec["stop_signal"]))

    def signal(self, attempt, number):
        if attempt.process is not None and attempt.process.returncode is None:
            try:
                os.killpg(attempt.process.pid, number)
            except ProcessLookupError:
                pass

    async def tick(self):
        while True:
            await asyncio.sleep(TICK_S)
            now = uptime()
            for attempt in list(self.attempts.values()):
                self.guard(attempt, "watch", self.watch, attempt, now)
            self.go_on()
            if self.is_draining and not self.attempts and not self.outbox.kept and self.socket:
                self.reconnect_s = 0
                await self.socket.close(1000, "leaving")

    def guard(self, attempt, action, act, *args):
        """Does a part of the work for one attempt. An error of the system, such as a lack of file descriptors, ends neither the tick nor
        the work for other attempts. It is logged when it changes, and the next tick tries again."""
        try:
            act(*args)
            attempt.problems.pop(action, None)
        except OSError as error:
            if attempt.problems.get(action) != str(error):
                self.log(f"cannot {action} job {attempt.token['job']}, trying again: {error}")
            attempt.problems[action] = str(error)

    def watch(self, attempt, now):
        """Time limits, which are the worker's business also without a server."""
        if attempt.is_stopping and now >= attempt.kill_at:
            self.signal(attempt, signal.SIGKILL)
        elif attempt.stage == "running" and attempt.stop_cause is None:
            spec = self.definitions[attempt.assignment["revision"]]
            time_left = attempt.assignment["time_left"]
            if time_left is not None and now >= attempt.started + time_left:
                self.stop(attempt, "Timeout", None)
            elif spec["self_fence"] is not None:
                # A fifteenth of the lease is for the kill after the grace.
                fence = self.lease_from + spec["self_fence"] - spec["stop_grace"] - self.intervals["lease"] // 15
                if now >= fence:
                    self.stop(attempt, "SelfFence", None)
        elif attempt.final_is_durable and now > attempt.durable_since + GIVE_UP_OUTPUT_S * SECOND:
            # Before its end was acknowledged there may have been no connection on which output could be sent.
            self.give_up_output(attempt)

    # Output.

    def send_output(self):
        if not self.is_reconciled:
            return
        for attempt in self.attempts.values():
            if attempt.record is not None:
                self.guard(attempt, "send the output of", self.send_output_of, attempt)

    def send_output_of(self, attempt):
        for stream in STREAMS:
            while self.send_chunk(attempt, stream):
                pass

    def send_chunk(self, attempt, stream):
        """Sends the next piece of a stream. False if there is none, or no room for it."""
        record, at = attempt.record, attempt.output[stream]
        has_ended = attempt.stage == "ended"
        end = attempt.lengths[STREAMS[stream]] if has_ended else record.length(STREAMS[stream])
        room = codec.OUTPUT_WINDOW - self.window_used - codec.CHUNK_WEIGHT
        left = record.facts["log_bytes_max"] - sum(each.sent for each in attempt.output.values())
        size = min(end - at.sent, room, codec.OUTPUT_BYTES_MAX, left)
        if size > 0:
            with open(record.stream(STREAMS[stream]), "rb") as file:
                file.seek(at.sent)
                data = {"Bytes": file.read(size)}
        elif left <= 0 and has_ended and end > at.sent and room >= 0:
            # What is above the limit is given up.
            data = {"Gap": end - at.sent}
        else:
            return False
        chunk = {"token": attempt.token, "stream": stream, "offset": at.sent, "data": data}
        weight = codec.chunk_bytes(data) + codec.CHUNK_WEIGHT
        at.sent += codec.chunk_length(data)
        self.window_used += weight
        self.chunks_on_the_way.append((attempt.key, stream, at.sent, weight))
        self.say("Output", [chunk])
        return True

    def give_up_output(self, attempt):
        for stream, field in STREAMS.items():
            attempt.output[stream].durable = max(attempt.output[stream].durable, attempt.lengths[field])
        self.forget_if_done(attempt)

    def forget_if_done(self, attempt):
        """An attempt is forgotten when its end is durable on the server, and its output is or was given up."""
        if attempt.stage == "ended" and attempt.final_is_durable and attempt.output_is_done():
            if attempt.record is not None:
                attempt.record.remove()
            del self.attempts[attempt.key]


def classify(attempt, code, ran):
    if attempt.stop_cause is not None:
        outcome, message = STOPPED[attempt.stop_cause], f"stopped: {attempt.stop_cause.lower()}"
    else:
        outcome, message = ("Succeeded", "") if code == 0 else ("Failed", "")
    # A process that was ended by a signal has a negative code here, and 128 more than the signal for the server.
    exit_code = 128 - code if code < 0 else code
    return {"outcome": outcome, "exit_code": exit_code, "message": message, "ran": ran}


def stop_signal(name):
    if name is None:
        return signal.SIGTERM
    if name.isdigit():
        return int(name)
    name = name.upper()
    return getattr(signal, name if name.startswith("SIG") else "SIG" + name, signal.SIGTERM)


def lengths_of(record):
    return {field: record.length(field) for field in STREAMS.values()}


def connect_address(server):
    server = server.rstrip("/")
    for scheme, socket in (("http://", "ws://"), ("https://", "wss://")):
        if server.startswith(scheme):
            return socket + server[len(scheme) :] + "/api/workers/connect"
    return f"ws://{server}/api/workers/connect"


def main():
    parser = argparse.ArgumentParser(description="A Longshore worker for plain processes")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="the server's address")
    parser.add_argument("--name", default="python", help="what people call this worker")
    parser.add_argument("--state-dir", default="python-worker", help="where its identity and attempts are kept")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1, help="how many jobs run at once")
    parser.add_argument("--token-file", help="a file with the token for workers")
    flags = parser.parse_args()
    token = None
    if flags.token_file:
        with open(flags.token_file) as file:
            token = file.read().strip()
    worker = Worker(flags.server, flags.name, flags.state_dir, flags.slots, flags.slots, token)
    try:
        asyncio.run(worker.run())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
