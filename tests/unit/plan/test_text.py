"""Files of plans: JSON and TOML that mean one thing, or are refused."""

import json
import math
from typing import Any

import pytest

import discreet as dp
from discreet.mechanisms import Gaussian, Groups
from discreet.plan import text
from discreet.sampling import Sampler

SAMPLER = Sampler(dp.Poisson(0.01), records=1_000, steps=10)


def plan(mechanism: Any = None, **fields: Any) -> dp.Plan:
    chosen: dict[str, Any] = {"sampler": SAMPLER, "mechanism": mechanism or Gaussian(1.0, 1.1)}
    return dp.Plan(**chosen | fields)


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


def test_every_value_survives_both_formats() -> None:
    table: dict[str, Any] = {
        "schema": 1,
        "a name": 'with "quotes", \\ and \n',
        "numbers": [0.1, 1e-300, -3, 2**70],
        "rows": [["x", 1], ["y", {"z": True}]],
        "section": {"flag": False, "inner": {"share": 0.5}},
    }
    assert text.from_toml(text.to_toml(table)) == table
    assert text.from_json(text.to_json(table)) == table
    for wrong in (math.nan, math.inf):
        for write in (text.to_json, text.to_toml):
            with pytest.raises(ValueError, match="nan|inf|NaN|Infinity|not JSON"):
                write({"x": wrong})
