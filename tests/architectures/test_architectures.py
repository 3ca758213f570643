"""Whatever the model, a private run releases the sum of single records' clipped gradients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .catalogue import entries
from .harness import RECORDS, Case, Entry, Outcome, judge, regress


def _parameters() -> list[Any]:
    return [
        pytest.param(entry, id=entry.name, marks=[pytest.mark.full] if entry.is_slow else [])
        for entry in entries()
    ]


@pytest.mark.parametrize("entry", _parameters())
def test_gradients_are_those_of_single_records(entry: Entry) -> None:
    verdict = judge(entry)
    if verdict.outcome is Outcome.ABSENT:
        pytest.skip(verdict.reason)
    assert verdict.outcome in entry.acceptable, verdict


def test_there_are_as_many_models_as_the_notes_say() -> None:
    assert len(entries()) >= 190
    assert sum(not entry.is_slow for entry in entries()) >= 190


# --- the judge itself ---


def _linear(scale: float = 1.0) -> Case:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return scale * regress(model, batch)

    return Case(nn.Linear(3, 2), loss, (torch.randn(RECORDS, 3),))


def test_a_plain_model_is_right() -> None:
    verdict = judge(Entry("plain", _linear))
    assert (verdict.outcome, verdict.route, verdict.reason) == (Outcome.RIGHT, "fast", "")


def test_sums_of_another_loss_are_wrong() -> None:
    """The reference is the first case that is made; the runs train others."""
    scales = itertools.chain([1.0], itertools.repeat(1.01))
    assert judge(Entry("another", lambda: _linear(next(scales)))).outcome is Outcome.WRONG


def test_a_clip_norm_that_is_not_kept_is_wrong() -> None:
    """Only the run that clips trains on another loss."""
    scales = iter([1.0, 1.0, 1.01])
    assert judge(Entry("unclipped", lambda: _linear(next(scales)))).outcome is Outcome.WRONG


def test_an_error_of_the_loss_is_raised() -> None:
    def factory() -> Case:
        case = _linear()

        def loss(model: nn.Module, batch: Any) -> Tensor:
            if len(batch[0]) > 1:
                raise KeyError("more than one record")
            return regress(model, batch)

        return Case(case.model, loss, case.batch)

    verdict = judge(Entry("error", factory))
    assert verdict.outcome is Outcome.RAISED
    assert "KeyError" in verdict.reason
