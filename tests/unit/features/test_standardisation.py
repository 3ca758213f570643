"""Means and standard deviations by one private query."""

from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

import discreet as dp
from discreet.aggregation import Aggregator, Release
from discreet.features import Standardisation, rowwise, standardise, standardise_plan
from discreet.randomness import Source
from discreet.sampling import Owners, Sampler

N = 4_000
KEY = bytes(range(3, 35))


def vectors(mean: Any = (0.3, -0.2, 0.0), std: Any = (1.0, 0.7, 1.2)) -> Any:
    return np.random.default_rng(2).normal(mean, std, (N, len(mean)))


def found(data: Any, **other: Any) -> Standardisation:
    plan = other.pop("plan", None) or standardise_plan(
        records=N,
        dimension=data[0].size,
        noise_multiplier=other.pop("noise_multiplier", 5.0),
        clip_norm=6.0,
    )
    source = Source.unsafe_test_key(KEY)
    return standardise(
        data,
        plan=plan,
        ledger=other.pop("ledger", None) or dp.Ledger.in_memory(),
        source=source,
        **other,
    )


def test_mean_and_std_are_near_the_true_ones() -> None:
    data = vectors()
    one = found(data)  # noise on means and variances: 5 * 6 * sqrt(6)/4000 = 0.018
    assert np.allclose(one.mean, data.mean(0), atol=0.1)
    assert np.allclose(one.std**2, data.var(0), atol=0.2)
    assert np.allclose(one(data).mean(0), 0.0, atol=0.2)
    assert np.allclose(one(data).std(0), 1.0, atol=0.2)


def test_a_reference_is_the_unit() -> None:
    data = vectors((1000.3, -499.8), (1.0, 2.0))
    one = found(data, reference=([1000.0, -500.0], [1.0, 2.0]))
    assert np.allclose(one.mean, data.mean(0), atol=0.2)
    assert np.allclose(one.std, data.std(0), atol=0.3)


def test_one_charge_before_the_release_and_nothing_else() -> None:
    ledger = dp.Ledger.in_memory()
    plan = standardise_plan(records=N, dimension=3, noise_multiplier=5.0)
    found(vectors(), plan=plan, ledger=ledger)
    (charge,) = ledger.charges()
    assert (
        charge.step
        == plan.step
        == dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("moments", 2.0, 10.0))
    )
    assert charge.count == 1
    assert charge.run.numerics is dp.Numerics.EXACT


def test_p13_records_that_are_not_finite_contribute_nothing() -> None:
    data = vectors()
    zeroed = data.copy()
    data[:7, 1], data[7, 0] = np.nan, np.inf
    zeroed[:8] = [np.nan] * 3
    assert np.array_equal(found(data).mean, found(zeroed).mean)
    assert np.all(np.isfinite(found(data).std))


def test_one_wild_record_moves_little() -> None:
    data = vectors()
    wild = data.copy()
    wild[0] = [1e12, -1e12, 1e12]
    assert np.abs(found(data).mean - found(wild).mean).max() <= 2 * 6.0 * 6**0.5 / N


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    data = vectors().astype(np.float32)
    whole = found(data)
    applied = whole(data)
    monkeypatch.setattr(rowwise, "_CHUNK", 1_000)
    assert np.array_equal(found(data).std, whole.std)
    assert np.array_equal(whole(data), applied)
    assert applied.dtype == np.float32


def test_groups_share_one_std_with_less_noise() -> None:
    data = vectors((0.0,) * 40, (1.0,) * 40)
    alone, shared = (
        found(data, noise_multiplier=40.0, groups=groups).std
        for groups in (None, [0] * 20 + [1] * 20)
    )
    assert len(np.unique(shared)) == 2
    assert np.abs(shared - 1.0).max() < 0.5 * np.abs(alone - 1.0).max()


def test_the_floor_is_kept() -> None:
    data = vectors((0.0, 0.0, 0.0), (1e-6, 1e-6, 1.0))
    assert found(data, floor=0.25).std.min() == 0.25
    noise = 5.0 * 6.0 * 6**0.5 / N
    assert np.isclose(found(data).std.min(), noise**0.5)


def test_p42_without_noise_is_marked() -> None:
    ledger = dp.Ledger.in_memory()
    plan = dp.Plan(
        sampler=Sampler(dp.Everything(), records=N, steps=1),
        mechanism=dp.NotPrivate(),
        leaves={"moments": 6},
    )
    data = vectors()
    one = found(data, plan=plan, ledger=ledger)
    assert np.allclose(one.std, data.std(0), atol=1e-6)
    assert ledger.marks()


def test_p29_a_poisson_sample_is_divided_by_its_expected_size() -> None:
    sampler = Sampler(dp.Poisson(0.5), records=N, steps=1)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(6.0, 1.0), leaves={"moments": 6})
    assert np.allclose(found(vectors(), plan=plan).mean, [0.3, -0.2, 0.0], atol=0.15)


@pytest.mark.parametrize(
    "other",
    [
        {"reference": (0.0, 0.0)},
        {"reference": (np.nan, 1.0)},
        {"reference": ([0.0, 1.0], 1.0)},
        {"reference": 3},
        {"floor": 0.0},
        {"groups": [0, 1]},
        {"groups": [0.0, 1.0, 2.0]},
        {"groups": [0, 1, 3]},
        {"groups": [0, 1, -1]},
        {"plan": standardise_plan(records=N, dimension=4, noise_multiplier=1.0)},
        {"plan": standardise_plan(records=N + 1, dimension=3, noise_multiplier=1.0)},
        {
            "plan": dp.Plan(
                sampler=Sampler(dp.Everything(), records=N, steps=2),
                mechanism=dp.Gaussian(1.0, 1.0),
                leaves={"moments": 6},
            )
        },
        {"plan": dp.Plan.dpsgd(sampling_probability=0.1, steps=1, noise_multiplier=1.0)},
        {"plan": 3},
    ],
)
def test_wrong_parameters_charge_nothing(other: Any) -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.ParameterError):
        found(vectors(), ledger=ledger, **other)
    assert not ledger.charges()


def test_units_that_own_rows_are_refused() -> None:
    owners = Owners.from_ids(np.arange(N))
    sampler = Sampler(dp.Everything(), records=N, steps=1, owners=owners)
    plan = dp.Plan(
        sampler=sampler, mechanism=dp.Gaussian(1.0, 1.0), leaves={"moments": 6}, unit=owners.unit
    )
    with pytest.raises(dp.errors.ParameterError):
        found(vectors(), plan=plan)


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    one = found(vectors())
    one.save(tmp_path / "scale.npz")
    again = Standardisation.load(tmp_path / "scale.npz")
    assert np.array_equal(one.mean, again.mean)
    assert np.array_equal(one.std, again.std)
    with pytest.raises(dp.errors.ParameterError):
        one.save(tmp_path / "scale.npz")  # never over another


def test_p46_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", mean=np.ones(2), std=np.ones(2))
    np.savez(tmp_path / "objects.npz", mean=np.array([{}], object), std=np.ones(1))
    np.save(tmp_path / "array.npy", np.ones(2))
    (tmp_path / "text.npz").write_text("no")
    (tmp_path / "empty.npz").write_bytes(b"")
    Standardisation(mean=np.ones(2), std=np.ones(2)).save(tmp_path / "right.npz")
    with (
        ZipFile(tmp_path / "right.npz") as right,
        ZipFile(tmp_path / "broken.npz", "w", ZIP_DEFLATED) as broken,
    ):
        for part in right.namelist():
            broken.writestr(part, right.read(part))
        place = broken.getinfo("mean.npy").header_offset + 38  # of what is compressed
    whole = (tmp_path / "broken.npz").read_bytes()
    (tmp_path / "broken.npz").write_bytes(whole[:place] + 8 * b"\xff" + whole[place + 8 :])
    for name in (
        "other.npz",
        "objects.npz",
        "array.npy",
        "text.npz",
        "empty.npz",
        "none.npz",
        "broken.npz",
    ):
        with pytest.raises(dp.errors.ParameterError):
            Standardisation.load(tmp_path / name)


class Touches:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_p46_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    wild = np.array([Touches(tmp_path / "touched")], object)
    parts: dict[str, Any] = {
        "discreet.features": np.array("Standardisation"),
        "mean": wild,
        "std": np.ones(1),
    }
    np.savez(tmp_path / "wild.npz", **parts)
    with pytest.raises(dp.errors.ParameterError):
        Standardisation.load(tmp_path / "wild.npz")
    assert not (tmp_path / "touched").exists()


def test_its_arrays_cannot_be_changed() -> None:
    mean = np.zeros(2)
    one = Standardisation(mean, np.ones(2))
    mean[0] = 5.0
    assert one.mean[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        one.std[0] = 2.0


@pytest.mark.parametrize(
    ("mean", "std"),
    [([0.0], [0.0]), ([0.0], [1.0, 1.0]), ([np.nan], [1.0]), ([0.0], [np.inf]), ([[0.0]], [[1.0]])],
)
def test_what_is_no_standardisation_is_refused(mean: Any, std: Any) -> None:
    with pytest.raises(dp.errors.ParameterError):
        Standardisation(np.array(mean), np.array(std))


def test_rows_of_another_size_are_refused() -> None:
    with pytest.raises(dp.errors.ParameterError):
        Standardisation(np.zeros(2), np.ones(2))(np.zeros((3, 3)))


def test_p42_the_result_is_a_function_of_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Aggregator.release
    kept: list[Release] = []

    def first(self: Aggregator, sample: dp.sampling.Sample, records: Any) -> Release:
        kept.append(release(self, sample, records))
        return kept[0]

    monkeypatch.setattr(Aggregator, "release", first)
    one, two = found(vectors()), found(vectors((0.9, 0.9, 0.9)))
    assert np.array_equal(one.mean, two.mean)
    assert np.array_equal(one.std, two.std)


def test_p20_other_noise_gives_another_result() -> None:
    plan = standardise_plan(records=N, dimension=3, noise_multiplier=5.0)
    one, two = (standardise(vectors(), plan=plan, ledger=dp.Ledger.in_memory()) for _ in range(2))
    assert np.all(one.mean != two.mean)
    assert np.all(one.std != two.std)
