"""A sample is used once, by the process and the draw that it came from, and shows nothing of
itself.
"""

from __future__ import annotations

import copy
import os
import pickle
import threading

import numpy as np
import pytest

from discreet.errors import SampleMisuse
from discreet.ledger.events import Poisson
from discreet.sampling import Owners, Sample, Sampler
from support.written_streams import source


def one(probability: float = 1.0) -> Sample:
    return next(Sampler(Poisson(probability), records=7, steps=1).draw(source()))


def test_p16_a_sample_is_spent_once() -> None:
    sample = one()
    sample.spend()
    with pytest.raises(SampleMisuse, match="a second time"):
        sample.spend()


def test_p16_of_many_threads_one_spends() -> None:
    sample = one()
    barrier = threading.Barrier(8)
    refused = []

    def spend() -> None:
        barrier.wait()
        try:
            sample.spend()
        except SampleMisuse as error:
            refused.append(error)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7


def test_a_sample_knows_its_draw() -> None:
    sampler = Sampler(Poisson(0.5), records=7, steps=2)
    draw, other = sampler.draw(source()), sampler.draw(source())
    sample = next(draw)
    assert sample.issued_by(draw)
    assert not sample.issued_by(other)
    assert next(draw).issued_by(draw)


def test_p42_nothing_of_a_sample_is_shown() -> None:
    """The text of a sample of all records is that of an empty one."""
    assert repr(one(1.0)).replace("1.0", "p") == repr(one(5e-324)).replace("5e-324", "p")
    owners = Owners.from_ids([31337, 4, 4])
    assert "31337" not in repr(owners)
    assert "3" not in repr(owners)


@pytest.mark.parametrize("carry", [copy.copy, copy.deepcopy, pickle.dumps])
def test_p20_a_sample_is_not_copied(carry: object) -> None:
    with pytest.raises(SampleMisuse, match="copy or pickle"):
        carry(one())  # type: ignore[operator]


def test_p28_a_loop_cannot_skip_empty_samples_by_their_truth() -> None:
    with pytest.raises(SampleMisuse, match="empty"):
        bool(one())


def test_arrays_are_read_only() -> None:
    sample = one()
    for array in (sample.indices, sample.units, sample.rows, sample.offsets):
        assert array.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3


def test_where_rows_are_records_all_views_agree() -> None:
    sample = one()
    assert (
        sample.indices.tolist() == sample.units.tolist() == sample.rows.tolist() == list(range(7))
    )
    assert sample.offsets.tolist() == list(range(8))
    assert len(sample) == 7
    assert (sample.step, sample.batch, sample.event) == (0, 0, Poisson(1.0))


def in_a_fork(work: object) -> bool:
    """Whether the work is refused in a fork."""
    child = os.fork()
    if not child:
        try:
            work()  # type: ignore[operator]
        except SampleMisuse:
            os._exit(3)
        finally:
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # other tests of this run may have left threads
def test_p20_a_fork_cannot_use_a_sample_or_a_draw() -> None:
    draw = Sampler(Poisson(0.5), records=7, steps=2).draw(source())
    sample = next(draw)
    for work in (
        sample.spend,
        lambda: sample.indices,
        lambda: sample.rows,
        lambda: sample.offsets,
        lambda: sample.issued_by(draw),
        lambda: next(draw),
    ):
        assert in_a_fork(work)
    sample.spend()
