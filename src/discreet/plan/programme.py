"""Several plans on one data set: what is looked at before training, and training itself, or
training in phases.

    Programme({"moments": ..., "covariance": ..., "training": ...})
                                statistics of the data, then a model: one budget
    Programme.phases(plan, [Phase(steps=100, noise=1.5), ...])
                                noise and clip norms that change on a schedule

Each plan becomes a run of its own on the one ledger of the data set. Accountants read a programme
as they read a ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from discreet import _validate as check
from discreet.accounting import account, solve
from discreet.accounting.calibration.unknowns import NoiseFactor
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import Step
from discreet.ledger.snapshot import Snapshot
from discreet.mechanisms._frozen import frozen
from discreet.plan import text, vocabulary
from discreet.plan.calibrated import Target
from discreet.plan.declaration import Declaration
from discreet.plan.plan import Plan
from discreet.sampling import Sampler

__all__ = ["Phase", "Programme", "from_text"]

_OWNER = "Programme"
_PLANS = "plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of a schedule; public, settled before the first of them.

    Args:
        steps: how many.
        noise: factor on the noise multipliers of the plan, relative to the other phases.
        clip_norm: of the gradients in this phase; left out, that of the plan.
    """

    steps: int
    noise: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "steps", check.whole("Phase", "steps", self.steps, least=1))
        set_(self, "noise", check.positive("Phase", "noise", self.noise))
        if self.clip_norm is not None:
            set_(self, "clip_norm", check.positive("Phase", "clip_norm", self.clip_norm))


@dataclass(frozen=True, slots=True)
class Programme(Declaration[Plan]):
    """Plans by name, executed one after the other on one ledger; accounted for and calibrated
    together.

    Guarantee: none of its own. `dp.account` composes the charges of all plans; what was executed is
        in the ledger.

    Args:
        plans: in the order in which they run; all protect the same unit under the same adjacency,
            over as many records.
        target: what the plans together were calibrated for, if anything: a wish, never a guarantee.

    >>> from discreet.ledger.events import Everything
    >>> from discreet.mechanisms import Gaussian
    >>> every = Sampler(Everything(), records=60_000, steps=1)
    >>> look = Plan(sampler=every, mechanism=Gaussian(1.0, noise_multiplier=40.0))
    >>> train = Plan.dpsgd(
    ...     records=60_000, expected_batch_size=8192, steps=200, noise_multiplier=1.0
    ... )
    >>> programme = Programme({"moments": look, "training": train})
    >>> programme = programme.calibrated(epsilon=1.2, delta=1e-5, scale=["training"])
    >>> round(programme["training"].noise_multiplier, 1), programme["moments"].noise_multiplier
    (6.3, 40.0)
    >>> 1.198 < account(programme, delta=1e-5).upper <= 1.2
    True
    """

    plans: Mapping[str, Plan] = field()  # not the property that it overrides
    target: Target | None = None

    def __post_init__(self) -> None:
        plans = frozen(_OWNER, _PLANS, self.plans)
        for name, plan in plans.pairs:
            check.instance(_OWNER, f"plans[{name!r}]", plan, Plan)

        if self.target is not None:
            check.instance(_OWNER, "target", self.target, Target)

        # One ledger belongs to one data set: charges of plans that protect different units, or
        # count different records, do not compose into one statement.
        _require_same("unit", {name: str(plan.unit) for name, plan in plans.items()})
        _require_same("adjacency", {name: plan.adjacency.value for name, plan in plans.items()})

        # A schedule does not say how many records there are, and so contradicts nobody.
        records = {
            name: str(plan.sampler.records)
            for name, plan in plans.items()
            if isinstance(plan.sampler, Sampler)
        }
        _require_same("number of records", records)

        object.__setattr__(self, "plans", plans)

    @classmethod
    def phases(cls, plan: Plan, phases: Iterable[Phase]) -> Programme:
        """A schedule of noise and clip norms, settled in advance: the plan with other numbers in
        each phase.

        Give each phase to a run of its own, on the same model, optimizer and ledger. What a phase
        is must not depend on what an earlier one released.

        Args:
            plan: whose sampling and mechanism all phases share; its number of steps is replaced by
                theirs.
            phases: in order; they are named "phase 1", "phase 2" and so on.

        >>> plan = Plan.dpsgd(
        ...     records=60_000, expected_batch_size=600, steps=1, noise_multiplier=1.0
        ... )
        >>> phases = [Phase(steps=100, noise=1.5), Phase(steps=200, clip_norm=0.5)]
        >>> schedule = Programme.phases(plan, phases).calibrated(epsilon=3.0, delta=1e-6)
        >>> [(plan.steps, round(plan.noise_multiplier, 2)) for plan in schedule.plans.values()]
        [(100, 1.11), (200, 0.74)]
        """
        owner = "Programme.phases"

        # What the plan alone was calibrated for says nothing about its phases.
        base = replace(check.instance(owner, "plan", plan, Plan), target=None)

        plans = {}
        for number, phase in enumerate(phases, start=1):
            check.instance(owner, "phases", phase, Phase)
            plans[f"phase {number}"] = _phase(base, phase)

        return cls(plans)

    def __getitem__(self, name: str) -> Plan:
        if name not in self.plans:
            raise ParameterError(
                owner=_OWNER,
                name="name",
                expected=f"one of {', '.join(map(repr, self.plans))}",
                got=repr(name),
            )

        return self.plans[name]

    # --- what it costs ---

    def snapshot(self) -> Snapshot:
        """What a ledger would hold if all plans were executed: what accountants and reports read of
        it.
        """
        parts = [plan.snapshot() for plan in self.plans.values()]

        # Marks belong to the ledger, not to a run: those of one plan void the guarantee of all.
        return Snapshot(
            runs=tuple(chain.from_iterable(part.runs for part in parts)),
            marks=tuple(sorted(set[str]().union(*(part.marks for part in parts)))),
        )

    def certified(self, target: Target) -> Programme:
        """Give the programme this target, if the accountant's upper bound meets it.

        Raises:
            AccountingError: it does not.
        """
        return replace(self, target=self.check_target(target))

    def calibrated(
        self, *, epsilon: float, delta: float, scale: Iterable[str] | None = None
    ) -> Programme:
        """Multiply the noise of the named plans by one factor, so that all just meet the target.

        Args:
            epsilon: the target, of everything.
            delta: of the target.
            scale: names of the plans whose noise is found; the others stay as they are. All by
                default.

        Raises:
            AccountingError: a plan is not private, or no factor meets the target: the others alone
                cost too much.
        """
        target = Target(epsilon, delta)
        self._refuse_open_groups()

        chosen = set(self.plans) if scale is None else _names(scale)
        for name in sorted(chosen):
            self[name]  # an error for an unknown name

        # What stays as it is belongs to the search as well: it takes its part of the budget, and
        # what it costs alone is the floor that no factor goes below (docs/proofs/calibration.md).
        scaled: list[tuple[Step, int]] = []
        fixed: list[tuple[Step, int]] = []
        for name, plan in self.plans.items():
            charges = scaled if name in chosen else fixed
            charges.append((plan.step, plan.steps))

        # Any plan's adjacency: a programme has one.
        adjacency = next(iter(self.plans.values())).adjacency
        unknown = NoiseFactor(scaled=tuple(scaled), fixed=tuple(fixed))
        solution = solve(unknown, epsilon=target.epsilon, delta=target.delta, adjacency=adjacency)

        # A little more, so that rounding the products does not take away what was certified.
        factor = solution.value * (1.0 + 1e-12)
        plans = dict(self.plans)
        for name in chosen:
            plans[name] = _noised(plans[name], factor)

        # Accounted once more with the multiplied noise: what is certified is what will be executed.
        return Programme(plans).certified(target)

    def _refuse_open_groups(self) -> None:
        """Require that every group of every plan is private."""
        # A group without noise has no query: the search would not see it, and find a factor for
        # all others.
        for name, plan in self.plans.items():
            if plan.open_groups():
                raise AccountingError(
                    expected="plans whose groups are all private",
                    got=f"{name}: {', '.join(plan.open_groups())} without noise",
                    do="No noise on the others makes it private.",
                )

    # --- for people and files ---

    def explain(self, *, delta: float | None = None) -> str:
        """Every plan as a table, and what all of them cost.

        Args:
            delta: states the guarantee at this delta; without it no epsilon is claimed.
        """
        # No delta for the single plans: their epsilons, side by side, would invite adding them up.
        parts = [f"=== {name} ===\n{plan.explain()}" for name, plan in self.plans.items()]

        if self.target is not None:
            parts.append(
                f"Target of all, which is no guarantee: epsilon {self.target.epsilon!r} at "
                f"delta {self.target.delta!r}."
            )

        if delta is not None:
            parts.append(
                f"All plans together, if executed as planned:\n{account(self, delta=delta)}"
            )

        return "\n\n".join(parts)

    def _plain(self) -> dict[str, text.Plain]:
        # Pairs in a list, because the order in which plans run counts; `_plain` is protected, and
        # of the base class that both share.
        plans = [[name, plan._plain()] for name, plan in self.plans.items()]  # noqa: SLF001
        return vocabulary.written({"target": self.target}) | {_PLANS: plans}

    @classmethod
    def _read(cls, data: Mapping[str, text.Plain]) -> Programme:
        plans, target = vocabulary.read_programme(data)
        return cls({name: Plan(**fields) for name, fields in plans.items()}, target)


def from_text(source: str) -> Declaration[Plan]:
    """Read TOML or JSON, a programme or one plan: told apart by content."""
    # A JSON object begins with a brace, and no line of TOML does.
    data = text.from_json(source) if source.lstrip().startswith("{") else text.from_toml(source)
    kind: type[Declaration[Plan]] = Programme if _PLANS in data else Plan
    return kind._read(data)  # noqa: SLF001  (of the same room)


def _phase(base: Plan, phase: Phase) -> Plan:
    # Noise multipliers are relative to the clip norm: the two can be changed one after the other.
    mechanism = base.mechanism
    if phase.clip_norm is not None:
        mechanism = mechanism.with_clip_norm(phase.clip_norm)

    sampler = replace(base.sampler, steps=phase.steps)
    return replace(base, sampler=sampler, mechanism=mechanism.with_noise_times(phase.noise))


def _noised(plan: Plan, factor: float) -> Plan:
    return replace(plan, mechanism=plan.mechanism.with_noise_times(factor), target=None)


def _names(scale: Iterable[str]) -> set[str]:
    owner = "Programme.calibrated"

    # A text is an iterable of letters; whoever passes one means the one name.
    if isinstance(scale, str):
        scale = [scale]

    check.instance(owner, "scale", scale, Iterable)  # type: ignore[type-abstract]

    names = {check.label(owner, "scale", name) for name in scale}
    if not names:
        raise ParameterError(owner=owner, name="scale", expected="at least one name", got="none")

    return names


def _require_same(what: str, values: Mapping[str, str]) -> None:
    if len(set(values.values())) > 1:
        raise ParameterError(
            owner=_OWNER,
            name=_PLANS,
            expected=f"the same {what} in every plan: it is one data set",
            got=", ".join(f"{name}: {value}" for name, value in values.items()),
        )
