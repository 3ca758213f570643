"""Noise of one release: every position once, the same numbers however they are taken, and what is
refused.
"""

import copy
import multiprocessing
import os
import pickle
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.numerics.grid import Grid
from discreet.randomness import (
    GaussianNoise,
    Purpose,
    Source,
    Stream,
    addresses,
    gaussian,
    release,
    ziggurat,
)
from discreet.randomness.addresses import BLOCK_SIZE, FURTHER, PIECE_SIZE
from discreet.randomness.refine import refine
from support.backends import LAZY, broken

KEY = bytes(range(100, 132))
SCALE = 1.1 * 2**23


def stream(step: int = 0, purpose: Purpose = Purpose.NOISE) -> Stream:
    return Source.unsafe_test_key(KEY).stream(purpose, step=step)


def noise(size: int, scale: float = SCALE) -> GaussianNoise:
    return GaussianNoise(stream(), scale=scale, size=size)


WHOLE = noise(5_000).take(5_000)


def test_the_numbers_are_those_of_the_map() -> None:
    """By the exact path alone, with the words of the stated addresses."""
    words = stream().words(5_000)
    outside = np.flatnonzero(ziggurat.is_outside(words))
    rows = stream().child("further").words(FURTHER * outside.size).reshape(-1, FURTHER)
    known = {j: np.append(words[j], rows[rank]) for rank, j in enumerate(outside.tolist())}
    assert len(known) > 1
    for j in {*range(100), *known}:
        assert refine(stream(), j, known.get(j, words[j : j + 1]), SCALE) == WHOLE[j]


@given(st.lists(st.integers(0, 700), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_pieces_give_the_same_numbers(pieces: list[int]) -> None:
    total = min(sum(pieces), 5_000)
    source = noise(5_000)
    taken = [source.take(min(piece, source.left)) for piece in pieces]
    assert np.array_equal(np.concatenate(taken)[:total], WHOLE[:total])


def test_pieces_longer_than_a_block() -> None:
    size = BLOCK_SIZE + PIECE_SIZE + 7
    whole = noise(size).take(size)
    parts = noise(size)
    assert np.array_equal(
        whole,
        np.concatenate([parts.take(3), parts.take(BLOCK_SIZE + 2), parts.take(parts.left)]),
    )


def test_ranks_are_counted_where_they_are_not_known() -> None:
    """Whoever comes to the middle of a block first counts what is outside before it."""
    size = 2 * PIECE_SIZE + 100
    whole, parts = noise(size).take(size), noise(size)
    first = parts.take(PIECE_SIZE + 50)
    parts._ranked = 0, 0
    assert np.array_equal(np.concatenate([first, parts.take(parts.left)]), whole)


def test_every_number_refined_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend may leave any number undecided."""
    monkeypatch.setattr(gaussian, "_backend", lambda: LAZY)
    assert np.array_equal(noise(1_000).take(1_000), WHOLE[:1_000])


def test_adding_is_exact_and_in_place() -> None:
    integers = np.full((10, 5), 2.0**51 + 1)
    noise(50).add_to(integers)
    assert np.array_equal(integers.reshape(-1) - (2.0**51 + 1), WHOLE[:50])


def test_no_more_than_the_size() -> None:
    source = noise(3)
    source.take(2)
    with pytest.raises(RandomnessMisuse, match="at most 1 more"):
        source.take(2)
    assert source.left == 1
    source.take(1)
    with pytest.raises(RandomnessMisuse):
        source.add_to(np.zeros(1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5, 2.0**52, -(2.0**52)])
def test_values_that_are_not_exact_are_refused_and_nothing_changes(value: float) -> None:
    source = noise(4)
    integers = np.array([1.0, 2.0, 3.0, value])
    with pytest.raises(NumericsError):
        source.add_to(integers)
    assert list(integers[:3]) == [1.0, 2.0, 3.0]
    assert source.left == 4


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, np.float32),
        np.zeros(4, np.int64),
        np.zeros(8)[::2],
        np.zeros((2, 2)).T,
        [0.0, 0.0],
        np.zeros(4, ">f8"),
    ],
)
def test_other_buffers_are_refused(array: Any) -> None:
    with pytest.raises(ParameterError):
        noise(4).add_to(array)


def test_a_read_only_buffer_is_refused_before_noise_is_given_out() -> None:
    source, integers = noise(4), np.zeros(4)
    integers.flags.writeable = False
    with pytest.raises(ParameterError, match="writable"):
        source.add_to(integers)
    assert source.left == 4


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 2.0**-33, 2.0**33, "1"])
def test_scales_outside_the_proof_are_refused(scale: float) -> None:
    with pytest.raises(ParameterError, match="scale"):
        noise(4, scale)


def test_more_numbers_than_have_further_words_are_refused() -> None:
    unused = stream()
    with pytest.raises(ParameterError, match="2\\^31"):
        GaussianNoise(unused, scale=SCALE, size=2**31 + 1)
    assert GaussianNoise(unused, scale=SCALE, size=2**31).left == 2**31


# --- P20: one stream, one release ---


def test_p20_a_stream_serves_one_release() -> None:
    source = stream()
    GaussianNoise(source, scale=SCALE, size=4)
    for use in (
        lambda: GaussianNoise(source, scale=SCALE, size=4),
        lambda: source.words(1),
        lambda: source.child("x"),
    ):
        with pytest.raises(RandomnessMisuse):
            use()


def test_p20_a_stream_that_was_read_gives_no_noise() -> None:
    read, parent = stream(), stream()
    read.words(1)
    parent.child("further")
    for used in (read, parent):
        with pytest.raises(RandomnessMisuse, match="unused"):
            GaussianNoise(used, scale=SCALE, size=4)


def test_p20_children_give_no_noise_since_they_can_be_made_twice() -> None:
    with pytest.raises(RandomnessMisuse):
        GaussianNoise(stream().child("a"), scale=SCALE, size=4)


def test_p22_bits_of_a_sample_are_not_noise() -> None:
    with pytest.raises(RandomnessMisuse, match="purpose noise"):
        GaussianNoise(stream(purpose=Purpose.SAMPLE), scale=SCALE, size=4)


def test_p20_two_threads_cannot_claim_one_stream() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def claim(source: Stream) -> bool:
        try:
            source.claim(Purpose.NOISE)
        except RandomnessMisuse:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        for step in range(200):
            source = stream(step)
            assert sum(pool.map(claim, [source] * 8)) == 1


def _take_in_child(source: GaussianNoise, answers: "multiprocessing.queues.Queue[str]") -> None:
    try:
        source.take(1)
    except RandomnessMisuse as error:
        answers.put(str(error))
    else:
        answers.put("took noise")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_p20_a_fork_cannot_take_the_same_noise() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    source = noise(4)
    child = context.Process(target=_take_in_child, args=(source, answers))
    child.start()
    answer = answers.get(timeout=30)
    child.join()
    assert "a fork of it" in answer
    source.take(4)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_p20_no_copies(duplicate: object) -> None:
    for value in (noise(4), stream(), Source.unsafe_test_key(KEY)):
        with pytest.raises(RandomnessMisuse, match="copy or pickle"):
            duplicate(value)  # type: ignore[operator]


def test_p18_nothing_shows_the_key() -> None:
    source = noise(4)
    shown = repr(source) + repr(source._stream) + repr(stream())
    try:
        source.take(10)
    except RandomnessMisuse as error:
        shown += "".join(
            traceback.TracebackException.from_exception(error, capture_locals=True).format()
        )
    with pytest.raises(TypeError):
        vars(source)
    assert "not shown" in shown
    secrets = [KEY, source._stream._key.reveal()]  # type: ignore[union-attr]
    for secret in secrets:
        for form in (repr(secret)[2:-1], secret.hex(), str(list(secret))):
            assert form not in shown


# --- release ---

GRID = Grid.for_noise(noise_std=1.1, clip_norm=1.0)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_release_is_sum_plus_noise_on_the_grid(kind: type) -> None:
    sums = (np.arange(30, dtype=kind) / 8).reshape(2, 3, 5)
    out = release(sums, grid=GRID, noise_std=1.1, stream=stream())
    exact = GRID.spacing * (sums.astype(float) / GRID.spacing + WHOLE[:30].reshape(sums.shape))
    assert out.dtype == kind
    assert np.array_equal(out, exact.astype(kind))


@pytest.mark.parametrize("sizes", [(6, 1, 0, 5), (2**15, 3, 2**17)])
def test_several_arrays_have_the_noise_of_one(sizes: tuple[int, ...]) -> None:
    """Wrong: the noise begins anew with every array, so that a difference of two shows its sums."""
    grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    kinds = [(size, number) for number, size in enumerate(sizes)]
    sums: list[NDArray[np.floating]] = [
        np.linspace(-3.0, 5.0, size, dtype="f4" if at % 2 else "f8") for size, at in kinds
    ]
    outs: list[NDArray[np.floating]] = [
        np.empty(size, "f8" if at % 3 else "f4") for size, at in kinds
    ]
    whole = release(
        np.concatenate(sums, dtype=np.float64), grid=grid, noise_std=1.1, stream=stream()
    )
    gaussian.release_all([*zip(sums, outs, strict=True)], grid=grid, noise_std=1.1, stream=stream())
    for out, part in zip(outs, np.split(whole, np.cumsum(sizes)[:-1]), strict=True):
        assert np.array_equal(out, part.astype(out.dtype))


def test_one_bad_sum_among_several_arrays_is_refused_before_anything_is_written() -> None:
    grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    one, other, unused = np.ones(3), np.array([0.0, np.nan]), stream()
    with pytest.raises(NumericsError):
        gaussian.release_all([(one, one), (other, other)], grid=grid, noise_std=1.1, stream=unused)
    assert one.tolist() == [1.0, 1.0, 1.0]
    gaussian.release_all(
        [(one, one), (np.zeros(2), other)], grid=grid, noise_std=1.1, stream=unused
    )


def test_out_may_be_the_sums_or_of_another_type() -> None:
    sums = np.linspace(-4, 4, 64).reshape(8, 8)
    expected = release(sums, grid=GRID, noise_std=1.1, stream=stream())
    narrow = np.empty((8, 8), np.float32)
    assert release(sums, grid=GRID, noise_std=1.1, stream=stream(), out=narrow) is narrow
    assert np.array_equal(narrow, expected.astype(np.float32))
    assert release(sums, grid=GRID, noise_std=1.1, stream=stream(), out=sums) is sums
    assert np.array_equal(sums, expected)


@pytest.mark.parametrize("shift", [-3, 0, 5])
def test_out_may_overlap_the_sums(shift: int) -> None:
    """A piece that is written must not become the sums of a later piece: noise would be added to
    noise.
    """
    size = 2 * PIECE_SIZE + 11
    memory = np.linspace(-4, 4, size + 10)
    sums, out = memory[5 : size + 5], memory[5 + shift : size + 5 + shift]
    expected = release(sums.copy(), grid=GRID, noise_std=1.1, stream=stream())
    assert np.array_equal(
        release(sums, grid=GRID, noise_std=1.1, stream=stream(), out=out), expected
    )


def test_a_bad_sum_in_the_last_of_many_pieces_is_refused_before_anything_is_written() -> None:
    source, sums = stream(), np.zeros(2 * PIECE_SIZE + 1, np.float32)
    sums[-1] = np.nan
    with pytest.raises(NumericsError):
        release(sums, grid=GRID, noise_std=1.1, stream=source, out=sums)
    assert not sums[:-1].any()
    release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)


def test_every_value_of_a_subclass_gets_noise() -> None:
    """An array like this one keeps two axes: its slices are not pieces of numbers. A masked array
    is refused.
    """

    class Stubborn(np.ndarray):
        def reshape(self, *shape: Any, **_: Any) -> Any:
            return self if self.ndim == 2 else super().reshape(*shape)

    size = PIECE_SIZE + 10
    out = np.asarray(
        release(np.zeros((1, size)).view(Stubborn), grid=GRID, noise_std=1.1, stream=stream())
    )
    assert np.count_nonzero(out) > size - 10
    with pytest.raises(ParameterError, match="mask"):
        release(np.ma.masked_array(np.zeros(3), True), grid=GRID, noise_std=1.1, stream=stream())


def test_a_view_of_a_torch_tensor() -> None:
    for kind in (torch.float32, torch.float64):
        tensor = torch.zeros(4, 5, dtype=kind)
        release(tensor.numpy(), grid=GRID, noise_std=1.1, stream=stream(), out=tensor.numpy())
        expected = (GRID.spacing * WHOLE[:20]).reshape(4, 5)
        assert torch.equal(tensor, torch.tensor(expected).to(kind))


def test_a_release_has_no_negative_zeros() -> None:
    """-0.0 + -0.0 is -0.0: with a negative zero in the noise, the sign of a sum that is zero would
    be released.
    """
    grid = Grid(1.0)
    for zero in (0.0, -0.0):
        out = release(np.full(4_000, zero), grid=grid, noise_std=0.3, stream=stream())
        assert np.sum(out == 0.0) > 1_000
        assert not np.any(np.signbit(out[out == 0.0]))


def test_a_number_and_an_empty_array() -> None:
    assert (
        release(np.zeros(()), grid=GRID, noise_std=1.1, stream=stream()) == GRID.spacing * WHOLE[0]
    )
    assert release(np.zeros((0, 3)), grid=GRID, noise_std=1.1, stream=stream()).shape == (0, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**40])
def test_bad_sums_are_refused_before_anything_is_drawn(value: float) -> None:
    source, out = stream(), np.full(3, 7.0)
    with pytest.raises(NumericsError):
        release(np.array([0.0, value, 0.0]), grid=GRID, noise_std=1.1, stream=source, out=out)
    assert np.array_equal(out, np.full(3, 7.0))
    release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)


@pytest.mark.parametrize(
    "out", [np.zeros(4), np.zeros(3, np.float16), np.zeros(6)[::2], [0.0, 0.0, 0.0]]
)
def test_a_wrong_out_is_refused_before_anything_is_drawn(out: Any) -> None:
    source = stream()
    with pytest.raises(ParameterError, match="out"):
        release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source, out=out)
    release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)


def test_p20_one_stream_for_two_releases_is_refused() -> None:
    source = stream()
    release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)
    with pytest.raises(RandomnessMisuse):
        release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)


def test_an_interrupted_release_does_not_give_its_stream_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = stream()
    monkeypatch.setattr(gaussian, "_backend", lambda: broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)
    monkeypatch.undo()
    with pytest.raises(RandomnessMisuse):
        release(np.zeros(3), grid=GRID, noise_std=1.1, stream=source)


class Interrupted(Exception):
    """Whatever breaks off a release."""


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("place", ["words", "decide", "refine"])
def test_no_raw_sum_is_left_when_a_release_breaks_off(
    kind: type, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are released in their own place: what was not noised yet would be taken for a release.

    The first array is longer than a block; the exception comes in its second block.
    """
    arrays: list[NDArray[Any]] = [np.full(size, 5.0, kind) for size in (BLOCK_SIZE + 1_000, 40)]
    calls = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if place != "words" or len(calls) > BLOCK_SIZE // PIECE_SIZE:
            raise Interrupted
        return right(*arguments)

    if place == "words":
        right = addresses.Reader.first
        monkeypatch.setattr(addresses.Reader, "first", interrupted)
    elif place == "decide":
        backend = ziggurat.IN_NUMPY._replace(decide=interrupted)
        monkeypatch.setattr(gaussian, "_backend", lambda: backend)
    else:
        monkeypatch.setattr(gaussian, "_backend", lambda: LAZY)
        monkeypatch.setattr(gaussian, "refine", interrupted)
    with pytest.raises(Interrupted):
        gaussian.release_all(
            [(array, array) for array in arrays], grid=GRID, noise_std=1.1, stream=stream()
        )
    for array in arrays:
        assert np.isnan(array).all()


def test_no_integer_without_noise_is_left_when_adding_breaks_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaussian, "_backend", lambda: broken(Interrupted()))
    integers = np.full(50, 3.0)
    with pytest.raises(Interrupted):
        noise(50).add_to(integers)
    assert np.isnan(integers).all()
