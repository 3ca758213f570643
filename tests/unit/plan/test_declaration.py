"""What plans and programmes have in common: files, and a target that is met or refused."""

from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.mechanisms import Gaussian
from discreet.plan import Target
from discreet.plan.programme import from_text
from discreet.sampling import Sampler

SAMPLER = Sampler(dp.Poisson(0.01), records=1_000, steps=10)


def plan(mechanism: Any = None, **fields: Any) -> dp.Plan:
    chosen: dict[str, Any] = {"sampler": SAMPLER, "mechanism": mechanism or Gaussian(1.0, 1.1)}
    return dp.Plan(**chosen | fields)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_plan_is_saved_and_loaded(tmp_path: Path, suffix: str) -> None:
    made, path = plan(leaves={'quote " and \\ back': 3}), tmp_path / f"plan.{suffix}"
    made.save(path)
    made.save(str(path))  # the same plan again is no harm
    assert dp.Plan.load(path) == made
    with pytest.raises(dp.errors.ParameterError, match="path"):
        plan().save(path)
    assert dp.Plan.load(path) == made


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


def test_a_plan_is_a_programme_of_one_for_everyone_who_reads() -> None:
    one = dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, noise_multiplier=1.0)
    programme = dp.Programme({"only": one})
    assert list(one.plans.values()) == list(programme.plans.values()) == [one]
    assert one.charges() == programme.charges()
    assert one.marks() == programme.marks() == ()
    for declared in (one, programme):
        assert from_text(declared.to_json()) == from_text(declared.to_toml()) == declared


def test_a_target_that_is_not_met_is_refused() -> None:
    one = dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, noise_multiplier=1.0)
    for declared in (one, dp.Programme({"only": one})):
        epsilon = dp.account(declared, delta=1e-5).upper
        assert declared.certified(Target(epsilon, 1e-5)).target == Target(epsilon, 1e-5)
        with pytest.raises(dp.errors.AccountingError, match="a certified upper bound of"):
            declared.certified(Target(0.9 * epsilon, 1e-5))
