"""What `golden.py` asks the library to say: plans, guarantees, ledgers, budgets, reports, commands.

Each part yields titles and answers. The other parts are in `golden_numbers.py`.
"""  # noqa: INP001

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from golden_library import (
    CHOSEN,
    DELTA,
    FIXED,
    MECHANISMS,
    POLICIES,
    RECORDS,
    STEPS,
    Entries,
    Question,
    answer,
    dp,
    dpsgd,
    execute,
    plan_of,
    rows_of,
    scores_of,
    shown,
)

__all__ = ["WORDS"]

MADE = "2026-01-31T12:00:00+00:00"
SCHEMA_1 = Path(__file__).parents[1] / "tests" / "data" / "schema1"
FILTER, ODOMETER = dp.Filter(epsilon=3.0, delta=DELTA), dp.Odometer(delta=DELTA)


# --- plans ---


def plans() -> Entries:
    """Every policy with every mechanism, as files and as explained; then plans of other kinds."""
    for policy, mechanism in product(POLICIES, MECHANISMS):
        yield f"{policy}, {mechanism}", answer(*plan_questions(plan_of(policy, mechanism)))
    base = plan_of("Poisson")
    for title, changes in {
        "of users": {"unit": dp.Unit.USER, "numerics": dp.Numerics.EXACT},
        "replace-one": {"adjacency": dp.Adjacency.REPLACE_ONE},
        "with a target": {"target": dp.Target(2.0, 0.01), "numerics": dp.Numerics.IDEALISED},
        "a schedule": {"sampler": dp.Schedule(dp.Poisson(0.05), steps=7)},
        "by shares, without leaves": {"mechanism": MECHANISMS["Split by shares"], "leaves": None},
        "each leaf, without leaves": {"mechanism": MECHANISMS["Split"], "leaves": None},
    }.items():
        plan = replace(base, **changes)
        yield title, answer(*plan_questions(plan), partial(plan.explain, delta=DELTA))
    owners = dp.Owners.from_ids([2, 1, 2, 3])
    sampler = dp.Sampler(dp.Poisson(0.5), records=3, steps=2, owners=owners, rows_per_unit=1)
    owned = replace(base, sampler=sampler, unit=dp.Unit.USER)
    yield "with owners", answer(owned.explain, owned.to_json, owned.as_row)


def plan_questions(plan: Any) -> list[Question]:
    """What to ask of any plan: its files, whether they are read back, and what it says."""
    return [
        plan.to_toml,
        plan.to_json,
        lambda: dp.Plan.from_toml(plan.to_toml()) == plan == dp.Plan.from_json(plan.to_json()),
        plan.explain,
        lambda: (plan.notes, plan.noise_multiplier, plan.expected_batch_size),
        plan.charges,
    ]


def calibrated() -> Entries:
    """Plans, programmes and tables whose missing number is found."""
    whole, target = {"records": 6_000, "epsilon": 2.0}, {"epsilon": 2.0, "delta": DELTA}
    batch, rate = {"expected_batch_size": 60}, {"sampling_probability": 0.1}
    replaced = {"steps": 9, "adjacency": dp.Adjacency.REPLACE_ONE}
    curve = partial(dp.noise_curve, **whole, batches=[10, 1000])
    groups = plan_of("Poisson", "Groups")
    questions: dict[str, Question] = {
        "noise": partial(dpsgd, **batch, epochs=3),
        "noise, replace-one": partial(dpsgd, **rate, **replaced),
        "steps": partial(dpsgd, **batch, noise_multiplier=1.0),
        "batch, by steps": partial(dpsgd, steps=90, noise_multiplier=1.0),
        "batch, by epochs": partial(dpsgd, epochs=3, noise_multiplier=1.0),
        "infeasible": partial(dpsgd, **batch, noise_multiplier=0.1),
        "usual delta": partial(dp.Plan.dpsgd, **whole, **batch, steps=90),
        "average noise": partial(dp.plan_at_average_noise, **whole, average_noise=0.01, steps=90),
        "scaled noise": partial(dp.plan_with_scaled_noise, groups, **target),
        "curve, epochs": partial(curve, epochs=3),
        "curve, steps": partial(curve, steps=90),
        "calibrate": partial(dp.calibrate, **target, noise_multiplier=1.0, steps=50),
    }
    for title, question in questions.items():
        yield title, answer(question)
    before = programme()
    after = before.calibrated(**target, scale=["phase 1", "phase 2"])
    for title, phases in {"programme": before, "programme, calibrated": after}.items():
        texts = phases.to_toml(), phases.to_json(), phases.explain(delta=DELTA)
        yield title, shown(*texts, dp.Programme.from_toml(phases.to_toml()) == phases)


def programme() -> Any:
    """A look at the data, and training in two phases."""
    size, zero_out = {"records": RECORDS, "dimension": 3}, dp.Adjacency.ZERO_OUT
    look = dp.standardise_plan(**size, noise_multiplier=40.0, adjacency=zero_out)
    schedule = [dp.Phase(steps=10, noise=1.5), dp.Phase(steps=20, clip_norm=0.5)]
    train = replace(plan_of("Poisson"), leaves=None)
    return dp.Programme({"look": look, **dp.Programme.phases(train, schedule).plans})


# --- guarantees ---


def guarantees() -> Entries:
    """Both accountants and every adjacency: epsilon at a delta, delta at an epsilon."""
    sums = [dp.GaussianSum("grad", 1.0, 5.0)]
    steps = {name: dp.Step(policy, sums) for name, policy in POLICIES.items()}
    steps["two groups"] = dp.Step(dp.Poisson(0.05), [*sums, dp.GaussianSum("metric", 2.0, 40.0)])
    for query in (
        dp.LaplaceSum("sum", 1.0, 8.0),
        dp.ExponentialChoice("choice", 1.0, 30.0),
        dp.RandomizedResponse("answer", 3, 0.4),
        dp.CorrelatedGaussianSum("series", 1.0, 9.0, 2.0, 9, 2, 4),
    ):
        steps[type(query).__name__] = dp.Step(dp.Everything(), [query])
    for name, adjacency, accountant in product(steps, dp.Adjacency, ("tight", "rdp")):
        how = {"adjacency": adjacency, "accountant": accountant}
        ask = partial(dp.account, [(steps[name], STEPS)], **how)
        title = f"{name}, {adjacency.value}, {accountant}"
        yield title, answer(partial(ask, delta=DELTA), partial(ask, epsilon=0.5))
    for title, source in {
        "plan": plan_of("BallsInBins", "Groups"),
        "void plan": plan_of("Poisson", "NotPrivate"),
        "programme": programme(),
    }.items():
        yield title, answer(partial(dp.account, source, delta=DELTA))

    mixed = [(steps["Poisson"], 100), (steps["Everything"], 2), (steps["LaplaceSum"], 1)]
    zero_out = {"adjacency": dp.Adjacency.ZERO_OUT}
    stated = dp.account(mixed, delta=DELTA, unit=dp.Unit.USER, **zero_out)
    exported = partial(dp.describe, mixed, accountant="pld", **zero_out)
    yield "for another library", answer(exported)
    yield "mixed", shown(stated, dp.group_guarantee(stated, size=3), dp.tier(stated))
    profile, meter = dp.profile_of(mixed, **zero_out), dp.LiveEpsilon(delta=DELTA, **zero_out)
    for rate in (0.001, 0.01, 0.1):
        level = {"false_positive_rate": rate}
        belief = dp.posterior(profile, prior=0.5, **level)
        yield f"attacker at {rate}", shown(dp.hit_rate(profile, **level), belief)
    for count in (1, 30, 31):
        meter.add(steps["Poisson"], count)
        yield f"live, {count} more", shown(meter.epsilon)


# --- ledgers and budgets ---


def ledgers() -> Entries:
    """Rows of every kind, with every policy; files of the first schema; damaged ones."""
    listed = dp.Programme({name: plan_of(name) for name in POLICIES})
    with dp.Ledger.open("policies.ledger", budget=dp.Budget(plans=listed)) as ledger:
        for name, plan in listed.plans.items():
            execute(ledger, plan, name).end()
    with dp.Ledger.open("policies.ledger", "r") as ledger:
        yield "policies", rows_of(ledger.verify())

    plan = plan_of("Poisson", steps=90)
    ledger = dp.Ledger.in_memory(budget=dp.Budget(epsilon=4.0, delta=DELTA))
    killed = execute(ledger, plan, taken=40)
    killed.reserve(plan.step, count=9)
    execute(ledger, plan_of("Poisson", steps=41), continues=killed.number).end()
    ledger.extend_list([(plan.step, 5)], reason="lost to a crash")
    ledger.change_budget(3.5, reason="asked for less")
    stopped = ledger.begin(plan.run_info("by hand"), [(plan.step, 5)])
    stopped.end("power failure")
    yield "all kinds of rows", shown(rows_of(ledger), ledger.snapshot(), dp.account(ledger))
    stopped.mark("unsafe_example")
    yield "marked", shown(rows_of(ledger), dp.account(ledger))

    whole = rows_of(ledger)
    first, second, *further = whole.splitlines(keepends=True)
    for title, text in {
        "edited": whole.replace("power failure", "power outage"),
        "without its seal": whole[: whole.rindex('{"head"')],
        "reordered": "".join([second, first, *further]),
    }.items():
        Path("damaged.jsonl").write_text(text)
        yield title, answer(partial(dp.Ledger.load, "damaged.jsonl"))
    for file in sorted(SCHEMA_1.glob("*.jsonl")):
        old = dp.Ledger.load(file)
        yield file.name, answer(old.snapshot, partial(dp.account, old, delta=DELTA))


def budgets() -> Entries:
    """What rules admit, refuse and claim, run after run."""
    plan = replace(plan_of("Poisson"), mechanism=dp.Gaussian(1.0, 3.0))
    full = replace(plan_of("Everything"), mechanism=dp.Gaussian(1.0, 20.0))
    for title, (budget, planned, parameters) in {
        "first run's list": (None, plan, FIXED),
        "budget": (dp.Budget(epsilon=1.5, delta=DELTA), plan, FIXED),
        "small budget": (dp.Budget(epsilon=0.2, delta=DELTA), plan, FIXED),
        "list of plans": (dp.Budget(plans=programme()), programme()["phase 1"], FIXED),
        "chosen on a list": (dp.Budget(epsilon=1.5, delta=DELTA), plan, CHOSEN),
        "filter": (dp.Filter(epsilon=0.7, delta=DELTA), plan, CHOSEN),
        "Gaussian filter": (dp.Filter(epsilon=2.0, delta=DELTA), full, CHOSEN),
        "filter of order 8": (dp.Filter(epsilon=2.0, delta=DELTA, order=8.0), plan, CHOSEN),
        "odometer": (dp.Odometer(delta=DELTA), plan, CHOSEN),
        "odometer with a limit": (dp.Odometer(delta=DELTA, epsilon=0.6), plan, CHOSEN),
    }.items():
        ledger = dp.Ledger.in_memory(budget=budget)
        fit = partial(ledger.fitting, planned.run_info(parameters=parameters), planned.step, 500)
        claim = partial(dp.account, ledger, delta=DELTA)
        for number in range(4):
            run = partial(execute, ledger, planned, f"run {number}", parameters=parameters)
            yield f"{title}, {number}", answer(fit, partial(charged, ledger, run), claim)
        yield (
            f"{title}, changed",
            answer(
                partial(ledger.change_budget, 9.0, delta=DELTA, reason="more"),
                partial(ledger.change_budget, 0.1, reason="less"),
                partial(ledger.extend_list, [(planned.step, 1)], reason="lost"),
                partial(dp.account, ledger, delta=1e-7),
                claim,
                partial(rows_of, ledger),
            ),
        )


def charged(ledger: Any, run: Question) -> object:
    """What a ledger was charged after one run more."""
    run()
    return ledger.charges()


# --- reports ---


def reports() -> Entries:
    """In every format: with and without plan, audit, tuning and names, sound and not."""
    plan = dpsgd()
    sound, killed, void = (dp.Ledger.in_memory() for _ in range(3))
    execute(sound, plan).end()
    execute(killed, plan, taken=9).reserve(plan.step, count=3)
    execute(void, plan).mark("unsafe_example")
    phases = dp.Ledger.in_memory(budget=dp.Budget(plans=programme()))
    for name, phase in programme().plans.items():
        execute(phases, phase, name).end("a holiday")
    who = dp.Subject(data_set="admissions", model="triage", purpose="a test", who="A. Mustermann")
    measured, refuting = audit_of(sound, 0.3), audit_of(sound, 2.5)
    everything = {"plan": plan, "audit": measured, "tuning": tuned_elsewhere(), "subject": who}
    for title, (ledger, options) in {
        "alone": (sound, {}),
        "with everything": (sound, everything),
        "refuted": (sound, {"delta": 1e-6, "audit": refuting}),
        "another plan": (sound, {"delta": DELTA, "plan": plan_of("Poisson")}),
        "an audit of another": (killed, {"plan": plan, "audit": measured}),
        "void": (void, {}),
        "a programme": (phases, {"delta": DELTA, "plan": programme()}),
        "a filter": (chosen_runs(dp.Ledger.in_memory(budget=FILTER)), {}),
        "an odometer": (chosen_runs(dp.Ledger.in_memory(budget=ODOMETER)), {"plan": plan}),
        "schema 1": (dp.Ledger.load(SCHEMA_1 / "policies.jsonl"), {"delta": DELTA}),
        "nothing": (dp.Ledger.in_memory(), {"delta": DELTA}),
    }.items():
        yield title, answer(partial(report_of, ledger, **options))


def report_of(ledger: Any, **options: Any) -> str:
    """Everything that a report says; its page with one element on each line."""
    report = dp.Report.of(ledger, **options)
    page = report.html().replace("><", ">\n<")
    return shown(report.guarantee, report.deviations, report.markdown(), report.json(), page)


def chosen_runs(ledger: Any) -> Any:
    """The same ledger with two runs that were chosen from outputs."""
    for noise in (4.0, 6.0):
        plan = replace(plan_of("Poisson"), mechanism=dp.Gaussian(1.0, noise))
        execute(ledger, plan, f"noise {noise}", parameters=CHOSEN)
    return ledger


def audit_of(ledger: Any, lower: float) -> Any:
    """The record of an audit."""
    what = {"unit": dp.Unit.EXAMPLE, "adjacency": dp.Adjacency.ADD_OR_REMOVE, "delta": DELTA}
    how = {"method": "one run", "confidence": 0.95, "canaries": 900, "trials": 1}
    return dp.Audit(lower=lower, ledger_head=ledger.head(), made=MADE, **what, **how)


def tuned_elsewhere() -> Any:
    """The record of a tuning on public data."""
    trials = tuple(dp.Trial({"rate": rate}, score) for rate, score in [(0.5, 0.91), (2.0, None)])
    how = {"method": dp.Method.OTHER, "kind": dp.TuningKind.PUBLIC, "name": "digits"}
    return dp.Tuning(trials=trials, chosen=0, made=MADE, **how)


# --- the command line ---

COMMANDS = """
plan --records 6000 --batch-size 60 --epochs 3 --epsilon 2 --save found.toml
plan --records 6000 --batch-size 60 --noise-multiplier 1 --epsilon 2 --curve epsilon
plan --records 6000 --epochs 3 --noise-multiplier 1 --epsilon 2 --unit user --adjacency zero-out
plan --records 6000 --batch-size 60 --steps 9 --epsilon 2 --curve noise
plan --probability 0.01 --steps 90 --noise-multiplier 1.1 --delta 1e-6
plan --records 6000 --epsilon 2
plan --records 6000 --batch-size 7000 --steps 9 --epsilon 2
plan show train.ledger
plan show two.ledger
plan show two.ledger --run 5
account plan.toml --delta 1e-6 --accountant both
account programme.toml --delta 1e-6
account train.ledger --epsilon 1
account train.ledger --at-most 0.1
account train.jsonl again.ledger
account train.jsonl two.ledger --delta 1e-6
account filter.ledger
account odometer.ledger
account void.ledger
account missing.ledger --delta 1e-6
account train.ledger --delta 2
verify train.ledger --plan plan.toml
verify train.ledger --plan programme.toml
verify train.ledger --head 00ff
verify train.jsonl --report report.html
verify again.ledger --report report.html
verify void.ledger
verify damaged.jsonl
verify plan.toml
report train.ledger
report train.ledger --plan plan.toml --audit audit.json --tuning tuning.json --out new.md
report train.ledger --out report.txt
ledger show train.ledger
ledger show two.ledger --delta 1e-6
ledger show filter.ledger
ledger show odometer.ledger
ledger show void.ledger
ledger export train.ledger new.jsonl
ledger import train.jsonl new.ledger
ledger budget train.ledger --epsilon 3 --reason "asked for more"
ledger budget train.ledger --epsilon 1 --reason "asked for less"
ledger stop two.ledger --run 5 --reason "power failure"
audit train.ledger --scores scores.json --assume-scaled
audit --plan plan.toml --canaries 100 --trials 2
audit train.ledger --plan plan.toml --canaries 100 --trials 2 --confidence 0.9 --output new.json
audit train.ledger
"""
HELPFUL = "plan,plan show,account,verify,report,audit,demo,ledger,ledger show,ledger stop"


def commands() -> Entries:
    """What commands print, for people and as JSON, with their exit codes; and their help."""
    write_files()
    files = set(Path().iterdir())
    for line, form in product(COMMANDS.strip().splitlines(), ("", " --json")):
        yield line + form, command(*shlex.split(line + form))
        for file in set(Path().iterdir()) - files:
            file.unlink()
    for name in ["", *HELPFUL.split(",")]:
        # However it is wrapped: in sentences, without the lines of boxes.
        words = re.sub("[─-╿]", " ", command(*name.split(), "--help")).split()
        yield f"help: {name}", " ".join(words).replace(". ", ".\n")


def command(*arguments: str) -> str:
    """Exit code, standard output and standard error of `discreet`."""
    code: object = None
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    try:
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            dp.main(list(arguments))
    except SystemExit as end:
        code = end.code
    for stream in streams:
        stream.seek(0)
    return shown(f"exit code {code}", *(stream.read() for stream in streams))


def write_files() -> None:
    """The files that commands read."""
    plan = dpsgd()
    plan.save("plan.toml")
    programme().save("programme.toml")
    tuned_elsewhere().save("tuning.json")
    scores_of(400).save("scores.json")
    with dp.Ledger.open("train.ledger", budget=dp.Budget(epsilon=2.0, delta=DELTA)) as ledger:
        execute(ledger, plan)
        ledger.export("train.jsonl")
        audit_of(ledger, 0.3).save("audit.json")
        dp.Report.of(ledger).write("report.html")
    rows = Path("train.jsonl").read_text()
    Path("damaged.jsonl").write_text(rows.replace('"count":20', '"count":19'))
    with dp.Ledger.open("again.ledger") as ledger:
        execute(ledger, plan)
    with dp.Ledger.open("void.ledger") as ledger:
        execute(ledger, plan).mark("unsafe_example")
    with dp.Ledger.open("two.ledger", budget=dp.Budget(plans=programme())) as ledger:
        execute(ledger, programme()["look"], "look")
        execute(ledger, programme()["phase 1"], "phase 1", taken=3)
    chosen_runs(dp.Ledger.open("filter.ledger", budget=FILTER)).close()
    chosen_runs(dp.Ledger.open("odometer.ledger", budget=ODOMETER)).close()


WORDS = (plans, calibrated, guarantees, ledgers, budgets, reports, commands)
