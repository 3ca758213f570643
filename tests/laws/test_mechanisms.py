"""Laws of mechanisms: bounded contributions for any input, folding, and what equals what."""

import contextlib
import dataclasses
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from discreet.errors import ParameterError
from discreet.ledger.folding import folded_noise_multiplier
from discreet.mechanisms import (
    Clipping,
    Gaussian,
    Group,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    NotPrivate,
    Split,
)
from support.mechanisms import (
    LEAVES,
    bounds,
    clipped_sums,
    for_any_leaves,
    mechanisms,
    multipliers,
    requested_multiplier,
    scaled_square,
    square_above,
    within_bound,
)

ANY = st.floats(width=64)
WIDE = st.floats(min_value=1e-12, max_value=1e30)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    leaves = draw(st.integers(1, 6))
    clipping = draw(st.sampled_from([Clipping.CLIP, Clipping.NORMALISE]))
    sizes = WIDE if clipping is Clipping.CLIP else bounds
    scales = draw(
        st.lists(sizes, min_size=leaves, max_size=leaves)
        | sizes.map(lambda scale: [scale] * leaves)
    )
    return Group(
        name="g",
        leaves=tuple("abcdef"[:leaves]),
        scales=tuple(scales),
        clip_norm=draw(st.floats(min_value=1e-2, max_value=1e3)),
        noise_std=1.0,
        clipping=clipping,
        stability=draw(st.floats(min_value=1e-6, max_value=1e3))
        if clipping is Clipping.NORMALISE
        else 0.0,
    )


# --- one record never exceeds its bound ---


@given(groups(), st.data(), st.sampled_from([np.float32, np.float64]), st.booleans())
@settings(max_examples=300)
def test_no_record_exceeds_the_clip_norm(
    group: Group, data: st.DataObject, dtype: Any, in_torch: bool
) -> None:
    """For NaN, infinities, zeros, denormals, huge and negative squared norms, and an empty sample;
    in exact arithmetic.
    """
    shape = (data.draw(st.integers(0, 4)), len(group.leaves))
    width = np.dtype(dtype).itemsize * 8
    near = st.sampled_from([(scale * group.clip_norm) ** 2 for scale in group.scales]).map(
        lambda x: float(dtype(min(x, 1e38)))
    )
    factor = st.sampled_from([1.0, 1.0 - 1e-7, 1.0 + 1e-7, 1.0 + 1e-15, 2.0, 0.3])
    around = st.tuples(near, factor).map(lambda pair: float(dtype(min(pair[0] * pair[1], 3e38))))
    squares = data.draw(hnp.arrays(dtype, shape, elements=st.floats(width=width) | around))
    given_squares = torch.from_numpy(squares.copy()) if in_torch else squares
    weights = np.asarray(group.weights(given_squares))
    assert weights.shape == (shape[0],)
    assert weights.dtype == dtype
    for row, weight in zip(squares.tolist(), weights.tolist(), strict=True):
        assert within_bound(group, row, weight)


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.integers(1, 8),
        elements=st.floats(width=16),
    ),
    st.sampled_from([1.0, 1e-30, 1e30]),
    bounds,
)
def test_vectors_of_any_dtype_are_bounded(vector: Any, size: float, clip_norm: float) -> None:
    with np.errstate(all="ignore"):
        vector = (vector * size).astype(vector.dtype)
    (group,) = Gaussian(clip_norm, 1.0).bind({"v": len(vector)}).start
    square = square_above(vector)
    assert within_bound(group, [square], float(group.weights(np.array([[square]]))[0]))


@given(groups(), st.lists(st.floats(min_value=1e-10, max_value=1e10), min_size=6, max_size=6))
def test_little_is_lost_by_rounding_down(group: Group, squares: list[float]) -> None:
    weight = float(group.weights(np.array([squares[: len(group.leaves)]]))[0])
    ratio = math.sqrt(scaled_square(group, squares[: len(group.leaves)])) / group.clip_norm
    ideal = (
        1.0 / (ratio + group.stability / group.clip_norm)
        if group.clipping is Clipping.NORMALISE
        else min(1.0, 1.0 / ratio)
    )
    assert weight == pytest.approx(ideal, rel=1e-13)


@given(
    st.lists(
        st.lists(st.floats(min_value=0.0, max_value=1e6), min_size=2, max_size=2),
        min_size=1,
        max_size=5,
    ),
    WIDE,
)
def test_no_clipping_means_identity(squares: list[list[float]], alpha: float) -> None:
    rows = np.array(squares)
    (group,) = Gaussian(2e6, 1.0).bind({"a": 1, "b": 1}).start
    assert group.weights(rows).tolist() == [1.0] * len(rows)
    (joint,) = Joint(1.0, 1.0, scales={"a": 2e3, "b": 2e3 + alpha}).bind({"a": 1, "b": 1}).start
    assert joint.weights(rows).tolist() == [1.0] * len(rows)
    (none,) = NotPrivate().bind({"a": 1, "b": 1}).start
    assert none.weights(rows).tolist() == [1.0] * len(rows)


@given(
    bounds,
    st.floats(min_value=0.01, max_value=1.0),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5),
)
def test_joint_clipping_of_one_vector_is_separate_clipping(
    alpha: float, clip_norm: float, vector: list[float]
) -> None:
    leaves = {"v": len(vector)}
    (joint,) = Joint(clip_norm, 1.0, scales={"v": alpha}).bind(leaves).start
    (separate,) = Gaussian(clip_norm * alpha, 1.0).bind(leaves).start
    records = {"v": np.array([vector])}
    scaled, _ = clipped_sums(joint, records)
    plain, _ = clipped_sums(separate, records)
    assert scaled["v"] * alpha == pytest.approx(plain["v"], rel=1e-12)
    assert joint.noise_std * alpha == pytest.approx(separate.noise_std, rel=1e-12)


# --- slots ---


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(0, 12), bounds)
def test_p15_a_record_more_moves_the_sum_of_slots_by_twice_the_clip_norm_at_most(
    seed: int, slots: int, size: int, clip_norm: float
) -> None:
    rng = np.random.default_rng(seed)
    (group,) = Microbatches(Gaussian(clip_norm, 1.0), slots).bind({"v": 2}).start
    rows = rng.normal(size=(size + 1, 2)) * 10.0 ** rng.integers(-3, 4, (size + 1, 1))
    places = rng.integers(0, slots, size + 1)
    with_it, _ = clipped_sums(group, {"v": rows}, places)
    without, _ = clipped_sums(group, {"v": rows[:-1]}, places[:-1])
    assert group.sensitivity == 2.0 * clip_norm
    assert np.linalg.norm(with_it["v"] - without["v"]) <= group.sensitivity * (1 + 1e-12)


def test_p15_slots_by_position_would_move_every_slot() -> None:
    """The wrong assignment: record i goes to slot i // 2. One record in front shifts all the
    others.
    """
    (group,) = Microbatches(Gaussian(1.0, 1.0), 9).bind({"v": 1}).start
    rows = np.array([[100.0], [-90.0], [-90.0], [100.0]] * 4)
    more = np.concatenate([[[100.0]], rows])
    before, after = (
        clipped_sums(group, {"v": data}, np.arange(len(data)) // 2)[0]["v"] for data in (rows, more)
    )
    assert np.abs(before - after).max() > 3 * group.sensitivity


# --- folding: what was asked for is what is stated ---


def check_folding(mechanism: Any) -> None:
    bound = mechanism.bind(LEAVES, "g")
    asked = requested_multiplier(mechanism)
    assert asked <= bound.noise_multiplier <= asked * (1 + 1e-14)
    assert bound.noise_multiplier == folded_noise_multiplier(bound.queries)
    assert math.fsum({row.group: row.share for row in bound.explain()}.values()) == pytest.approx(
        1.0
    )
    if depends_on_leaves(mechanism):
        with pytest.raises(ParameterError, match="Bind the mechanism first"):
            mechanism.bind_without_leaves("g")
    else:
        assert mechanism.bind_without_leaves("g").queries == bound.queries


def depends_on_leaves(mechanism: Any) -> bool:
    inner = getattr(mechanism, "mechanism", mechanism)
    return isinstance(inner, Split) and (
        inner.parts == "each leaf" or "by dimension" in (inner.clip, inner.noise)
    )


@given(mechanisms)
@settings(max_examples=200)
def test_p34_the_folded_multiplier_is_the_one_asked_for(mechanism: Any) -> None:
    check_folding(mechanism)


@given(mechanisms, st.lists(st.integers(1, 10**6), min_size=len(LEAVES), max_size=len(LEAVES)))
@settings(max_examples=200)
def test_a_mechanism_is_stated_without_leaves_only_where_they_cannot_matter(
    mechanism: Any, dimensions: list[int]
) -> None:
    """A stand-in has the queries of every leaves; and whoever refuses one has other queries for
    some.
    """
    sizes = dict(zip(LEAVES, dimensions, strict=True))
    uneven = LEAVES | {"grad/a.weight": 1000 * LEAVES["grad/a.weight"], "metric/more": 7}
    names = Groups({"*": mechanism})
    try:
        stand_in = names.bind_without_leaves()
    except ParameterError:
        with contextlib.suppress(ParameterError):  # shares for leaves that are named
            assert names.bind(LEAVES).queries != names.bind(uneven).queries
        assert names.open_groups() == ()
        return
    assert stand_in.queries == names.bind(sizes).queries == names.bind(uneven).queries
    assert stand_in.open_groups == names.open_groups() == ()


@given(st.lists(for_any_leaves, min_size=1, max_size=40))
@settings(max_examples=30)
def test_p34_any_number_of_groups_folds(parts: list[Any]) -> None:
    """Never above the truth, and close to it; also beyond the number of terms that are added
    exactly.
    """
    named = {f"{index}/*": part for index, part in enumerate(parts)}
    bound = Groups(named).bind(
        {f"{index}/{leaf}": size for index in range(len(parts)) for leaf, size in LEAVES.items()}
    )
    exact = sum(
        ((Fraction(query.sensitivity) / Fraction(query.noise_std)) ** 2 for query in bound.queries),
        Fraction(0),
    )
    assert Fraction(bound.noise_multiplier) ** 2 * exact <= 1
    assert bound.noise_multiplier == pytest.approx(requested_multiplier(Groups(named)), rel=1e-12)
    assert bound.noise_multiplier == folded_noise_multiplier(bound.queries)


def check_split(clip: Any, dimensions: dict[str, int]) -> None:
    """The sum of S_g^2 is S*^2: never above, and no less than rounding."""
    bound = Split(3.0, 1.1, clip=clip).bind(dimensions)
    total = sum((Fraction(group.clip_norm) ** 2 for group in bound.start), Fraction(0))
    assert Fraction(9) * (1 - Fraction(1, 10**12)) <= total <= Fraction(9)


@given(
    st.sampled_from(["equal", "by dimension"]),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**9), min_size=1),
)
def test_clip_norms_of_the_parts_add_up_to_the_total(clip: str, dimensions: dict[str, int]) -> None:
    check_split(clip, dimensions)


def test_the_printed_rule_by_dimension_does_not_add_up() -> None:
    """S*/sqrt(d_g/D), as printed, allows one record more than S*."""
    dimensions = np.array([96.0, 4.0])
    printed = 3.0 / np.sqrt(dimensions / dimensions.sum())
    assert np.sqrt((printed**2).sum()) > 5 * 3.0


# --- values ---


@given(mechanisms)
def test_mechanisms_are_values(mechanism: Any) -> None:
    """Equal, hashable, rebuilt from plain fields, and not to be changed."""
    plain = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    plain = {
        name: dict(value) if hasattr(value, "pairs") else value for name, value in plain.items()
    }
    again = type(mechanism)(**plain)
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(mechanism, next(iter(plain)), 1.0)


@given(multipliers, bounds, st.floats(min_value=1e-2, max_value=1e2))
def test_normalised_records_all_reach_almost_the_clip_norm(
    multiplier: float, clip_norm: float, norm: float
) -> None:
    (group,) = Normalised(clip_norm, multiplier, stability=clip_norm * 1e-6).bind({"v": 1}).start
    weight = float(group.weights(np.array([[norm**2]]))[0])
    assert weight * norm == pytest.approx(clip_norm * norm / (norm + clip_norm * 1e-6), rel=1e-12)
