"""Several mechanisms on one sample, by patterns over the names of the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from discreet.errors import ParameterError
from discreet.mechanisms._claims import checked_leaves, claim_leaves
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.mechanism import Mechanism, checked_mechanism

__all__ = ["Groups"]

_GRADIENTS = "grad/"


@dataclass(frozen=True, slots=True)
class Groups(Mechanism):
    """Each leaf goes to the first pattern that matches; every leaf must be claimed, and every
    pattern must claim one.

    Guarantee: the queries of all mechanisms share one sample and one charge; folded, they have the
    noise multiplier (sum_g (S_g/noise_std_g)^2)^(-1/2) [McMahan2018, Eq. 1].

    ================================  ==============================================
    case                              what happens
    ================================  ==============================================
    a leaf that two patterns match    it goes to the first of them
    a leaf that no pattern matches    refused, with both lists of names
    a pattern that claims no leaf     refused, with both lists of names
    a record that is NaN in one part  weight 0 there; engines leave it out everywhere
    Groups inside Groups, no entry    refused
    ================================  ==============================================

    Args:
        mechanisms: by pattern (`*`, `?`, `[...]`; case counts). The pattern is the name in the
            ledger. Public.

    >>> from discreet.mechanisms import Gaussian
    >>> parts = {"grad/*": Gaussian(1.0, noise_multiplier=1.25)}
    >>> groups = Groups(parts | {"metric/*": Gaussian(1.0, noise_multiplier=40.0)})
    >>> bound = groups.bind({"grad/w": 10, "metric/accuracy": 1})
    >>> [(row.leaf, row.group, round(row.share, 4)) for row in bound.explain()]
    [('grad/w', 'grad/*', 0.999), ('metric/accuracy', 'metric/*', 0.001)]
    """

    mechanisms: Mapping[str, Mechanism]

    kind: ClassVar[str] = "groups"
    fits_groups: ClassVar[bool] = False
    fits_slots: ClassVar[bool] = False

    def __post_init__(self) -> None:
        fixed: Frozen[Mechanism] = frozen("Groups", "mechanisms", self.mechanisms)

        # Groups inside of groups do not fit: a leaf would be claimed by two patterns.
        for pattern, mechanism in fixed.pairs:
            name = f"mechanisms[{pattern!r}]"
            if not checked_mechanism("Groups", name, mechanism).fits_groups:
                raise ParameterError(
                    owner="Groups",
                    name=name,
                    expected="a mechanism that may be one of several",
                    got=type(mechanism).__name__,
                )

        object.__setattr__(self, "mechanisms", fixed)

    def bind(self, leaves: Mapping[str, int], name: str = "") -> Bound:
        """The groups of every mechanism on the leaves that its pattern claims.

        Args:
            leaves: dimension of each leaf.
            name: put before the patterns, with a slash; none by default.
        """
        sizes = checked_leaves("Groups", leaves)
        claimed = claim_leaves("Groups", "mechanisms", self.mechanisms, sizes)

        # The pattern is the group's name in the ledger: it says which leaves were meant, and does
        # not change with the model.
        return Bound.merged(
            self.mechanisms[pattern].bind(
                {leaf: sizes[leaf] for leaf in names}, _under(name, pattern)
            )
            for pattern, names in claimed.items()
        )

    def bind_without_leaves(self, name: str = "") -> Bound:
        """The stand-ins of every mechanism, where all have one. Claims are checked by `bind`."""
        return Bound.merged(
            mechanism.bind_without_leaves(_under(name, pattern))
            for pattern, mechanism in self.mechanisms.items()
        )

    def open_groups(self, name: str = "") -> tuple[str, ...]:
        """Those of every mechanism, also where queries depend on the leaves."""
        return tuple(
            group
            for pattern, mechanism in self.mechanisms.items()
            for group in mechanism.open_groups(_under(name, pattern))
        )

    @property
    def has_slots(self) -> bool:
        """Whether any of the mechanisms has slots."""
        return any(mechanism.has_slots for mechanism in self.mechanisms.values())

    def with_noise_times(self, factor: float) -> Groups:
        """Every mechanism with `factor` times its noise: shares of the budget stay."""
        scaled = {
            pattern: mechanism.with_noise_times(factor)
            for pattern, mechanism in self.mechanisms.items()
        }
        return Groups(scaled)

    def with_clip_norm(self, clip_norm: float) -> Groups:
        """The one group named "grad/..." with this clip norm, and all others as they are.

        >>> from discreet.mechanisms import Gaussian
        >>> groups = Groups({"grad/*": Gaussian(1.0, 2.0), "metric/*": Gaussian(1.0, 40.0)})
        >>> groups.with_clip_norm(0.1).mechanisms["grad/*"]
        Gaussian(clip_norm=0.1, noise_multiplier=2.0)
        """
        patterns = [pattern for pattern in self.mechanisms if pattern.startswith(_GRADIENTS)]

        # With several groups of gradients one number does not say how to share it out: refused.
        if len(patterns) != 1:
            return Mechanism.with_clip_norm(self, clip_norm)

        changed = self.mechanisms[patterns[0]].with_clip_norm(clip_norm)
        return Groups(dict(self.mechanisms) | {patterns[0]: changed})


def _under(name: str, pattern: str) -> str:
    return f"{name}/{pattern}" if name else pattern
