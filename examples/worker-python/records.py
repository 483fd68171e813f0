"""What a worker keeps on disk: who it is, and the attempts that it has begun.

Each attempt that was begun has a directory `attempts/<job>-<fence>-<nonce>` with its output in `stdout` and `stderr` and with
`record.json`: whose process it is, why it is being stopped, how it ended. A record is written and synced before what it tells is done or
reported, so that the next process of the worker finds it.
"""

import fcntl
import json
import os
import secrets
import shutil
import signal
import stat

from codec import RESULT_BYTES_MAX, RESULT_DEPTH_MAX


class State:
    """A worker's state directory. It is locked for as long as the process lives."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(self.attempts, mode=0o700, exist_ok=True)
        self.lock = open(os.path.join(directory, "lock"), "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"{directory} is in use by another worker") from None
        self.identity = {"secret": secrets.token_hex(32), "incarnation": 0, "cluster": None, "worker": None}
        path = os.path.join(directory, "identity.json")
        if os.path.exists(path):
            with open(path) as file:
                self.identity = json.load(file)
        self.identity["incarnation"] += 1
        self.save_identity()

    @property
    def attempts(self):
        return os.path.join(self.directory, "attempts")

    def joined(self, cluster, worker):
        """The server has let us in: what it calls us has to outlive this process."""
        if (self.identity["cluster"], self.identity["worker"]) != (cluster, worker):
            self.identity.update(cluster=cluster, worker=worker)
            self.save_identity()

    def save_identity(self):
        write_synced(os.path.join(self.directory, "identity.json"), self.identity)

    def records(self):
        """Everything that earlier processes have left."""
        for name in sorted(os.listdir(self.attempts)):
            path = os.path.join(self.attempts, name)
            try:
                with open(os.path.join(path, "record.json")) as file:
                    yield Record(path, json.load(file))
            except FileNotFoundError:
                # The worker died before it had written the record, so nothing was started.
                shutil.rmtree(path)
            except NotADirectoryError:
                # A file that somebody has put here.
                continue

    def begin(self, token, log_bytes_max):
        """Writes down that an attempt is about to be started."""
        name = f"{token['job']}-{token['fence']}-{token['nonce']:016x}"
        path = os.path.join(self.attempts, name)
        record = Record(path, {"token": token, "log_bytes_max": log_bytes_max})
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            record.save()
            sync_directory(self.attempts)
        except OSError:
            # It is not started, so the next start must not find it.
            shutil.rmtree(path, ignore_errors=True)
            raise
        return record


class Record:
    """One attempt on disk."""

    def __init__(self, path, facts):
        self.path = path
        self.facts = facts

    def save(self, **facts):
        self.facts.update(facts)
        write_synced(os.path.join(self.path, "record.json"), self.facts)

    def stream(self, name):
        return os.path.join(self.path, name)

    def length(self, name):
        try:
            return os.path.getsize(self.stream(name))
        except FileNotFoundError:
            return 0

    def exchange(self, given):
        """Writes the input of the job, if it has one. Returns the variables that name the files for input and result."""
        variables = {"LONGSHORE_RESULT": os.path.abspath(self.stream("result.json"))}
        if given is not None:
            variables["LONGSHORE_INPUT"] = os.path.abspath(self.stream("input.json"))
            with open(variables["LONGSHORE_INPUT"], "w", encoding="utf-8") as file:
                file.write(given)
        return variables

    def result(self):
        """The result that the program has left, and a note if it had to be left out."""
        try:
            # The program may have put a link or a pipe in its place.
            path = self.stream("result.json")
            with open(path, "rb", opener=open_plain) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None, "its result was left out: it is no plain file"
                content = file.read(RESULT_BYTES_MAX + 1)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            return None, f"its result was left out: it cannot be read: {error.strerror}"
        if not content.strip():
            return None, None
        if len(content) > RESULT_BYTES_MAX:
            return None, f"its result was left out: it is larger than {RESULT_BYTES_MAX} bytes"
        try:
            text = content.decode().strip()
            fits = depth(json.loads(text, parse_constant=refuse_constant)) <= RESULT_DEPTH_MAX
        except (ValueError, RecursionError):
            fits = False
        return (text, None) if fits else (None, "its result was left out: it is not JSON")

    def remove(self):
        shutil.rmtree(self.path)

    def kill_leftover(self):
        """Ends the process that an earlier worker process has left, if it is still the same one."""
        pid, start = self.facts.get("pid"), self.facts.get("start")
        if pid and start and process_start(pid) == start:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                # It has just ended by itself.
                pass


def open_plain(path, flags):
    """An opener that follows no link and waits for no writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def open_private(path, flags):
    """An opener for a file that only its owner can read, from the first byte on."""
    opened = os.open(path, flags, 0o600)
    os.fchmod(opened, 0o600)
    return opened


def refuse_constant(name):
    """Python reads NaN and Infinity, which JSON does not have."""
    raise ValueError(name)


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def process_start(pid):
    """What tells a process from a later one with its id: the boot, and when in it the process began."""
    try:
        # The name in it may be cut within a character.
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {ticks}"
    except (OSError, IndexError):
        return None


def write_synced(path, value):
    """Replaces a file so that it is either as before or complete, also after a loss of power."""
    draft = path + ".new"
    with open(draft, "w", opener=open_private) as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_directory(os.path.dirname(path))


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
