"""Every command does what it says: its JSON equals what the Python interface gives, its text says
the same to people.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet._digits import upward
from discreet.accounting import hit_rate, profile_of, tier
from discreet.auditing import Audit
from discreet.recipes import noise_curve
from discreet.report import Report
from discreet.report.formats.stamp import read_stamp
from support.command import PLAN, Outcome, contents, discreet, execute, executed, make_files, many
from support.source import ROOT

ASKED = ("plan", "--records", "60000", "--batch-size", "600", "--epochs", "5", "--epsilon", "3")
REPORT = (
    "report",
    "train.ledger",
    "--delta",
    "1e-6",
    "--plan",
    "plan.toml",
    "--audit",
    "audit.json",
)
NAMES = (
    "--data-set",
    "admissions",
    "--model",
    "triage",
    "--purpose",
    "research",
    "--by",
    "A. Mustermann",
)
CASES: dict[str, tuple[str, ...]] = {
    "noise": (*ASKED, "--curve", "noise", "--save", "new.toml", "--plot", "new.png", "--json"),
    "noise in words": (*ASKED, "--curve", "noise", "--save", "new.json"),
    "steps": (
        "plan",
        "--records",
        "60000",
        "--batch-size",
        "600",
        "--noise-multiplier",
        "1.1",
        "--epsilon",
        "2",
        "--json",
    ),
    "batch": (
        "plan",
        "--records",
        "60000",
        "--steps",
        "100",
        "--noise-multiplier",
        "2",
        "--epsilon",
        "1",
        "--json",
    ),
    "epsilon": (
        "plan",
        "--probability",
        "0.01",
        "--steps",
        "9",
        "--noise-multiplier",
        "1.1",
        "--delta",
        "1e-7",
        "--json",
    ),
    "epsilon in words": (
        "plan",
        "--probability",
        "1",
        "--steps",
        "1",
        "--noise-multiplier",
        "9",
        "--delta",
        "1e-7",
        "--curve",
        "epsilon",
    ),
    "zero-out": (
        *ASKED,
        "--adjacency",
        "zero-out",
        "--unit",
        "user",
        "--numerics",
        "exact",
        "--clip-norm",
        "0.5",
        "--json",
    ),
    "forced": (*ASKED, "--save", "shorter.toml", "--force", "--json"),
    "account": ("account", "train.ledger", "--delta", "1e-6", "--accountant", "both", "--json"),
    "account in words": ("account", "train.ledger", "--delta", "1e-6", "--accountant", "both"),
    "account an export": ("account", "train.jsonl", "--delta", "1e-6", "--json"),
    "account a plan": ("account", "plan.txt", "--delta", "1e-6", "--json"),
    "account a renamed ledger": ("account", "renamed.toml", "--delta", "1e-6", "--json"),
    "account at epsilon": (
        "account",
        "plan.json",
        "--epsilon",
        "1",
        "--accountant",
        "rdp",
        "--json",
    ),
    "account a void ledger": ("account", "void.ledger", "--delta", "1e-6"),
    "account a void ledger as JSON": ("account", "void.ledger", "--delta", "1e-6", "--json"),
    "account a filter": ("account", "chosen.ledger", "--json"),
    "account several": (
        "account",
        "train.ledger",
        "again.ledger",
        "plan.toml",
        "--delta",
        "1e-6",
        "--json",
    ),
    "account several in words": ("account", "train.ledger", "again.ledger", "--delta", "1e-6"),
    "account several with a void one": (
        "account",
        "train.ledger",
        "void.ledger",
        "--delta",
        "1e-6",
        "--json",
    ),
    "account an odometer": ("account", "odometer.ledger", "--json"),
    "within": ("account", "train.ledger", "--delta", "1e-6", "--at-most", "0.8", "--json"),
    "above": ("account", "train.ledger", "--delta", "1e-6", "--at-most", "0.1", "--json"),
    "above in words": ("account", "train.ledger", "--delta", "1e-6", "--at-most", "0.1"),
    "void is not within": (
        "account",
        "void.ledger",
        "--delta",
        "1e-6",
        "--at-most",
        "100",
        "--json",
    ),
    "verify": ("verify", "train.ledger", "--plan", "plan.json", "--delta", "1e-6", "--json"),
    "verify in words": ("verify", "train.ledger", "--plan", "plan.json", "--delta", "1e-6"),
    "verify an export": ("verify", "train.jsonl", "--json"),
    "verify corrupt": ("verify", "corrupt.ledger", "--json"),
    "verify void": ("verify", "void.ledger", "--delta", "1e-6"),
    "verify another plan in the row": ("verify", "otherwise.ledger", "--json"),
    "deviates": ("verify", "train.ledger", "--plan", "fewer.toml", "--delta", "1e-6", "--json"),
    "deviates in words": ("verify", "train.ledger", "--plan", "fewer.toml", "--delta", "1e-6"),
    "report": (*REPORT, "--out", "new.html", "--out", "new.md", "--out", "report.json", "--json"),
    "report to stdout": REPORT,
    "report as JSON": (*REPORT, "--format", "json"),
    "report again": (*REPORT, "--out", "new.html", "--force"),
    "report of a filter": ("report", "chosen.ledger", "--json"),
    "report of an odometer": ("report", "odometer.ledger", "--json"),
    "report to sign": (*REPORT, *NAMES, "--out", "signed.html"),
    "verify a report": ("verify", "train.ledger", "--report", "new.html", "--json"),
    "verify a report in words": ("verify", "train.ledger", "--report", "new.md"),
    "verify a report of another ledger": (
        "verify",
        "again.ledger",
        "--report",
        "report.json",
        "--json",
    ),
    "verify a report that was edited": ("verify", "train.ledger", "--report", "edited.html"),
    "verify a report of a void ledger": ("verify", "void.ledger", "--report", "void.md", "--json"),
    "plan show": ("plan", "show", "train.ledger", "--json"),
    "plan show in words": ("plan", "show", "train.ledger", "--run", "2", "--save", "shown.toml"),
    "budget": (
        "ledger",
        "budget",
        "budget.ledger",
        "--epsilon",
        "2",
        "--reason",
        "the board",
        "--json",
    ),
    "budget in words": (
        "ledger",
        "budget",
        "budget.ledger",
        "--epsilon",
        "1.5",
        "--reason",
        "the board again",
    ),
    "stop": ("ledger", "stop", "stop.ledger", "--run", "2", "--reason", "power failure", "--json"),
    "report of a void ledger": ("report", "void.ledger", "--delta", "1e-6", "--json"),
    "show": ("ledger", "show", "varied.ledger", "--json"),
    "show in words": ("ledger", "show", "varied.ledger"),
    "show an empty one": ("ledger", "show", "empty.ledger"),
    "show with epsilon": ("ledger", "show", "odometer.ledger", "--json"),
    "show with epsilon in words": ("ledger", "show", "train.ledger", "--delta", "1e-6"),
    "show an old one": ("ledger", "show", "old.jsonl"),
    "export": ("ledger", "export", "train.ledger", "new.jsonl", "--json"),
    "import": ("ledger", "import", "train.jsonl", "new.ledger", "--json"),
    "version": ("--version",),
}
ENDS_WITH_ONE = {
    "account a void ledger",
    "account a void ledger as JSON",
    "account several with a void one",
    "verify void",
    "verify another plan in the row",
    "verify a report of another ledger",
    "verify a report that was edited",
    "verify a report of a void ledger",
    "above",
    "above in words",
    "void is not within",
    "verify corrupt",
    "deviates",
    "deviates in words",
    "report of a void ledger",
}
WRITTEN = {
    "signed.html",
    "shown.toml",
    "budget.ledger",
    "stop.ledger",
    "new.toml",
    "new.png",
    "new.json",
    "shorter.toml",
    "new.html",
    "new.md",
    "report.json",
    "new.jsonl",
    "new.ledger",
}


@dataclass(frozen=True)
class Tried:
    """All of the above, one after the other in one folder."""

    folder: Path
    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    outcomes: dict[str, Outcome]

    def data(self, name: str) -> dict[str, Any]:
        assert CASES[name][-1] == "--json"
        found = json.loads(self.outcomes[name].out)
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("right")
    make_files(folder)
    PLAN.__class__.from_toml((folder / "shorter.toml").read_text()).save(folder / "fewer.toml")
    with dp.Ledger.open(folder / "train.ledger", "r") as ledger:
        audit = Audit(
            method="a test",
            lower=0.1,
            delta=1e-6,
            confidence=0.95,
            canaries=100,
            trials=1,
            unit=dp.Unit.EXAMPLE,
            adjacency=dp.Adjacency.ADD_OR_REMOVE,
            ledger_head=ledger.head(),
            made="2026-01-31T12:00:00+00:00",
        )
    audit.save(folder / "audit.json")
    make_others(folder)
    before = contents(folder)
    outcomes = dict(zip(CASES, many(list(CASES.values()), cwd=folder), strict=True))
    return Tried(folder, before, contents(folder), outcomes)


def make_others(folder: Path) -> None:
    """Ledgers of several runs, under several rules; reports that were edited, or are void."""
    shorter, longer = (
        dp.Plan.dpsgd(records=60_000, expected_batch_size=600, steps=steps, noise_multiplier=1.1)
        for steps in (40, 60)
    )
    with dp.Ledger.open(folder / "varied.ledger", budget=dp.Budget(plans=longer)) as ledger:
        execute(ledger, PLAN, label="[red]first[/red]")
        second = ledger.begin(
            PLAN.run_info("second", randomness=dp.units.Randomness.UNSAFE_TEST_KEY),
            [(PLAN.step, 7)],
        )
        second.reserve(PLAN.step, count=7)
        second.mark("unsafe_example")
        ledger._leases.clear()  # as if killed: 7 steps stay unsettled
        ledger._runs.clear()
    with dp.Ledger.open(folder / "odometer.ledger", budget=dp.Odometer(delta=1e-6)) as ledger:
        execute(ledger, PLAN, label="")
        execute(ledger, PLAN, label="again", steps=10)
    executed(folder / "budget.ledger", PLAN, budget=dp.Budget(epsilon=3.0, delta=1e-6)).close()
    with dp.Ledger.open(folder / "stop.ledger") as ledger:
        execute(ledger, PLAN, steps=20)
    with dp.Ledger.open(folder / "otherwise.ledger") as ledger:
        ledger.begin(PLAN.run_info("otherwise"), [(PLAN.step, 50)], plan=shorter.as_row()).end()
    (folder / "old.jsonl").write_bytes(
        (ROOT / "tests" / "data" / "schema1" / "two_runs.jsonl").read_bytes()
    )
    with dp.Ledger.open(folder / "train.ledger", "r") as ledger:
        page = Report.of(ledger, delta=1e-6).html()
    (folder / "edited.html").write_text(page.replace("(0.", "(0.0", 1))
    with dp.Ledger.open(folder / "void.ledger", "r") as ledger:
        Report.of(ledger, delta=1e-6).write(folder / "void.md")


def test_a_command_that_works_has_its_code_and_is_quiet_on_stderr(tried: Tried) -> None:
    for name, outcome in tried.outcomes.items():
        assert outcome.code == (1 if name in ENDS_WITH_ONE else 0), (name, outcome)
        assert not outcome.err, name
        assert outcome.out.endswith("\n"), name
        assert "\x1b" not in outcome.out, name  # no colours where there is no terminal
        assert "…" not in outcome.out or name.startswith("report"), name  # and nothing cut off


def test_only_what_was_asked_for_is_written(tried: Tried) -> None:
    changed = {
        name for name in tried.after if tried.after[name] != tried.before.get(name, b"nothing")
    }
    assert changed == WRITTEN
    assert tried.before.keys() <= tried.after.keys()


# --- plan ---


def test_the_plan_is_that_of_the_python_interface(tried: Tried) -> None:
    plan = dp.Plan.dpsgd(records=60_000, expected_batch_size=600, epochs=5, epsilon=3.0)
    data = tried.data("noise")
    assert (data["found"], data["noise_multiplier"], data["steps"]) == (
        "noise_multiplier",
        plan.noise_multiplier,
        500,
    )
    assert (
        dp.Plan.load(tried.folder / "new.toml") == dp.Plan.load(tried.folder / "new.json") == plan
    )
    guarantee = dp.account(plan, delta=1e-6)
    check_guarantee(data["guarantee"], guarantee)
    assert data["tier"] == tier(guarantee).tier.value
    best = hit_rate(profile_of(plan), false_positive_rate=0.01)
    hits = data["attack"]["hit_rate"]
    assert data["attack"] == {"false_positive_rate": 0.01, "hit_rate": hits}
    assert 0.999 * best <= hits <= 1.02 * best
    words = tried.outcomes["noise in words"].out
    assert str(guarantee) in words
    assert (
        f"{plan.noise_multiplier:.6g}, noise_std {plan.noise_multiplier:.6g} on the sum  <- found"
        in words
    )
    assert f"finds at most {-(-1000 * hits // 1) / 10:g} %" in words


def test_each_of_the_four_numbers_is_found(tried: Tried) -> None:
    steps = dp.Plan.dpsgd(
        records=60_000, expected_batch_size=600, noise_multiplier=1.1, epsilon=2.0
    )
    assert (tried.data("steps")["found"], tried.data("steps")["steps"]) == ("steps", steps.steps)
    batch = dp.Plan.dpsgd(records=60_000, steps=100, noise_multiplier=2.0, epsilon=1.0)
    assert (tried.data("batch")["found"], tried.data("batch")["expected_batch_size"]) == (
        "batch",
        batch.expected_batch_size,
    )
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=9, noise_multiplier=1.1)
    assert tried.data("epsilon")["found"] == "epsilon"
    check_guarantee(tried.data("epsilon")["guarantee"], dp.account(plan, delta=1e-7))
    assert tried.data("epsilon")["records"] is tried.data("epsilon")["expected_batch_size"] is None


def test_every_option_of_the_plan_reaches_it(tried: Tried) -> None:
    data = tried.data("zero-out")
    claim = data["guarantee"]
    assert (claim["unit"], claim["adjacency"], claim["numerics"], data["clip_norm"]) == (
        "user",
        "zero-out",
        "exact",
        0.5,
    )
    assert data["noise_std"] == 0.5 * data["noise_multiplier"]
    assert data["notes"]


def test_what_lies_around_the_plan_was_accounted_for(tried: Tried) -> None:
    rows = {row["change"]: row for row in tried.data("noise")["nearby"]}
    assert len(rows) == 7
    row = rows["twice the batch"]
    assert (row["probability"], row["steps"]) == (0.02, 500)
    step = dp.ledger.Step(
        dp.Poisson(0.02), dp.ledger.GaussianSum("sum", 1.0, row["noise_multiplier"])
    )
    assert (
        row["epsilon"]
        == dp.account([(step, 500)], delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE).upper
    )
    assert (
        rows["half the noise"]["epsilon"]
        > rows["as planned"]["epsilon"]
        > rows["twice the noise"]["epsilon"]
    )
    (line,) = re.findall(
        r"\| twice the batch +\| +1200 \| +500 \| +[\d.]+ \| +([\d.]+) \|",
        tried.outcomes["noise in words"].out,
    )
    assert 0.0 <= float(line) - row["epsilon"] < 1e-3 * row["epsilon"]  # rounded up


def test_the_curves_are_those_of_the_recipes_and_of_the_accountant(tried: Tried) -> None:
    curve = tried.data("noise")["curve"]
    batches = [int(x) for x, _ in curve["points"]]
    expected = noise_curve(records=60_000, epsilon=3.0, epochs=5, batches=batches)
    assert curve["points"] == [
        [row.expected_batch_size, row.average_noise] for row in expected.rows
    ]
    assert curve["here"] == 600.0
    assert "600" in (
        line := next(
            one
            for one in tried.outcomes["noise in words"].out.splitlines()
            if "<- this plan" in one
        )
    )
    assert "####" in line
    words = tried.outcomes["epsilon in words"].out
    assert re.search(r"^ +1 +[\d.]+ #+ <- this plan$", words, re.MULTILINE)


def test_a_figure_is_a_picture(tried: Tried) -> None:
    assert (tried.folder / "new.png").read_bytes().startswith(b"\x89PNG")


# --- account ---


def test_account_says_what_the_python_interface_says(tried: Tried) -> None:
    with dp.Ledger.open(tried.folder / "train.ledger", "r") as ledger:
        expected = [dp.account(ledger, delta=1e-6, accountant=name) for name in ("tight", "rdp")]
    found = tried.data("account")["guarantees"]
    for one, guarantee in zip(found, expected, strict=True):
        check_guarantee(one, guarantee)
    words = tried.outcomes["account in words"].out
    assert str(expected[0]) in words
    assert str(expected[1]).splitlines()[2] in words
    for name in ("account an export", "account a renamed ledger"):
        assert tried.data(name)["kind"] == "ledger"
        check_guarantee(tried.data(name)["guarantees"][0], expected[0])
    assert tried.data("account a plan")["kind"] == "plan"
    check_guarantee(tried.data("account a plan")["guarantees"][0], dp.account(PLAN, delta=1e-6))
    check_guarantee(
        tried.data("account at epsilon")["guarantees"][0],
        dp.account(PLAN, epsilon=1.0, accountant="rdp"),
    )


def test_at_most_compares_the_upper_bound_and_a_void_ledger_is_never_within(tried: Tried) -> None:
    assert tried.data("within")["within"] is True
    assert tried.data("above")["within"] is tried.data("void is not within")["within"] is False
    assert "ABOVE the limit" in tried.outcomes["above in words"].out


def test_a_void_ledger_has_no_number_in_any_answer(tried: Tried) -> None:
    assert (
        tried.outcomes["account a void ledger"].out
        == "What the ledger says:\nNO GUARANTEE: voided by unsafe_example.\n"
    )
    assert "NO GUARANTEE: voided by unsafe_example.\n" in tried.outcomes["verify void"].out
    names = (
        "account a void ledger as JSON",
        "void is not within",
        "account several with a void one",
        "report of a void ledger",
    )
    for name in names:
        data = tried.data(name)
        for guarantee in data.get("guarantees", [data.get("guarantee")]):
            assert guarantee["valid"] is False
            numbers = [
                value for key, value in guarantee.items() if key.startswith(("epsilon", "estimate"))
            ]
            assert numbers == [None] * 4, name
            assert guarantee["statement"] == "NO GUARANTEE: voided by unsafe_example."
        assert data.get("attack") is None
        assert [source["epsilon"] for source in data.get("sources", [])] == [None] * len(
            data.get("sources", [])
        )
    assert tried.data("show")["epsilon"] is None
    assert [run["epsilon_alone"] for run in tried.data("show")["runs"]] == [None, None]


def test_several_sources_are_added_up_and_each_is_named(tried: Tried) -> None:
    data = tried.data("account several")
    together = dp.account([(PLAN.step, 150)], delta=1e-6, adjacency=PLAN.adjacency)
    assert data["guarantees"][0]["epsilon"] == together.upper
    assert (data["source"], data["kind"]) == (None, "several")
    alone = dp.account(PLAN, delta=1e-6).upper
    assert [
        (one["source"], one["kind"], one["steps"], one["epsilon"]) for one in data["sources"]
    ] == [
        ("train.ledger", "ledger", 50, alone),
        ("again.ledger", "ledger", 50, alone),
        ("plan.toml", "plan", 50, alone),
    ]
    assert len({one["identity"] for one in data["sources"]}) == 3
    words = tried.outcomes["account several in words"].out
    assert "What these 2 sources cost together, if they are about one data set:" in words
    assert re.search(
        r"\| again\.ledger \| ledger \| [0-9a-f]{8,16}[. ]+\| +1 \| +50 \| +[\d.]+ \|", words
    )


def test_delta_may_be_left_out_where_the_ledger_names_one(tried: Tried) -> None:
    assert tried.data("account a filter")["guarantees"][0]["epsilon"] == 3.0
    with dp.Ledger.open(tried.folder / "odometer.ledger", "r") as ledger:
        check_guarantee(tried.data("account an odometer")["guarantees"][0], dp.account(ledger))
        check_guarantee(tried.data("report of an odometer")["guarantee"], dp.account(ledger))


# --- verify, report ---


def test_verify_says_what_it_read_and_compares_with_the_plan(tried: Tried) -> None:
    with dp.Ledger.open(tried.folder / "train.ledger", "r") as ledger:
        head = ledger.head()
        deviations = Report.of(
            ledger, delta=1e-6, plan=dp.Plan.load(tried.folder / "fewer.toml")
        ).deviations
    data = tried.data("verify")
    rows = len((tried.folder / "train.jsonl").read_bytes().splitlines()) - 1
    assert (data["sound"], data["rows"], data["runs"], data["head"]) == (True, rows, 1, head)
    assert data["deviates"] is False
    assert tried.data("verify an export") == {
        **tried.data("verify an export"),
        "rows": rows,
        "head": head,
        "sound": True,
    }
    assert head in tried.outcomes["verify in words"].out
    assert "agrees with plan.json" in tried.outcomes["verify in words"].out
    assert tried.data("deviates")["deviations"] == [
        {"severity": one.severity, "text": one.text} for one in deviations
    ]
    assert "DEVIATES from fewer.toml" in tried.outcomes["deviates in words"].out
    corrupt = tried.data("verify corrupt")
    assert (corrupt["sound"], corrupt["row"]) == (False, 1)


def test_verify_compares_each_run_with_the_plan_in_its_own_row(tried: Tried) -> None:
    own = tried.data("verify an export")["own_plans"]
    assert own == {
        "with_plan": 1,
        "differences": [],
        "agreement": "1 run of 1 kept to the plan in the ledger's own rows.",
    }
    (text,) = tried.data("verify another plan in the row")["own_plans"]["differences"]
    assert text.endswith("committed to 50 steps; the plan in its own row has 40.")


def test_a_report_is_compared_with_the_ledger_it_is_about(tried: Tried) -> None:
    with dp.Ledger.open(tried.folder / "train.ledger", "r") as ledger:
        guarantee, head = dp.account(ledger, delta=1e-6), ledger.head()
    data = tried.data("verify a report")["report"]
    assert data == {
        "report": "new.html",
        "agrees": True,
        "problems": [],
        "head": head,
        "epsilon_stated": guarantee.upper,
        "epsilon_recomputed": guarantee.upper,
        "delta": 1e-6,
        "rows_added_since": 0,
    }
    assert (
        "The ledger contains the head of new.md and says what it says: epsilon "
        in tried.outcomes["verify a report in words"].out
    )
    (problem,) = tried.data("verify a report of another ledger")["report"]["problems"]
    assert "is not in this ledger" in problem
    edited = tried.outcomes["verify a report that was edited"].out
    assert "in its sentences and (" in edited
    assert "The ledger does NOT say what edited.html says." in edited
    void = tried.data("verify a report of a void ledger")["report"]
    assert (void["agrees"], void["epsilon_stated"], void["epsilon_recomputed"]) == (
        True,
        None,
        None,
    )
    page = (tried.folder / "signed.html").read_text()
    assert all(name in page for name in NAMES[1::2])


def test_a_report_stays_true_when_rows_are_added_and_not_when_they_void_it(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "train.ledger", budget=dp.Odometer(delta=1e-6)) as ledger:
        run = execute(ledger, PLAN)
        Report.of(ledger).write(tmp_path / "report.html")
        execute(ledger, PLAN, label="second")
        case = ("verify", "train.ledger", "--report", "report.html")
        (later,) = many([case], cwd=tmp_path)
        run.mark("unsafe_example")
        (void,) = many([case], cwd=tmp_path)
    assert later.code == 0, later
    assert "rows were added to the ledger since report.html was made" in later.out
    assert void.code == 1
    assert (
        "Since the report was made the ledger was marked unsafe_example: there is no "
        "guarantee any more."
    ) in void.out


def test_a_stamp_that_was_edited_is_noticed(tmp_path: Path) -> None:
    """Whoever edits all sentences and the stamp alike is still refuted by the rows."""
    with executed(tmp_path / "train.ledger", PLAN) as ledger:
        made = Report.of(ledger, delta=1e-6)
    true = made.guarantee.upper
    page = (
        made.html().replace(f"({upward(true)}, 1e-06)-", "(0.5, 1e-06)-").replace(repr(true), "0.5")
    )
    assert read_stamp(page).contradictions(page) == ()
    (tmp_path / "report.html").write_text(page)
    (outcome,) = many([("verify", "train.ledger", "--report", "report.html")], cwd=tmp_path)
    assert outcome.code == 1
    assert f"The report says epsilon 0.5; the rows say {upward(true)}." in outcome.out


def test_a_stamp_with_another_delta_than_the_filters_is_a_finding(tmp_path: Path) -> None:
    with executed(
        tmp_path / "train.ledger", PLAN, budget=dp.Filter(epsilon=3.0, delta=1e-6)
    ) as ledger:
        page = Report.of(ledger).html()
    edited = page.replace("(3, 1e-06)-", "(3, 1e-09)-").replace(
        "delta&#34;: 1e-06", "delta&#34;: 1e-09"
    )
    (tmp_path / "report.html").write_text(edited)
    assert read_stamp((tmp_path / "report.html").read_text()).delta == 1e-9
    (outcome,) = many([("verify", "train.ledger", "--report", "report.html")], cwd=tmp_path)
    assert outcome.code == 1, outcome
    assert "What the report says cannot be computed from the rows" in outcome.out


def test_a_head_noted_earlier_is_found_after_more_runs_and_not_in_another_history(
    tmp_path: Path,
) -> None:
    with executed(tmp_path / "train.ledger", PLAN, budget=dp.Odometer(delta=1e-6)) as ledger:
        head = ledger.head()
    executed(tmp_path / "train.ledger", PLAN).close()
    executed(tmp_path / "rewritten.ledger", PLAN).close()
    cases = [
        ("verify", name, "--head", head, "--json") for name in ("train.ledger", "rewritten.ledger")
    ]
    same, other = many(cases, cwd=tmp_path)
    assert (same.code, other.code) == (0, 1)
    assert json.loads(same.out)["head_found"] is True
    assert json.loads(other.out)["sound"] is False


def test_the_report_is_that_of_the_python_interface(tried: Tried) -> None:
    with dp.Ledger.open(tried.folder / "train.ledger", "r") as ledger:
        audit = Audit.load(tried.folder / "audit.json")
        report = Report.of(
            ledger, delta=1e-6, plan=dp.Plan.load(tried.folder / "plan.toml"), audit=audit
        )
    check_guarantee(tried.data("report")["guarantee"], report.guarantee)
    assert tried.data("report")["written"] == ["new.html", "new.md", "report.json"]
    assert undated((tried.folder / "new.html").read_text()) == undated(report.html())
    assert undated((tried.folder / "new.md").read_text()) == undated(report.markdown())
    assert undated(tried.outcomes["report to stdout"].out) == undated(report.markdown())
    assert undated(tried.outcomes["report as JSON"].out) == undated(report.json())
    json.loads((tried.folder / "report.json").read_text())
    assert "Written: new.html" in tried.outcomes["report again"].out
    assert tried.data("report of a filter")["guarantee"]["epsilon"] == 3.0
    assert tried.data("report of a void ledger")["deviates"] is True


def undated(text: str) -> str:
    return re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", "", text)


# --- ledger ---


def test_show_names_runs_charges_marks_and_what_is_unsettled(tried: Tried) -> None:
    data = tried.data("show")
    assert [run["label"] for run in data["runs"]] == ["[red]first[/red]", "second"]
    assert [(charge["count"], charge["unsettled"]) for charge in data["charges"]] == [
        (50, 0),
        (7, 7),
    ]
    query = {"kind": "GaussianSum", "group": "grad/*", "sensitivity": 1.0, "noise_std": 1.1}
    assert data["charges"][0]["queries"] == [query]
    assert data["marks"] == ["unsafe_test_key", "unsafe_example"]
    words = tried.outcomes["show in words"].out
    for part in (
        "[red]first[/red]",
        "second",
        "unsafe_test_key, unsafe_example",
        data["head"],
        data["identity"],
        "7: reserved",
    ):
        assert part in words
    assert "Nothing was charged." in tried.outcomes["show an empty one"].out
    assert "This file holds no budget" in tried.outcomes["show an old one"].out


def test_show_has_the_epsilon_of_each_run_beside_the_total(tried: Tried) -> None:
    data = tried.data("show with epsilon")
    with dp.Ledger.open(tried.folder / "odometer.ledger", "r") as ledger:
        assert data["epsilon"] == dp.account(ledger).upper
    assert data["delta"] == 1e-6
    first, second = data["runs"]
    assert (first["name"], first["planned"], first["charged"], first["state"]) == (
        "run 3",
        50,
        50,
        "over",
    )
    assert (second["name"], second["planned"], second["charged"]) == ("again", 50, 10)
    alone = [
        dp.account([(PLAN.step, count)], delta=1e-6, adjacency=PLAN.adjacency).upper
        for count in (50, 10)
    ]
    assert [run["epsilon_alone"] for run in data["runs"]] == alone
    assert [held["rule"] for held in data["held_to"]] == ["odometer", "odometer"]
    words = tried.outcomes["show with epsilon in words"].out
    assert re.search(r"\| all +\| together .* 50 \| +" + re.escape(upward(alone[0])), words)
    assert (
        "held to          A list of 50 steps that was fixed before the first release. No "
        "epsilon limits it."
    ) in words


def test_an_officer_changes_the_budget_and_declares_a_stop(tried: Tried) -> None:
    assert tried.data("budget") == {
        **tried.data("budget"),
        "epsilon": 2.0,
        "epsilon_before": 3.0,
        "delta": 1e-6,
        "reason": "the board",
    }
    assert (
        "held to epsilon 1.5 at delta 1e-06; before: 2.0." in tried.outcomes["budget in words"].out
    )
    with dp.Ledger.open(tried.folder / "budget.ledger", "r") as ledger:
        history = ledger.verify().snapshot().history
        assert [(held.terms.epsilon, held.reason) for held in history[-2:]] == [
            (2.0, "the board"),
            (1.5, "the board again"),
        ]
        assert ledger.head() in tried.outcomes["budget in words"].out
    assert (tried.data("stop")["charged"], tried.data("stop")["planned"]) == (20, 50)
    with dp.Ledger.open(tried.folder / "stop.ledger", "r") as ledger:
        assert ledger.runs()[0].reason == "power failure"
        claim = dp.account(ledger, delta=1e-6)
    assert claim.upper == dp.account([(PLAN.step, 20)], delta=1e-6, adjacency=PLAN.adjacency).upper


def test_the_plan_comes_back_from_the_ledger(tried: Tried) -> None:
    assert dp.Plan.from_json(json.dumps(tried.data("plan show")["plan"])) == PLAN
    assert dp.Plan.load(tried.folder / "shown.toml") == PLAN
    words = tried.outcomes["plan show in words"].out
    assert words.startswith("Plan of run 2 (example), began ")
    assert PLAN.explain() in words


def test_export_and_import_keep_every_row(tried: Tried) -> None:
    with (
        dp.Ledger.open(tried.folder / "train.ledger", "r") as one,
        dp.Ledger.open(tried.folder / "new.ledger", "r") as two,
    ):
        assert (
            one.head() == two.head() == tried.data("export")["head"] == tried.data("import")["head"]
        )
        assert one.charges() == two.charges()
    assert (tried.folder / "new.jsonl").read_bytes() == (tried.folder / "train.jsonl").read_bytes()


def check_guarantee(found: dict[str, Any], expected: dp.Guarantee) -> None:
    assert (found["epsilon"], found["epsilon_if_fixed"]) == (expected.upper, expected.if_fixed)
    assert found["epsilon_lower"] == expected.lower
    assert (found["delta"], found["delta_lower"]) == (expected.delta, expected.delta_lower)
    assert found["statement"] == str(expected)
    assert found["assumptions"] == list(expected.assumptions)
    assert (found["valid"], found["voided_by"]) == (
        not expected.voided_by,
        list(expected.voided_by),
    )


# --- in a terminal, and as a process of its own ---

IN_TERMINAL = {
    "plan": (*ASKED, "--curve", "noise"),
    "account": CASES["account in words"],
    "verify": CASES["verify in words"],
    "report": REPORT,
    "show": CASES["show in words"],
    "export": ("ledger", "export", "train.ledger", "terminal.jsonl"),
    "import": ("ledger", "import", "train.jsonl", "terminal.ledger"),
    "help": ("plan", "--help"),
    "wrong": ("verify", "text.txt"),
    "corrupt": ("verify", "corrupt.ledger"),
}


def test_in_a_terminal_every_command_says_the_same_in_colours_and_lines(tried: Tried) -> None:
    found = dict(
        zip(
            IN_TERMINAL,
            many(list(IN_TERMINAL.values()), cwd=tried.folder, terminal=True),
            strict=True,
        )
    )
    assert {name: outcome.code for name, outcome in found.items() if outcome.code} == {
        "wrong": 2,
        "corrupt": 1,
    }
    text = {
        name: re.sub(r"\x1b\[[0-9;]*m", "", outcome.out).replace("\r\n", "\n")
        for name, outcome in found.items()
    }
    assert "\x1b[1m" in found["plan"].out  # bold
    assert "█" in text["plan"]
    assert "◀ this plan" in text["plan"]
    assert all(len(line) <= 100 for line in text["plan"].splitlines())
    head = tried.data("verify")["head"]
    assert head in text["verify"]
    assert head in text["export"]
    assert head in text["import"]
    assert "unsafe_test_key, unsafe_example" in text["show"]
    assert "differentially private" in text["account"]
    assert text["report"].startswith("# ")
    assert "--noise-multiplier" in text["help"]
    assert "Got text.txt, which is neither." in text["wrong"]
    assert not any("Traceback" in one for one in text.values())


def test_in_a_process_of_its_own_it_is_the_same(tried: Tried) -> None:
    """The tables above fork after the imports; this starts Python anew."""
    for name in ("account", "show in words"):
        assert discreet(*CASES[name], cwd=tried.folder) == tried.outcomes[name]
