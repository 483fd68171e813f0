"""Exceptions that go from one process to another."""

from __future__ import annotations

import copy
import pickle
import unittest
from typing import Any, List, Type, cast

import longshore
from longshore import ApiError, BatchTimeout, JobFailed, LongshoreError, WaitTimeout


def classes(base: Type[LongshoreError]) -> List[Type[LongshoreError]]:
    return [base, *(found for below in base.__subclasses__() for found in classes(below))]


def example(kind: Type[LongshoreError]) -> LongshoreError:
    job = {"id": 7, "name": "a", "state": "failed", "reason": "exit code 1"}
    if issubclass(kind, ApiError):
        return kind(409, {"code": "c", "title": "t", "detail": "d", "hint": "h", "field": "f", "near": ["n"]}, 5)
    if issubclass(kind, JobFailed):
        return kind(cast(longshore.Job, job))
    if issubclass(kind, WaitTimeout):
        return kind(7, cast(longshore.Job, job))
    if issubclass(kind, BatchTimeout):
        return kind(7, cast(longshore.BatchStatus, {"state": "running", "progress": 0.5}))
    return kind("a message")


class Errors(unittest.TestCase):
    def test_an_exception_is_the_same_in_another_process(self) -> None:
        kinds = classes(LongshoreError)
        self.assertLessEqual({it for it in vars(longshore).values() if isinstance(it, type) and issubclass(it, LongshoreError)}, {*kinds})
        for kind in kinds:
            error = example(kind)
            error.idempotency_key = "mine"
            copies: List[Any] = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
            for again in [*copies, copy.copy(error)]:
                self.assertIs(type(again), kind)
                self.assertEqual((str(again), again.args, vars(again)), (str(error), error.args, vars(error)), kind)
