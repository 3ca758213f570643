"""One key, one noise: whatever computes it, in whatever pieces, on however many threads, into
whatever buffer.

The fast paths differ in how they compute and in which pairs they leave to the exact path; the
integers may not. The stored numbers notice every later change of the map.
"""

import hashlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from discreet.numerics import Grid
from discreet.randomness import (
    GaussianNoise,
    Purpose,
    Source,
    Stream,
    _compiled,
    box_muller,
    gaussian,
    release,
)
from discreet.randomness.ahead import NoiseAhead
from support.words import adversarial

KEY = bytes(range(32))
SCALE = 1.1 * 2**23
SIZE = 20_001
Candidates = Callable[[NDArray[np.uint64], float, NDArray[np.float64]], NDArray[np.intp]]


def through_torch(
    words: NDArray[np.uint64], scale: float, out: NDArray[np.float64]
) -> NDArray[np.intp]:
    """The map by torch's own log, cos and sin,
    with a margin that is far wider than their errors.
    """
    first, second = words[0::2], words[1::2]
    uniform = torch.from_numpy((first >> np.uint64(1)).astype(np.float64) * 2.0**-63)
    angle = torch.from_numpy(
        (second & np.uint64(2**52 - 1)).astype(np.float64) * 2.0**-52 - 0.5
    ) * (torch.pi / 2)
    radius = scale * torch.sqrt(-2.0 * torch.log(uniform))
    sign = torch.from_numpy(1.0 - 2.0 * (second >> np.uint64(63)).astype(np.float64))
    exchange = torch.from_numpy((second >> np.uint64(62) & np.uint64(1)).astype(bool))
    x, y = sign * radius * torch.cos(angle), sign * radius * torch.sin(angle)
    pairs = torch.stack([torch.where(exchange, y, x), torch.where(exchange, x, y)], dim=1)
    nearest = torch.round(pairs)
    out.reshape(-1, 2)[:] = nearest.numpy()
    sure = (
        ((pairs - nearest).abs() < 0.5 - scale * 2.0**-38).all(dim=1)
        & (uniform > 2.0**-18)
        & (uniform < 1.0 - 2.0**-10)
    )
    return np.flatnonzero(~sure.numpy())


def all_undecided(
    words: NDArray[np.uint64], scale: float, out: NDArray[np.float64]
) -> NDArray[np.intp]:
    """No fast path at all."""
    out[:] = np.nan
    return np.arange(words.size // 2)


BACKENDS: dict[str, Candidates] = {
    "numpy": box_muller.candidates,
    "compiled": _compiled.compiled_candidates,
    "torch": through_torch,
}


@pytest.fixture(params=[*BACKENDS])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setattr(gaussian, "_backend", lambda: BACKENDS[name])
    return name


def stream(step: int = 0) -> Stream:
    return Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=step)


def noise(size: int = SIZE, scale: float = SCALE, threads: int = 1) -> NDArray[np.float64]:
    return GaussianNoise(stream(), scale=scale, size=size, threads=threads).take(size)


# The first numbers of the key 00 01 ... 1f, step 0, and the hash of the first 20,001 as
# little-endian int64.
FIRST = [-11019765, 4485133, -5578888, 5476593, 4853577, -16191638, -13762631, 14685897]
HASHES = {
    1.0: "5990140c017b98b41f7dbd967d9958d7e9c7b0ecdb58e9e585ebf813e3cc531e",
    SCALE: "92627c54b099f3d55e4ec3f317ebb7c58008a081ea6feedbe76372e9f9cf9a6a",
    2.0**32: "b90957fe43d58ff32e81ec83088edd91a13d5b6fe504e62a20c1927412bfa62f",
}


@pytest.mark.parametrize("scale", HASHES)
def test_the_stored_numbers(backend: str, scale: float) -> None:
    numbers = noise(scale=scale)
    assert numbers.dtype == np.float64
    assert not np.signbit(numbers[numbers == 0.0]).any()
    assert hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest() == HASHES[scale]
    if scale == SCALE:
        assert numbers[:8].astype(int).tolist() == FIRST


def test_the_exact_path_alone_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = noise(2_000)
    monkeypatch.setattr(gaussian, "_backend", lambda: all_undecided)
    assert np.array_equal(noise(2_000), expected)


@pytest.mark.parametrize("scale", [0.7, SCALE, 2.0**32])
def test_adversarial_words(scale: float) -> None:
    """Where two fast paths both decide, they decide alike: ends of the window, powers of two, near
    rounding boundaries.
    """
    words = adversarial(200_000, scale, seed=4)
    results = {}
    for name, candidates in BACKENDS.items():
        out = np.empty(words.size)
        doubts = candidates(words, scale, out)
        out.reshape(-1, 2)[doubts] = np.nan
        results[name] = out
    for name in ("compiled", "torch"):
        both = ~np.isnan(results["numpy"]) & ~np.isnan(results[name])
        assert both.mean() > 0.1
        assert np.array_equal(results["numpy"][both], results[name][both])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads(backend: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = noise()
    monkeypatch.setattr(gaussian, "_WORTH", 1_001)
    assert np.array_equal(noise(threads=threads), expected)


def test_doubts_in_every_piece_of_a_long_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """At this scale one pair in some hundreds is left to the exact path; wherever it lies, its
    numbers go where they belong.
    """
    expected = noise(3 * gaussian._PIECE + 7, scale=2.0**32)
    monkeypatch.setattr(gaussian, "_backend", lambda: box_muller.candidates)
    assert np.array_equal(noise(3 * gaussian._PIECE + 7, scale=2.0**32), expected)


WHOLE = noise()


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, SIZE), max_size=12),
    name=st.sampled_from([*BACKENDS]),
    threads=st.integers(1, 3),
    chunk=st.sampled_from([1_000, 1_001, 2**15]),
)
def test_any_pieces(cuts: list[int], name: str, threads: int, chunk: int) -> None:
    ends = sorted({0, SIZE, *cuts})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_backend", lambda: BACKENDS[name])
        patch.setattr(gaussian, "_WORTH", 3_000)
        patch.setattr(gaussian, "_CHUNK", chunk)
        source = GaussianNoise(stream(), scale=SCALE, size=SIZE, threads=threads)
        pieces = [source.take(b - a) for a, b in pairwise(ends)]
    assert np.array_equal(np.concatenate(pieces), WHOLE)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 11, 13), (70_001,)])
def test_any_buffer(backend: str, shape: tuple[int, ...], kind: type[np.floating]) -> None:
    """NumPy arrays and views of torch tensors, a new one or in place, on one thread or two, ahead
    or not: the same bytes.
    """
    grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    sums = np.linspace(-3.0, 3.0, int(np.prod(shape))).reshape(shape).astype(kind)
    expected = release(sums, grid=grid, noise_std=1.1, stream=stream()).tobytes()
    tensor = torch.from_numpy(sums.copy())
    release(
        tensor.numpy(), grid=grid, noise_std=1.1, stream=stream(), out=tensor.numpy(), threads=2
    )
    assert tensor.numpy().tobytes() == expected
    with NoiseAhead(stream(), grid=grid, noise_std=1.1, size=sums.size, threads=2) as drawn:
        assert drawn.release(torch.from_numpy(sums).numpy()).tobytes() == expected


def test_a_release_has_no_signed_zero(backend: str) -> None:
    """The sign of a zero would tell that a sum rounded up to it from below."""
    grid = Grid(1.0)
    given = release(np.full(4_000, -0.3), grid=grid, noise_std=0.4, stream=stream())
    assert (given == 0.0).sum() > 1_000
    assert not np.signbit(given[given == 0.0]).any()


@pytest.mark.parametrize("name", ["numpy", "compiled"])
def test_a_wrong_backend_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One number off by one: not the same noise."""

    def off(words: NDArray[np.uint64], scale: float, out: NDArray[np.float64]) -> NDArray[np.intp]:
        found = BACKENDS[name](words, scale, out)
        out[out.size // 2] += 1.0
        return found

    monkeypatch.setattr(gaussian, "_backend", lambda: off)
    assert not np.array_equal(noise(), WHOLE)
