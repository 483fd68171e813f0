"""Calls about pipelines: jobs that come after one another."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, cast

from ._base import Base
from ._encode import query
from ._types import Batch, Dependency, Pipeline, PipelineJob


class Pipelines(Base):
    """Pipelines. `submit` with `after`, and `submit_many`, make them."""

    def pipeline(self, job: int) -> Pipeline:
        """The jobs before and after a job, over any number of steps, at most 1,000. `tree` of the package shows them."""
        return cast(Pipeline, self._get(f"/api/jobs/{job:d}/pipeline"))

    def retry_pipeline(self, job: int, *, original: bool = False, idempotency_key: Optional[str] = None) -> Batch:
        """Makes new jobs of those of a pipeline that have not succeeded, and of those that ran after one of them, in the same order.

        Raises `Conflict` (`not_finished`) if there is nothing to repeat."""
        choice = query(revision="original" if original else None)
        return cast(Batch, self._create(f"/api/jobs/{job:d}/pipeline/retry", choice, "application/json", b"", idempotency_key))


def tree(pipeline: Pipeline) -> str:
    """A pipeline as lines of text. Each job is below the first job that it comes after; the other ones stand at the end of its line."""
    jobs = {job["id"]: job for job in pipeline["jobs"]}
    below: Dict[Optional[int], List[PipelineJob]] = {}
    for job in jobs.values():
        parents = (on["job"] for on in job.get("after", ()) if on.get("job") in jobs)
        below.setdefault(next(parents, None), []).append(job)
    lines: List[str] = []
    open_: List[Tuple[PipelineJob, Optional[int], str, str]] = [(job, None, "", "") for job in reversed(below.get(None, []))]
    while open_:
        job, parent, indent, branch = open_.pop()
        lines.append(f"{indent}{branch}{_line(job, parent)}")
        indent += {"": "", _LAST: "   "}.get(branch, "│  ")
        children = below.get(job["id"], [])
        branches = ["├─ "] * (len(children) - 1) + [_LAST]
        open_ += [(child, job["id"], indent, branch) for child, branch in reversed([*zip(children, branches)])]
    return "\n".join(lines)


def _line(job: PipelineJob, parent: Optional[int]) -> str:
    text = f"{job['id']} {job['name']} {job['state']}"
    text += f", retry of {job['retry_of']}" if "retry_of" in job else ""
    above = [on for on in job.get("after", ()) if parent is not None and on.get("job") == parent]
    others = [on for on in job.get("after", ()) if on not in above]
    text += "".join(_condition(on) for on in above)
    names = ", ".join(f"{_name(on)}{_condition(on)}" for on in others)
    return text + (f", {'also ' if parent is not None else ''}after {names}" if names else "")


def _name(on: Dependency) -> str:
    return f"batch {on['batch']} ({on.get('state', 'removed since')})" if "batch" in on else str(on.get("job", ""))


def _condition(on: Dependency) -> str:
    return "" if on["outcome"] == "succeeded" else f" if {on['outcome']}"


_LAST = "└─ "
