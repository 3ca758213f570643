"""Edited ledgers, and what reading them says: refused by name, or in every field as before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path

import discreet as dp
from discreet.ledger import Ledger, Snapshot
from discreet.ledger.storage import exchange
from discreet.ledger.storage.codec import LEDGER_SCHEMA
from support import edits
from support.victims import DELTA, FIRST, INFO, SECOND

__all__ = [
    "Damage",
    "Original",
    "Outcomes",
    "Undetected",
    "campaign",
    "kinds_of_damage",
    "originals",
]

SCHEMA_1 = Path(__file__).parents[1] / "data" / "schema1"
SCHEMA_1_NAMES: tuple[str, ...] = ("two_runs", "marked")
NAMED = (
    dp.errors.LedgerCorrupt,
    dp.errors.LedgerUnavailable,
    dp.errors.LedgerNotFound,
)  # UnknownEvent is a LedgerCorrupt


Do = Callable[["Original", Path, random.Random], bool | None]


class Undetected(AssertionError):
    """A ledger that was edited, read without an error, and says something else; or an error that is
    not ours.
    """


# --- ledgers to edit ---


@dataclass(frozen=True)
class Original:
    """A ledger before it is edited: the file, its export, and what it says."""

    name: str
    file: bytes
    export: bytes
    rows: edits.Rows
    snapshot: Snapshot


def originals(folder: Path) -> list[Original]:
    """Every rule and every kind of row, in files of both schemas."""
    made = [
        _written(folder / "list", dp.Budget(epsilon=3.0, delta=DELTA)),
        _written(folder / "filter", dp.Filter(epsilon=3.0, delta=DELTA)),
        _written(folder / "odometer", dp.Odometer(delta=DELTA)),
    ]
    for name in SCHEMA_1_NAMES:
        Ledger.load(SCHEMA_1 / f"{name}.jsonl", into=folder / name).close()
        made.append(_original(folder / name))
    return made


def _written(path: Path, budget: dp.Budget | dp.Filter | dp.Odometer) -> Original:
    """A ledger that went through everything: a run that was killed and continued, changed terms, a
    reason, a mark.
    """
    with Ledger.open(path, budget=budget) as ledger:
        killed = ledger.begin(
            replace(INFO, label="killed"), [(FIRST, 30), (SECOND, 10)], plan="the text of a plan"
        )
        with killed.reserve(FIRST, count=10) as lease:
            for _ in range(7):
                lease.take()
        killed.reserve(SECOND, count=5)  # never settled
        if isinstance(budget, dp.Budget):
            ledger.extend_list([(SECOND, 5)], reason="power failure")
        again = ledger.begin(
            replace(INFO, label="again"), [(FIRST, 20), (SECOND, 8)], continues=killed.number
        )
        for _ in again.steps(FIRST, 12, block=4):
            pass
        ledger.change_budget(2.9, reason="agreed with the board")
        again.mark("unsafe_example")
        again.end()
    return _original(path)


def _original(path: Path) -> Original:
    export = path.with_suffix(".jsonl")
    with Ledger.open(path, "r") as ledger:
        ledger.verify().export(export)
        snapshot = ledger.snapshot()
    return Original(
        path.name, path.read_bytes(), export.read_bytes(), edits.read_rows(path), snapshot
    )


# --- damage ---


@dataclass(frozen=True)
class Damage:
    """One kind of edit.

    Args:
        part: of what: "file", "rows", "form", "beside", "export", "rows of an export".
        name: of the kind.
        do: make the file at a path the edited one. True if something that counts was changed, which
            must be detected; False if nothing was; None where it depends on which bytes were hit.
    """

    part: str
    name: str
    do: Do

    @property
    def of_an_export(self) -> bool:
        """Whether what it leaves is an export."""
        return "export" in self.part


def kinds_of_damage() -> list[Damage]:
    """All of them."""
    return [
        *(Damage("file", name, _of_bytes(edit)) for name, edit in edits.EDITS_OF_BYTES.items()),
        *(Damage("rows", name, _of_rows(edit)) for name, edit in edits.EDITS_OF_ROWS.items()),
        *(
            Damage("form", name, _of_form(commands))
            for name, commands in edits.EDITS_OF_FORM.items()
        ),
        *(Damage("beside", name, _beside(*what)) for name, what in edits.LEFT_BESIDE.items()),
        *(
            Damage("export", name, _of_export(edit))
            for name, edit in edits.EDITS_OF_BYTES.items()
            if "page" not in name
        ),
        *(Damage("export", name, _of_export(edit)) for name, edit in edits.EDITS_OF_LINES.items()),
        *(
            Damage("rows of an export", name, _of_exported_rows(edit))
            for name, edit in edits.EDITS_OF_ROWS.items()
        ),
    ]


def _of_bytes(edit: edits.EditOfBytes) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool | None:
        edited = edit(original.file, chance)
        path.write_bytes(edited)
        return False if edited == original.file else None

    return do


def _of_rows(edit: edits.EditOfRows) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool:
        path.write_bytes(original.file)
        edits.write_rows(path, edit(original.rows, chance))
        return edits.read_rows(path) != original.rows

    return do


def _of_form(commands: tuple[str, ...]) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool | None:
        path.write_bytes(original.file)
        edits.edit_form(path, commands, chance)
        return None

    return do


def _beside(suffix: str, make: edits.EditOfBytes) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool | None:
        path.write_bytes(original.file)
        path.with_name(path.name + suffix).write_bytes(make(original.file, chance))
        return None

    return do


def _of_export(edit: edits.EditOfBytes) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool:
        edited = edit(original.export, chance)
        path.write_bytes(edited)
        return edited != original.export  # every byte of an export counts

    return do


def _of_exported_rows(edit: edits.EditOfRows) -> Do:
    def do(original: Original, path: Path, chance: random.Random) -> bool:
        rows = edit(original.rows, chance)
        in_order = [
            (body, digest) for _, body, digest in sorted(rows.lines)
        ]  # the numbers themselves are not exported
        lines = [
            exchange._BEFORE + digest.hex().encode() + exchange._BETWEEN + body + b"}\n"
            for body, digest in in_order
        ]
        edited = b"".join(lines) + exchange._seal(*rows.head[0])
        path.write_bytes(edited)
        return edited != original.export

    return do


# --- what becomes of it ---


@dataclass
class Outcomes:
    """How many edits of each kind were detected, by which error, and how many were harmless."""

    detected: Counter[tuple[str, str]] = field(default_factory=Counter)
    harmless: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Edits in all."""
        return self.detected.total() + self.harmless.total()


def campaign(folder: Path, number: int, seed: int, parts: tuple[str, ...] = ()) -> Outcomes:
    """So many random edits, of all kinds in turn.

    Args:
        folder: for the files.
        number: of edits.
        seed: of the edits.
        parts: of what; of everything if empty.

    Raises:
        Undetected: an edit that was neither refused by name nor harmless.
    """
    chance = random.Random(seed)
    ledgers = originals(folder)
    outcomes = Outcomes()
    for turn, damage in enumerate(islice(_in_turn(parts), number)):
        path = folder / f"{turn}.edited"
        original, changed = _edited(ledgers, damage, path, chance)
        where = f"edit {turn} of seed {seed}: {damage.part}, {damage.name}, {original.name}"
        error = judge(path, original, damage, where)
        if error is None and changed:
            raise Undetected(f"{where}: read as before, but something was changed")
        if (
            error is None
            and turn % 4 == 0
            and not damage.of_an_export
            and original.snapshot.schema == LEDGER_SCHEMA
        ):
            go_on(path, original, where)
        (outcomes.harmless if error is None else outcomes.detected)[damage.part, damage.name] += 1
        outcomes.errors[type(error).__name__ if error else "none"] += 1
        for file in folder.glob(f"{turn}.edited*"):
            file.unlink()
    return outcomes


def _edited(
    ledgers: list[Original], damage: Damage, path: Path, chance: random.Random
) -> tuple[Original, bool | None]:
    """Edit one of these ledgers; another one, where there was nothing to edit."""
    while True:
        original = chance.choice(ledgers)
        changed = damage.do(original, path, chance)
        if changed is not False:
            return original, changed


def _in_turn(parts: tuple[str, ...]) -> Iterator[Damage]:
    """Every kind in turn; single bits of a file, of which there are most, four times as often."""
    kinds = [damage for damage in kinds_of_damage() if not parts or damage.part in parts]
    bits = [damage for damage in kinds if (damage.part, damage.name) == ("file", "a bit flipped")]
    return cycle([*kinds, *3 * bits])


def judge(
    path: Path, original: Original, damage: Damage, where: str
) -> dp.errors.LedgerError | None:
    """The error that names the damage; None if the ledger says in every field what it said.

    Raises:
        Undetected: neither.
    """
    try:
        with Ledger.load(path) if damage.of_an_export else Ledger.open(path, "r") as ledger:
            snapshot = ledger.verify().snapshot()
            head = ledger.head()
    except NAMED as named:
        if not (named.expected and named.got and named.do):
            raise Undetected(f"{where}: an error without words") from named
        return named
    except BaseException as wrong:
        raise Undetected(f"{where}: {type(wrong).__name__}: {wrong}") from wrong
    if snapshot != original.snapshot or head != original.snapshot.head:
        raise Undetected(f"{where}: another snapshot")
    return None


def go_on(path: Path, original: Original, where: str) -> None:
    """Write to a ledger whose damage was harmless: it is refused by name, or all is there, old and
    new.

    Raises:
        Undetected: neither.
    """
    mark = "unsafe_written_after_damage"
    try:
        with Ledger.open(path, "r+") as ledger:
            ledger.mark(original.snapshot.runs[0].number, mark)
        with Ledger.open(path, "r") as ledger:
            snapshot = ledger.verify(original.snapshot.head).snapshot()
    except NAMED:
        return
    except BaseException as wrong:
        raise Undetected(f"{where}, written to: {type(wrong).__name__}: {wrong}") from wrong
    marks = (*original.snapshot.marks, mark)
    if snapshot != replace(original.snapshot, marks=marks, head=snapshot.head):
        raise Undetected(f"{where}, written to: another snapshot")
