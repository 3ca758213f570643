"""What is protected, against what, and how the result is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from discreet import _validate as check
from discreet._digits import downward, upward
from discreet.errors import ParameterError

__all__ = ["Adjacency", "Guarantee", "Numerics", "Parameters", "Randomness", "Unit"]


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit of privacy is: an example, a user, or a named group such as a hospital.

    >>> Unit("hospital").name, Unit.EXAMPLE == Unit("example")
    ('hospital', True)
    """

    name: str

    EXAMPLE: ClassVar[Unit]
    USER: ClassVar[Unit]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check.label("Unit", "name", self.name))

    def __str__(self) -> str:
        return self.name


# After the class, whose instances they are; equal to any other unit of their name.
Unit.EXAMPLE = Unit("example")
Unit.USER = Unit("user")


class Adjacency(Enum):
    """Which two data sets an attacker must not tell apart.

    ADD_OR_REMOVE: one has one unit more. ZERO_OUT: one unit's contribution is replaced by nothing,
    the number of units stays public. REPLACE_ONE: one unit is exchanged for any other, the number
    stays public.
    """

    ADD_OR_REMOVE = "add-or-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"


class Numerics(Enum):
    """How far the executed arithmetic is from the mechanism that is analysed.

    EXACT: integer sums on a grid, exact noise. CERTIFIED: floating-point sums, exact noise; what
    rounding adds is proven to be within the sensitivity that is charged, if the arithmetic is that
    of IEEE 754. IDEALISED: floating-point sums without such a bound, or floating-point noise; that
    they behave as real numbers is an assumption.
    """

    EXACT = "exact"
    CERTIFIED = "certified"
    IDEALISED = "idealised"

    def serves(self, least: Numerics) -> bool:
        """Whether arithmetic of this level may be executed where at least the other was asked for.

        >>> Numerics.EXACT.serves(Numerics.CERTIFIED), Numerics.IDEALISED.serves(Numerics.CERTIFIED)
        (True, False)
        """
        # Members stand in the order of what they promise, the most first.
        levels = list(Numerics)
        return levels.index(self) <= levels.index(least)


class Randomness(Enum):
    """Where noise and samples came from.

    SYSTEM: a cryptographic generator keyed by the operating system. UNSAFE_TEST_KEY: reproducible;
    voids the guarantee.
    """

    SYSTEM = "system"
    UNSAFE_TEST_KEY = "unsafe_test_key"


class Parameters(Enum):
    """Whether the steps, and their number, were fixed before the first release from the ledger.

    FIXED_IN_ADVANCE: or a function of public values only. CHOSEN_FROM_OUTPUTS: an earlier release,
    of this run or of another on the same ledger, may have influenced a later noise or probability,
    or when to stop, so that only a privacy filter gives a valid bound.
    """

    FIXED_IN_ADVANCE = "fixed in advance"
    CHOSEN_FROM_OUTPUTS = "chosen from outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """An (epsilon, delta) statement with everything that it depends on; never a bare number.

    Args:
        lower: no valid statement at this delta has a smaller epsilon (0 if nothing better is
            known).
        upper: the claim; `epsilon` is another name for it. Infinity where no finite bound is known.
        delta: of the claim, in [0, 1]; 1 claims nothing.
        unit, adjacency: what is protected, against which change of the data.
        accountant: name of the analysis.
        sampling: how samples were drawn, one phrase per policy.
        numerics: level of the arithmetic.
        assumptions: what must hold and is not proven by the ledger.
        voided_by: names of the unsafe marks on the ledger; if any, there is no guarantee and the
            sentence says so.
        estimate: best point value between lower and upper, where the accountant has one; not a
            claim.
        delta_lower: where epsilon was given and delta computed: no valid delta at this epsilon is
            smaller.
        basis: what counts and why, where the ledger decides it: a list fixed in advance, a filter,
            an odometer.
        if_fixed: beside the claim of an odometer: epsilon if all runs had been fixed before the
            first release.

    >>> guarantee = Guarantee(
    ...     lower=0.93,
    ...     upper=0.941,
    ...     delta=1e-6,
    ...     unit=Unit.EXAMPLE,
    ...     adjacency=Adjacency.ADD_OR_REMOVE,
    ...     accountant="tight",
    ...     sampling=("Poisson",),
    ...     numerics=Numerics.CERTIFIED,
    ...     assumptions=(),
    ... )
    >>> print(str(guarantee).splitlines()[0].split(" for ")[0])
    What was released is (0.941, 1e-06)-differentially private
    """

    lower: float
    upper: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    accountant: str
    sampling: tuple[str, ...]
    numerics: Numerics
    assumptions: tuple[str, ...]
    voided_by: tuple[str, ...] = ()
    estimate: float | None = None
    delta_lower: float | None = None
    basis: str = ""
    if_fixed: float | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        owner = "Guarantee"
        check.instance(owner, "unit", self.unit, Unit)
        check.instance(owner, "adjacency", self.adjacency, Adjacency)
        check.instance(owner, "numerics", self.numerics, Numerics)
        check.label(owner, "accountant", self.accountant)
        if not self.sampling:
            raise _wrong("sampling", "one phrase per policy used", "none")

        # A text is a sequence of letters, and would become a tuple of them without a word.
        for name in ("sampling", "assumptions", "voided_by"):
            phrases = getattr(self, name)
            if isinstance(phrases, str):
                raise _wrong(name, "a tuple of phrases", "a single text")

            object.__setattr__(self, name, tuple(phrases))

    def _check_numbers(self) -> None:
        """Normalise the bounds, and require that they are in order."""
        owner = "Guarantee"
        lower = check.real(owner, "lower", self.lower)
        upper = math.inf if self.upper == math.inf else check.real(owner, "upper", self.upper)
        delta = check.fraction(owner, "delta", self.delta, zero=True, one=True)

        # A lower bound above the upper one means that one of the two analyses is wrong.
        if not 0.0 <= lower <= upper:
            raise _wrong("lower", f"in [0, upper={upper!r}]", repr(lower))

        # Whoever reads `epsilon` and not the sentence must not find a number there.
        if self.voided_by and upper != math.inf:
            expected = "infinite where something voids the guarantee: there is no number then"
            raise _wrong("upper", expected, repr(upper))

        for name, value in (("lower", lower), ("upper", upper), ("delta", delta)):
            object.__setattr__(self, name, value)

        if self.estimate is not None:
            estimate = check.real(owner, "estimate", self.estimate)
            if not lower <= estimate <= upper:
                expected = f"in [lower={lower!r}, upper={upper!r}]"
                raise _wrong("estimate", expected, repr(estimate))

            object.__setattr__(self, "estimate", estimate)

        if self.delta_lower is not None:
            least = check.fraction(owner, "delta_lower", self.delta_lower, zero=True, one=True)
            if least > delta:
                raise _wrong("delta_lower", f"at most {delta!r}", repr(least))

            object.__setattr__(self, "delta_lower", least)

    @property
    def epsilon(self) -> float:
        """The claim: the upper bound."""
        return self.upper

    def __str__(self) -> str:
        if self.voided_by:
            return f"NO GUARANTEE: voided by {', '.join(self.voided_by)}."

        # Rounded away from each other: the sentence never claims more than the numbers do.
        upper, lower = upward(self.upper), downward(self.lower)
        lines = [
            (
                f"What was released is ({upper}, {self.delta!r})-differentially private for one "
                f"{self.unit} under {self.adjacency.value} adjacency."
            )
        ]

        if self.basis:
            lines.append(f"What counts: {self.basis}.")

        if self.if_fixed is not None:
            lines.append(
                "If all runs had been fixed before the first release, epsilon would be at most "
                f"{upward(self.if_fixed)}."
            )

        lines += [
            (
                f"Accountant: {self.accountant}, epsilon at delta {self.delta!r} is at least "
                f"{lower} and at most {upper}. Sampling: {'; '.join(self.sampling)}. "
                f"Numerics: {self.numerics.value}."
            ),
            f"Assumptions: {'; '.join(self.assumptions) or 'none beyond the ledger'}.",
        ]
        return "\n".join(lines)


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Guarantee", name=name, expected=expected, got=got)
