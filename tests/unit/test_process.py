"""Locks over forks."""

import multiprocessing
import threading
import time
from collections.abc import Callable

import pytest

from discreet import _process
from discreet.numerics import Grid
from discreet.randomness import GaussianNoise, NoiseAhead, Purpose, Source

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # from Python 3.12 on, where a thread is alive


def ends_well(work: Callable[[], object]) -> bool:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    alive = process.is_alive()
    process.kill()
    return not alive and process.exitcode == 0


def draw_on_threads() -> None:
    stream = Source.system().stream(Purpose.NOISE, step=0)
    thread = threading.Thread(
        target=lambda: GaussianNoise(stream, scale=8.0, size=3).take(3), daemon=True
    )
    thread.start()
    thread.join(30)
    if thread.is_alive():
        raise SystemExit(1)


def fork_again() -> None:
    if not ends_well(draw_on_threads):
        raise SystemExit(1)


def test_every_thread_of_a_fork_can_draw() -> None:
    """The lock of all streams is taken over the fork; a child that kept it let its own threads wait
    for ever.
    """
    assert ends_well(draw_on_threads)


def test_so_can_those_of_a_fork_of_a_fork() -> None:
    assert ends_well(fork_again)


def test_noise_ahead_in_a_fork() -> None:
    def work() -> None:
        grid = Grid.for_noise(noise_std=1.0, clip_norm=1.0)
        with NoiseAhead(
            Source.system().stream(Purpose.NOISE, step=0), grid=grid, noise_std=1.0, size=8
        ):
            pass

    assert ends_well(work)


def test_a_lock_that_another_thread_holds_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_process, "_LONGEST_WAIT", 0.2)
    lock, taken, end = threading.RLock(), threading.Event(), threading.Event()
    _process.hold_over_forks(lock)

    def hold() -> None:
        with lock:
            taken.set()
            end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(60)

    def quick() -> None:
        before = time.monotonic()
        if not ends_well(int) or time.monotonic() - before > 30:
            raise SystemExit(1)
        if lock in _process._locks:
            raise SystemExit(2)

    good = ends_well(quick)
    end.set()
    holder.join()
    assert good
