"""A plan says what will be charged, finds its one missing number on the safe side, and cannot be
changed.
"""

import json
import math
from dataclasses import FrozenInstanceError, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.mechanisms import AdaptiveClip, Gaussian, Groups, Microbatches, NotPrivate, Split
from discreet.plan import Schedule, Target, default_delta
from discreet.plan.calibrated import search, steps_of
from discreet.randomness.source import Source
from discreet.sampling import Owners, Sampler

SAMPLER = Sampler(dp.Poisson(0.01), records=1_000, steps=10)
GIVEN: dict[str, Any] = {"sampling_probability": 0.01, "steps": 10, "noise_multiplier": 1.1}


def plan(mechanism: Any = None, **fields: Any) -> dp.Plan:
    chosen: dict[str, Any] = {"sampler": SAMPLER, "mechanism": mechanism or Gaussian(1.0, 1.1)}
    return dp.Plan(**chosen | fields)


# --- what it says ---


def test_the_probability_can_be_given_by_the_batch() -> None:
    by_size = dp.Plan.dpsgd(records=60_000, expected_batch_size=600, steps=10, noise_multiplier=1.1)
    assert by_size.charges() == dp.Plan.dpsgd(**GIVEN).charges()
    assert by_size == dp.Plan.dpsgd(records=60_000, **GIVEN)
    assert by_size.expected_batch_size == 600.0


def test_charges_are_the_step_as_often_as_planned() -> None:
    made = dp.Plan.dpsgd(**GIVEN, clip_norm=0.5)
    (charge,) = made.charges()
    assert (charge.step, charge.count, charge.unsettled) == (made.step, 10, 0)
    assert made.step == dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("grad/*", 0.5, 0.55))


def test_executing_a_plan_charges_the_ledger_what_the_plan_says() -> None:
    made = dp.Plan.dpsgd(sampling_probability=0.01, steps=30, noise_multiplier=1.1)
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(made.run_info(), [(made.step, made.steps)], plan=made.as_row())
    for _ in run.steps(made.step, made.steps):
        pass
    assert [replace(charge, number=0) for charge in ledger.charges()] == list(made.charges())
    (record,) = ledger.runs()
    assert dp.Plan.from_json(record.plan) == made


def test_a_run_declares_where_its_randomness_comes_from() -> None:
    info = plan().run_info("first", randomness=dp.units.Randomness.UNSAFE_TEST_KEY)
    assert (info.label, info.randomness, info.numerics) == (
        "first",
        dp.units.Randomness.UNSAFE_TEST_KEY,
        dp.Numerics.CERTIFIED,
    )
    assert plan(numerics=dp.Numerics.IDEALISED).run_info().numerics is dp.Numerics.IDEALISED


def test_p15_slots_are_charged_with_twice_the_clip_norm() -> None:
    made = plan(Microbatches(Gaussian(clip_norm=0.5, noise_multiplier=3.0), slots=8))
    assert made.step.queries == (dp.ledger.GaussianSum("all", 1.0, 3.0),)
    assert made.for_leaves({"w": 2}).step == made.step


def test_p24_the_bit_of_adaptive_clipping_is_charged() -> None:
    made = plan(AdaptiveClip(Gaussian(1.0, 1.1), quantile=0.5, count_noise_std=10.0))
    assert made.step.groups == ("all", "all/below")
    assert made.noise_multiplier == pytest.approx(1.1, rel=1e-12)


def test_an_epoch_is_one_step_where_it_is_one_draw() -> None:
    made = plan(
        sampler=Sampler(dp.ledger.Shuffled(20), records=1_000, steps=3),
        adjacency=dp.Adjacency.ZERO_OUT,
    )
    assert isinstance(made.sampler, Sampler)
    assert (made.steps, made.sampler.batches, made.expected_batch_size) == (3, 60, 50.0)
    assert made.charges()[0].count == 3


# --- leaves ---


def test_queries_that_depend_on_leaves_need_them() -> None:
    made = plan(Split(clip_norm=1.0, noise_multiplier=2.0))
    for ask in (lambda: made.step, made.charges, made.run_info, made.explain, lambda: made.bound):
        with pytest.raises(dp.errors.ParameterError):
            ask()
    bound = made.for_leaves({"a": 1, "b": 2})
    assert bound.step.groups == ("all/a", "all/b")
    assert bound.for_leaves({"a": 1, "b": 2}) == bound


def test_every_leaf_is_claimed_before_the_first_step() -> None:
    made = plan(Groups({"grad/*": Gaussian(1.0, 1.0)}))
    with pytest.raises(dp.errors.ParameterError, match="metric/loss"):
        made.for_leaves({"grad/w": 3, "metric/loss": 1})
    with pytest.raises(dp.errors.ParameterError, match=r"grad/\*"):
        plan(Groups({"bn/*": Gaussian(1.0, 1.0), "grad/*": Gaussian(1.0, 1.0)})).for_leaves(
            {"bn/w": 3}
        )


@pytest.mark.parametrize("leaves", [{"a": 2}, {"a": 1, "b": 1}, {"b": 1}])
def test_leaves_once_bound_cannot_become_others(leaves: dict[str, int]) -> None:
    with pytest.raises(dp.errors.ParameterError, match="leaves"):
        plan(leaves={"a": 1}).for_leaves(leaves)


# --- without privacy ---


def test_a_plan_without_privacy_says_so_everywhere() -> None:
    made = plan(NotPrivate())
    assert (made.private, made.noise_multiplier, made.charges()) == (False, 0.0, ())
    assert made.marks() == ("unsafe_no_privacy",)
    assert "NOT PRIVATE" in made.notes[0]
    assert "NO GUARANTEE" in made.explain(delta=1e-5)
    assert "NOT PRIVATE" in made.for_leaves({"w": 1}).explain()
    assert made.run_info().groups == made.for_leaves({"w": 1}).run_info().groups == ("all",)
    with pytest.raises(dp.errors.ParameterError, match="unsafe_no_privacy"):
        _ = made.step
    assert dp.account(made, delta=1e-5).upper == math.inf
    with pytest.raises(dp.errors.AccountingError):
        made.certified(Target(1e9, 0.5))


def test_numbers_of_other_libraries_are_python_numbers_in_a_plan() -> None:
    made = plan(leaves={"w": np.int32(3)})
    assert made == plan(leaves={"w": 3})
    assert dp.Plan.from_json(made.to_json()) == made
    assert steps_of(np.float32(20), np.int64(512), np.uint32(60_000)) == 2344  # type: ignore[arg-type]


def test_one_group_without_privacy_voids_the_whole_plan() -> None:
    made = plan(Groups({"grad/*": Gaussian(1.0, 1.1), "debug/*": NotPrivate()}))
    bound = made.for_leaves({"grad/w": 3, "debug/x": 1})
    assert bound.bound.private is False
    for version in (made, bound):
        assert (version.private, version.noise_multiplier) == (False, 0.0)
        assert version.run_info().groups == ("debug/*", "grad/*")
        assert (
            version.marks() == dp.account(version, delta=1e-5).voided_by == ("unsafe_no_privacy",)
        )
        assert "NO GUARANTEE" in version.explain(delta=1e-5)
    with pytest.raises(dp.errors.AccountingError, match="unsafe_no_privacy"):
        made.certified(Target(1e9, 0.5))


# --- notes and explain ---


def test_a_large_delta_is_named_in_words() -> None:
    made = dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, epsilon=2.0, delta=1e-3)
    assert "is not below 1/records" in made.notes[0]
    assert made.notes[0] in made.explain()
    assert dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, epsilon=2.0).notes == ()


def test_a_unit_that_the_sampler_cannot_check_is_named() -> None:
    assert "everything of one user" in plan(unit=dp.Unit.USER).notes[0]


def test_explain_shows_every_number_and_no_epsilon_unasked() -> None:
    made = plan(Groups({"grad/*": Gaussian(0.5, 2.0), "metric/*": Gaussian(1.0, 40.0)})).for_leaves(
        {"grad/w": 30, "metric/a": 1}
    )
    text = made.explain()
    for word in (
        "grad/w",
        "metric/a",
        "30",
        "0.5",
        "40",
        "99.8 %",
        "Poisson with probability 0.01",
        "10 steps",
        "0.1 passes",
    ):
        assert word in text
    assert "epsilon" not in text
    assert str(dp.account(made, delta=1e-5)) in made.explain(delta=1e-5)


# --- cannot be changed ---


def test_a_plan_cannot_be_changed() -> None:
    made = plan(leaves={"w": 3})
    for name in (
        "sampler",
        "mechanism",
        "unit",
        "adjacency",
        "leaves",
        "numerics",
        "target",
        "_bound",
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, None)
    with pytest.raises((AttributeError, TypeError)):
        made.steps = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        made.sampler.steps = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.leaves["w"] = 4  # type: ignore[index]


def test_a_plan_shares_nothing_with_the_dictionaries_it_was_made_from() -> None:
    leaves, inner = {"grad/w": 3}, {"grad/*": Gaussian(1.0, 1.1)}
    made = plan(Groups(inner), leaves=leaves)
    before = (made.to_json(), made.step, made.explain())
    leaves["grad/v"] = 5
    inner["grad/*"] = Gaussian(1.0, 1e-6)
    inner["other"] = Gaussian(1.0, 1e-6)
    assert (made.to_json(), made.step, made.explain()) == before


# --- bad input ---


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"sampler": dp.Poisson(0.1)}, "sampler"),
        ({"sampler": None}, "sampler"),
        ({"mechanism": "gaussian"}, "mechanism"),
        ({"mechanism": Gaussian}, "mechanism"),
        ({"unit": "example"}, "unit"),
        ({"adjacency": "zero-out"}, "adjacency"),
        ({"numerics": "exact"}, "numerics"),
        ({"target": (1.0, 1e-5)}, "target"),
        ({"leaves": {}}, "leaves"),
        ({"leaves": ["w"]}, "leaves"),
        ({"leaves": {"w": 0}}, "leaves['w']"),
        ({"leaves": {"w": 1.5}}, "leaves['w']"),
        ({"leaves": {3: 1}}, "key of leaves"),
    ],
)
def test_p45_bad_fields_are_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(dp.errors.ParameterError) as refused:
        plan(**fields)
    assert refused.value.name == name


def test_rows_are_not_drawn_while_accounting_for_another_unit() -> None:
    owners = Owners.from_ids(["ann", "bob", "ann"])
    by_user = Sampler(dp.Poisson(0.5), records=2, steps=1, owners=owners)
    with pytest.raises(dp.errors.ParameterError, match="user"):
        plan(sampler=by_user)
    assert plan(sampler=by_user, unit=dp.Unit.USER).notes == ()
    with pytest.raises(dp.errors.ParameterError, match="owners"):
        plan(sampler=by_user, unit=dp.Unit.USER).to_toml()


def test_without_the_number_of_records_nothing_is_drawn_or_divided() -> None:
    made = dp.Plan.dpsgd(**GIVEN)
    assert isinstance(made.sampler, Schedule)
    with pytest.raises(dp.errors.ParameterError, match="records"):
        _ = made.expected_batch_size
    with pytest.raises(dp.errors.ParameterError, match="records"):
        made.sampler.draw(Source.system())
    with pytest.raises(dp.errors.ParameterError, match="Sampler"):
        Schedule(dp.FixedSize(2, 10), steps=1)


NAMED = [
    ("records", 0), ("records", 1.5), ("records", "many"), ("records", True), ("records", 2**63),
    ("expected_batch_size", 0), ("expected_batch_size", -1.0), ("expected_batch_size", 1001),
    ("expected_batch_size", float("nan")),
    ("epochs", 0), ("epochs", -2), ("epochs", float("inf")), ("epochs", "1"), ("epochs", 1e300),
    ("noise_multiplier", 0.0), ("noise_multiplier", -1.0), ("noise_multiplier", None), ("noise_multiplier", "1"),
    ("clip_norm", 0.0), ("clip_norm", None), ("clip_norm", float("inf")),
    ("adjacency", "add-or-remove"), ("unit", "example"), ("numerics", "exact"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NAMED)
def test_p45_bad_arguments_of_dpsgd_are_named(name: str, value: object) -> None:
    good: dict[str, Any] = {
        "records": 1_000,
        "expected_batch_size": 10,
        "epochs": 2,
        "noise_multiplier": 1.0,
    }
    with pytest.raises(dp.errors.ParameterError) as refused:
        dp.Plan.dpsgd(**good | {name: value})
    assert refused.value.name == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", -1.0),
        ("epsilon", "3"),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", -1e-5),
        ("steps", 0),
        ("steps", 1.5),
    ]
    + [("sampling_probability", bad) for bad in (0.0, 1.1, -0.1, "half")],
)
def test_p45_bad_targets_are_named(name: str, value: object) -> None:
    good: dict[str, Any] = {"sampling_probability": 0.1, "steps": 5, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(dp.errors.ParameterError) as refused:
        dp.Plan.dpsgd(**good | {name: value})
    assert refused.value.name == name


# --- exactly one is missing ---

CHOICES = {
    "records": 500,
    "expected_batch_size": 25,
    "sampling_probability": 0.05,
    "steps": 20,
    "epochs": 1.0,
    "noise_multiplier": 1.2,
    "epsilon": 1.5,
    "delta": 1e-4,
}


def sensible(given: set[str]) -> bool:
    """The rule, said once more in other words."""
    if {"steps", "epochs"} <= given or {"sampling_probability", "expected_batch_size"} <= given:
        return False
    if "expected_batch_size" in given and "records" not in given:
        return False
    if ("delta" in given and "epsilon" not in given) or (
        "epsilon" in given and not given & {"delta", "records"}
    ):
        return False
    four = [
        {"sampling_probability", "expected_batch_size"},
        {"steps", "epochs"},
        {"noise_multiplier"},
        {"epsilon"},
    ]
    if sum(not given & one for one in four) != 1:
        return False
    return bool(given & four[0]) or "steps" in given or "records" in given


def test_p45_every_combination_of_arguments_is_a_plan_or_refused() -> None:
    made = 0
    for pattern in product([False, True], repeat=len(CHOICES)):
        arguments: dict[str, Any] = {
            name: value for (name, value), on in zip(CHOICES.items(), pattern, strict=True) if on
        }
        if not sensible(set(arguments)):
            with pytest.raises(dp.errors.ParameterError):
                dp.Plan.dpsgd(**arguments)
            continue
        made += 1
        found = dp.Plan.dpsgd(**arguments)
        if "epsilon" in arguments:
            target = found.target or Target(1.0, 0.5)
            assert target == Target(1.5, arguments.get("delta", default_delta(500)))
            assert (
                1.5 * 0.9 <= dp.account(found, delta=target.delta).upper <= 1.5
            )  # whole numbers may stay below
        else:
            assert found.target is None
        for name in ("steps", "expected_batch_size"):
            if name in arguments:
                assert getattr(found, name) == arguments[name]
    assert made == 6 + 10 + 5 + 5  # without epsilon, noise, duration, batch; counted by hand


@pytest.mark.parametrize("adjacency", dp.Adjacency)
def test_p38_the_certified_epsilon_is_at_most_the_target_and_near_it(
    adjacency: dp.Adjacency,
) -> None:
    size: dict[str, Any] = {
        "records": 60_000,
        "epsilon": 3.0,
        "delta": 1e-6,
        "adjacency": adjacency,
        "clip_norm": 0.3,
    }
    for arguments in (
        {"expected_batch_size": 512, "epochs": 20},
        {"expected_batch_size": 512, "noise_multiplier": 2.5},
        {"epochs": 20, "noise_multiplier": 2.5},
        {"steps": 2_000, "noise_multiplier": 2.5},
    ):
        made = dp.Plan.dpsgd(**size, **arguments)
        assert 0.99 * 3.0 <= dp.account(made, delta=1e-6).upper <= 3.0
        assert made.adjacency is adjacency


def test_p38_one_step_or_one_record_more_would_exceed_the_target() -> None:
    size: dict[str, Any] = {"records": 2_000, "noise_multiplier": 1.5}
    longest = dp.Plan.dpsgd(**size, expected_batch_size=50, epsilon=1.0, delta=1e-5).steps
    largest = dp.Plan.dpsgd(**size, epochs=4, epsilon=1.0, delta=1e-5)
    longer = dp.Plan.dpsgd(**size, expected_batch_size=50, steps=round(longest * 1.01))
    larger = dp.Plan.dpsgd(
        **size, epochs=4, expected_batch_size=round(largest.expected_batch_size) + 1
    )
    for beyond in (longer, larger):
        assert dp.account(beyond, delta=1e-5).upper > 1.0 * (1 - 1e-3)
    assert largest.steps == steps_of(4, round(largest.expected_batch_size), 2_000)


def test_an_infeasible_target_names_the_floor() -> None:
    with pytest.raises(dp.errors.AccountingError, match="floor"):
        dp.Plan.dpsgd(records=100, epochs=5, noise_multiplier=0.1, epsilon=0.01, delta=1e-9)


def test_a_search_on_a_cost_that_is_not_monotone_still_meets_the_target() -> None:
    costs = dict(enumerate([0.2, 0.9, 1.4, 0.3, 2.0, 0.8, 3.0, 0.1], start=1))

    def cost(size: int) -> dp.Guarantee:
        step = dp.ledger.Step(dp.Everything(), dp.ledger.LaplaceSum("l", 1.0, 1.0 / costs[size]))
        return dp.account([(step, 1)], delta=1e-12, adjacency=dp.Adjacency.ADD_OR_REMOVE)

    for target in (0.15, 0.5, 1.0, 2.5):
        for rising in (True, False):
            try:
                found = search(cost, 8, Target(target, 1e-12), rising=rising)
            except dp.errors.AccountingError:
                assert costs[1 if rising else 8] > target
            else:
                assert costs[found] <= target


# --- steps and delta ---


@pytest.mark.parametrize(
    ("epochs", "batch", "records", "steps"),
    [
        (20, 512, 60_000, 2344),
        (1, 10, 1_000, 100),
        (0.1, 10, 1_000, 10),
        (0.3, 1, 10, 3),
        (1, 1 / 3, 1, 3),
        (1, 3, 10, 4),
        (1e-9, 5, 10, 1),
    ],
)
def test_p32_epochs_become_steps_by_one_stated_rule(
    epochs: float, batch: float, records: int, steps: int
) -> None:
    assert steps_of(epochs, batch, records) == steps


@pytest.mark.parametrize("probability", [1 / n for n in range(1, 200)])
def test_p32_one_epoch_at_one_in_n_is_n_steps(probability: float) -> None:
    made = dp.Plan.dpsgd(sampling_probability=probability, epochs=1, noise_multiplier=1.0)
    assert made.steps == round(1 / probability)


@pytest.mark.parametrize(
    "records", [1, 2, 9, 10, 11, 99, 100, 101, 60_000, 10**6, 10**6 + 1, 2**63 - 1]
)
def test_the_default_delta_is_a_power_of_ten_below_one_in_ten_records(records: int) -> None:
    delta = default_delta(records)
    assert delta * 10 * records <= 1.0 + 1e-12 < 100 * delta * 10 * records
    assert delta < 1 / records
    assert round(np.log10(delta), 9) == round(np.log10(delta))


# --- files ---


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_plan_is_saved_and_loaded(tmp_path: Path, suffix: str) -> None:
    made, path = plan(leaves={'quote " and \\ back': 3}), tmp_path / f"plan.{suffix}"
    made.save(path)
    made.save(str(path))  # the same plan again is no harm
    assert dp.Plan.load(path) == made
    with pytest.raises(dp.errors.ParameterError, match="path"):
        plan().save(path)
    assert dp.Plan.load(path) == made


def test_p45_a_file_that_was_cut_off_is_no_plan() -> None:
    """Cut inside a number, TOML would be valid, with another number."""
    made = dp.Plan.dpsgd(
        records=60_000, expected_batch_size=512, epochs=20, epsilon=3.25, delta=1.25e-6
    ).for_leaves({"grad/w": 785})
    for written, read in (
        (made.to_toml(), dp.Plan.from_toml),
        (made.to_json().rstrip(), dp.Plan.from_json),
    ):
        for end in range(len(written)):
            try:
                found = read(written[:end])
            except dp.errors.ParameterError:
                continue
            assert found.charges() == made.charges()
            assert found.target is None  # the last section, and optional


@pytest.mark.parametrize("source", [None, b"schema = 1\n", 3])
def test_p45_a_plan_is_read_from_text_only(source: Any) -> None:
    for read in (dp.Plan.from_toml, dp.Plan.from_json):
        with pytest.raises(dp.errors.ParameterError) as refused:
            read(source)
        assert refused.value.name == "text"


def test_paths_that_do_not_serve_are_named(tmp_path: Path) -> None:
    for use in (plan().save, dp.Plan.load):
        for path in ("plan.txt", "plan", 3):
            with pytest.raises(dp.errors.ParameterError) as refused:
                use(path)  # type: ignore[arg-type]
            assert refused.value.name == "path"
    with pytest.raises(dp.errors.ParameterError):
        dp.Plan.load(tmp_path / "none.toml")
    with pytest.raises(dp.errors.ParameterError):
        plan().save(tmp_path / "none" / "plan.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(dp.errors.ParameterError):
        dp.Plan.load(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", "schema = true", "schema"),
        ("schema = 1", "", "schema"),
        ("schema = 1", "schema = 1\nepsilon = 1.0", "file"),
        ('kind = "gaussian"', 'kind = "os.system"', "mechanism.kind"),
        ('kind = "gaussian"', 'kind = "poisson"', "mechanism"),
        ('kind = "poisson"', 'kind = "Poisson"', "sampler.policy.kind"),
        ('kind = "sampler"', 'kind = "gaussian"', "sampler"),
        ("noise_multiplier = 1.1", "noise_multipler = 1.1", "mechanism"),
        ("noise_multiplier = 1.1", 'noise_multiplier = "1.1"', "noise_multiplier"),
        ("noise_multiplier = 1.1", "noise_multiplier = true", "noise_multiplier"),
        ("noise_multiplier = 1.1", "noise_multiplier = -1.1", "noise_multiplier"),
        ("noise_multiplier = 1.1", "noise_multiplier = inf", "text"),
        ("noise_multiplier = 1.1", "noise_multiplier = nan", "text"),
        ("noise_multiplier = 1.1", "noise_multiplier = 1e999", "text"),
        ("noise_multiplier = 1.1", "noise_multiplier = 1.1\nnoise_multiplier = 9.0", "text"),
        ("noise_multiplier = 1.1", "noise_multiplier = 1979-05-27", "noise_multiplier"),
        ("steps = 10", "steps = 10.0", "steps"),
        ("probability = 0.01", "probability = 1.01", "probability"),
        ('adjacency = "add-or-remove"', 'adjacency = "add"', "adjacency"),
        ('numerics = "certified"', "numerics = 1", "numerics"),
        ('unit = "example"', "unit = 1", "name"),
    ],
)
def test_p45_p46_what_a_file_may_not_say(old: str, new: str, name: str) -> None:
    written = plan().to_toml()
    assert old in written
    with pytest.raises(dp.errors.ParameterError) as refused:
        dp.Plan.from_toml(written.replace(old, new, 1))
    assert refused.value.name == name


def test_p45_json_may_not_say_it_twice_or_nest_without_end() -> None:
    written = plan().to_json()
    twice = written.replace('"schema": 1', '"schema": 1, "schema": 1')
    for source in (
        twice,
        "[" * 100_000,
        '{"a":' * 100_000,
        "NaN",
        "null",
        written.replace("1.1", "1" * 5000),
    ):
        with pytest.raises(dp.errors.ParameterError):
            dp.Plan.from_json(source)
    with pytest.raises(dp.errors.ParameterError):
        dp.Plan.from_toml("a = " + "[" * 100_000)


def test_the_order_of_patterns_survives_sorting_tools() -> None:
    """The first pattern that matches wins, so order may not hang on the order of a table's keys."""
    made = plan(Groups({"z*": Gaussian(1.0, 5.0), "*": Gaussian(1.0, 1.0)})).for_leaves(
        {"z": 1, "a": 1}
    )
    shuffled = json.dumps(json.loads(made.to_json()), sort_keys=True)
    assert dp.Plan.from_json(shuffled) == made
