"""Group: what it refuses, edge cases of weights, both array libraries."""

import math

import numpy as np
import pytest
import torch

from discreet.errors import NumericsError, ParameterError
from discreet.ledger import GaussianSum
from discreet.mechanisms import Clipping, Gaussian, Group, Microbatches, Normalised, NotPrivate
from support.mechanisms import within_bound

GROUP = Group(name="g", leaves=("a", "b"), scales=(1.0, 100.0), clip_norm=1.0, noise_std=2.0)


def test_p13_a_record_that_is_not_a_number_has_weight_zero_and_changes_nobody() -> None:
    good = np.array([[4.0, 0.0], [0.01, 0.0]])
    bad = np.array([[math.nan, 0.0], [0.0, math.inf], [-1.0, 4.0], [1e308, 1e308]])
    for group in (
        GROUP,
        *Gaussian(1.0, 1.0).bind({"a": 1, "b": 1}).start,
        *Normalised(1.0, 1.0).bind({"a": 1, "b": 1}).start,
    ):
        together = group.weights(np.concatenate([good, bad]))
        assert together[:2].tolist() == group.weights(good).tolist()
        assert together[2:5].tolist() == [0.0, 0.0, 0.0]
        assert together[5] < 1e-150


def test_a_zero_norm_breaks_nothing() -> None:
    zero = np.zeros((1, 2))
    assert GROUP.weights(zero).tolist() == [1.0]
    (normalised,) = Normalised(2.0, 1.0, stability=0.5).bind({"a": 1, "b": 1}).start
    assert normalised.weights(zero).tolist() == [4.0]
    (baseline,) = NotPrivate().bind({"a": 1, "b": 1}).start
    assert baseline.weights(np.array([[0.0, 0.0], [1e308, 1e308], [math.nan, 0.0]])).tolist() == [
        1.0,
        1.0,
        0.0,
    ]


def test_an_empty_sample_has_no_weights() -> None:
    assert GROUP.weights(np.zeros((0, 2))).shape == (0,)
    assert GROUP.weights(torch.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_and_torch_agree(dtype: torch.dtype) -> None:
    squares = torch.rand(50, 2, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 1e4
    before = squares.clone()
    weights = GROUP.weights(squares)
    assert weights.dtype == dtype
    assert np.allclose(
        weights.numpy(), GROUP.weights(squares.numpy()), rtol=4 * torch.finfo(dtype).eps
    )
    assert torch.equal(squares, before)  # the engine's norms are not written to


def test_squared_norms_in_half_precision_are_refused() -> None:
    for squares in (np.ones((1, 2), np.float16), torch.ones(1, 2, dtype=torch.bfloat16)):
        with pytest.raises(NumericsError, match="16 bits"):
            GROUP.weights(squares)


def test_a_bound_whose_square_would_vanish_in_float32_is_refused() -> None:
    """Flushed to zero, the square of a norm far above such a bound would look like no norm at
    all.
    """
    (group,) = Gaussian(1e-25, 1.0).bind({"a": 1}).start
    with pytest.raises(NumericsError, match="well inside"):
        group.weights(np.ones((1, 1), np.float32))
    assert group.weights(np.ones((1, 1)))[0] == pytest.approx(1e-25)


def test_flushing_denormals_to_zero_breaks_no_bound() -> None:
    """Training code may switch it on. At the least bound allowed, norms from far below to above it
    stay within.
    """
    (clip,) = Gaussian(2.0**-48, 1.0).bind({"a": 1}).start
    (normalise,) = Normalised(2.0**-30, 1.0, stability=2.0**-40).bind({"a": 1}).start
    squares = 2.0 ** np.linspace(-149.0, -60.0, 2000, dtype=np.float32)[:, None]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        weights = [group.weights(torch.from_numpy(squares)).tolist() for group in (clip, normalise)]
    finally:
        torch.set_flush_denormal(False)
    for group, its in zip((clip, normalise), weights, strict=True):
        assert sum(weight > 0.0 for weight in its) > 1000  # not empty of content
        assert all(
            within_bound(group, row, weight)
            for row, weight in zip(squares.tolist(), its, strict=True)
            if weight > 0.0
        )


def test_norms_of_another_shape_are_refused() -> None:
    for shape in ((3,), (3, 1), (3, 2, 1)):
        with pytest.raises(ParameterError, match=r"of shape \(records, 2\)"):
            GROUP.weights(np.zeros(shape))


def test_the_event_is_what_is_executed() -> None:
    assert GROUP.query == GaussianSum("g", 1.0, 2.0)
    (slots,) = Microbatches(Gaussian(1.5, 2.0), 8).bind({"a": 1}).start
    assert slots.query == GaussianSum("all", 3.0, 6.0)
    assert slots.clip_norm == 1.5
    assert (slots.divisor(100.0), GROUP.divisor(100.0)) == (8.0, 100.0)


def test_what_is_not_private_has_no_event() -> None:
    (group,) = NotPrivate().bind({"a": 1}).start
    with pytest.raises(ParameterError, match="unsafe_no_privacy"):
        _ = group.query


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("leaves", ()),
        ("scales", (1.0,)),
        ("scales", (1.0, 0.0)),
        ("scales", (1.0, math.inf)),
        ("clip_norm", 0.0),
        ("slots", 0),
        ("name", ""),
        ("clip_norm", math.inf),
        ("noise_std", 0.0),
        ("noise_std", math.nan),
        ("clipping", Clipping.NONE),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    fields = {
        "name": "g",
        "leaves": ("a", "b"),
        "scales": (1.0, 1.0),
        "clip_norm": 1.0,
        "noise_std": 1.0,
    }
    with pytest.raises(ParameterError):
        Group(**fields | {field: value})  # type: ignore[arg-type]
