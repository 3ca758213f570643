"""Files of schema 1, as version 0.1 wrote them: they are read for ever, say what they said, and
hold no budget.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.ledger.storage.book import Book, follow
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Held
from support.examples import INFO, STEP
from support.source import ROOT

FOLDER = ROOT / "tests" / "data" / "schema1"
RECORDED: dict[str, dict[str, Any]] = json.loads((FOLDER / "guarantees.json").read_text())
READERS: dict[str, Callable[[str], dp.Ledger]] = {
    "ledger": lambda name: dp.Ledger.open(FOLDER / f"{name}.ledger", "r"),
    "jsonl": lambda name: dp.Ledger.load(FOLDER / f"{name}.jsonl"),
}
every_file = pytest.mark.parametrize("form", READERS)
every_name = pytest.mark.parametrize("name", RECORDED)


def stated(name: str) -> list[dict[str, Any]]:
    """The guarantees that version 0.1 gave, of files for which there still is one."""
    return (
        []
        if RECORDED[name]["marks"]
        else [each for each in RECORDED[name]["guarantees"] if "upper" in each]
    )


def test_every_file_was_recorded_in_both_forms() -> None:
    for form in READERS:
        assert {path.stem for path in FOLDER.glob(f"*.{form}")} == set(RECORDED)
    assert sum(len(stated(name)) for name in RECORDED) == 16


@every_file
@every_name
def test_charges_marks_runs_and_head_are_what_they_were(name: str, form: str) -> None:
    recorded, ledger = RECORDED[name], READERS[form](name)
    snapshot = ledger.verify(recorded["head"]).snapshot()
    assert snapshot.head == recorded["head"]
    assert [
        [charge.run.label, charge.count, charge.unsettled] for charge in snapshot.charges
    ] == recorded["charges"]
    assert (list(snapshot.marks), len(snapshot.runs)) == (recorded["marks"], recorded["runs"])


@every_file
@every_name
def test_guarantees_are_what_they_were(name: str, form: str) -> None:
    ledger = READERS[form](name)
    for recorded in stated(name):
        claim = dp.account(ledger, delta=recorded["delta"], accountant=recorded["accountant"])
        assert claim.upper == pytest.approx(recorded["upper"], rel=5e-5)
        assert claim.lower == pytest.approx(recorded["lower"], rel=5e-5)
        assert list(claim.assumptions) == recorded["assumptions"]


@every_file
def test_t05_the_void_one_has_no_number_any_more(form: str) -> None:
    claim = dp.account(READERS[form]("marked"), delta=1e-5)
    assert (claim.upper, claim.voided_by) == (math.inf, ("unsafe_test_key",))
    assert str(claim) == "NO GUARANTEE: voided by unsafe_test_key."


@every_file
@pytest.mark.parametrize("delta", [1e-5, 1e-6])
def test_t03_the_one_chosen_from_outputs_has_no_number_and_no_budget_named_afterwards_gives_it_one(
    form: str, delta: float
) -> None:
    with pytest.raises(dp.errors.AccountingError, match="in a ledger that holds no budget"):
        dp.account(READERS[form]("chosen"), delta=delta)
    with pytest.raises(dp.errors.LedgerMisuse):
        dp.Ledger.open(FOLDER / "chosen.ledger", "r", budget=dp.Filter(epsilon=9.0, delta=delta))


@every_file
def test_the_empty_one_is_no_guarantee(form: str) -> None:
    with pytest.raises(dp.errors.AccountingError, match="empty"):
        dp.account(READERS[form]("empty"), delta=1e-5)


@every_file
@every_name
def test_all_say_that_they_hold_no_budget(name: str, form: str) -> None:
    snapshot = READERS[form](name).snapshot()
    assert (snapshot.schema, snapshot.terms, snapshot.history) == (1, None, ())
    assert all(run.planned == () and run.plan == "" for run in snapshot.runs)
    if stated(name):
        claim = dp.account(snapshot, delta=1e-5)
        assert "a file of schema 1, which holds no budget and no plan" in claim.basis
        assert claim.basis in str(claim)


@every_name
def test_none_can_be_appended_to(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    shutil.copyfile(FOLDER / f"{name}.ledger", path)
    ledgers = [
        dp.Ledger.open(path),
        dp.Ledger.load(FOLDER / f"{name}.jsonl", into=tmp_path / "b.ledger"),
    ]
    uses: list[Callable[[dp.Ledger], object]] = [
        lambda ledger: ledger.begin(INFO, [(STEP, 1)]),
        lambda ledger: ledger.change_budget(1.0, delta=1e-5, reason="afterwards"),
        lambda ledger: ledger.extend_list([(STEP, 1)], reason="afterwards"),
        lambda ledger: ledger.end(1),
        lambda ledger: ledger.mark(1, "unsafe_thing"),
        lambda ledger: ledger.reserve(1, STEP, 1, spelled_out_in=None),
    ]
    for ledger in ledgers:
        for use in uses:
            with pytest.raises(
                dp.errors.LedgerMisuse, match="which holds no budget and is read only"
            ):
                use(ledger)
        assert ledger.verify().head() == RECORDED[name]["head"]
    for budget in (
        dp.Budget(epsilon=9.0, delta=1e-5),
        dp.Filter(epsilon=9.0, delta=1e-5),
        dp.Odometer(delta=1e-5),
    ):
        with pytest.raises(dp.errors.LedgerMisuse, match="which holds no budget and is read only"):
            dp.Ledger.open(path, budget=budget)


def test_an_old_and_a_new_ledger_are_accounted_for_together() -> None:
    old = READERS["ledger"]("one_run")
    (charge,) = old.charges()
    new = dp.Ledger.in_memory()
    new.begin(charge.run, [(charge.step, 11)])
    both = dp.account([old, new], delta=1e-5)
    pairs = dp.account([(charge.step, 111)], delta=1e-5, adjacency=charge.run.adjacency)
    assert both.upper == pytest.approx(pairs.upper, rel=1e-9)


def test_t03_a_budget_row_after_the_rows_of_schema_1_is_refused_in_a_whole_chain() -> None:
    *lines, _ = [json.loads(line) for line in (FOLDER / "one_run.jsonl").read_text().splitlines()]
    book = Book()
    for line in lines:
        body = json.dumps(line["row"], sort_keys=True, separators=(",", ":")).encode()
        book.read(body, bytes.fromhex(line["digest"]))
    late = encode(Held(dp.Budget(epsilon=3.0, delta=1e-5).terms(), "", "now"))
    with pytest.raises(dp.errors.LedgerCorrupt, match="rows of schema 1, as the first"):
        book.read(late, follow(book.digest, late))
