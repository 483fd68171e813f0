"""Client of Longshore, a durable job server with remote workers: see `Client`."""

from ._client import Client as Client
from ._types import ApiError as ApiError, Batch as Batch, ConnectionFailed as ConnectionFailed, Definition as Definition
from ._types import Event as Event, EventsGone as EventsGone, Job as Job, LongshoreError as LongshoreError
from ._types import Output as Output, WaitTimeout as WaitTimeout, Worker as Worker
