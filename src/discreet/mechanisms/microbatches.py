"""Clipping the averages of slots in the place of records. [Ponomareva2023, Algorithm 3]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from discreet import _validate as check
from discreet.ledger.events import GaussianSum
from discreet.mechanisms.adaptive import AdaptiveClip
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.gaussian import Gaussian, Joint, Normalised
from discreet.mechanisms.split import Split

__all__ = ["Microbatches"]

_INNER = (Gaussian, Joint, Normalised, Split, AdaptiveClip)


@dataclass(frozen=True, slots=True)
class Microbatches:
    """The records of a sample are put into slots at random; each slot's average is clipped, then
    summed and noised.

    Each record draws its slot independently and uniformly (from `Purpose.SLOTS`), so a record that
    is added moves nobody else (P15). It can turn the clipped average of its own slot around, hence

        sensitivity = 2 clip_norm,    noise_std = noise_multiplier * 2 clip_norm,    average = sum / slots.

    An empty slot is the zero vector. With k records per slot the noise on the average is 2k times
    that of clipping every
    record, at the same guarantee: slots save work, not noise.

    Guarantee: as the inner mechanism with twice the sensitivity and the same noise multiplier.

    Args:
        mechanism: what is done with the averages of the slots.
        slots: their number; public.

    >>> Microbatches(Gaussian(clip_norm=1.0, noise_multiplier=1.5), slots=64).queries("grad")
    (GaussianSum(group='grad', sensitivity=2.0, noise_std=3.0),)
    """

    mechanism: Gaussian | Joint | Normalised | Split | AdaptiveClip
    slots: int

    def __post_init__(self) -> None:
        check.member("Microbatches", "mechanism", self.mechanism, _INNER)
        object.__setattr__(self, "slots", check.whole("Microbatches", "slots", self.slots, least=1))

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension)."""
        inner = self.mechanism.bind(leaves, name)
        start = tuple(
            replace(group, noise_std=2.0 * group.noise_std, slots=self.slots)
            for group in inner.start
        )
        return replace(inner, start=start)

    def queries(self, name: str = "all") -> tuple[GaussianSum, ...]:
        """The queries of each step, where the inner mechanism's do not depend on the leaves."""
        return tuple(
            GaussianSum(query.group, 2.0 * query.sensitivity, 2.0 * query.noise_std)
            for query in self.mechanism.queries(name)
        )
