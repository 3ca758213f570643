"""Files that commands read, recognised by their content, and files that they write: checked before,
whole or not at all.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from discreet.errors import DiscreetError, LedgerCorrupt

if TYPE_CHECKING:
    from discreet.auditing import Audit
    from discreet.canaries import Scores
    from discreet.ledger import Ledger
    from discreet.plan import Declaration, Plan
    from discreet.tuning import Tuning

__all__ = [
    "PLAN_SUFFIXES",
    "check_outputs",
    "is_export",
    "plan_bytes",
    "read_audit",
    "read_declared",
    "read_ledger",
    "read_ledger_or_plan",
    "read_optional",
    "read_page",
    "read_plan",
    "read_scores",
    "read_tuning",
    "write_all",
]

_T = TypeVar("_T")

PLAN_SUFFIXES = (".toml", ".json")
"""Suffixes of files to which a plan can be written."""

# Files are told apart by their first bytes, never by their names.
_LEDGER, _EXPORT = b"SQLite format 3\0", b'{"digest":"'
_EXISTS = "it exists"
# Bytes. What is larger is no plan and no page, and is not read into memory to find out.
_LARGEST_TEXT = 2**24
_ANY = "a ledger, a JSON Lines export of one, or a plan or programme (TOML or JSON)"


def read_ledger_or_plan(path: Path) -> Ledger | Declaration[Plan]:
    """A ledger, opened to read; an export, loaded; a plan or a programme."""
    # The expectation names all kinds: whoever gave none of them reads what would have done.
    if _is_ledger(path, _ANY):
        return read_ledger(path)

    return read_declared(path, _ANY)


def read_ledger(path: Path) -> Ledger:
    """A ledger, opened to read, or an export, loaded: read from its first row and checked.

    Raises:
        LedgerCorrupt: it is a ledger, and not sound.
        DiscreetError: it is none.
    """
    from discreet.ledger import Ledger

    expected = "a ledger, or a JSON Lines export of one"
    if not _is_ledger(path, expected):
        raise DiscreetError(
            expected=expected, got=f"{path}, which is neither", do="Pass the path of the ledger."
        )

    return Ledger.load(path) if is_export(path) else Ledger.open(path, "r")


def is_export(path: Path) -> bool:
    """Whether this is, by its beginning, a JSON Lines export."""
    return _beginning(path, "a JSON Lines export of a ledger").startswith(_EXPORT)


def read_plan(path: Path) -> Plan:
    """One plan, whatever the name of its file."""
    from discreet.plan import Plan

    expected = "a plan (TOML or JSON)"
    declared = read_declared(path, expected)

    # Whoever asks for one plan cannot be given several: which of them would be a guess.
    if not isinstance(declared, Plan):
        raise DiscreetError(
            expected=expected,
            got=f"{path}, a programme of {len(declared.plans)} plans",
            do="Save one of its plans: programme[name].save(...).",
        )

    return declared


def read_declared(
    path: Path, expected: str = "a plan or a programme of several (TOML or JSON)"
) -> Declaration[Plan]:
    """A plan or a programme, whatever the name of its file."""
    from discreet.plan.programme import from_text

    # A ledger in the place of a plan is the likeliest mistake, so it is named.
    if _beginning(path, expected).startswith((_LEDGER, _EXPORT)):
        raise DiscreetError(
            expected=expected,
            got=f"{path}, which is a ledger",
            do="Pass the file that `--save` wrote.",
        )

    text = _read_text(path, expected)
    try:
        return from_text(text)
    except DiscreetError as wrong:
        raise DiscreetError(
            expected=expected,
            got=_unreadable(path, wrong),
            do="Check the path; a plan's file is written by `discreet plan --save` or plan.save().",
        ) from None


def read_optional(read: Callable[[Path], _T], path: Path | None) -> _T | None:
    """What `read` makes of the file; None where the option that names it was left out."""
    if path is None:
        return None

    return read(path)


def read_page(path: Path) -> str:
    """The text of a report, in whatever format."""
    return _read_text(path, "a report (.html, .md or .json)")


def _read_text(path: Path, expected: str) -> str:
    # Text has no zero bytes. Looking at the beginning alone is enough to name most mistakes; what
    # comes later is for the decoder.
    if b"\0" in _beginning(path, expected) or path.stat().st_size > _LARGEST_TEXT:
        raise DiscreetError(expected=expected, got=f"{path}, which is none", do="Check the path.")

    # UTF-8 whatever the locale says: that is what this library writes.
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        raise DiscreetError(
            expected=expected, got=f"{path}: {refused}", do="Check the path."
        ) from None


def read_audit(path: Path) -> Audit:
    """The record of an audit."""
    from discreet.auditing import Audit

    return _loaded(path, "an audit (JSON)", Audit.load)


def read_scores(path: Path) -> Scores:
    """The scores of an attack."""
    from discreet.canaries import Scores

    return _loaded(path, "scores (JSON)", Scores.load)


def read_tuning(path: Path) -> Tuning:
    """The record of a tuning."""
    from discreet.tuning import Tuning

    return _loaded(path, "a record of tuning (JSON)", Tuning.load)


def _loaded(path: Path, expected: str, load: Callable[[Path], _T]) -> _T:
    # For its errors: what is not there, or may not be read, is named as everywhere else.
    _beginning(path, expected)
    try:
        return load(path)
    except DiscreetError as wrong:
        raise DiscreetError(
            expected=expected, got=_unreadable(path, wrong), do="Check the path."
        ) from None


def _unreadable(path: Path, wrong: DiscreetError) -> str:
    return f"{path}, which cannot be read as one: {str(wrong).removesuffix('.')}"


def _is_ledger(path: Path, expected: str) -> bool:
    beginning = _beginning(path, expected)

    # An empty file may be a ledger that lost its rows: the worst that it can be is said.
    if not beginning:
        raise LedgerCorrupt(
            expected=expected, got=f"{path}, an empty file", do="Restore it from a copy."
        )

    return beginning.startswith((_LEDGER, _EXPORT))


def _beginning(path: Path, expected: str) -> bytes:
    if not path.is_file():
        # What exists and is neither is a device, a pipe, or a link to nowhere.
        got = "no file" if os.path.lexists(path) else "nothing there"
        if path.is_dir():
            got = "a folder"

        raise DiscreetError(expected=f"{expected}, at {path}", got=got, do="Check the path.")

    # Enough for the mark of every kind of file, and for a zero byte to show in what is no text.
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError as refused:
        raise DiscreetError(
            expected=f"{expected}, at {path}", got=str(refused), do="Check the permissions."
        ) from None


def check_outputs(
    paths: Iterable[Path | None],
    *,
    suffixes: Sequence[str],
    force: bool,
    inputs: Iterable[Path | None] = (),
    forcible: bool = True,
) -> None:
    """Refuse, before anything is computed, what could not be written afterwards.

    Args:
        paths: where to write; None is skipped.
        suffixes: that a name may end in.
        force: whether an existing file may be replaced.
        forcible: whether the command could be told so.
        inputs: files that are read, and never replaced.
    """
    # Resolved, so that two names of one file are one file, whichever way they are written.
    taken = {path.resolve(): "a file that is read" for path in filter(None, inputs)}

    for path in filter(None, paths):
        trouble = _trouble(path, suffixes, force=force) or taken.get(path.resolve())
        taken[path.resolve()] = "named twice"
        if not trouble:
            continue

        # Only a file in the way can be forced, and only where the command has the option.
        forced = ", or pass --force" if forcible and trouble == _EXISTS else ""
        raise DiscreetError(
            expected=f"a path to write to that ends in {' or '.join(suffixes)}",
            got=f"{path}: {trouble}",
            do=f"Choose another path{forced}. Nothing was written.",
        )


def _trouble(path: Path, suffixes: Sequence[str], *, force: bool) -> str:
    if path.suffix not in suffixes:
        return "another suffix"

    if path.is_dir():
        return "a folder"

    # A link to nowhere counts as well: whoever made it wanted something there.
    if os.path.lexists(path) and not force:
        return _EXISTS

    if not path.parent.is_dir():
        return "no such folder"

    # To make a file in a folder, one must be allowed to change its list of names and to enter it.
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "a folder that may not be written to"

    return ""


def plan_bytes(plan: Plan, path: Path) -> bytes:
    """The plan as it is written to a file of this name."""
    text = plan.to_json() if path.suffix == ".json" else plan.to_toml()
    return text.encode()


def write_all(contents: Mapping[Path, bytes], *, force: bool) -> None:
    """Write each file whole or not at all; without `force` all or none, and nothing is replaced."""
    drafts = {path: path.with_name(f".{secrets.token_hex(8)}.new") for path in contents}
    linked: list[Path] = []

    try:
        # Each content is on the disk, under a name of its own, before the first file appears.
        for path, content in contents.items():
            with drafts[path].open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

        for path, draft in drafts.items():
            if force:
                draft.replace(path)
            else:
                # Unlike a rename, a link fails where a file has appeared in the meantime.
                os.link(draft, path)
                linked.append(path)

    # What appeared before the failure is taken back: a reader must not take half for the whole.
    except OSError as refused:
        for path in linked:
            path.unlink(missing_ok=True)

        raise DiscreetError(
            expected="to write what was asked for",
            got=f"{', '.join(map(str, contents))}: {refused.strerror}",
            do="Check the folder. Nothing was written.",
        ) from None

    # Drafts that were renamed are gone, those that were linked have a second name now.
    finally:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink(missing_ok=True)
