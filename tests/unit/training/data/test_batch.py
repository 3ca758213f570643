"""A batch is handed on as it is: whatever else is done with it is answered by a sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.errors import SampleMisuse
from discreet.sampling import Sample
from discreet.training.data.batch import Batch
from discreet.training.data.trees import Portion
from discreet.training.separation.marks import holds_records


def sample() -> Sample:
    sampler = dp.Sampler(dp.Everything(), records=3, steps=1)
    return next(iter(sampler.draw(dp.randomness.Source.unsafe_test_key(bytes(32)))))


def called(**entries: Any) -> Any:
    return entries


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda batch: batch.to("cuda"), "images.to"),
        (lambda batch: batch.to("cuda", torch.float16), "images.to"),
        (lambda batch: batch.cuda(), "images.to"),
        (lambda batch: batch.cpu(), "images.to"),
        (lambda batch: batch.keys(), "Unpack"),
        (lambda batch: batch.items(), "Unpack"),
        (lambda batch: called(**batch), "Unpack"),
        (tuple, "Unpack"),
        (lambda batch: batch[0], "Unpack"),
        (lambda batch: batch["x"], "Unpack"),
    ],
)
def test_what_other_batches_can_do_is_answered_by_a_sentence(
    use: Callable[[Any], Any], advice: str
) -> None:
    with pytest.raises(SampleMisuse, match=advice):
        use(Batch(sample(), Portion(torch.zeros(3))))


def test_the_old_loop_over_a_loader_is_told_of_the_new_one() -> None:
    batch = Batch(sample(), Portion(torch.zeros(3)))
    assert Batch.checked(batch) is batch
    for other in ([torch.zeros(3), torch.zeros(3)], {"x": torch.zeros(3)}, None):
        with pytest.raises(SampleMisuse, match="for batch in run.batches"):
            Batch.checked(other)


def test_p42_a_batch_does_not_show_its_records() -> None:
    batch = Batch(sample(), Portion(torch.full((3,), 991.0)), np.array([0, -1, 1]))
    assert repr(batch) == "Batch(step=0)"


def test_a_later_batch_is_drawn_once_when_something_of_it_is_asked_for() -> None:
    draws: list[int] = []

    def draw() -> Batch:
        draws.append(1)
        return Batch(sample(), Portion(torch.ones(3)))

    batch = Batch.later(draw)
    assert batch.pending
    assert repr(batch) == "Batch(not drawn yet)"
    assert draws == []
    assert (batch.step, batch.data.tolist(), batch.rows) == (0, [1.0] * 3, None)
    assert draws == [1]
    assert not batch.pending


def test_rows_of_a_data_set_are_fetched_when_they_are_used() -> None:
    entries = torch.arange(12.0).view(6, 2)
    batch = Batch(sample(), Portion([entries], torch.tensor([4, 0, 5])))
    (own,) = batch.data
    assert own.tolist() == entries[[4, 0, 5]].tolist()

    # What a user is given is a copy each time, marked as the data set's own memory.
    assert holds_records(own)
    own.zero_()
    assert batch.data[0].tolist() == entries[[4, 0, 5]].tolist()
    assert batch.portion is not None
    assert batch.portion.batch[0] is entries
