"""Several groups out of one total: clip norms and noise shared out by a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.folding import root_above, root_below
from discreet.mechanisms._claims import checked_leaves, claim_leaves
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.group import Group
from discreet.mechanisms.mechanism import Mechanism

__all__ = ["Split"]

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__
_EACH_LEAF = "each leaf"
_EQUAL = "equal"
_PROPORTIONAL = "proportional"
_BY_DIMENSION = "by dimension"


@dataclass(frozen=True, slots=True)
class Split(Mechanism):
    """A total clip norm S* and a noise multiplier z, shared out over parts that are clipped and
    noised one by one.

    With shares c_g of the clipping and b_g of the budget, each adding up to 1 over the parts:

        S_g = S* sqrt(c_g),    noise_std_g = z S_g / sqrt(b_g),

    so that sum_g S_g^2 = S*^2 (rounded down) and the folded multiplier is z (rounded up): sum_g
    (S_g/noise_std_g)^2 = 1/z^2.

    ================  =======================  =======================================
    clip              c_g                      S_g
    ================  =======================  =======================================
    "equal"           1/m for m parts          S*/sqrt(m), per-layer clipping
    "by dimension"    d_g/D                    S* sqrt(d_g/D); [McMahan2018] prints the
                                               inverse root, a slip
    {part: share}     share / sum of shares
    ================  =======================  =======================================

    ================  =======================  =======================================
    noise             b_g                      noise_std_g  [McMahan2018, section 4]
    ================  =======================  =======================================
    "proportional"    1/m                      z sqrt(m) S_g
    "by dimension"    d_g/D                    z sqrt(D/d_g) S_g
    {part: share}     share / sum of shares
    ================  =======================  =======================================

    ================================  ==============================================
    case                              what happens
    ================================  ==============================================
    a part of one record: 0, NaN ...  as in `Gaussian`, for this part alone
    one part                          the same groups as `Gaussian`, by its name
    a leaf that no part claims        refused, with both lists of names
    a share of 0, NaN, for no part    refused
    ================================  ==============================================

    Args:
        clip_norm: S*, bound on the norm of one record over all parts; public.
        noise_multiplier: z, of all parts together; public.
        parts: "each leaf", or a pattern over the leaves for each part's name (first match wins).
        clip: policy for S_g.
        noise: policy for noise_std_g.

    >>> split = Split(clip_norm=1.0, noise_multiplier=1.1, clip="by dimension")
    >>> bound = split.bind({"w": 96, "b": 4})
    >>> [(group.name, round(group.clip_norm, 6)) for group in bound.start]
    [('all/w', 0.979796), ('all/b', 0.2)]
    >>> round(bound.noise_multiplier, 12)
    1.1
    """

    clip_norm: float
    noise_multiplier: float
    parts: str | Mapping[str, str] = _EACH_LEAF
    clip: str | Mapping[str, float] = _EQUAL
    noise: str | Mapping[str, float] = _PROPORTIONAL

    kind: ClassVar[str] = "split"

    def __post_init__(self) -> None:
        _set(self, "clip_norm", check.positive("Split", "clip_norm", self.clip_norm))
        _set(
            self,
            "noise_multiplier",
            check.positive("Split", "noise_multiplier", self.noise_multiplier),
        )
        _set(self, "parts", _checked_parts(self.parts))
        _set(self, "clip", _checked_policy("clip", self.clip, (_EQUAL, _BY_DIMENSION)))
        _set(self, "noise", _checked_policy("noise", self.noise, (_PROPORTIONAL, _BY_DIMENSION)))

        # Parts that have names are known now; those that are leaves are checked by `bind`.
        if isinstance(self.parts, Mapping):
            for name, policy in (("clip", self.clip), ("noise", self.noise)):
                _check_names(name, policy, list(self.parts))

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension); its groups are called `name/part`."""
        sizes = checked_leaves("Split", leaves)

        if isinstance(self.parts, str):
            parts: dict[str, tuple[str, ...]] = {leaf: (leaf,) for leaf in sizes}
        else:
            by_pattern = claim_leaves("Split", "parts", self.parts.values(), sizes)
            parts = {part: by_pattern[pattern] for part, pattern in self.parts.items()}

        return self._in_parts(sizes, parts, name)

    def _in_parts(
        self, sizes: dict[str, int], parts: dict[str, tuple[str, ...]], name: str
    ) -> Bound:
        """One group for each part, from the leaves that it has."""
        dimensions = {part: sum(sizes[leaf] for leaf in names) for part, names in parts.items()}

        # Each part is clipped by itself, to its own S_g: the scales are 1 within it.
        groups = tuple(
            Group(
                name=f"{name}/{part}",
                leaves=parts[part],
                scales=(1.0,) * len(parts[part]),
                clip_norm=bound,
                noise_std=std,
            )
            for part, (bound, std) in self._numbers(dimensions).items()
        )
        return Bound(dimensions=Frozen(tuple(sizes.items())), start=groups)

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf stands for each part, if neither the parts nor a policy depend on the leaves.

        Raises:
            ParameterError: they do; bind first.
        """
        if isinstance(self.parts, str) or _BY_DIMENSION in (self.clip, self.noise):
            raise ParameterError(
                owner="Split",
                name="parts",
                expected="named, and no policy by dimension, to state queries without leaves",
                got=f"parts {self.parts!r}, clip {self.clip!r}, noise {self.noise!r}",
                do="Bind the mechanism first: split.bind(leaves).queries.",
            )

        # Any dimension serves, as no policy that is left looks at it.
        stand_ins: dict[str, tuple[str, ...]] = {part: (f"{name}/{part}",) for part in self.parts}
        sizes = {leaf: 1 for (leaf,) in stand_ins.values()}
        return self._in_parts(sizes, stand_ins, name)

    def open_groups(self, name: str = "all") -> tuple[str, ...]:
        """None: every part is clipped and noised, also where parts depend on the leaves."""
        del name
        return ()

    def with_noise_times(self, factor: float) -> Split:
        """Share out another total noise in the same way."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_clip_norm(self, clip_norm: float) -> Split:
        """Share out another total clip norm in the same way."""
        return replace(self, clip_norm=clip_norm)

    def _numbers(self, dimensions: dict[str, int]) -> dict[str, tuple[float, float]]:
        """(S_g, noise_std_g) of each part: S_g rounded down, the noise for that S_g rounded up."""
        clip = _shares("clip", self.clip, dimensions)
        noise = _shares("noise", self.noise, dimensions)

        # Squares in fractions and one rounding each, towards safety: the squares of the S_g add up
        # to at most S*^2, and the folded multiplier is at least z (docs/proofs/mechanisms.md,
        # section 3). The noise is for the S_g that was rounded, which is the one that clips.
        numbers = {}
        for part in dimensions:
            bound = root_below(Fraction(self.clip_norm) ** 2 * clip[part])
            numbers[part] = (
                bound,
                root_above((Fraction(bound) * Fraction(self.noise_multiplier)) ** 2 / noise[part]),
            )

        return numbers


def _shares(
    name: str, policy: str | Mapping[str, float], dimensions: dict[str, int]
) -> dict[str, Fraction]:
    """Positive fractions that add up to 1 exactly."""
    _check_names(name, policy, list(dimensions))

    # "Equal" and "proportional" are the same policy, of the clip norm and of the noise.
    sizes: Mapping[str, float] = dict.fromkeys(dimensions, 1)
    if not isinstance(policy, str):
        sizes = policy
    elif policy == _BY_DIMENSION:
        sizes = dimensions

    # The numbers of a mapping are taken as relative to each other: they need not add up to 1.
    total = sum(map(Fraction, sizes.values()), Fraction(0))
    return {part: Fraction(sizes[part]) / total for part in dimensions}


def _checked_parts(parts: str | Mapping[str, str]) -> str | Frozen[str]:
    if isinstance(parts, str):
        if parts != _EACH_LEAF:
            raise ParameterError(
                owner="Split",
                name="parts",
                expected=f'"{_EACH_LEAF}" or a mapping from names of parts to patterns',
                got=repr(parts),
            )

        return _EACH_LEAF

    fixed = frozen("Split", "parts", parts)
    patterns = [check.label("Split", f"parts[{part!r}]", pattern) for part, pattern in fixed.pairs]

    # Leaves are claimed by pattern: two parts of one pattern could not be told apart.
    if len(set(patterns)) < len(patterns):
        raise ParameterError(
            owner="Split", name="parts", expected="patterns that differ", got=repr(patterns)
        )

    return Frozen(tuple(zip(fixed, patterns, strict=True)))


def _checked_policy(
    name: str, policy: str | Mapping[str, float], words: tuple[str, ...]
) -> str | Frozen[float]:
    if isinstance(policy, str):
        if policy not in words:
            raise ParameterError(
                owner="Split",
                name=name,
                expected=" or ".join(f'"{word}"' for word in words)
                + ", or a mapping from parts to shares",
                got=repr(policy),
            )

        return str(policy)

    # A share of zero would be a clip norm of 0, or infinite noise: the part says nothing.
    shares = frozen("Split", name, policy)
    return Frozen(
        tuple(
            (part, check.positive("Split", f"{name}[{part!r}]", share))
            for part, share in shares.pairs
        )
    )


def _check_names(name: str, policy: str | Mapping[str, float], parts: list[str]) -> None:
    if not isinstance(policy, str) and set(policy) != set(parts):
        raise ParameterError(
            owner="Split",
            name=name,
            expected="a share for each part and no other",
            got=f"shares for {list(policy)}, parts {parts}",
        )
