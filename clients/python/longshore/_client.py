"""The client: all calls of docs/http-api.md for programs that submit jobs, watch them, and operate a server."""

from __future__ import annotations

from ._batches import Batches
from ._bulk import Bulk
from ._jobs import Jobs
from ._operations import Operations
from ._pipelines import Pipelines


class Client(Jobs, Batches, Pipelines, Bulk, Operations):
    """A client of one server, for any number of threads.

    `server` is `host:port`, with the base path if it has one, or a URL. For arguments that are not given the client reads what
    the command line reads: LONGSHORE_SERVER, LONGSHORE_API_TOKEN_FILE, LONGSHORE_CA_FILE; and before the file LONGSHORE_TOKEN.
    If the server does not answer (for `timeout` seconds), or answers 503, a call tries again for `retry_for` seconds."""
