"""HTTP, a connection for each request: address, token, TLS, retries, and streams that survive broken connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from http.client import HTTPMessage
from typing import IO, Any, Generator, Iterator, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlencode, urlsplit

from ._errors import ApiError, ConnectionFailed, LongshoreError, class_of

_LOG = logging.getLogger("longshore")


@dataclass(frozen=True)
class Request:
    """A request that may be sent several times, each time with the same body."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Union[bytes, IO[bytes], None] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    poll_s: Optional[float] = None  # The server waits so long for an end, and not longer than the caller.

    def within(self, left_s: float) -> Tuple[Request, float]:
        """The request for a caller who has this time left, and how long the server waits."""
        if self.poll_s is None:
            return self, 0
        wait_s = min(self.poll_s, left_s)
        return replace(self, query={**self.query, "wait": f"{wait_s * 1000:.0f}ms"}), wait_s


class Opened(NamedTuple):
    """An answer whose body can be read, and the connection that it comes over."""

    response: http.client.HTTPResponse
    socket: socket.socket


class DeadlinePassed(LongshoreError):
    """The time of the caller is up. The calls of this package turn it into an error that says of what."""


class Retries:
    """Pauses between tries, until the time is up: `limit_s` after the first failure, or the deadline."""

    def __init__(self, limit_s: float, deadline: float = float("inf")) -> None:
        self._limit_s, self._deadline = limit_s, deadline
        self.reset()

    def reset(self) -> None:
        self._until, self._pause_s = float("inf"), _PAUSE_MIN_S

    def pause(self, error: LongshoreError) -> None:
        """Sleeps before the next try. Raises the error if another try is useless, or would come after the limit.

        Raises `DeadlinePassed` at the deadline, if the next try would come after it."""
        now = time.monotonic()
        self._until = min(self._until, now + self._limit_s)
        left_s, callers_s = self._until - now, max(self._deadline - now, 0)
        pause_s = min(self._pause_s * random.uniform(0.5, 1), left_s, callers_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
        may_retry = isinstance(error, ConnectionFailed)
        if isinstance(error, ApiError) and error.status == 503 and error.retry_after is not None:
            may_retry, pause_s = True, max(pause_s, error.retry_after)
        may_retry = may_retry and not isinstance(error.__cause__, ssl.SSLCertVerificationError)
        if not may_retry or left_s <= 0 or pause_s > left_s:
            raise error
        if callers_s == 0 or pause_s > callers_s:
            time.sleep(callers_s)  # The caller asked for this time, and others may count on it.
            raise DeadlinePassed("the time is up") from error
        _LOG.info("%s; next try in %.2f s", error, pause_s)
        time.sleep(pause_s)


class Http:
    """One server: its address, and the way to it."""

    def __init__(self, server: str, token: Optional[str], ca_file: Optional[str], timeout_s: float, retry_s: float) -> None:
        is_tls, self._host, self._port, self._base = _parse_address(server)
        self._tls = ssl.create_default_context(cafile=ca_file) if is_tls else None
        self._shown = f"{self._host} port {self._port}"
        self._token, self._timeout_s, self._retry_s = token, timeout_s, retry_s

    def call(self, request: Request, wait_s: float = 0, until: float = float("inf")) -> Tuple[HTTPMessage, bytes]:
        """Sends a request, which must do no harm twice, until it is answered; returns headers and body.

        The server may take `wait_s` longer than for others. The tries together have until a time of the monotonic clock; then
        this raises `DeadlinePassed`, or the error of the last one."""
        retries = Retries(self._retry_s, until)
        while True:
            asked_at = time.monotonic()
            left_s = max(until - asked_at, 0)
            this_try, polled_s = request.within(left_s)
            read_s = min(self._timeout_s + wait_s + polled_s, left_s + _GRACE_S)
            try:
                with self.open(this_try, read_s) as opened, self.connection_errors(was_sent=True):
                    return opened.response.headers, opened.response.read()
            except LongshoreError as error:
                # A server that let us wait for so long was not away; one that stays silent until the timeout is.
                was_cut = isinstance(error, ConnectionFailed) and error.was_sent and not isinstance(error.__cause__, socket.timeout)
                if request.method == "GET" and was_cut and time.monotonic() - asked_at >= _STABLE_AFTER_S:
                    retries.reset()
                retries.pause(error)

    def json(self, request: Request, wait_s: float = 0, until: float = float("inf")) -> Any:
        return parse_json(self.call(request, wait_s, until)[1])

    def events(
        self, path: str, query: Mapping[str, str], last_id: Optional[str], follows: bool, until: float = float("inf")
    ) -> Generator[Mapping[str, str], None, None]:
        """Server-sent events, over connections that may break. An empty one says that a connection is made.

        Raises `DeadlinePassed` at the time `until` of the monotonic clock."""
        retries = Retries(self._retry_s, until)
        while True:
            headers = {"Accept": "text/event-stream", **({} if last_id is None else {"Last-Event-ID": last_id})}
            connected_at = float("inf")
            try:
                with self.open(Request("GET", path, query, headers=headers), _silence_max_s(until)) as opened:
                    connected_at = time.monotonic()
                    yield {}
                    for event in self._read_events(opened, until):
                        if event.get("id", last_id) != last_id:  # Each connection repeats the position: no progress.
                            last_id = event["id"]
                            retries.reset()
                        if event.get("event") in ("leaving", "error"):
                            raise ConnectionFailed(f"{self._shown} ended the stream: {event}")
                        yield event
                if not follows:
                    return
                raise ConnectionFailed(f"{self._shown} ended the stream early")
            except LongshoreError as error:
                if time.monotonic() >= until:
                    raise DeadlinePassed("the time is up") from error
                if time.monotonic() - connected_at >= _STABLE_AFTER_S:  # A silent stream is not a failed one.
                    retries.reset()
                retries.pause(error)

    def _read_events(self, opened: Opened, until: float) -> Iterator[Mapping[str, str]]:
        """The complete events of one connection. An incomplete one comes again on the next."""
        rest, event = b"", {}
        while len(rest) <= _LINE_BYTES_MAX:
            with self.connection_errors():
                opened.socket.settimeout(_silence_max_s(until))
                piece = opened.response.read1(1 << 16)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                key, _, value = line.decode("utf-8", "replace").partition(": ")
                event[key] = value
                if not line:
                    yield event
                    event = {}
        raise LongshoreError(f"{self._shown} sent an event that is too large")

    @contextlib.contextmanager
    def open(self, request: Request, read_s: float) -> Iterator[Opened]:
        """Sends a request once. Inside of the block the body can be read; the status is 2xx."""
        headers = {"User-Agent": "longshore-python", "Accept": "application/json", **request.headers}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0, os.SEEK_END)
            headers["Content-Length"] = str(request.body.tell())
            request.body.seek(0)
        target = self._base + request.path + ("?" + urlencode(request.query) if request.query else "")
        connect_s = min(self._timeout_s, read_s)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=connect_s)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=connect_s, context=self._tls)
        with contextlib.closing(connection):
            with self.connection_errors():
                with contextlib.suppress(BrokenPipeError):  # It may have answered before it read the whole body.
                    connection.request(request.method, target, request.body, headers)
                opened_socket = connection.sock
                opened_socket.settimeout(read_s)
            with self.connection_errors(was_sent=True):
                response = connection.getresponse()
            with contextlib.closing(response):
                if not 200 <= response.status < 300:
                    with self.connection_errors(was_sent=True):
                        raise _api_error(response)
                yield Opened(response, opened_socket)

    @contextlib.contextmanager
    def connection_errors(self, was_sent: bool = False) -> Iterator[None]:
        """Raises as `ConnectionFailed` what goes wrong with a connection inside of the block."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                why = "it is not HTTP; another service may listen there, or TLS is required (https://)"
            failed = ConnectionFailed(f"no answer from {self._shown}: {why}")
            failed.was_sent = was_sent
            raise failed from error


def parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise LongshoreError("the answer is not JSON: is this the address of a Longshore server?") from None


def _silence_max_s(until: float) -> float:
    """How long a stream of events may be silent: the server sends something every 15 seconds."""
    return max(min(_SILENCE_MAX_S, until - time.monotonic()), _GRACE_MIN_S)


def _api_error(response: http.client.HTTPResponse) -> ApiError:
    body, problem = response.read(_PROBLEM_BYTES_MAX), None
    if (response.headers.get("Content-Type") or "").startswith("application/problem+json"):
        with contextlib.suppress(ValueError):
            problem = json.loads(body)
    if not isinstance(problem, dict):
        problem = {"title": f"the server answered {response.status} {response.reason}"}
    kind = class_of(response.status, problem.get("code"))
    seconds = response.headers.get("Retry-After") or ""
    return kind(response.status, problem, float(seconds) if seconds.isdecimal() else None)


def _parse_address(text: str) -> Tuple[bool, str, int, str]:
    """TLS, host, port and base path of `host[:port][/path]` or a URL, read as the command line reads it."""
    scheme, _, rest = text.strip().rpartition("://")
    if "@" in rest:  # Checked first, because no message may show a password.
        raise ValueError("an address takes no user and no password: use token or token_file")
    ports = {"": 8080, "http": 80, "ws": 80, "https": 443, "wss": 443}
    parts = urlsplit("//" + rest)
    if scheme not in ports or not parts.hostname or any(not "!" <= char <= "~" or char in "?#" for char in rest):
        raise ValueError(f"{text!r} is not an address: write host:port, or a URL with http:// or https://")
    return scheme in ("https", "wss"), parts.hostname, parts.port or ports[scheme], parts.path.rstrip("/")


def check_token(token: Optional[str], token_file: Optional[str]) -> Optional[str]:
    """The token, else that of the file."""
    if token is None and token_file is not None:
        with open(token_file, encoding="utf-8") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise ValueError(f"token file {token_file}: readable by other users; run: chmod 600 {token_file}")
            token = file.read().strip()
    if token is not None and not (token and all("!" <= char <= "~" for char in token)):
        raise ValueError("the token must be one line of printable ASCII")
    return token


_PAUSE_MIN_S, _PAUSE_MAX_S, _STABLE_AFTER_S = 0.05, 2.0, 10.0
_GRACE_S = 2.0  # For the way of an answer at the end of a limit.
_GRACE_MIN_S = 0.001  # A timeout of 0 would mean a socket that does not block.
_SILENCE_MAX_S = 45.0
_PROBLEM_BYTES_MAX = 4 << 20
_LINE_BYTES_MAX = 8 << 20  # 64 KiB of output in base64, or a large job.
