"""Ledgers to report on, and the parts of a report in each of its formats."""

import html
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import discreet as dp
from discreet.auditing import Audit
from discreet.ledger import RunRecord, Snapshot
from discreet.ledger.rules import HasTerms
from discreet.report import Subject

INFO = dp.ledger.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad",),
    numerics=dp.Numerics.CERTIFIED,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
    label="first",
)
DELTA = 1e-5
SAMPLINGS: tuple[dp.ledger.Sampling, ...] = (
    dp.Everything(),
    dp.Poisson(0.05),
    dp.ledger.TruncatedPoisson(0.05, 90, 1000),
    dp.FixedSize(50, 1000),
    dp.ledger.Shuffled(10),
    dp.ledger.BallsInBins(10),
)
REFUSED = {
    (dp.FixedSize, dp.Adjacency.ADD_OR_REMOVE),
    (dp.ledger.Shuffled, dp.Adjacency.ADD_OR_REMOVE),
}


def analysed() -> list[tuple[dp.ledger.Sampling, dp.Adjacency]]:
    """Every sampling policy with every adjacency for which there is an analysis."""
    cases = itertools.product(SAMPLINGS, dp.Adjacency)
    return [
        (sampling, adjacency)
        for sampling, adjacency in cases
        if (type(sampling), adjacency) not in REFUSED
    ]


def step_of(sampling: dp.ledger.Sampling, noise_std: float = 5.0) -> dp.ledger.Step:
    return dp.ledger.Step(sampling, [dp.ledger.GaussianSum("grad", 1.0, noise_std)])


STEP = step_of(dp.Poisson(0.05))


def ledger_of(
    *charges: tuple[dp.ledger.Step, int],
    info: dp.ledger.RunInfo = INFO,
    budget: HasTerms | None = None,
) -> dp.Ledger:
    """A ledger with one run, all of whose steps were taken."""
    ledger = dp.Ledger.in_memory(budget=budget)
    extend(ledger, *charges, info=info)
    return ledger


def extend(
    ledger: dp.Ledger, *charges: tuple[dp.ledger.Step, int], info: dp.ledger.RunInfo
) -> None:
    groups = {group for step, _ in charges for group in step.groups} | set(info.groups)
    run = ledger.begin(replace(info, groups=tuple(groups)), charges)
    for step, count in charges:
        for _ in run.steps(step, count):
            pass
    run.end()


def listed(*charges: tuple[dp.ledger.Step, int]) -> dp.Budget:
    """A list of these steps, fixed before the first release, for several runs to draw on."""
    return dp.Budget(plans=Snapshot(runs=(RunRecord(info=INFO, charged=charges),)))


def planned(
    steps: int = 20, noise_multiplier: float = 5.0, epsilon: float | None = None
) -> dp.Plan:
    if epsilon is None:
        return dp.Plan.dpsgd(
            records=1000, sampling_probability=0.05, steps=steps, noise_multiplier=noise_multiplier
        )
    return dp.Plan.dpsgd(
        records=1000, sampling_probability=0.05, steps=steps, epsilon=epsilon, delta=DELTA
    )


def executed(
    plan: dp.Plan, steps: int | None = None, label: str = "final", budget: HasTerms | None = None
) -> dp.Ledger:
    """The ledger of a plan, as an engine would leave it."""
    return ledger_of(
        (plan.step, plan.steps if steps is None else steps),
        info=plan.run_info(label),
        budget=budget,
    )


def audit_of(ledger: dp.Ledger, lower: float = 0.1) -> Audit:
    return Audit(
        method="one run",
        lower=lower,
        delta=DELTA,
        confidence=0.95,
        canaries=1000,
        trials=1,
        unit=dp.Unit.EXAMPLE,
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
        ledger_head=ledger.head(),
        made="2026-01-31T12:00:00+00:00",
    )


def evil_report(text: str) -> dp.Report:
    """A report in which every text that somebody chose is this one."""
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum(text, 1.0, 5.0), dp.ledger.GaussianSum("z", 1.0, 5.0)],
    )
    ledger = ledger_of(
        (step, 3), info=replace(INFO, label=text, unit=dp.Unit(text)), budget=listed((step, 9))
    )
    extend(ledger, (step, 1), info=replace(INFO, label=text + "2", unit=dp.Unit(text)))
    ledger.change_budget(50.0, delta=DELTA, reason=text)
    stopped = ledger.begin(
        replace(INFO, label=text, unit=dp.Unit(text), groups=step.groups), [(step, 2)]
    )
    stopped.end(text)
    audit = replace(audit_of(ledger), method=text, unit=dp.Unit(text))
    stopped.mark(f"unsafe_{text}")
    subject = Subject(data_set=text, model=text, purpose=text, who=text)
    return dp.Report.of(ledger, delta=DELTA, audit=audit, subject=subject)


# --- the items of the checklist, as each format has them ---


class _Items(HTMLParser):
    """Texts inside elements whose id is item-..., until the next heading of a section."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._now = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id") or ""
        if name.startswith("item-"):
            self._now = name.removeprefix("item-")
            self.found[self._now] = ""
        elif tag == "section":
            self._now = ""

    def handle_data(self, data: str) -> None:
        if self._now:
            self.found[self._now] += f" {data.strip()}"


def items(report: dp.Report, form: str) -> dict[str, str]:
    """Text of each item of the checklist, by its number."""
    if form == "html":
        parser = _Items()
        parser.feed(report.html())
        return {number: " ".join(text.split()) for number, text in parser.found.items()}
    if form == "md":
        part = report.markdown().split("## The statement", 1)[1].split("\n## ", 1)[0]
        found = dict(re.findall(r"^### (\S+) (.*?)(?=^### |\Z)", part, re.MULTILINE | re.DOTALL))
        return {
            number: html.unescape(re.sub(r"\\(.)", r"\1", " ".join(text.split())))
            for number, text in found.items()
        }
    return {
        item["number"]: " ".join(_texts(item)) for item in json.loads(report.json())["checklist"]
    }


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for part in value.values():
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)
