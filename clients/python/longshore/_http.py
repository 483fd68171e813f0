"""HTTP, a connection for each request: address, token, TLS, retries, and streams that survive broken connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import ssl
import time
from dataclasses import dataclass, field
from http.client import HTTPMessage
from typing import Any, Iterator, Mapping, Optional, Tuple
from urllib.parse import urlencode, urlsplit

from ._types import ApiError, ConnectionFailed, EventsGone, LongshoreError

_LOG = logging.getLogger("longshore")


@dataclass(frozen=True)
class Request:
    """A request that may be sent several times, each time with the same bytes."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Optional[bytes] = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Retries:
    """Pauses between tries, until the time is up."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.reset()

    def reset(self) -> None:
        self._until, self._pause_s = time.monotonic() + self._limit_s, _PAUSE_MIN_S

    def pause(self, error: LongshoreError) -> None:
        """Sleeps before the next try. Raises the error if another try is useless, or would come too late."""
        left_s = self._until - time.monotonic()
        pause_s = min(self._pause_s * random.uniform(0.5, 1), left_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
        may_retry = isinstance(error, ConnectionFailed)
        if isinstance(error, ApiError) and error.status == 503 and error.retry_after is not None:
            may_retry, pause_s = True, max(pause_s, error.retry_after)
        may_retry = may_retry and not isinstance(error.__cause__, ssl.SSLCertVerificationError)
        if not may_retry or left_s <= 0 or pause_s > left_s:
            raise error
        _LOG.info("%s; next try in %.2f s", error, pause_s)
        time.sleep(pause_s)


class Http:
    """One server: its address, and the way to it."""

    def __init__(self, server: str, token: Optional[str], ca_file: Optional[str], timeout_s: float, retry_s: float) -> None:
        is_tls, self._host, self._port, self._base = _parse_address(server)
        self._tls = ssl.create_default_context(cafile=ca_file) if is_tls else None
        self._shown = f"{self._host} port {self._port}"
        self._token, self._timeout_s, self._retry_s = token, timeout_s, retry_s

    def call(self, request: Request, wait_s: float = 0, limit_s: float = float("inf")) -> Tuple[HTTPMessage, bytes]:
        """Sends a request, which must do no harm twice, until it is answered; returns headers and body.

        The server may take `wait_s` longer than for others. `limit_s` limits the whole call."""
        retries = Retries(min(self._retry_s, limit_s))
        read_s = min(self._timeout_s + wait_s, limit_s + _GRACE_S)
        while True:
            try:
                with self.open(request, read_s) as response, self.connection_errors():
                    return response.headers, response.read()
            except LongshoreError as error:
                retries.pause(error)

    def json(self, request: Request, wait_s: float = 0, limit_s: float = float("inf")) -> Any:
        return parse_json(self.call(request, wait_s, limit_s)[1])

    def events(self, path: str, query: Mapping[str, str], last_id: Optional[str], follows: bool) -> Iterator[Mapping[str, str]]:
        """Server-sent events, over connections that may break. An empty one says that a connection is made."""
        retries = Retries(self._retry_s)
        while True:
            headers = {"Accept": "text/event-stream", **({} if last_id is None else {"Last-Event-ID": last_id})}
            connected_at = float("inf")
            try:
                with self.open(Request("GET", path, query, headers=headers), _SILENCE_MAX_S) as response:
                    connected_at = time.monotonic()
                    yield {}
                    for event in self._read_events(response):
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
                if time.monotonic() - connected_at >= _STABLE_AFTER_S:  # A silent stream is not a failed one.
                    retries.reset()
                retries.pause(error)

    def _read_events(self, response: http.client.HTTPResponse) -> Iterator[Mapping[str, str]]:
        """The complete events of one connection. An incomplete one comes again on the next."""
        rest, event = b"", {}
        while len(rest) <= _LINE_BYTES_MAX:
            with self.connection_errors():
                piece = response.read1(1 << 16)
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
    def open(self, request: Request, read_s: float) -> Iterator[http.client.HTTPResponse]:
        """Sends a request once. Inside of the block the body can be read; the status is 2xx."""
        headers = {"User-Agent": "longshore-python", "Accept": "application/json", **request.headers}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        target = self._base + request.path + ("?" + urlencode(request.query) if request.query else "")
        connect_s = min(self._timeout_s, read_s)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=connect_s)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=connect_s, context=self._tls)
        with contextlib.closing(connection):
            with self.connection_errors():
                with contextlib.suppress(BrokenPipeError):  # It may have answered before it read the whole body.
                    connection.request(request.method, target, request.body, headers)
                connection.sock.settimeout(read_s)
                response = connection.getresponse()
            with contextlib.closing(response):
                if not 200 <= response.status < 300:
                    with self.connection_errors():
                        raise _api_error(response)
                yield response

    @contextlib.contextmanager
    def connection_errors(self) -> Iterator[None]:
        """Raises as `ConnectionFailed` what goes wrong with a connection inside of the block."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                why = "it is not HTTP; another service may listen there, or TLS is required (https://)"
            raise ConnectionFailed(f"no answer from {self._shown}: {why}") from error


def parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise LongshoreError("the answer is not JSON: is this the address of a Longshore server?") from None


def _api_error(response: http.client.HTTPResponse) -> ApiError:
    body, problem = response.read(_PROBLEM_BYTES_MAX), None
    if (response.headers.get("Content-Type") or "").startswith("application/problem+json"):
        with contextlib.suppress(ValueError):
            problem = json.loads(body)
    if not isinstance(problem, dict):
        problem = {"title": f"the server answered {response.status} {response.reason}"}
    kind = EventsGone if problem.get("code") == "events_gone" else ApiError
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
_SILENCE_MAX_S = 45.0  # The server sends something every 15 seconds.
_PROBLEM_BYTES_MAX = 4 << 20
_LINE_BYTES_MAX = 8 << 20  # 64 KiB of output in base64, or a large job.
