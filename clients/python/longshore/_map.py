"""The results of `map`, in the order of the parameters or as the jobs end."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Callable, Dict, Generator, Iterator, Optional, Type

from ._errors import JobFailed, LongshoreError
from ._types import Batch, Job

_LOG = logging.getLogger("longshore")


class Results(Iterator[Any]):
    """An iterator over results. `batch` is the batch of the jobs, or `None` if there were no parameters.

    As a context manager it is closed at the end of the block: `with client.map(…) as results:`."""

    def __init__(
        self, batch: Optional[Batch], jobs: Generator[Job, None, None], cancel: Optional[Callable[[], Any]], return_exceptions: bool
    ) -> None:  # fmt: skip
        self.batch = batch
        self._jobs, self._cancel, self._return_exceptions = jobs, cancel, return_exceptions

    def __next__(self) -> Any:
        try:
            job = next(self._jobs)
            if job["state"] == "succeeded":
                return job.get("result")
            failure = JobFailed(job)
            if not self._return_exceptions:
                raise failure
            return failure
        except StopIteration:
            self._cancel = None
            raise
        except BaseException:
            self._close_after_error()
            raise

    def close(self) -> None:
        """Ends the iteration. With `cancel_rest` the jobs that have not ended are cancelled.

        An iteration or a block that ends with an exception does the same. The exception of a cancel that fails is only logged then."""
        self._jobs.close()
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:  # fmt: skip
        if error is None:
            self.close()
        else:
            self._close_after_error()

    def _close_after_error(self) -> None:
        """Closes, and raises nothing that would take the place of the exception that is on its way."""
        try:
            self.close()
        except Exception as error:
            number = self.batch["batch"] if self.batch else None
            _LOG.warning("the rest of batch %s is not known to be cancelled: %s", number, error)


def in_order(batch: Batch, ended: Generator[Job, None, None]) -> Generator[Job, None, None]:
    """The jobs in the order of their numbers. Jobs that end before an earlier one wait in memory."""
    early: Dict[int, Job] = {}
    wanted = batch["first"]
    try:
        for job in ended:
            early[job["id"]] = job
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1
    finally:
        ended.close()
    if wanted <= batch["last"]:
        raise LongshoreError(f"job {wanted} of batch {batch['batch']} is no longer kept, and neither is its result")
