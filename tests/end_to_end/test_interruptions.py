"""A thousand interruptions, and no two releases share noise (P20).

Every scenario breaks off somewhere, tries to go on in the ways that people do, and hands over every
number that became visible: what was released, and what an interrupted computation had already in
its hands. Noise has a standard deviation of 2^30, so four numbers in a row are the same by chance
with a probability below 2^-120; all rows of four, of all scenarios, must be different. For each
guard there is a test that takes it away and sees noise shared.
"""

import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import RandomnessMisuse
from discreet.numerics import Grid
from discreet.randomness import (
    GaussianNoise,
    Purpose,
    Source,
    Stream,
    ahead,
    release,
    source,
)
from discreet.randomness.ahead import NoiseAhead

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # threads are alive, that is the point

GRID = Grid(1.0)
STD = 2.0**30
Numbers = NDArray[Any]


class Run:
    """A loop of releases that somebody keeps breaking off."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.seen: list[Numbers] = []
        self.begin()

    def begin(self) -> None:
        self.source = Source.system()
        self.step = -1

    def stream(self) -> Stream:
        self.step += self.choice.randint(1, 3)
        return self.source.stream(Purpose.NOISE, step=self.step)

    def noise(self, size: int = 8) -> GaussianNoise:
        return GaussianNoise(self.stream(), scale=STD, size=size)

    def ahead(self) -> NoiseAhead:
        return NoiseAhead(self.stream(), grid=GRID, noise_std=STD, size=8)

    def attempt(self, action: Callable[[], Numbers]) -> bool:
        """Whatever comes out is seen; a refusal or an interruption is not an error here."""
        try:
            numbers = action()
        except (RandomnessMisuse, KeyboardInterrupt, OSError):
            return False
        self.seen.append(np.array(numbers, np.float64).reshape(-1))
        return True


def released(stream: Stream) -> Numbers:
    return release(np.zeros(8), grid=GRID, noise_std=STD, stream=stream)


def interrupted_draw(run: Run) -> None:
    """An exception or Ctrl-C while numbers are computed; then once more with the same objects."""
    stream = run.stream()
    noise = GaussianNoise(stream, scale=STD, size=8)
    run.attempt(lambda: noise.take(4))
    error = run.choice.choice([KeyboardInterrupt, OSError])

    def break_off(*arguments: Any) -> Any:
        whole.release(*arguments)
        run.seen.append(arguments[-1][~np.isnan(arguments[-1])])
        raise error

    whole = noise._backend
    noise._backend = whole._replace(release=break_off)
    assert not run.attempt(lambda: noise.take(4))
    noise._backend = whole
    run.attempt(lambda: noise.take(4))
    run.attempt(lambda: released(stream))


def interrupted_release(run: Run) -> None:
    """The same in the last line of a release; then once more with the same stream, and with the
    same step.
    """
    stream = run.stream()
    drawn = run.ahead() if run.choice.random() < 0.5 else None

    def action() -> Numbers:
        return released(stream) if drawn is None else drawn.release(np.zeros(8))

    with pytest.MonkeyPatch.context() as patch:

        def break_off(units: Numbers, *_: object) -> None:
            run.seen.append(units.copy())
            raise KeyboardInterrupt

        def break_off_after(
            self: Any, sums: Numbers, out: Numbers, *given: Any, **named: Any
        ) -> None:
            whole(self, sums, out, *given, **named)
            break_off(out)

        whole = GaussianNoise._release_part
        if drawn is None:
            patch.setattr(GaussianNoise, "_release_part", break_off_after)
        patch.setattr(ahead, "publish_noise", break_off)
        assert not run.attempt(action)
    run.attempt(action)
    run.attempt(lambda: released(run.source.stream(Purpose.NOISE, step=run.step)))


def interrupted_wait(run: Run) -> None:
    """Ctrl-C while somebody waits for noise that is drawn ahead; then once more, and once more."""
    drawn = run.ahead()
    thread = drawn._thread

    class Interrupted:
        def join(self) -> None:
            raise KeyboardInterrupt

    drawn._thread = Interrupted()  # type: ignore[assignment]
    assert not run.attempt(lambda: drawn.release(np.zeros(8)))
    drawn._thread = thread
    assert run.attempt(lambda: drawn.release(np.zeros(8)))
    run.attempt(lambda: drawn.release(np.zeros(8)))


def given_up(run: Run) -> None:
    """Noise drawn ahead and not used: closed or lost; then the same object, stream and step once
    more.
    """
    stream = run.stream()
    drawn = NoiseAhead(stream, grid=GRID, noise_std=STD, size=8)
    drawn._thread.join()
    numbers = drawn._work._numbers
    assert numbers is not None
    run.seen.append(numbers.copy())
    if run.choice.random() < 0.5:
        drawn.close()
        run.attempt(partial(drawn.release, np.zeros(8)))
    else:
        del drawn
        gc.collect(0)
    run.attempt(lambda: released(stream))
    run.attempt(lambda: released(run.source.stream(Purpose.NOISE, step=run.step)))


def second_run(run: Run) -> None:
    """The loop is started again with the same source: steps that were taken, and the next one."""
    for step in [0, run.step, run.choice.randint(0, max(run.step, 0))]:
        run.attempt(lambda step=step: released(run.source.stream(Purpose.NOISE, step=step)))  # type: ignore[misc]
    run.step = max(run.step, run.source._last.get((Purpose.NOISE, 0), -1))
    run.attempt(lambda: released(run.stream()))


def resumed(run: Run) -> None:
    """A new process after a crash: a new source, the same steps."""
    run.attempt(lambda: released(run.stream()))
    run.begin()
    run.attempt(lambda: released(run.source.stream(Purpose.NOISE, step=0)))
    run.step = 0


def raced(run: Run) -> None:
    """Threads that ask for the same at the same time."""
    stream, noise, drawn = run.stream(), run.noise(12), run.ahead()
    step = run.step + 1
    actions: list[Callable[[], Numbers]] = [
        lambda: released(stream),
        lambda: noise.take(4),
        lambda: drawn.release(np.zeros(8)),
        lambda: released(run.source.stream(Purpose.NOISE, step=step)),
    ]
    threads = [
        threading.Thread(target=run.attempt, args=(action,)) for action in actions for _ in range(3)
    ]
    run.choice.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.step = step


def forked(run: Run) -> None:
    """A fork uses all that it inherits, and a source of its own; then the parent goes on with the
    same objects.
    """
    stream, noise, drawn = run.stream(), run.noise(12), run.ahead()
    run.attempt(lambda: noise.take(4))
    step = run.step + 1
    actions: list[Callable[[], Numbers]] = [
        lambda: released(stream),
        lambda: noise.take(4),
        lambda: drawn.release(np.zeros(8)),
        lambda: released(run.source.stream(Purpose.NOISE, step=step)),
    ]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        run.seen = []
        for action in actions:
            run.attempt(action)
        run.attempt(lambda: released(Source.system().stream(Purpose.NOISE, step=step)))
        os.write(writing, b"".join(np.append(numbers, np.nan).tobytes() for numbers in run.seen))
        os._exit(0)
    os.close(writing)
    for action in actions:
        run.attempt(action)
    with os.fdopen(reading, "rb") as pipe:
        told = np.frombuffer(pipe.read())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ends = [-1, *np.flatnonzero(np.isnan(told))]
    run.seen += [told[a + 1 : b] for a, b in pairwise(ends)]
    run.step = step


SCENARIOS = [
    interrupted_draw,
    interrupted_release,
    interrupted_wait,
    given_up,
    second_run,
    resumed,
    raced,
    forked,
]


def shared(run: Run) -> int:
    """How many rows of four numbers were seen more than once."""
    rows = Counter(
        tuple(numbers[i : i + 4]) for numbers in run.seen for i in range(len(numbers) - 3)
    )
    return sum(count - 1 for count in rows.values())


def test_p20_a_thousand_interruptions_share_no_noise() -> None:
    run = Run(seed=20)
    order = SCENARIOS * 125
    run.choice.shuffle(order)
    for scenario in order:
        scenario(run)
    assert len(order) == 1_000
    assert len(run.seen) == 125 * (
        2 + 1 + 1 + 1 + 1 + 2 + 6 + 6
    )  # what each scenario may see, no more and no less
    assert shared(run) == 0


def remembers_nothing(self: Source, purpose: Purpose, *, step: int, lane: int = 0) -> Stream:
    self._last.clear()
    return GUARDED_STREAM(self, purpose, step=step, lane=lane)


def claims_nothing(self: Stream, purpose: Purpose) -> Stream:
    assert self._key is not None
    return Stream(source._Key(self._key.reveal()), self.randomness, self._purpose)


def shows_to_anybody(self: Any) -> bytes:
    key: bytes = self._bytes
    return key


def gives_again(self: GaussianNoise, count: int) -> int:
    return 0


def keeps(self: Any) -> Numbers:
    numbers: Numbers = self._numbers
    return numbers


GUARDED_STREAM = Source.stream


@pytest.mark.parametrize(
    ("scenario", "owner", "name", "wrong"),
    [
        (second_run, Source, "stream", remembers_nothing),
        (raced, Source, "stream", remembers_nothing),
        (interrupted_release, Stream, "claim", claims_nothing),
        (given_up, Stream, "claim", claims_nothing),
        (forked, source._Key, "reveal", shows_to_anybody),
        (interrupted_draw, GaussianNoise, "_advance", gives_again),
        (interrupted_wait, ahead._Work, "hand_over", keeps),
        (raced, ahead._Work, "hand_over", keeps),
    ],
)
def test_p20_without_its_guard_noise_is_shared(
    scenario: Callable[[Run], None],
    owner: type,
    name: str,
    wrong: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    run = Run(seed=21)
    run.attempt(lambda: released(run.stream()))
    for _ in range(5):
        scenario(run)
    assert shared(run) > 0


def test_p20_a_resume_with_the_same_key_shares_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a saved key or a fixed seed would do."""
    monkeypatch.setattr(source, "_entropy", lambda: bytes(32))
    run = Run(seed=22)
    for _ in range(3):
        resumed(run)
    assert shared(run) > 0
