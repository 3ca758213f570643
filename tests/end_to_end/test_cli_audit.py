"""`discreet audit`, from scores or a plan to a file that the report shows: PASS is 0, FAIL and no
claim are 1.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import discreet as dp
from discreet.auditing import Audit, white_box
from discreet.canaries import Scores
from discreet.verdict import audit
from support.command import Outcome, contents, execute, executed, many
from support.white_box import source_of

PLAN = dp.Plan.dpsgd(records=500, sampling_probability=1.0, steps=1, noise_multiplier=2.0)
DELTA = ("--delta", "1e-5")
LEDGER = ("audit", "train.ledger", *DELTA)
SMALL = ("--canaries", "200", "--trials", "2", "--confidence", "0.999999")
CASES: dict[str, tuple[str, ...]] = {
    "plan": ("audit", "--plan", "plan.toml", *DELTA, *SMALL, "--json"),
    "plan in words": ("audit", "--plan", "plan.toml", *DELTA, *SMALL),
    "target": (
        "audit",
        "train.ledger",
        "--plan",
        "target.toml",
        *SMALL,
        "--output",
        "target-audit.json",
        "--json",
    ),
    "scores": (*LEDGER, "--scores", "scores.json", "--output", "audit.json", "--json"),
    "scaled": (*LEDGER, "--scores", "scores.json", "--assume-scaled", "--json"),
    "export": ("audit", "train.jsonl", *DELTA, "--scores", "scores.json", "--json"),
    "leaked": (*LEDGER, "--scores", "leaked.json", "--output", "leaked-audit.json", "--json"),
    "leaked in words": (*LEDGER, "--scores", "leaked.json"),
    "void": ("audit", "void.ledger", *DELTA, "--scores", "scores.json", "--json"),
    "chosen": ("audit", "chosen.ledger", "--scores", "scores.json", "--json"),
    "report": (
        "report",
        "train.ledger",
        *DELTA,
        "--audit",
        "audit.json",
        "--out",
        "report.json",
        "--json",
    ),
    "report of a leak": (
        "report",
        "train.ledger",
        *DELTA,
        "--audit",
        "leaked-audit.json",
        "--out",
        "leak.md",
        "--json",
    ),
}
ENDS_WITH_ONE = {"leaked", "leaked in words", "void", "report of a leak"}
WRITTEN = {"audit.json", "leaked-audit.json", "target-audit.json", "report.json", "leak.md"}
INSIDE = np.random.default_rng(1).random(4000) < 0.5


@dataclass(frozen=True)
class Tried:
    """All of the above, one after the other in one folder."""

    folder: Path
    new: set[str]
    outcomes: dict[str, Outcome]

    def data(self, name: str) -> dict[str, object]:
        found = json.loads(self.outcomes[name].out)
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("audit")
    PLAN.save(folder / "plan.toml")
    with executed(folder / "train.ledger", PLAN) as ledger:
        ledger.export(folder / "train.jsonl")
    PLAN.certified(dp.plan.Target(epsilon=9.0, delta=1e-7)).save(folder / "target.toml")
    with dp.Ledger.open(folder / "void.ledger") as ledger:
        execute(ledger, PLAN).mark("unsafe_example")
    with dp.Ledger.open(
        folder / "chosen.ledger", budget=dp.Filter(epsilon=3.0, delta=1e-6)
    ) as ledger:
        run = ledger.begin(
            PLAN.run_info(parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS), [(PLAN.step, 1)]
        )
        run.reserve(PLAN.step, count=1).settle()
    white_box(PLAN, canaries=200, trials=2, source=source_of("command")).save(
        folder / "scores.json"
    )
    Scores(INSIDE * 1.0, INSIDE, attack="a look at the coins").save(folder / "leaked.json")
    before = contents(folder)
    outcomes = dict(zip(CASES, many(list(CASES.values()), cwd=folder), strict=True))
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    return Tried(folder, set(after) - set(before), outcomes)


def test_exit_codes_say_pass_or_not(tried: Tried) -> None:
    for name, outcome in tried.outcomes.items():
        assert outcome.code == (1 if name in ENDS_WITH_ONE else 0), (name, outcome)
        assert not outcome.err, (name, outcome)
    assert tried.new == WRITTEN


def test_the_answer_is_that_of_the_python_interface(tried: Tried) -> None:
    scores = Scores.load(tried.folder / "scores.json")
    with dp.Ledger.open(tried.folder / "train.ledger", "r") as ledger:
        for name, assume in (("scores", False), ("export", False), ("scaled", True)):
            verdict, data = (
                audit(ledger, scores, delta=1e-5, assume_scaled=assume),
                tried.data(name),
            )
            assert (data["outcome"], data["reached"], data["confidence"]) == (
                "PASS",
                verdict.reached,
                0.95,
            )
            assert data["estimates"] == [
                {"method": one.method, "epsilon_lower": one.lower, "assumes": one.assumes}
                for one in verdict.estimates
            ]
        assert Audit.load(tried.folder / "audit.json").ledger_head == ledger.head()


def test_an_attack_on_a_plan_needs_no_data(tried: Tried) -> None:
    data = tried.data("plan")
    assert (data["outcome"], data["canaries"], data["trials"]) == ("PASS", 400, 2)
    assert isinstance(data["estimates"], list)
    assert data["estimates"][-1]["assumes"]
    words = tried.outcomes["plan in words"].out
    assert words.startswith("PASS: ")
    assert "no data, no model, and not the run itself" in words
    written = Audit.load(tried.folder / "target-audit.json")
    assert (written.delta, written.confidence) == (1e-7, 0.999999)  # the delta of the plan's target


def test_a_leak_fails_and_contradicts_the_report(tried: Tried) -> None:
    assert tried.data("leaked")["outcome"] == "FAIL"
    assert tried.outcomes["leaked in words"].out.startswith("FAIL: ")
    assert "The audit refutes the claim" in (tried.folder / "leak.md").read_text()
    document = json.loads((tried.folder / "report.json").read_text())
    assert document["status"]["key"] == "holds"
    assert [figure["value"] for figure in document["figures"] if figure["name"] == "audit"] == [
        "PASS"
    ]


def test_without_a_claim_nothing_passes(tried: Tried) -> None:
    assert tried.data("void")["outcome"] == "NO CLAIM"
    void = tried.data("void")["claim"]
    assert isinstance(void, dict)
    assert (void["epsilon"], void["epsilon_lower"], void["statement"]) == (
        None,
        None,
        "NO GUARANTEE: voided by unsafe_example.",
    )
    claim = tried.data("chosen")["claim"]
    assert isinstance(claim, dict)
    assert claim["epsilon"] == 3.0
