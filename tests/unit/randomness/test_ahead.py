"""Noise drawn ahead: the same numbers, once, and nothing left behind."""

import copy
import gc
import os
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.numerics import Grid
from discreet.randomness import Purpose, Source, Stream, ahead, gaussian, release, ziggurat
from discreet.randomness.ahead import NoiseAhead
from support.backends import broken

GRID = Grid.for_noise(noise_std=1.1, clip_norm=1.0)


def stream(step: int = 0, key: int = 1) -> Stream:
    return Source.unsafe_test_key(bytes([key] * 32)).stream(Purpose.NOISE, step=step)


def noise(size: int, step: int = 0, key: int = 1) -> NoiseAhead:
    return NoiseAhead(stream(step, key), grid=GRID, noise_std=1.1, size=size)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (2**17 + 1,)])
def test_the_same_release_as_without(shape: tuple[int, ...], kind: type[np.floating]) -> None:
    sums = np.full(shape, 0.25, kind)
    expected = release(sums, grid=GRID, noise_std=1.1, stream=stream())
    with noise(sums.size) as drawn:
        given = drawn.release(sums)
    assert given.dtype == kind
    assert given.tobytes() == expected.tobytes()
    assert np.all(sums == 0.25)


def test_in_place_and_in_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_PIECE", 17)
    sums = np.zeros(1000, np.float32)
    expected = release(sums, grid=GRID, noise_std=1.1, stream=stream())
    drawn = noise(1000)
    assert drawn.release(sums, out=sums) is sums
    assert np.array_equal(sums, expected)


def test_it_is_drawn_before_anybody_asks() -> None:
    drawn = noise(10)
    deadline = time.monotonic() + 30.0
    while not drawn._work.ready:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert "ready" in repr(drawn)
    drawn.close()


def test_p20_noise_is_used_once() -> None:
    drawn = noise(10)
    drawn.release(np.zeros(10))
    with pytest.raises(RandomnessMisuse, match="used or given up before"):
        drawn.release(np.zeros(10))


def test_p20_noise_that_was_given_up_is_gone() -> None:
    first = stream()
    drawn = NoiseAhead(first, grid=GRID, noise_std=1.1, size=10)
    drawn.close()
    drawn.close()
    with pytest.raises(RandomnessMisuse, match="used or given up before"):
        drawn.release(np.zeros(10))
    with pytest.raises(RandomnessMisuse):
        NoiseAhead(first, grid=GRID, noise_std=1.1, size=10)


def test_p20_no_copy_and_no_pickle() -> None:
    drawn = noise(10)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RandomnessMisuse, match="copy or pickle"):
            attempt(drawn)
    drawn.close()


def test_p20_an_interruption_while_noise_is_added_does_not_let_it_come_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    drawn = noise(10)
    monkeypatch.setattr(ahead, "publish_noise", interrupted)
    sums = np.zeros(10)
    with pytest.raises(KeyboardInterrupt):
        drawn.release(sums, out=sums)
    assert np.isnan(sums).all(), "a sum or noise was left"
    monkeypatch.undo()
    with pytest.raises(RandomnessMisuse, match="used or given up before"):
        drawn.release(np.ones(10))


@pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # from Python 3.12 on: a thread may be alive, that is the point
def test_p20_a_fork_cannot_use_it_and_does_not_wait_for_ever() -> None:
    drawn = noise(10)
    child = os.fork()
    if child == 0:
        try:
            drawn.release(np.zeros(10))
        except RandomnessMisuse:
            drawn.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert drawn.release(np.zeros(10)).shape == (10,)


def test_an_error_in_the_background_comes_out_where_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smoke = NumericsError(expected="a sound machine", got="smoke", do="Run.")
    monkeypatch.setattr(gaussian, "_backend", lambda: broken(smoke))
    drawn = noise(10)
    for _ in range(2):
        with pytest.raises(NumericsError, match="smoke"):
            drawn.release(np.zeros(10))


def test_wrong_sums_are_refused_before_the_noise_is_used() -> None:
    drawn = noise(3)
    with pytest.raises(ParameterError, match="3 numbers"):
        drawn.release(np.zeros(4))
    with pytest.raises(NumericsError, match="finite"):
        drawn.release(np.array([0.0, np.nan, 0.0]))
    with pytest.raises(ParameterError, match="'out'"):
        drawn.release(np.zeros(3), out=np.zeros(4))
    assert drawn.release(np.zeros(3)).shape == (3,)


@pytest.mark.parametrize("lost", [False, True], ids=["closed", "lost"])
def test_no_thread_is_left_behind(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of noise that nobody wants stops at the next piece, or at the latest when it is
    through.
    """
    going = threading.Event()
    rounds = []

    def slow(*arguments: Any) -> Any:
        rounds.append(1)
        going.set()
        time.sleep(0.02)
        return ziggurat.release_inside(*arguments)

    backend = ziggurat.IN_NUMPY._replace(release=slow)
    monkeypatch.setattr(gaussian, "_backend", lambda: backend)
    monkeypatch.setattr(ahead, "_PIECE", 2)
    drawn = noise(20)
    assert going.wait(30.0)
    thread = drawn._thread
    if lost:
        del drawn
        gc.collect()
        thread.join(30.0)
    else:
        drawn.close()
        assert len(rounds) < 10
    assert not thread.is_alive()
