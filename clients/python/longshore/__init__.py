"""Client of Longshore, a durable job server with remote workers: see `Client`."""

from ._client import Client as Client
from ._errors import ApiError as ApiError, BatchTimeout as BatchTimeout, Conflict as Conflict, ConnectionFailed as ConnectionFailed
from ._errors import EventsGone as EventsGone, Forbidden as Forbidden, Gone as Gone, InvalidRequest as InvalidRequest
from ._errors import JobFailed as JobFailed, LongshoreError as LongshoreError, NotFound as NotFound, ServerError as ServerError
from ._errors import TooManyRequests as TooManyRequests, Unauthorized as Unauthorized, Unavailable as Unavailable
from ._errors import WaitTimeout as WaitTimeout
from ._map import Results as Results
from ._pipelines import tree as tree
from ._types import Batch as Batch, BatchStatus as BatchStatus, BulkResult as BulkResult, Definition as Definition
from ._types import DefinitionChange as DefinitionChange, Deployed as Deployed
from ._types import Dependency as Dependency, Event as Event, Fire as Fire, Job as Job, JobFields as JobFields, Output as Output
from ._types import Pause as Pause, Pipeline as Pipeline, PipelineJob as PipelineJob, Plan as Plan
from ._types import Reloaded as Reloaded, RetriedBatch as RetriedBatch
from ._types import Schedule as Schedule, Worker as Worker
