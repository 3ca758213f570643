"""One group of vectors: clipped together, summed, noised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import GaussianSum
from discreet.ledger.folding import root_above
from discreet.mechanisms._claims import checked_leaves, claim
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.group import Clipping, Group

__all__ = ["Gaussian", "Joint", "Normalised", "NotPrivate"]

_set = object.__setattr__  # writes the normalised fields of a frozen value during its construction


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Flat clipping: the leaves are one concatenated vector, clipped to norm `clip_norm`: v *
    min(1, clip_norm/|v|).

    Guarantee: one Gaussian sum with sensitivity clip_norm and noise_std >= noise_multiplier *
    clip_norm (the nearest float64 above), under add-or-remove and zero-out adjacency. [McMahan2018,
    section 2, "separate"]

    Args:
        clip_norm: bound on the norm of one record, in its own unit; public.
        noise_multiplier: noise_std / sensitivity; public.

    >>> Gaussian(clip_norm=0.5, noise_multiplier=2.0).bind({"w": 10, "b": 2}).queries
    (GaussianSum(group='all', sensitivity=0.5, noise_std=1.0),)
    """

    clip_norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _store_numbers(self)

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension)."""
        sizes = checked_leaves("Gaussian", leaves)
        return _one(sizes, name, self.clip_norm, self.noise_multiplier)

    def queries(self, name: str = "all") -> tuple[GaussianSum, ...]:
        """The one query of each step."""
        return _query(self, name)


@dataclass(frozen=True, slots=True)
class Joint:
    """Joint clipping of vectors that live on different scales: clip (v_1/alpha_1, ...,
    v_k/alpha_k), multiply back by alpha_j.

    Guarantee: one Gaussian sum, in the scaled unit, with sensitivity clip_norm; the release is a
    post-processing of it. The noise on leaf j is alpha_j * noise_std. [McMahan2018, section 2,
    "joint"]

    Args:
        clip_norm: S, in the scaled unit, in (0, sqrt k] for k leaves; public.
        noise_multiplier: noise_std / clip_norm; public.
        scales: alpha by pattern over the leaves, first match wins: what the norm of a leaf is
            expected not to exceed; public.

    >>> joint = Joint(clip_norm=1.0, noise_multiplier=0.5, scales={"small": 1.0, "large": 100.0})
    >>> [(row.leaf, row.scale * row.noise_std) for row in joint.bind({"small": 3, "large": 3}).explain()]
    [('small', 0.5), ('large', 50.0)]
    """

    clip_norm: float
    noise_multiplier: float
    scales: Mapping[str, float]

    def __post_init__(self) -> None:
        _store_numbers(self)
        scales = frozen("Joint", "scales", self.scales)
        checked = (
            (key, check.positive("Joint", f"scales[{key!r}]", value)) for key, value in scales.pairs
        )
        _set(self, "scales", Frozen(tuple(checked)))

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension)."""
        sizes = checked_leaves("Joint", leaves)
        claimed = claim("Joint", "scales", self.scales, sizes)
        if self.clip_norm > math.sqrt(len(sizes)):
            expected = f"at most the root of the number of leaves, {math.sqrt(len(sizes))!r}"
            do = "It is in the unit of the scaled vectors: enlarge the scales instead."
            raise ParameterError(
                owner="Joint", name="clip_norm", expected=expected, got=repr(self.clip_norm), do=do
            )
        scale = {leaf: self.scales[pattern] for pattern, its in claimed.items() for leaf in its}
        return _one(
            sizes,
            name,
            self.clip_norm,
            self.noise_multiplier,
            scales=tuple(scale[leaf] for leaf in sizes),
        )

    def queries(self, name: str = "all") -> tuple[GaussianSum, ...]:
        """The one query of each step, in the scaled unit."""
        return _query(self, name)


@dataclass(frozen=True, slots=True)
class Normalised:
    """Automatic clipping: every record is scaled to almost the same norm, v * clip_norm / (|v| +
    stability). [Bu2023]

    Guarantee: as `Gaussian`, since |v| / (|v| + stability) < 1.

    Args:
        clip_norm: bound on the norm of one record; with normalised updates it only sets the unit.
            Public.
        noise_multiplier: noise_std / clip_norm; public.
        stability: in the unit of |v|, at least 2^-40 and clip_norm * 2^-40; public. Records far
            below it keep their relative size.

    >>> import numpy as np
    >>> group, = Normalised(clip_norm=1.0, noise_multiplier=1.0, stability=1.0).bind({"w": 2}).start
    >>> group.weights(np.array([[0.0], [9.0]])).round(6).tolist()
    [1.0, 0.25]
    """

    clip_norm: float
    noise_multiplier: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        _store_numbers(self)
        _set(self, "stability", check.positive("Normalised", "stability", self.stability))
        self.bind({"any": 1})  # refuses a stability that is too small

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension)."""
        sizes = checked_leaves("Normalised", leaves)
        return _one(sizes, name, self.clip_norm, self.noise_multiplier, stability=self.stability)

    def queries(self, name: str = "all") -> tuple[GaussianSum, ...]:
        """The one query of each step."""
        return _query(self, name)


@dataclass(frozen=True, slots=True)
class NotPrivate:
    """No clipping and no noise: a baseline. It has no event, and the run must be marked
    `unsafe_no_privacy`.

    >>> bound = NotPrivate().bind({"w": 2})
    >>> bound.private, bound.queries, bound.noise_multiplier
    (False, (), 0.0)
    """

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension)."""
        sizes = checked_leaves("NotPrivate", leaves)
        group = Group(
            name=check.label("NotPrivate.bind", "name", name),
            leaves=tuple(sizes),
            scales=(1.0,) * len(sizes),
            clip_norm=math.inf,
            noise_std=0.0,
            clipping=Clipping.NONE,
        )
        return Bound(dimensions=Frozen(tuple(sizes.items())), start=(group,))

    def queries(self, name: str = "all") -> tuple[GaussianSum, ...]:
        """None: nothing here is private."""
        check.label("NotPrivate.queries", "name", name)
        return ()


def _store_numbers(mechanism: Gaussian | Joint | Normalised) -> None:
    owner = type(mechanism).__name__
    _set(mechanism, "clip_norm", check.positive(owner, "clip_norm", mechanism.clip_norm))
    _set(
        mechanism,
        "noise_multiplier",
        check.positive(owner, "noise_multiplier", mechanism.noise_multiplier),
    )
    _noise_std(mechanism.clip_norm, mechanism.noise_multiplier)  # refuses what has no float64


def _noise_std(clip_norm: float, noise_multiplier: float) -> float:
    """The smallest float64 that is at least the product."""
    return root_above((Fraction(clip_norm) * Fraction(noise_multiplier)) ** 2)


def _query(mechanism: Gaussian | Joint | Normalised, name: str) -> tuple[GaussianSum, ...]:
    noise_std = _noise_std(mechanism.clip_norm, mechanism.noise_multiplier)
    return (GaussianSum(name, mechanism.clip_norm, noise_std),)


def _one(
    sizes: dict[str, int],
    name: str,
    clip_norm: float,
    noise_multiplier: float,
    *,
    scales: tuple[float, ...] | None = None,
    stability: float | None = None,
) -> Bound:
    group = Group(
        name=check.label("bind", "name", name),
        leaves=tuple(sizes),
        scales=scales or (1.0,) * len(sizes),
        clip_norm=clip_norm,
        noise_std=_noise_std(clip_norm, noise_multiplier),
        clipping=Clipping.CLIP if stability is None else Clipping.NORMALISE,
        stability=stability or 0.0,
    )
    return Bound(dimensions=Frozen(tuple(sizes.items())), start=(group,))
