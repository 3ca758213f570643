"""Units that own several rows: the draw is over units, rows are grouped by unit and capped."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.errors import ParameterError, SampleMisuse
from discreet.ledger.events import BallsInBins, Poisson
from discreet.sampling import Owners, Sampler
from discreet.units import Unit
from support.written_streams import source

IDS = np.array([7, 3, 7, 7, 5, 3, 7])  # units 0, 1, 2 are the owners 3, 5, 7


def check_rows_belong_to_their_units(rows_per_unit: int | None) -> None:
    sampler = Sampler(
        Poisson(0.7), records=3, steps=30, owners=Owners.from_ids(IDS), rows_per_unit=rows_per_unit
    )
    for sample in sampler.draw(source()):
        assert sample.offsets.size == len(sample) + 1
        assert sample.offsets[-1] == sample.rows.size
        for place, unit in enumerate(sample.units.tolist()):
            rows = sample.rows[sample.offsets[place] : sample.offsets[place + 1]]
            owned = np.flatnonzero(np.unique(IDS)[unit] == IDS)
            assert np.all(np.isin(rows, owned))
            assert np.unique(rows).size == rows.size == min(owned.size, rows_per_unit or owned.size)


@pytest.mark.parametrize("rows_per_unit", [None, 1, 2, 4, 9])
def test_rows_are_grouped_by_unit_and_capped(rows_per_unit: int | None) -> None:
    check_rows_belong_to_their_units(rows_per_unit)


def test_the_rows_of_a_unit_are_chosen_anew_in_each_draw() -> None:
    sampler = Sampler(
        Poisson(1.0), records=3, steps=30, owners=Owners.from_ids(IDS), rows_per_unit=1
    )
    seen = {tuple(sample.rows.tolist()) for sample in sampler.draw(source())}
    assert len(seen) == 2 * 1 * 4


def test_p10_units_are_the_records() -> None:
    owners = Owners.from_ids(IDS)
    with pytest.raises(ParameterError, match="units are the records"):
        Sampler(Poisson(0.5), records=IDS.size, steps=1, owners=owners)
    sampler = Sampler(Poisson(0.5), records=3, steps=1, owners=owners)
    assert sampler.unit == Unit.USER
    assert sampler.expected_batch_size == 1.5
    assert Sampler(Poisson(0.5), records=7, steps=1).unit == Unit.EXAMPLE


def test_p10_the_positions_of_units_are_not_mistaken_for_rows() -> None:
    sample = next(
        Sampler(Poisson(1.0), records=3, steps=1, owners=Owners.from_ids(IDS)).draw(source())
    )
    with pytest.raises(SampleMisuse, match="units that own rows"):
        _ = sample.indices
    assert len(sample) == 3
    assert sample.rows.size == 7


def test_an_epoch_sees_every_unit_once() -> None:
    sampler = Sampler(
        BallsInBins(3), records=3, steps=2, owners=Owners.from_ids(IDS), rows_per_unit=2
    )
    drawn = list(sampler.draw(source()))
    assert len(drawn) == 6
    for epoch in (drawn[:3], drawn[3:]):
        assert sorted(np.concatenate([sample.units for sample in epoch]).tolist()) == [0, 1, 2]
        assert sum(sample.rows.size for sample in epoch) == 5


@pytest.mark.parametrize(
    "ids",
    [
        ["eve", "ann", "eve"],
        [3, 1, 3],
        np.array([b"b", b"a", b"b"]),
        np.array(["b", "a", "b"], object),
    ],
)
def test_ids_are_numbers_or_texts(ids: list[str]) -> None:
    owners = Owners.from_ids(ids, Unit("hospital"))
    assert owners.units == 2
    assert owners.unit == Unit("hospital")


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, 2.0],
        [1, None],
        [[1, 2]],
        [],
        ["a", float("nan")],
        ["a", 1],
        [True, False],
        [2**70],
        3,
        np.ma.array([1, 2], mask=[False, True]),
    ],
    ids=str,
)
def test_rows_without_an_owner_are_refused(ids: list[int]) -> None:
    with pytest.raises(ParameterError, match="one whole number or text per row"):
        Owners.from_ids(ids)


def test_a_cap_without_owners_is_refused() -> None:
    with pytest.raises(ParameterError, match="rows_per_unit"):
        Sampler(Poisson(0.5), records=3, steps=1, rows_per_unit=2)
    with pytest.raises(ParameterError, match="rows_per_unit"):
        Sampler(Poisson(0.5), records=3, steps=1, owners=Owners.from_ids(IDS), rows_per_unit=0)
