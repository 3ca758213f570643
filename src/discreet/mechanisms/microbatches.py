"""Clipping the averages of slots in the place of records. [Ponomareva2023, Algorithm 3]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.mechanism import Mechanism, checked_mechanism

__all__ = ["Microbatches"]


@dataclass(frozen=True, slots=True)
class Microbatches(Mechanism):
    """The records of a sample are put into slots at random; each slot's average is clipped, then
    summed and noised.

    Each record draws its slot independently and uniformly (from `Purpose.SLOTS`), so a record that
    is added moves nobody else (P15). It can turn the clipped average of its own slot around, hence

        sensitivity = 2 clip_norm,    noise_std = noise_multiplier * 2 clip_norm,
        average = sum / slots.

    With k records per slot the noise on the average is 2k times that of clipping every record, at
    the same guarantee: slots save work, not noise.

    Guarantee: as the inner mechanism with twice the sensitivity and the same noise multiplier.

    ================================  ==============================================
    case                              what happens
    ================================  ==============================================
    an empty slot                     the zero vector
    a record that is NaN or infinite  left out of its slot's average
    one slot                          the average of the whole sample is clipped
    slots inside slots, Groups        refused, as are groups without bound and noise
    ================================  ==============================================

    Args:
        mechanism: what is done with the averages of the slots.
        slots: their number; public.

    >>> from discreet.mechanisms import Gaussian
    >>> slots = Microbatches(Gaussian(clip_norm=1.0, noise_multiplier=1.5), slots=64)
    >>> slots.bind({"w": 10}, "grad").queries
    (GaussianSum(group='grad', sensitivity=2.0, noise_std=3.0),)
    """

    mechanism: Mechanism
    slots: int

    kind: ClassVar[str] = "microbatches"
    fits_slots: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not checked_mechanism("Microbatches", "mechanism", self.mechanism).fits_slots:
            raise _not_for_slots(type(self.mechanism).__name__)

        object.__setattr__(self, "slots", check.whole("Microbatches", "slots", self.slots, least=1))

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The inner mechanism's groups, with slots in the place of records."""
        return self._in_slots(self.mechanism.bind(leaves, name))

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """The inner mechanism's stand-in, with slots in the place of records."""
        return self._in_slots(self.mechanism.bind_without_leaves(name))

    def _in_slots(self, bound: Bound) -> Bound:
        # Of a user's class only its groups are known. The factor 2 is that of a clipped average,
        # and other slots would be lost.
        if any(not group.private or group.slots is not None for group in bound.start):
            raise _not_for_slots("groups that have slots, or neither bound nor noise")

        # The sensitivity doubles with the slots, so that noise at the same multiplier does too.
        groups = tuple(
            replace(group, noise_std=2.0 * group.noise_std, slots=self.slots)
            for group in bound.start
        )
        return replace(bound, start=groups)

    def open_groups(self, name: str = "all") -> tuple[str, ...]:
        """None: what is open does not fit slots."""
        del name
        return ()

    @property
    def has_slots(self) -> bool:
        """Always: that is what it adds."""
        return True

    def with_noise_times(self, factor: float) -> Microbatches:
        """Multiply the noise; slots stay as they are."""
        return replace(self, mechanism=self.mechanism.with_noise_times(factor))


def _not_for_slots(got: str) -> ParameterError:
    return ParameterError(
        owner="Microbatches",
        name="mechanism",
        expected="one that clips and noises records, without slots of its own",
        got=got,
    )
