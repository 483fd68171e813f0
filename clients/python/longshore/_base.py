"""The connection to a server, and what several groups of calls share: submissions, pages, waiting, events."""

from __future__ import annotations

import json
import os
import secrets
import time
from typing import IO, Any, Callable, Dict, Generator, Iterator, Mapping, Optional, Union, cast
from urllib.parse import parse_qsl, urlsplit

from ._encode import to_json
from ._errors import ConnectionFailed, EventsGone, LongshoreError
from ._http import DeadlinePassed, Http, Request, check_token, parse_json
from ._types import Event


class Base:
    """One server. `Client` adds the calls."""

    def __init__(
        self, server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[str] = None,
        ca_file: Optional[str] = None, timeout: float = 30, retry_for: float = 30,
    ) -> None:  # fmt: skip
        env = {name: value for name, value in os.environ.items() if value}
        if token is None and token_file is None:
            token, token_file = env.get("LONGSHORE_TOKEN"), env.get("LONGSHORE_API_TOKEN_FILE")
        server, ca_file = server or env.get("LONGSHORE_SERVER", "127.0.0.1:8080"), ca_file or env.get("LONGSHORE_CA_FILE")
        self._http = Http(server, check_token(token, token_file), ca_file, timeout, retry_for)

    def _get(self, path: str, query: Optional[Mapping[str, str]] = None) -> Any:
        return self._http.json(Request("GET", path, query or {}))

    def _send(self, method: str, path: str, query: Optional[Mapping[str, str]] = None, fields: Optional[Mapping[str, Any]] = None) -> Any:
        """A request that changes something, and does no harm if it comes twice. Without fields it has no body."""
        given = {name: value for name, value in (fields or {}).items() if value is not None}
        content = {"Content-Type": "application/json"} if given else {}
        headers, body = self._http.call(Request(method, path, query or {}, to_json(given) if given else b"", content))
        # An answer without a body is that of a pause; the header says that it was so already.
        return parse_json(body) if body else "Pause-Unchanged" not in headers

    def _create(
        self, path: str, query: Mapping[str, str], kind: str, body: Union[bytes, IO[bytes]], key: Optional[str], wait_s: float = 0
    ) -> Any:  # fmt: skip
        """A request that makes something, once, however often it is sent."""
        key = key or secrets.token_hex(16)
        try:
            return self._http.json(Request("POST", path, query, body, {"Content-Type": kind, "Idempotency-Key": key}), wait_s)
        except LongshoreError as error:
            error.idempotency_key = key
            raise

    def _pages(self, path: str, query: Mapping[str, str], until: float = float("inf")) -> Iterator[Any]:
        """The entries of a list, read page by page until a time of the monotonic clock."""
        while True:
            headers, body = self._http.call(Request("GET", path, query), until=until)
            yield from parse_json(body)
            if 'rel="next"' not in (headers.get("Link") or ""):
                return
            query = dict(parse_qsl(urlsplit(headers["Link"].strip("< ").partition(">")[0]).query, keep_blank_values=True))

    def _wait(
        self, path: str, has_ended: Callable[[Any], bool], timeout: Optional[float], late: Callable[[Any], LongshoreError]
    ) -> Any:  # fmt: skip
        """Asks until something has ended, however often connections break. Raises `late` of the last answer after `timeout` seconds."""
        known: Any = None
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            asked_at = time.monotonic()
            try:
                known = self._http.json(Request("GET", path, poll_s=_WAIT_MAX_S), until=until)
            except (DeadlinePassed, ConnectionFailed) as error:
                if isinstance(error, ConnectionFailed) and time.monotonic() < until:
                    raise
                raise late(known) from error
            if has_ended(known):
                return known
            now = time.monotonic()
            if now >= until:
                raise late(known)
            if now - asked_at < _PACE_S:  # A server that is stopping answers at once.
                time.sleep(min(_PACE_S, until - now))

    def _events(
        self, query: Dict[str, str], after: Optional[str], follows: bool = True, until: float = float("inf")
    ) -> Generator[Event, None, None]:
        """Events of a stream that is connected when this returns."""
        stream = self._http.events("/api/events", query, after, follows, until)
        next(stream)
        return _read_changes(stream)


def _read_changes(stream: Generator[Mapping[str, str], None, None]) -> Generator[Event, None, None]:
    try:
        for event in stream:
            if event.get("event") == "change":
                yield cast(Event, json.loads(event["data"]))
            elif event.get("event") == "gone":
                raise EventsGone(410, {"code": "events_gone", "title": "events are missing", **json.loads(event["data"])})
    finally:
        stream.close()


_WAIT_MAX_S, _PACE_S = 30.0, 0.2
