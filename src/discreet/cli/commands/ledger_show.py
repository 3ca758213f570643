"""`discreet ledger show`: what is in a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet import _validate as check
from discreet._digits import upward
from discreet.cli.answer import Answer, answer_table, sheet
from discreet.cli.files import read_ledger
from discreet.cli.options import AsJson, Delta, LedgerFile
from discreet.cli.views.ledger_lines import event_data, event_words, lines_of, opening
from discreet.errors import DiscreetError
from discreet.report.facts.held import list_length, rule_words, terms_words
from discreet.report.facts.own_plans import known_delta
from discreet.report.facts.runs import epsilon_of_each, run_name, run_state

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from discreet.ledger import Charge, RunRecord, Snapshot
    from discreet.ledger.storage.rows import Held
    from discreet.units import Guarantee

__all__ = ["SHOW", "show"]

SHOW = """Examples

  discreet ledger show train.ledger
  discreet ledger show train.ledger --delta 1e-6 --json
"""


def show(path: LedgerFile, delta: Delta = None, as_json: AsJson = False) -> Answer:
    """Show what a ledger is held to, its runs with the epsilon of each, its charges and its marks.

    It is only read. Epsilon is stated where a delta is known: the ledger's own, or --delta.
    """
    with read_ledger(path) as ledger:
        lines = lines_of(path)
        snapshot = ledger.snapshot()

    # Without a delta no epsilon can be stated; the rows are shown all the same.
    level = known_delta(snapshot) if delta is None else check.fraction("account", "delta", delta)
    total = None if level is None else _total(snapshot, level)
    alone = {} if level is None or total is None else epsilon_of_each(snapshot, level)

    # The facts come first in both forms, then one entry for each row of a kind.
    opened, head = opening(lines), lines[-1][1].hex()
    data = {
        "ledger": str(path),
        "identity": opened.ledger,
        "opened": opened.opened,
        "schema": snapshot.schema,
        "rows": len(lines),
        "head": head,
        "held_to": list(map(_held_data, snapshot.history)),
        "delta": level,
        "epsilon": None if total is None or total.voided_by else total.upper,
        "runs": [_run_data(snapshot, run, alone.get(run.number)) for run in snapshot.runs],
        "charges": list(map(_charge_data, snapshot.charges)),
        "marks": snapshot.marks,
        "unsettled": snapshot.unsettled,
    }

    words = {
        "ledger": f"{path}, opened {opened.opened}",
        "identity": opened.ledger,
        "rows": str(len(lines)),
        "head": head,
        **_state_words(snapshot),
        **_claim_words(total),
    }

    # A ledger whose budget never changed has said above all that its history would say.
    shown: list[RenderableType] = [sheet(words), ""]
    if len(snapshot.history) > 1:
        shown += [_history_table(snapshot.history), ""]

    shown += [_runs_table(snapshot, alone, total), "", _charges_table(snapshot.charges)]
    return Answer(data=data, shown=shown, as_json=as_json)


def _total(snapshot: Snapshot, delta: float) -> Guarantee | None:
    """The claim; None where nothing was charged, or nothing can be stated at this delta."""
    import discreet as dp

    try:
        return dp.account(snapshot, delta=delta)

    # A ledger that fixed its delta says itself why it states nothing at another one.
    except DiscreetError:
        fixed = None if snapshot.terms is None else snapshot.terms.delta
        if snapshot.steps and fixed not in (None, delta):
            raise

        return None


def _state_words(snapshot: Snapshot) -> dict[str, str]:
    unsettled = "none"
    if snapshot.unsettled:
        unsettled = (
            f"{snapshot.unsettled}: reserved, and counted, by a run that is still going or was "
            "killed"
        )

    return {
        "held to": terms_words(snapshot.terms, oldest=snapshot.schema == 1),
        "marks": ", ".join(snapshot.marks) or "none",
        "unsettled steps": unsettled,
    }


def _claim_words(total: Guarantee | None) -> dict[str, str]:
    if total is None:
        return {}

    if total.voided_by:
        return {"epsilon": "NO GUARANTEE"}

    # What a filter's or an odometer's freedom to look costs, beside the claim.
    words = f"{upward(total.upper)} at delta {total.delta!r}, all runs together"
    if total.if_fixed is not None:
        words += f"; {upward(total.if_fixed)} if all runs had been fixed before the first release"

    return {"epsilon": words}


# --- for scripts ---


def _held_data(entry: Held) -> dict[str, Any]:
    terms = entry.terms
    return {
        "since": entry.since,
        "rule": terms.rule.value,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "steps": list_length(terms),
        "orders": [order for order, _ in terms.orders],
        "reason": entry.reason,
    }


def _run_data(snapshot: Snapshot, run: RunRecord, epsilon: float | None) -> dict[str, Any]:
    # `epsilon` is that of the run by itself: no claim, since runs compose.
    info = run.info
    return {
        "number": run.number,
        "name": run_name(run),
        "label": info.label,
        "began": run.began,
        "planned": run.planned_steps,
        "charged": run.steps,
        "state": run_state(snapshot, run),
        "continues": run.continues,
        "reason": run.reason,
        "epsilon_alone": epsilon,
        "unit": info.unit.name,
        "adjacency": info.adjacency.value,
        "groups": info.groups,
        "numerics": info.numerics.value,
        "randomness": info.randomness.value,
        "parameters": info.parameters.value,
        "software": dict(run.software),
    }


def _charge_data(charge: Charge) -> dict[str, Any]:
    return {
        "run": charge.run.label,
        "number": charge.number,
        "count": charge.count,
        "unsettled": charge.unsettled,
        "sampling": event_data(charge.step.sampling),
        "queries": [event_data(query) for query in charge.step.queries],
    }


# --- for people ---


def _history_table(history: tuple[Held, ...]) -> Table:
    rows = answer_table(
        "since", "held to", "reason", "epsilon", "delta", "steps on the list", texts=3
    )
    # A dash stands for what the terms leave open: no limit, no delta, no list.
    for entry in history:
        terms = entry.terms
        rows.add_row(
            entry.since,
            rule_words(terms),
            entry.reason or "-",
            "-" if terms.epsilon is None else repr(terms.epsilon),
            "-" if terms.delta is None else repr(terms.delta),
            str(list_length(terms) or "-"),
        )

    return rows


def _runs_table(
    snapshot: Snapshot, alone: dict[int, float], total: Guarantee | None
) -> Table | str:
    if not snapshot.runs:
        return "No run has begun."

    texts = ("number", "run", "began", "state", "public reason")
    rows = answer_table(*texts, "planned", "charged", "epsilon alone", texts=len(texts))

    # A run may have committed to nothing, as every run of schema 1 did.
    for run in snapshot.runs:
        rows.add_row(
            str(run.number),
            run_name(run),
            run.began,
            run_state(snapshot, run),
            run.reason or "-",
            str(run.planned_steps) if run.planned else "-",
            str(run.steps),
            upward(alone[run.number]) if run.number in alone else "-",
        )

    # Accounted for together, which is not the sum of the column.
    if total is not None:
        epsilon = "none" if total.voided_by else upward(total.upper)
        rows.add_row("all", "together", "", "", "", "", str(snapshot.steps), epsilon)

    return rows


def _charges_table(charges: tuple[Charge, ...]) -> Table | str:
    if not charges:
        return "Nothing was charged."

    rows = answer_table("run", "sampling", "queries", "steps", "unsettled", texts=3)

    for charge in charges:
        rows.add_row(
            charge.run.label or f"run {charge.number}",
            event_words(charge.step.sampling),
            "; ".join(map(event_words, charge.step.queries)),
            str(charge.count),
            str(charge.unsettled),
        )

    return rows
