"""Locks over forks, and things that serve in one place only."""

import copy
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable

import pytest

from discreet import _process
from discreet.errors import LedgerMisuse, RandomnessMisuse
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


COPIED = _process.Misuse(RandomnessMisuse, expected="one of it", do="Make another.")
FORKED = _process.Misuse(
    LedgerMisuse, expected="its own process", got="a fork of it", do="Make another there."
)


class Kept(_process.SingleUse, copied=COPIED, forked=FORKED):
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value

    def use(self) -> int:
        self._refuse_fork()
        return self.value


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_p20_what_serves_once_is_not_copied(take: Callable[[object], object]) -> None:
    for thing in (Kept(3), [Kept(3)]):
        if take is copy.copy and isinstance(thing, list):
            continue  # a list of the same one
        with pytest.raises(RandomnessMisuse, match="Expected one of it. Got an attempt to copy"):
            take(thing)


def test_p20_what_serves_once_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(3)
    assert (kept.use(), kept._at_home) == (3, True)
    monkeypatch.setattr(_process, "current", object)  # as in a fork
    assert not kept._at_home
    with pytest.raises(LedgerMisuse, match="Expected its own process. Got a fork of it."):
        kept.use()


def test_an_error_is_made_anew_each_time() -> None:
    """An error that is raised twice would carry the first traceback on."""
    assert COPIED.error() is not COPIED.error()
