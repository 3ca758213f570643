"""A sampling policy and a number of steps, for a plan that is accounted before the number of
records is known.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NoReturn

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import SAMPLINGS, Sampling
from discreet.randomness.source import Source

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Enough to account for a run, not enough to draw its samples: everything that needs the number
    of records is an error.

    Args:
        policy: how samples will be drawn, one of the ledger's sampling policies that do not state
            the number themselves.
        steps: how many steps, fixed in advance.

    >>> from discreet.ledger.events import Poisson
    >>> Schedule(Poisson(0.01), steps=100).event
    Poisson(probability=0.01)
    """

    policy: Sampling
    _: KW_ONLY
    steps: int

    # What a `Sampler` may have and nothing without records can: a plan asks either the same way.
    owners: ClassVar[None] = None
    unsafe_drawn_by: ClassVar[None] = None

    def __post_init__(self) -> None:
        check.member("Schedule", "policy", self.policy, SAMPLINGS)

        # Where the policy states the number itself, samples can be drawn, and the plan should be
        # able to say its expected batch size.
        if self.policy.stated_records is not None:
            expected = "one that leaves the number of records open; here it is known: use Sampler"
            raise ParameterError(
                owner="Schedule", name="policy", expected=expected, got=repr(self.policy)
            )

        object.__setattr__(self, "steps", check.whole("Schedule", "steps", self.steps, least=1))

    @property
    def event(self) -> Sampling:
        """What the ledger is told: the policy itself."""
        return self.policy

    @property
    def expected_batch_size(self) -> float:
        """The divisor is not known without the number of records: an error."""
        return _unknown()

    # The parameters are those of `Sampler.draw`, so that either serves a plan.
    def draw(
        self,
        source: Source,  # noqa: ARG002
        *,
        start: int = 0,  # noqa: ARG002
        rank: int = 0,  # noqa: ARG002
        ranks: int = 1,  # noqa: ARG002
    ) -> NoReturn:
        """No sample can be drawn without the number of records: an error."""
        _unknown()


def _unknown() -> NoReturn:
    raise ParameterError(
        owner="Plan",
        name="records",
        expected="known where a sample is drawn or a sum is divided by the expected batch size",
        got="a plan that states a probability only",
        do="Make the plan with records=... (or with a Sampler).",
    )
