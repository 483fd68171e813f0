"""What callers give, in the form of the API: queries, fields of jobs, and the lines of a batch."""

from __future__ import annotations

import json
import tempfile
from datetime import datetime
from typing import IO, Any, Dict, Iterable, Mapping, Optional, Tuple, Union

from ._types import Duration, Filter


def query(**values: Filter) -> Dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def duration(value: Optional[Duration]) -> Optional[str]:
    return value if value is None or isinstance(value, str) else f"{value * 1000:.0f}ms"


def instant(value: Union[str, datetime, None]) -> Optional[str]:
    """A time without a zone is one of this machine."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.astimezone()).isoformat()
    return value


def job_fields(fields: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of a job as the API takes them. Those that are `None` are left out, and unknown ones are left to the server."""
    given = {_NAMES.get(name, name): value for name, value in fields.items() if value is not None}
    for name in ("timeout", "delay"):
        if name in given:
            given[name] = duration(given[name])
    if "run_at" in given:
        given["run_at"] = instant(given["run_at"])
    if "after" in given:
        given["after"] = [*given["after"]]
    return {name: value for name, value in given.items() if (name, value) != ("after", [])}


def to_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def lines(entries: Iterable[Mapping[str, Any]]) -> Tuple[IO[bytes], int]:
    """Writes a line of JSON for each entry, one at a time; returns them and their number. Large ones are in a temporary file.

    They can be sent again, which the entries of a generator cannot."""
    file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX)
    count = size = 0
    try:
        for entry in entries:
            line = to_json(job_fields(entry)) + b"\n"
            count, size = count + 1, size + len(line)
            # An endless generator ends here, too.
            if count > JOBS_MAX or size > BYTES_MAX:
                limit = f"{JOBS_MAX:,} jobs" if count > JOBS_MAX else f"{BYTES_MAX >> 20} MiB"
                raise ValueError(f"a batch has at most {limit}: nothing was submitted; make several batches")
            file.write(line)
    except BaseException:
        file.close()
        raise
    return file, count


def _text(value: Union[str, bool, int, datetime, Iterable[str]]) -> str:
    if isinstance(value, datetime):
        return instant(value) or ""
    # A bool is an int, and the API takes 1 and 0.
    return str(int(value)) if isinstance(value, int) else value if isinstance(value, str) else ",".join(map(str, value))


JOBS_MAX, BYTES_MAX = 100_000, 64 << 20  # Of the server: see docs/http-api.md, Limits.
_MEMORY_BYTES_MAX = 1 << 20
_NAMES = {"key": "unique_key"}  # `submit` has the shorter name.
