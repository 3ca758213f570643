"""What one trial is asked to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import Poisson
from discreet.mechanisms import Gaussian, Groups, Mechanism
from discreet.plan import Plan
from discreet.sampling import Sampler

__all__ = ["Settings", "checked_plan", "distinct", "gaussian_of", "with_gaussian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The numbers of one trial, and the plan to train with.

    Args:
        label: what a run of this trial must be called in the ledger of private data.
        plan: clip norm, noise, batch and steps, for the data set that it was made for.
        values: what this trial tries, number by name.

    >>> plan = Plan.dpsgd(
    ...     records=60_000, expected_batch_size=512, steps=100, noise_multiplier=1.0, clip_norm=0.1
    ... )
    >>> settings = Settings(label="trial 1", plan=plan, values={"learning_rate": 2.0})
    >>> settings.learning_rate, settings.clip_norm, settings.plan_for(5_000).sampler.event
    (2.0, 0.1, Poisson(probability=0.1024))
    """

    label: str
    plan: Plan
    values: Mapping[str, float]

    @property
    def learning_rate(self) -> float:
        """The learning rate to try; an error where none is tuned."""
        if "learning_rate" not in self.values:
            raise ParameterError(
                owner="Settings",
                name="learning_rate",
                expected="a sweep of learning rates",
                got=f"a sweep of {', '.join(self.values)}",
                do="Take the learning rate that is good without privacy.",
            )

        return self.values["learning_rate"]

    @property
    def clip_norm(self) -> float:
        """The clip norm to try, or that of the plan, where it has one group."""
        if "clip_norm" in self.values:
            return self.values["clip_norm"]

        return gaussian_of("Settings", self.plan).clip_norm

    def plan_for(self, records: int) -> Plan:
        """Make a plan of the same batch, steps, clip norm and noise for a data set of another size,
        such as public data.

        Args:
            records: of that data set, at least the expected batch size.
        """
        owner, sampler = "Settings.plan_for", self.plan.sampler
        size = check.whole(owner, "records", records, least=1)

        # Owners belong to the rows of one data set, and only of Poisson samples is it clear what
        # the same batch is on another.
        has_rows = isinstance(sampler, Sampler) and sampler.owners is None
        if not has_rows or not isinstance(sampler.event, Poisson):
            raise ParameterError(
                owner=owner,
                name="plan",
                expected="one with Poisson samples of records that are rows",
                got=type(sampler.event).__name__,
            )

        batch = self.plan.expected_batch_size
        if batch > size:
            raise ParameterError(
                owner=owner,
                name="records",
                expected=f"at least the expected batch size, {batch:g}",
                got=str(size),
            )

        # Without the target: epsilon is another one there.
        resized = Sampler(Poisson(batch / size), records=size, steps=sampler.steps)
        return replace(self.plan, sampler=resized, target=None)


def distinct(owner: str, name: str, values: object, *, least: int = 1) -> list[float]:
    """Require positive numbers, none of them twice; their order stays.

    >>> distinct("f", "x", [3, 1.5])
    [3.0, 1.5]
    """
    expected = f"numbers above 0, {least} or more, none of them twice"
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ParameterError(owner=owner, name=name, expected=expected, got=type(values).__name__)

    # Twice the same value would be two trials with one name, and on private data paid for twice.
    numbers = [check.positive(owner, name, value) for value in values]
    if len(numbers) < least or len(set(numbers)) < len(numbers):
        raise ParameterError(owner=owner, name=name, expected=expected, got=f"{numbers!r:.80}")

    return numbers


def checked_plan(owner: str, plan: object) -> Plan:
    """Require a private plan that can be executed."""
    checked = check.instance(owner, "plan", plan, Plan)
    if not checked.private:
        raise _not_executable(owner, "one without noise")

    if not isinstance(checked.sampler, Sampler):
        raise _not_executable(owner, "one that states a probability only")

    return checked


def _not_executable(owner: str, got: str) -> ParameterError:
    return ParameterError(
        owner=owner,
        name="plan",
        expected="a private plan with a number of records",
        got=got,
        do="Make it with Plan.dpsgd(records=...).",
    )


def gaussian_of(owner: str, plan: Plan) -> Gaussian:
    """The mechanism of a plan such as `Plan.dpsgd` makes, with one clip norm and one noise."""
    mechanism: Mechanism = plan.mechanism
    if isinstance(mechanism, Groups) and len(mechanism.mechanisms) == 1:
        (mechanism,) = mechanism.mechanisms.values()

    if not isinstance(mechanism, Gaussian):
        raise ParameterError(
            owner=owner,
            name="plan",
            expected="one with a single clip norm, as Plan.dpsgd makes it",
            got=type(plan.mechanism).__name__,
        )

    return mechanism


def with_gaussian(plan: Plan, *, clip_norm: float, noise_multiplier: float) -> Plan:
    """Put other numbers into a plan; its target goes, as they may not meet it."""
    changed = Gaussian(clip_norm, noise_multiplier)

    # Under the pattern that it had, which is the group's name in the ledger.
    if isinstance(plan.mechanism, Groups):
        groups = Groups(dict.fromkeys(plan.mechanism.mechanisms, changed))
        return replace(plan, mechanism=groups, target=None)

    return replace(plan, mechanism=changed, target=None)
