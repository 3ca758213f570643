"""Choosing numbers before training.

What hurts training is the noise on the *average* gradient, noise_std / expected_batch_size. The
questions of [McMahan2018, section 4] and [Ponomareva2023, section 5.4.1]:

    noise_curve             epsilon is fixed: how does the noise on the average fall with the
                            batch, and where does it stop?
    plan_at_average_noise   the noise that the model tolerates is known (from trials on public
                            data, or at a small batch): which batch reaches epsilon with it?
    plan_with_scaled_noise  several groups, with noise in given proportions: how much of it meets
                            epsilon?

Every number returned was certified by the accountant at exactly that number. Trials on private data
cost privacy of their own; for the best of a random number of runs, `accounting.selection_epsilon`
states how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from discreet import _validate as check
from discreet.accounting import solve
from discreet.accounting.calibration.unknowns import (
    ExpectedBatchSizeAtAverageNoise,
    NoiseMultiplier,
)
from discreet.errors import ParameterError
from discreet.ledger.events import Poisson
from discreet.plan import Plan, Programme, Target, default_delta
from discreet.plan.calibrated import epoch_steps, guarantee_of, search
from discreet.units import Adjacency, Guarantee

__all__ = [
    "NoiseCurve",
    "NoiseRow",
    "noise_curve",
    "plan_at_average_noise",
    "plan_with_scaled_noise",
]

# Of a curve whose batches nobody named: the data set, and fifteen halvings of it.
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """What one batch size needs to meet the target.

    Args:
        expected_batch_size: in records.
        steps: number of steps.
        noise_multiplier: the smallest found that meets the target.
        average_noise: noise on the average over clip_norm: noise_multiplier / expected_batch_size.
        guarantee: certified at exactly these numbers.
    """

    expected_batch_size: int
    steps: int
    noise_multiplier: float
    average_noise: float
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class NoiseCurve:
    """Noise on the average against the batch size, at one epsilon.

    Args:
        records: size of the data set.
        target: what every row meets.
        fixed: "steps" or "epochs", whichever is the same in every row.
        rows: in ascending order of the batch.
    """

    records: int
    target: Target
    fixed: Literal["steps", "epochs"]
    rows: tuple[NoiseRow, ...]

    @property
    def flattens_at(self) -> int | None:
        """The first batch at which more records no longer help much; None if it lies beyond the
        last row.

        For small batches the noise multiplier hardly depends on the batch, so the noise on the
        average falls as 1/batch. For large ones it stops falling (fixed steps), or falls as
        1/sqrt(batch) (fixed epochs). The curve flattens where its slope in logarithms is half-way:
        -1/2 or -3/4. For fixed steps, nothing is left to gain beyond about records * sqrt(epsilon /
        steps), a few times later [Ponomareva2023, Figure 1].
        """
        # Half-way between the slopes -1 and 0 (fixed steps), or -1 and -1/2 (fixed epochs).
        half_way = 0.5 if self.fixed == "steps" else 0.75

        for row, larger in pairwise(self.rows):
            fall = math.log(row.average_noise / larger.average_noise)
            if fall <= half_way * math.log(larger.expected_batch_size / row.expected_batch_size):
                return row.expected_batch_size

        return None

    def __str__(self) -> str:
        lines = [
            (
                f"{'batch':>12}{'steps':>10}{'noise multiplier':>19}{'noise on average':>19}"
                f"{'epsilon':>10}"
            )
        ]
        for row in self.rows:
            # More digits than two would be noise; epsilon is rounded up.
            epsilon = math.ceil(row.guarantee.upper * 1e4) / 1e4
            lines.append(
                f"{row.expected_batch_size:>12}{row.steps:>10}{row.noise_multiplier:>19.5g}"
                f"{row.average_noise:>19.3g}{epsilon:>10}"
            )

        knee = "beyond the last row" if self.flattens_at is None else f"near {self.flattens_at}"
        lines.append(f"delta {self.target.delta!r}, {self.fixed} fixed; the curve flattens {knee}")
        return "\n".join(lines)


def noise_curve(
    *,
    records: int,
    epsilon: float,
    delta: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batches: Iterable[int] | None = None,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
) -> NoiseCurve:
    """Noise multiplier and noise on the average for several batch sizes, each calibrated to the
    same target.

    Args:
        records: size of the data set [public].
        epsilon: the target.
        delta: of the target; left out, `default_delta(records)`.
        steps: number of steps in every row; or else
        epochs: number of passes in every row, `steps_of` says how it becomes steps.
        batches: expected batch sizes; left out, the data set halved again and again.
        adjacency: which change of the data the target is about.

    >>> curve = noise_curve(records=60_000, epsilon=3.0, epochs=20, batches=[64, 512, 4096])
    >>> [round(row.noise_multiplier, 2) for row in curve.rows]
    [0.64, 0.95, 2.03]
    """
    # Each row is calibrated by itself: what is fixed between rows is the target and the duration.
    fixed = _fixed("noise_curve", records, steps, epochs)
    target = Target(epsilon, default_delta(fixed.records) if delta is None else delta)

    # In ascending order and none twice, however they came: the knee is read off neighbours.
    chosen = (
        _halvings(fixed.records)
        if batches is None
        else sorted({_batch(fixed.records, size) for size in batches})
    )
    if not chosen:
        raise ParameterError(
            owner="noise_curve", name="batches", expected="one batch size or more", got="none"
        )

    rows = tuple(_row(fixed, size, target, adjacency) for size in chosen)
    return NoiseCurve(fixed.records, target, "epochs" if fixed.steps is None else "steps", rows)


def plan_at_average_noise(
    *,
    records: int,
    average_noise: float,
    epsilon: float,
    delta: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    clip_norm: float = 1.0,
) -> Plan:
    """The smallest batch at which this much noise on the average meets the target.

    The noise on the sum grows with the batch, noise_std = average_noise * expected_batch_size, so a
    larger batch costs less privacy at the same accuracy per step; what it costs is computation.

    Args:
        records: size of the data set [public].
        average_noise: noise_std / expected_batch_size, in the gradient's unit.
        epsilon: the target.
        delta: of the target; left out, `default_delta(records)`.
        steps: number of steps; or else
        epochs: number of passes.
        clip_norm: bound on the norm of one record's gradient.

    Raises:
        AccountingError: not even the full batch meets the target; the message names the floor.

    >>> plan = plan_at_average_noise(records=60_000, average_noise=0.002, epsilon=3.0, steps=2_000)
    >>> round(plan.expected_batch_size), plan.steps
    (423, 2000)
    """
    owner = "plan_at_average_noise"
    fixed = _fixed(owner, records, steps, epochs)
    target = Target(epsilon, default_delta(fixed.records) if delta is None else delta)
    clip = check.positive(owner, "clip_norm", clip_norm)
    relative = check.positive(owner, "average_noise", average_noise) / clip

    # With fixed steps the accountant's own calibration applies. With fixed epochs the steps change
    # with the batch, so that every batch that is tried is accounted for anew.
    if fixed.steps is not None:
        unknown = ExpectedBatchSizeAtAverageNoise(fixed.records, relative, fixed.steps)
        size = int(solve(unknown, epsilon=target.epsilon, delta=target.delta).value)
    else:

        def cost(size: int) -> Guarantee:
            numbers = (size / fixed.records, fixed.steps_at(size), size * relative)
            return guarantee_of(numbers, target.delta, Adjacency.ADD_OR_REMOVE)

        size = search(cost, fixed.records, target, rising=False)

    # The multiplier is relative to the sum: the noise on the average, times the batch.
    plan = Plan.dpsgd(
        records=fixed.records,
        expected_batch_size=size,
        steps=fixed.steps_at(size),
        noise_multiplier=size * relative,
        clip_norm=clip,
    )
    return plan.certified(target)


def plan_with_scaled_noise(plan: Plan, *, epsilon: float, delta: float) -> Plan:
    """Multiply the noise of every group by one factor, such that the plan just meets the target.

    The groups keep their shares of the budget. What was given as noise multipliers is taken as
    their proportions.

    Args:
        plan: private; bound to its leaves if its queries depend on them.
        epsilon: the target.
        delta: of the target.

    Raises:
        AccountingError: a group is not private, or no noise meets the target.

    >>> from discreet.mechanisms import Gaussian, Groups
    >>> from discreet.sampling import Sampler
    >>> mechanism = Groups({"grad/*": Gaussian(1.0, 1.0), "metric/*": Gaussian(1.0, 30.0)})
    >>> sampler = Sampler(Poisson(0.01), records=9_000, steps=900)
    >>> plan = Plan(sampler=sampler, mechanism=mechanism)
    >>> scaled = plan_with_scaled_noise(plan, epsilon=2.0, delta=1e-5)
    >>> [(query.group, round(query.noise_std, 2)) for query in scaled.queries()]
    [('grad/*', 0.94), ('metric/*', 28.18)]
    """
    check.instance("plan_with_scaled_noise", "plan", plan, Plan)

    # A programme of one plan: its calibration scales all noise by one factor.
    alone = Programme({"plan": replace(plan, target=None)}).calibrated(epsilon=epsilon, delta=delta)
    return alone["plan"].certified(Target(epsilon, delta))


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What stays fixed while the batch changes: the records, and the steps or the epochs."""

    records: int
    steps: int | None
    epochs: float

    def steps_at(self, size: int) -> int:
        return epoch_steps(self.epochs, size, self.records) if self.steps is None else self.steps


def _fixed(owner: str, records: object, steps: object, epochs: object) -> _Fixed:
    if (steps is None) == (epochs is None):
        raise ParameterError(
            owner=owner,
            name="steps",
            expected="given, or epochs, but not both",
            got="both or neither",
        )

    number = check.whole(owner, "records", records, least=1)
    if steps is None:
        return _Fixed(number, None, check.positive(owner, "epochs", epochs))

    return _Fixed(number, check.whole(owner, "steps", steps, least=1), 0.0)


def _batch(records: int, size: object) -> int:
    number = check.whole("noise_curve", "batches", size, least=1)
    if number > records:
        raise ParameterError(
            owner="noise_curve",
            name="batches",
            expected=f"at most records={records}",
            got=str(number),
        )

    return number


def _halvings(records: int) -> list[int]:
    # From the full batch downwards; a small data set has fewer halves than rows, and each once.
    return sorted({max(1, records >> power) for power in range(_MOST_ROWS)})


def _row(fixed: _Fixed, size: int, target: Target, adjacency: Adjacency) -> NoiseRow:
    # The guarantee that comes back is the one at exactly this multiplier, not at the target.
    steps = fixed.steps_at(size)
    unknown = NoiseMultiplier(Poisson(size / fixed.records), steps)
    solution = solve(unknown, epsilon=target.epsilon, delta=target.delta, adjacency=adjacency)
    return NoiseRow(size, steps, solution.value, solution.value / size, solution.guarantee)
