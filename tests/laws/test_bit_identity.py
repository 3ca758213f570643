"""One key, one noise: whatever computes it, in whatever pieces, on however many threads, into
whatever buffer.

The fast paths differ in how they compute and in which numbers they leave to the exact path; the
integers may not. The stored numbers notice every later change of the map.
"""

import hashlib
from itertools import pairwise
from typing import Any

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
    gaussian,
    release,
    ziggurat,
)
from discreet.randomness.addresses import BLOCK_SIZE, PIECE_SIZE
from discreet.randomness.ahead import NoiseAhead
from discreet.randomness.layers import tables
from discreet.randomness.ziggurat import Backend
from support.backends import LAZY
from support.words import adversarial

KEY = bytes(range(32))
SCALE = 1.1 * 2**23
SIZE = 20_001


def through_torch(
    words: NDArray[np.uint64],
    scale: float,
    sums: NDArray[np.floating],
    spacing: float,
    out: NDArray[np.floating],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The map of the numbers that are inside, by torch's own arithmetic, with a margin that is far
    wider than its errors.
    """
    layer = torch.from_numpy((words & np.uint64(4095)).astype(np.int64))
    position = torch.from_numpy((words >> np.uint64(12)).astype(np.float64) * 2.0**-52 - 0.5)
    x = position * torch.from_numpy(tables().twice_widths.copy())[layer] * scale
    nearest = torch.round(x)
    inside = position.abs() <= torch.from_numpy(tables().limits.copy())[layer]
    sure = inside & ((x - nearest).abs() < 0.5 - scale * 2.0**-40)
    units = torch.round(torch.from_numpy(sums.astype(np.float64)) / spacing)
    released = torch.where(sure, units + nearest + 0.0, torch.nan) * spacing
    out[:] = released.numpy()
    places = np.flatnonzero(~sure.numpy())
    return places, units.numpy()[places]


BACKENDS: dict[str, Backend] = {
    "numpy": ziggurat.IN_NUMPY,
    "compiled": _compiled.COMPILED,
    "torch": LAZY._replace(release=through_torch),
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
# little-endian int64; MANY is that of the first 2^21 + 30,000.
FIRST = [-2478299, 6844215, 13330483, 4277918, -18918163, 11842724, -15271216, -1004731]
MANY = "c745068cf7e8a66cbd35dff702ed537999ba023dab2fc47663cf89607d59f182"
HASHES = {
    1.0: "b642a4c3e0283b05a79f93b215b5b9f823c6850427b5a8558043e077f3e03e90",
    SCALE: "b0cf461ba7d8134a892c081e0040ce0ce9577447402b1f2cac01476527606c26",
    2.0**32: "5d1acfc7b39d4089acb73e8aaac200156306095ac5b577d7e31a460446e83d04",
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
    monkeypatch.setattr(gaussian, "_backend", lambda: LAZY)
    assert np.array_equal(noise(2_000), expected)


@pytest.mark.parametrize("scale", [0.7, SCALE, 2.0**32])
def test_adversarial_words(scale: float) -> None:
    """Where two fast paths both decide, they decide alike: ends of layers, points close to the
    bell, the tail, near rounding boundaries.
    """
    first = adversarial(60_000, scale, seed=4).first
    results = {}
    for name, backend in BACKENDS.items():
        results[name] = np.zeros(first.size)
        backend.release(first, scale, results[name], 1.0, results[name])
    for name in ("compiled", "torch"):
        both = ~np.isnan(results["numpy"]) & ~np.isnan(results[name])
        assert both.mean() > 0.1
        assert np.array_equal(results["numpy"][both], results[name][both])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("name", ["numpy", "compiled"])
def test_any_number_of_threads(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut between blocks, which have a size of their own; the first part begins within one."""
    monkeypatch.setattr(gaussian, "_backend", lambda: BACKENDS[name])
    monkeypatch.setattr(gaussian, "_WORTH", 1_001)
    size = 2 * BLOCK_SIZE + 30_000
    source = GaussianNoise(stream(), scale=SCALE, size=size, threads=threads)
    taken = np.concatenate([source.take(1_001), source.take(source.left)])
    assert hashlib.sha256(taken.astype("<i8").tobytes()).hexdigest() == MANY
    assert np.array_equal(taken[:SIZE], WHOLE)


def test_doubts_in_every_piece_of_a_long_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """At this scale one number in some thousands is left to the exact path; wherever it lies, it
    goes where it belongs.
    """
    expected = noise(2 * PIECE_SIZE + 7, scale=2.0**32)
    monkeypatch.setattr(gaussian, "_backend", lambda: BACKENDS["compiled"])
    assert np.array_equal(noise(2 * PIECE_SIZE + 7, scale=2.0**32), expected)


WHOLE = noise()


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, SIZE), max_size=12),
    name=st.sampled_from([*BACKENDS]),
    piece=st.sampled_from([1_000, 1_001, PIECE_SIZE]),
)
def test_any_pieces(cuts: list[int], name: str, piece: int) -> None:
    ends = sorted({0, SIZE, *cuts})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_backend", lambda: BACKENDS[name])
        patch.setattr(gaussian, "PIECE_SIZE", piece)
        source = GaussianNoise(stream(), scale=SCALE, size=SIZE)
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
    right = BACKENDS[name]

    def off(*arguments: Any) -> Any:
        found = right.release(*arguments)
        arguments[-1][arguments[-1].size // 2] += 1.0
        return found

    monkeypatch.setattr(gaussian, "_backend", lambda: right._replace(release=off))
    assert not np.array_equal(noise(), WHOLE)
