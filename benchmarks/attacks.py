"""Known attacks on the numerics of private training, run against this library and, where it is
installed, against opacus.

    python benchmarks/attacks.py [--quick]

Each attack is a function of a `Victim`: how a library adds noise, sums clipped records, samples,
and measures norms. It returns what was found, and whether that breaks the stated guarantee. No
attack needs a secret: an attacker sees releases.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.errors import RandomnessMisuse
from discreet.numerics import ExactSum, Grid, ghost_squared_norms, l2_norms
from discreet.randomness import Purpose, Source, release
from discreet.randomness.draws import bernoulli

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]

LATTICE_PROBABILITY = 6.5e-8
REFUSED = b"refused"


class Victim(Protocol):
    """What an attack may call. Every method stands for one line of a training script."""

    name: str
    generator: bool  # whether the generator that it is to be used with can be had

    def noisy(self, sums: F32, noise_std: float) -> F32:
        """The sums with Gaussian noise: what is released."""

    def clipped_sum(self, rows: F32, clip_norm: float) -> F64:
        """The sum of clipped records, before noise."""

    def drawn(self, records: int, probability: float) -> int:
        """How many of the records a Poisson sample holds."""

    def norm(self, inputs: F32, gradients: F32) -> float:
        """The norm of sum_t a_t b_t^T that clipping would use, without forming the sum."""


@dataclass(frozen=True)
class Finding:
    """What an attack saw; `broken` is None where it could not run."""

    broken: bool | None
    detail: str


_WITHOUT = Finding(None, "its generator cannot be installed")


class Ours:
    """This library, with keys from the operating system."""

    name = "discreet"
    generator = True

    def __init__(self, source: Source | None = None) -> None:
        self._source = source or Source.system()
        self._step = 0

    def noisy(self, sums: F32, noise_std: float) -> F32:
        """Exact noise on the grid; a step of its own for every release."""
        self._step += 1
        grid = Grid.for_noise(noise_std=noise_std, clip_norm=1.0)
        stream = self._source.stream(Purpose.NOISE, step=self._step)
        return np.asarray(release(sums, grid=grid, noise_std=noise_std, stream=stream), np.float32)

    def clipped_sum(self, rows: F32, clip_norm: float) -> F64:
        """Certified norms, exact integers."""
        grid = Grid.for_noise(noise_std=clip_norm, clip_norm=clip_norm)
        total = ExactSum({"grad": rows.shape[1]}, clip_norm=clip_norm, grid=grid)
        with np.errstate(divide="ignore"):
            total.add({"grad": rows}, np.minimum(1.0, clip_norm / l2_norms(rows)))
        return total.integers()["grad"] * grid.spacing

    def drawn(self, records: int, probability: float) -> int:
        """Exact coins."""
        self._step += 1
        return len(
            bernoulli(self._source.stream(Purpose.SAMPLE, step=self._step), probability, 0, records)
        )

    def norm(self, inputs: F32, gradients: F32) -> float:
        """A certified upper bound."""
        return float(np.sqrt(ghost_squared_norms(inputs, gradients)[0]))


class Opacus:
    """The code that opacus runs: its noise, its optimizer's clipping and accumulation, its sampler,
    its ghost norms.
    """

    def __init__(self, *, secure: bool) -> None:
        self.name = "opacus, secure mode" if secure else "opacus"
        self._secure = secure
        self.generator = not secure  # torchcsprng is published for torch 1.8 only
        self._torch: Any = importlib.import_module("torch")
        self._optimizers: Any = importlib.import_module("opacus.optimizers.optimizer")
        self._samplers: Any = importlib.import_module("opacus.utils.uniform_sampler")
        self._linear: Any = importlib.import_module("opacus.grad_sample.linear")

    def noisy(self, sums: F32, noise_std: float) -> F32:
        """What `DPOptimizer.add_noise` does; with torch's generator, as the secure one is not
        published for this torch.
        """
        tensor = self._torch.from_numpy(np.array(sums))
        noise = self._optimizers._generate_noise(  # noqa: SLF001  (the attack is on this code)
            std=noise_std, reference=tensor, generator=None, secure_mode=self._secure
        )
        return np.asarray((tensor + noise).numpy(), np.float32)

    def clipped_sum(self, rows: F32, clip_norm: float) -> F64:
        """`DPOptimizer.clip_and_accumulate`, one record at a time, as with the smallest physical
        batch.
        """
        parameter = self._torch.nn.Parameter(self._torch.zeros(rows.shape[1]))
        optimizer = self._optimizers.DPOptimizer(
            self._torch.optim.SGD([parameter], lr=1.0),
            noise_multiplier=1.0,
            max_grad_norm=clip_norm,
            expected_batch_size=1,
        )
        for row in self._torch.from_numpy(np.array(rows)):
            parameter.grad_sample = row[None]
            optimizer.clip_and_accumulate()
        return np.asarray(parameter.summed_grad.numpy(), np.float64)

    def drawn(self, records: int, probability: float) -> int:
        """One step of its Poisson sampler."""
        sampler = self._samplers.UniformWithReplacementSampler(
            num_samples=records, sample_rate=probability, steps=1
        )
        return len(next(iter(sampler)))

    def norm(self, inputs: F32, gradients: F32) -> float:
        """Its ghost norm of a linear layer."""
        layer = self._torch.nn.Linear(inputs.shape[2], gradients.shape[2], bias=False)
        tensors = self._torch.from_numpy(inputs), self._torch.from_numpy(gradients)
        return float(
            self._linear.compute_linear_norm_sample(layer, [tensors[0]], tensors[1])[layer.weight][
                0
            ]
        )


# --- the attacks ---


def precision_event(victim: Victim, size: int) -> Finding:
    """Float noise near 0 has finer digits than near 1: an event that one neighbour can produce and
    the other cannot.

    Events: |y| < 1/2 and y is no multiple of 2^-r, for r = 1, 2, ... as fine as the victim's digits
    go. Sums 0 and 1 are neighbours at clip norm 1. Each event has at least 1/1000 on one side when
    it counts, so never on the other means delta.
    """
    near = []
    for total in (0.0, 1.0):
        y = victim.noisy(np.full(size, total, np.float32), 1.0).astype(np.float64)
        near.append(y[np.abs(y) < 0.5])
    finest = "no digits"
    for bits in range(1, 60):
        counts = [int(np.count_nonzero(y * 2.0**bits % 1.0)) for y in near]
        if max(counts) < size / 1000:
            break
        finest = f"P = {counts[0] / size:.3f}, {counts[1] / size:.3f} below 2^-{bits}"
        if min(counts) == 0:
            return Finding(broken=True, detail=finest)
    return Finding(broken=False, detail=finest)


def repeated_rounding(victim: Victim, size: int) -> Finding:
    """The first of 8192 records decides in which binade the sum goes on, and so which way all later
    additions round.

    4096 ones, then 4096 numbers a little above 2^-12: worth 2^-11 each above the sum 4096, and
    2^-12 each below.
    """
    rows = np.repeat(np.array([1.0, 2.0**-12 * (1 + 2.0**-20)], np.float32), size)[:, np.newaxis]
    clip_norm = 1.00001  # a little above, so that no library's clipping touches the records
    moved = abs(
        float((victim.clipped_sum(rows, clip_norm) - victim.clipped_sum(rows[1:], clip_norm))[0])
    )
    return Finding(moved > clip_norm, f"moves by {moved:.4f} x clip norm")


def lattice_of_the_probability(victim: Victim, size: int) -> Finding:
    """A 24-bit uniform number is below 6.5e-8 with probability 1.19e-7: the true rate is 83 % above
    the one accounted for.
    """
    part = 10_000_000
    parts = [victim.drawn(part, LATTICE_PROBABILITY) for _ in range(size // part)]
    drawn = sum(parts)
    expected = size // part * part * LATTICE_PROBABILITY
    # 5 standard deviations of a Poisson count, and half a count for each side: alpha is below 1e-6
    # for means of 20 and more.
    return Finding(
        abs(drawn - expected) > 5.0 * expected**0.5 + 1.0,
        f"{drawn} drawn where {expected:.0f} are expected",
    )


def fork_duplication(victim: Victim, size: int) -> Finding:
    """A forked worker that goes on with its parent's generator releases the same noise."""
    if not victim.generator:
        return _WITHOUT
    sums = np.zeros(size, np.float32)
    victim.noisy(sums, 1.0)  # the generator is in use before the fork
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, victim.noisy(sums, 1.0).tobytes())
        except RandomnessMisuse:
            os.write(writer, REFUSED)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = victim.noisy(sums, 1.0).tobytes()
    same = theirs == ours
    return Finding(
        same,
        "same noise in both"
        if same
        else ("the child is refused" if theirs == REFUSED else "different noise"),
    )


def resume(make: Callable[[], Victim], size: int) -> Finding:
    """A script that seeds its generators, stops and is started again: two releases of different
    sums with the same noise.
    """
    if not make().generator:
        return _WITHOUT
    released = []
    for total in (0.0, 1.0):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  (what scripts do)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)
        released.append(make().noisy(np.full(size, total, np.float32), 1.0))
    difference = released[1] - released[0]
    same = bool(np.all(np.abs(difference - 1.0) < 1e-5))
    return Finding(same, "releases subtract to the raw sum" if same else "different noise")


def row_that_is_not_finite(victim: Victim, size: int) -> Finding:
    """One record with NaN or an infinity must not show in the sum, nor change what others
    contribute.
    """
    rows = np.random.default_rng(0).standard_normal((8, size)).astype(np.float32)
    clean = victim.clipped_sum(np.delete(rows, 3, axis=0), 1.0)
    seen = []
    for bad in (np.nan, np.inf):
        rows[3, 0] = bad
        seen.append(bool(np.array_equal(victim.clipped_sum(rows, 1.0), clean)))
    return Finding(
        not all(seen), "the record counts as zero" if all(seen) else "the record shows in the sum"
    )


def ghost_norm_cancellation(victim: Victim, size: int) -> Finding:
    """Terms that cancel leave a float32 ghost norm too small, so the record is clipped too little.
    Worst of `size` records.
    """
    worst = np.inf
    for seed in range(size):
        inputs, gradients = cancelling_terms(seed)
        truth = float(
            np.linalg.norm(inputs[0].astype(np.float64).T @ gradients[0].astype(np.float64))
        )
        worst = min(worst, victim.norm(inputs, gradients) / truth)
    return Finding(worst < 1.0 - 1e-6, f"norm / truth is {worst:.3f} at worst")


def cancelling_terms(seed: int, positions: int = 64, width: int = 16) -> tuple[F32, F32]:
    """Pairs of positions whose terms cancel but for a few parts in ten thousand."""
    generator = np.random.default_rng(seed)
    inputs = np.repeat(generator.standard_normal((1, positions // 2, width)), 2, axis=1) * 10.0
    gradients = np.repeat(generator.standard_normal((1, positions // 2, width)), 2, axis=1) * 10.0
    gradients[:, 1::2] *= -1.0
    gradients += generator.standard_normal(gradients.shape) * 0.006
    return inputs.astype(np.float32), gradients.astype(np.float32)


@dataclass(frozen=True)
class Attack:
    """An attack, what it shows on a sound library, and its size."""

    name: str
    sound: str
    run: Callable[[Callable[[], Victim]], Finding]


def attacks(*, quick: bool) -> list[Attack]:
    """All attacks; small sizes show the same, with less certainty."""
    many, coins = (200_000, 400_000_000) if quick else (5_000_000, 2_000_000_000)
    return [
        Attack(
            "precision event",
            "no event that only one side can show",
            lambda make: precision_event(make(), many),
        ),
        Attack(
            "repeated rounding",
            "at most 1 x clip norm",
            lambda make: repeated_rounding(make(), 4096),
        ),
        Attack(
            "lattice of q at 6.5e-8",
            "as many as expected",
            lambda make: lattice_of_the_probability(make(), coins),
        ),
        Attack(
            "fork duplication",
            "different noise, or refused",
            lambda make: fork_duplication(make(), 64),
        ),
        Attack("resume", "different noise", lambda make: resume(make, 64)),
        Attack(
            "NaN or infinity in a row",
            "the record counts as zero",
            lambda make: row_that_is_not_finite(make(), 100),
        ),
        Attack(
            "ghost norm cancellation",
            "at or above the truth",
            lambda make: ghost_norm_cancellation(make(), 50),
        ),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args().quick
    victims: list[Callable[[], Victim]] = [Ours]
    if importlib.util.find_spec("opacus") is not None:
        victims += [lambda: Opacus(secure=False), lambda: Opacus(secure=True)]
    names = [make().name for make in victims]
    print(
        f"{'attack':26s} {'a sound library shows':42s} " + " ".join(f"{name:42s}" for name in names)
    )
    for attack in attacks(quick=quick):
        cells = []
        for make in victims:
            finding = attack.run(make)
            verdict = {True: "BROKEN", False: "holds", None: "-"}[finding.broken]
            cells.append(f"{verdict + ': ' + finding.detail:42s}")
        print(f"{attack.name:26s} {attack.sound:42s} " + " ".join(cells), flush=True)


if __name__ == "__main__":
    main()
