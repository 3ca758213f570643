"""Plan files: one table of names, lists that are mappings, and nothing that is not declared."""

from typing import Any

import pytest

import discreet as dp
from discreet.errors import ParameterError
from discreet.ledger.events import SAMPLINGS
from discreet.mechanisms import MECHANISMS
from discreet.plan import vocabulary

WRITTEN = {  # in files that exist: never to be edited, only to be added to
    "gaussian",
    "joint",
    "normalised",
    "split",
    "adaptive-clip",
    "microbatches",
    "groups",
    "not-private",
    "everything",
    "poisson",
    "truncated-poisson",
    "fixed-size",
    "shuffled",
    "balls-in-bins",
    "sampler",
    "schedule",
    "target",
}


def fields(mechanism: Any) -> dict[str, Any]:
    sampler = dp.Sampler(dp.Poisson(0.5), records=10, steps=3)
    plan = dp.Plan(sampler=sampler, mechanism=mechanism)
    return {name: getattr(plan, name) for name in vocabulary.PLAN_FIELDS}


def test_no_name_of_a_file_is_ever_lost_and_every_kind_has_one() -> None:
    assert set(vocabulary._KINDS) >= WRITTEN
    assert set(vocabulary._KINDS.values()) >= {*MECHANISMS, *SAMPLINGS}


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Joint(1.0, 2.0, scales={"b*": 3.0, "*": 1.0}),
        dp.Split(1.0, 2.0, parts={"b": "b*", "rest": "*"}, clip={"b": 3.0, "rest": 1.0}),
        dp.Groups({"b*": dp.Gaussian(1.0, 2.0), "*": dp.NotPrivate()}),
    ],
    ids=str,
)
def test_mappings_are_lists_of_pairs_and_keep_their_order(mechanism: Any) -> None:
    written = vocabulary.written(fields(mechanism))
    names = [name for name, part in written["mechanism"].items() if isinstance(part, list)]  # type: ignore[union-attr]
    assert names
    assert vocabulary.read_plan_fields(written)["mechanism"] == mechanism


@pytest.mark.parametrize(
    "pairs", [[["*"]], [["*", 1.0, 2.0]], [[1, 1.0]], [["*", 1.0], ["*", 2.0]], [[]], [[], 1]]
)
def test_a_list_that_is_no_mapping_is_refused(pairs: Any) -> None:
    written: Any = vocabulary.written(fields(dp.Joint(1.0, 2.0, scales={"*": 1.0})))
    written["mechanism"]["scales"] = pairs
    with pytest.raises(ParameterError, match="no name twice"):
        vocabulary.read_plan_fields(written)


@pytest.mark.parametrize("listed", [[], ["*"], [1.0, 2.0]])
def test_a_list_without_pairs_is_left_to_the_constructor(listed: Any) -> None:
    written: Any = vocabulary.written(fields(dp.Joint(1.0, 2.0, scales={"*": 1.0})))
    written["mechanism"]["scales"] = listed
    with pytest.raises(ParameterError, match="scales"):
        vocabulary.read_plan_fields(written)
    assert vocabulary.plain((1.0, 2.0)) == [1.0, 2.0]


@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier"])
def test_a_mapping_in_the_place_of_a_number_is_refused(name: str) -> None:
    written: Any = vocabulary.written(fields(dp.Gaussian(1.0, 2.0)))
    written["mechanism"][name] = [["a", 1.0]]
    with pytest.raises(ParameterError, match=name):
        vocabulary.read_plan_fields(written)


@pytest.mark.parametrize("name", ["owners", "unsafe_drawn_by"])
def test_a_file_declares_and_holds_neither_data_nor_code(name: str) -> None:
    written: Any = vocabulary.written(fields(dp.Gaussian(1.0, 2.0)))
    assert name not in written["sampler"]
    written["sampler"][name] = "os.system"
    with pytest.raises(ParameterError, match=name):
        vocabulary.read_plan_fields(written)


def test_what_is_no_value_of_the_vocabulary_is_not_written() -> None:
    with pytest.raises(ParameterError, match="complex"):
        vocabulary.plain(1j)
