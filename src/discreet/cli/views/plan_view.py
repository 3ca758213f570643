"""A plan with its guarantee, what lies around it, and how both are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from discreet._digits import nearest, upward
from discreet.cli.answer import answer_table, sheet
from discreet.cli.views.attack import attack
from discreet.cli.views.words import guarantee_data, guarantee_in_words
from discreet.plan import Plan
from discreet.sampling import Sampler
from discreet.units import Guarantee

__all__ = ["Nearby", "Planned"]


@dataclass(frozen=True, slots=True)
class Nearby:
    """A plan beside the one that was made: one number is changed.

    Args:
        change: in words.
        probability, steps, noise_multiplier: the numbers.
        epsilon: certified upper bound at the plan's delta.
    """

    change: str
    probability: float
    steps: int
    noise_multiplier: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan that `discreet plan` made, and what lies around it.

    Args:
        plan: made by `Plan.dpsgd`.
        unknown: "batch", "steps", "noise_multiplier" or "epsilon": what was left out.
        guarantee: of the plan, if it is executed.
        hits: what an attacker can do, see `attack.attack`.
        nearby: half and twice the batch, the steps, the noise.
    """

    plan: Plan
    unknown: str
    guarantee: Guarantee
    hits: float | None
    nearby: tuple[Nearby, ...]

    @classmethod
    def of(cls, plan: Plan, unknown: str, guarantee: Guarantee) -> Planned:
        """Compute what is shown beside the plan."""
        return cls(
            plan, unknown, guarantee, attack(plan, guarantee), tuple(_nearby(plan, guarantee.delta))
        )

    def shown(self) -> list[RenderableType]:
        """The plan for people, one block after the other."""
        lines, _ = guarantee_in_words(self.guarantee, self.hits)
        notes = [f"Note: {note}." for note in self.plan.notes]
        blocks: list[RenderableType] = [
            sheet(self._words()),
            "",
            "If executed as planned:",
            str(self.guarantee),
            *lines,
            *notes,
        ]
        return [*blocks, "", "One number changed, the others held:", self._table()]

    def data(self) -> dict[str, Any]:
        """The plan for scripts; keys are stable."""
        # `Plan.dpsgd` makes plans of one group, so that there is one query. A plan by probability
        # alone has a sampler that knows no number of records.
        plan = self.plan
        sized = isinstance(plan.sampler, Sampler)
        (query,) = plan.queries()
        _, facts = guarantee_in_words(self.guarantee, self.hits)
        return {
            "found": self.unknown,
            "records": plan.sampler.records if isinstance(plan.sampler, Sampler) else None,
            "expected_batch_size": plan.expected_batch_size if sized else None,
            "probability": _probability(self.plan),
            "steps": plan.steps,
            "epochs": _probability(self.plan) * plan.steps,
            "clip_norm": query.sensitivity,
            "noise_multiplier": plan.noise_multiplier,
            "noise_std": query.noise_std,
            "target": None
            if plan.target is None
            else {"epsilon": plan.target.epsilon, "delta": plan.target.delta},
            "guarantee": guarantee_data(self.guarantee),
            **facts,
            "notes": plan.notes,
            "nearby": [
                {name: getattr(row, name) for name in Nearby.__slots__} for row in self.nearby
            ],
        }

    def _words(self) -> dict[str, str]:
        plan = self.plan
        (query,) = plan.queries()
        sampler = plan.sampler
        batch = f"each record with probability {nearest(_probability(self.plan))}"
        if isinstance(sampler, Sampler):
            size = nearest(plan.expected_batch_size)
            batch = f"{size} expected of {sampler.records} records, {batch}"

        passes = nearest(_probability(self.plan) * plan.steps)
        noise_std = nearest(query.noise_std)
        rows = {
            "protected": (
                f"one {plan.unit}, {plan.adjacency.value} adjacency; numerics {plan.numerics.value}"
            ),
            "batch": batch,
            "steps": f"{plan.steps}, {passes} passes over the data",
            "clip norm": nearest(query.sensitivity),
            "noise multiplier": (
                f"{nearest(plan.noise_multiplier)}, noise_std {noise_std} on the sum"
            ),
            "epsilon": f"{upward(self.guarantee.upper)} at delta {self.guarantee.delta!r}"
            + ("" if plan.target is None else f"; target {plan.target.epsilon!r}"),
        }
        # What hurts training is the noise on the average, which needs the size of the data set.
        if isinstance(sampler, Sampler):
            rows["noise on average"] = (
                f"{nearest(query.noise_std / plan.expected_batch_size)} per coordinate"
            )

        # The number that was asked for is marked among those that were given.
        name = self.unknown.replace("_", " ")
        return {key: f"{value}  <- found" if key == name else value for key, value in rows.items()}

    def _table(self) -> Table:
        sized = isinstance(self.plan.sampler, Sampler)
        rows = answer_table(
            "change", "batch" if sized else "probability", "steps", "noise multiplier", "epsilon"
        )
        for row in self.nearby:
            scale = self.plan.expected_batch_size / _probability(self.plan) if sized else 1.0
            numbers = (
                nearest(row.probability * scale),
                str(row.steps),
                nearest(row.noise_multiplier),
                upward(row.epsilon),
            )
            rows.add_row(row.change, *numbers)

        return rows


def _probability(plan: Plan) -> float:
    return plan.sampler.event.inclusion_probability


def _nearby(plan: Plan, delta: float) -> Iterator[Nearby]:
    """The plan and its neighbours, each accounted for."""
    from discreet.plan.calibrated import guarantee_of

    here = (_probability(plan), plan.steps, plan.noise_multiplier)

    # Epsilon depends on these three numbers alone: the clip norm scales signal and noise alike.
    changes = [("as planned", here)]
    for word, factor in (("half", 0.5), ("twice", 2.0)):
        changes.append((f"{word} the batch", (here[0] * factor, here[1], here[2])))
        changes.append((f"{word} the steps", (here[0], int(here[1] * factor), here[2])))
        changes.append((f"{word} the noise", (here[0], here[1], here[2] * factor)))

    # There is no probability above 1, and no plan without a step.
    for change, numbers in changes:
        if numbers[0] <= 1.0 and numbers[1] >= 1:
            yield Nearby(change, *numbers, guarantee_of(numbers, delta, plan.adjacency).upper)
