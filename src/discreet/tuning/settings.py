"""What one trial is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import Poisson
from discreet.mechanisms import Gaussian, Groups
from discreet.plan import Plan
from discreet.sampling import Sampler

__all__ = ["Settings", "checked_plan", "gaussian_of", "with_gaussian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers for one trial, and the plan to train with.

    Args:
        label: what a run of this trial must be called in the ledger of private data.
        plan: clip norm, noise, batch and steps, for the data set that it was made for.
        values: what this trial tries, number by name.

    >>> plan = Plan.dpsgd(records=60_000, expected_batch_size=512, steps=100, noise_multiplier=1.0, clip_norm=0.1)
    >>> settings = Settings(label="trial 1", plan=plan, values={"learning_rate": 2.0})
    >>> settings.learning_rate, settings.clip_norm, settings.plan_for(5_000).sampler.event
    (2.0, 0.1, Poisson(probability=0.1024))
    """

    label: str
    plan: Plan
    values: Mapping[str, float]

    @property
    def learning_rate(self) -> float:
        """Where it is tuned; else an error."""
        if "learning_rate" in self.values:
            return self.values["learning_rate"]
        expected, got = "a sweep of learning rates", f"a sweep of {', '.join(self.values)}"
        do = "Take the learning rate that is good without privacy."
        raise ParameterError(
            owner="Settings", name="learning_rate", expected=expected, got=got, do=do
        )

    @property
    def clip_norm(self) -> float:
        """What is tried, or that of the plan, where it has one group."""
        tried = self.values.get("clip_norm")
        return gaussian_of("Settings", self.plan).clip_norm if tried is None else tried

    def plan_for(self, records: int) -> Plan:
        """The same batch, steps, clip norm and noise for a data set of another size, such as public
        data.

        Args:
            records: of that data set, at least the expected batch size.
        """
        owner, sampler = "Settings.plan_for", self.plan.sampler
        size = check.whole(owner, "records", records, least=1)
        if (
            not isinstance(sampler, Sampler)
            or not isinstance(sampler.policy, Poisson)
            or sampler.owners is not None
        ):
            expected = "one with Poisson samples of records that are rows"
            raise ParameterError(
                owner=owner, name="plan", expected=expected, got=type(sampler.event).__name__
            )
        if self.plan.expected_batch_size > size:
            expected = f"at least the expected batch size, {self.plan.expected_batch_size:g}"
            raise ParameterError(owner=owner, name="records", expected=expected, got=str(size))
        policy = Poisson(self.plan.expected_batch_size / size)
        return replace(
            self.plan, sampler=Sampler(policy, records=size, steps=sampler.steps), target=None
        )


def checked_plan(owner: str, plan: object) -> Plan:
    """A private plan that can be executed."""
    found = check.instance(owner, "plan", plan, Plan)
    if not found.private or not isinstance(found.sampler, Sampler):
        expected = "a private plan with a number of records"
        got = "one without noise" if not found.private else "one that states a probability only"
        raise ParameterError(
            owner=owner,
            name="plan",
            expected=expected,
            got=got,
            do="Make it with Plan.dpsgd(records=...).",
        )
    return found


def gaussian_of(owner: str, plan: Plan) -> Gaussian:
    """The mechanism of a plan such as `Plan.dpsgd` makes, with one clip norm and one noise."""
    parts = (
        list(plan.mechanism.mechanisms.values())
        if isinstance(plan.mechanism, Groups)
        else [plan.mechanism]
    )
    if len(parts) == 1 and isinstance(parts[0], Gaussian):
        return parts[0]
    expected = "one with a single clip norm, as Plan.dpsgd makes it"
    raise ParameterError(
        owner=owner, name="plan", expected=expected, got=type(plan.mechanism).__name__
    )


def with_gaussian(plan: Plan, *, clip_norm: float, noise_multiplier: float) -> Plan:
    """The same plan with other numbers; without its target, which they may not meet."""
    changed = Gaussian(clip_norm, noise_multiplier)
    if isinstance(plan.mechanism, Groups):
        return replace(
            plan, mechanism=Groups(dict.fromkeys(plan.mechanism.mechanisms, changed)), target=None
        )
    return replace(plan, mechanism=changed, target=None)
