"""Several mechanisms on one sample, by patterns over the names of the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet import _validate as check
from discreet.ledger.events import GaussianSum
from discreet.mechanisms._claims import checked_leaves, claim
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.adaptive import AdaptiveClip
from discreet.mechanisms.bound import Bound, Mechanism
from discreet.mechanisms.gaussian import Gaussian, Joint, Normalised, NotPrivate
from discreet.mechanisms.microbatches import Microbatches
from discreet.mechanisms.split import Split

__all__ = ["Groups"]

_MEMBERS = (Gaussian, Joint, Normalised, Split, AdaptiveClip, Microbatches, NotPrivate)


@dataclass(frozen=True, slots=True)
class Groups:
    """Each leaf goes to the first pattern that matches; every leaf must be claimed, and every
    pattern must claim one.

    Guarantee: the queries of all mechanisms share one sample and one charge; folded, they have the
    noise multiplier (sum_g (S_g/noise_std_g)^2)^(-1/2) [McMahan2018, Eq. 1].

    Args:
        mechanisms: by pattern (`*`, `?`, `[...]`; case counts). The pattern is the name in the
            ledger. Public.

    >>> groups = Groups({"grad/*": Gaussian(1.0, noise_multiplier=1.25), "metric/*": Gaussian(1.0, noise_multiplier=40.0)})
    >>> bound = groups.bind({"grad/w": 10, "metric/accuracy": 1})
    >>> [(row.leaf, row.group, round(row.share, 4)) for row in bound.explain()]
    [('grad/w', 'grad/*', 0.999), ('metric/accuracy', 'metric/*', 0.001)]
    """

    mechanisms: Mapping[str, Mechanism]

    def __post_init__(self) -> None:
        fixed: Frozen[Mechanism] = frozen("Groups", "mechanisms", self.mechanisms)
        for pattern, mechanism in fixed.pairs:
            check.member("Groups", f"mechanisms[{pattern!r}]", mechanism, _MEMBERS)
        object.__setattr__(self, "mechanisms", fixed)

    def bind(self, leaves: Mapping[str, int], name: str = "") -> Bound:
        """The mechanisms for these leaves (name to dimension).

        Args:
            leaves: dimension of each leaf.
            name: put before the patterns, with a slash; none by default.
        """
        sizes = checked_leaves("Groups", leaves)
        claimed = claim("Groups", "mechanisms", self.mechanisms, sizes)
        return Bound.merged(
            self.mechanisms[pattern].bind(
                {leaf: sizes[leaf] for leaf in its}, _under(name, pattern)
            )
            for pattern, its in claimed.items()
        )

    def queries(self, name: str = "") -> tuple[GaussianSum, ...]:
        """The queries of each step, where no mechanism's depend on the leaves. Claims are checked
        by `bind`.
        """
        return tuple(
            query
            for pattern, mechanism in self.mechanisms.items()
            for query in mechanism.queries(_under(name, pattern))
        )


def _under(name: str, pattern: str) -> str:
    return f"{name}/{pattern}" if name else pattern
