"""What is declared before the first step: the same step, a fixed number of times."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.ledger.rows import Charge, RunInfo
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that has not happened yet. An accountant reads it as it reads a ledger.

    Args:
        step: what every step does.
        steps: how many, fixed in advance.
        unit, adjacency: what is protected, against which change of the data.
        numerics: level of the arithmetic with which it will be executed.

    >>> plan = Plan.dpsgd(sampling_probability=0.005, steps=20_000, noise_multiplier=1.0)
    >>> plan.step.sampling, plan.steps
    (Poisson(probability=0.005), 20000)
    """

    step: Step
    steps: int
    unit: Unit = Unit.EXAMPLE
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    numerics: Numerics = Numerics.IDEALISED

    def __post_init__(self) -> None:
        check.instance("Plan", "step", self.step, Step)
        object.__setattr__(self, "steps", check.whole("Plan", "steps", self.steps, least=1))
        self.run_info()  # refuses what a run would refuse

    @classmethod
    def dpsgd(
        cls,
        *,
        steps: int,
        noise_multiplier: float,
        sampling_probability: float | None = None,
        records: int | None = None,
        expected_batch_size: float | None = None,
        clip_norm: float = 1.0,
        adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
    ) -> Plan:
        """Poisson samples, one clipped and noised sum of gradients in each step.

        Args:
            steps: number of steps.
            noise_multiplier: noise standard deviation on the sum, divided by clip_norm.
            sampling_probability: of each record in each step; leave it out to give it by the next two.
            records: number of records in the data set.
            expected_batch_size: of one sample; divided by records it is the probability.
            clip_norm: bound on the norm of one record's gradient.
            adjacency: which change of the data is protected.
        """
        owner = "Plan.dpsgd"
        size = (records, expected_batch_size)
        if sampling_probability is not None and size == (None, None):
            probability = sampling_probability
        elif sampling_probability is None and records is not None and expected_batch_size is not None:
            batch = check.positive(owner, "expected_batch_size", expected_batch_size)
            probability = batch / check.whole(owner, "records", records, least=1)
        else:
            raise ParameterError(
                owner=owner,
                name="sampling_probability",
                expected="given, or else both records and expected_batch_size",
                got=f"{sampling_probability}, records {records}, expected_batch_size {expected_batch_size}",
            )
        clip = check.positive(owner, "clip_norm", clip_norm)
        noise_std = clip * check.positive(owner, "noise_multiplier", noise_multiplier)
        step = Step(Poisson(probability), GaussianSum("grad", clip, noise_std))
        return cls(step=step, steps=steps, adjacency=adjacency)

    def run_info(self, label: str = "") -> RunInfo:
        """What to begin a ledger's run with."""
        return RunInfo(
            unit=self.unit,
            adjacency=self.adjacency,
            groups=self.step.groups,
            numerics=self.numerics,
            randomness=Randomness.SYSTEM,
            parameters=Parameters.FIXED_IN_ADVANCE,
            label=label,
        )

    def charges(self) -> tuple[Charge, ...]:
        """What the whole run will be charged."""
        return (Charge(self.run_info(), self.step, self.steps),)
