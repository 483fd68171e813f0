"""Client of Longshore, a durable job server with remote workers: see `Client`."""

from ._client import Client
from ._types import ApiError, Batch, ConnectionFailed, Definition, Event, EventsGone, Job
from ._types import LongshoreError, Output, WaitTimeout, Worker

__all__ = ["ApiError", "Batch", "Client", "ConnectionFailed", "Definition", "Event", "EventsGone", "Job"]
__all__ += ["LongshoreError", "Output", "WaitTimeout", "Worker"]
