"""Paths, files that appear whole or not at all, and streams that somebody watches."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from discreet.errors import LedgerExists, LedgerUnavailable, ParameterError

__all__ = [
    "checked_path",
    "is_terminal",
    "overwrite",
    "publish",
    "read_file",
    "write_new",
    "write_over",
]


def checked_path(owner: str, path: object) -> Path:
    """A path that names a file.

    Raises:
        ParameterError: for anything that is no path, is empty, or holds a zero byte.
    """
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)

        # A folder's path such as "." or "/" has no name; a path of bytes is none of ours. A zero
        # byte would raise a ValueError deep inside of the operating system's calls.
        if isinstance(text, str) and Path(text).name and "\0" not in text:
            return Path(text)

    raise ParameterError(
        owner=owner,
        name="path",
        expected="the path of a file",
        got=f"{path!r} (str)" if isinstance(path, str) else type(path).__name__,
    )


def publish(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file under another name, and link it to `path` when it is whole and on
    disk.

    Raises:
        LedgerExists: if something is at `path` already; nothing is ever overwritten.
        LedgerUnavailable: if there is no folder, or it does not allow it (or its file system has no
            hard links).
    """
    if not path.parent.is_dir():
        raise LedgerUnavailable(
            expected=f"a folder for {path}",
            got=f"no folder {path.parent}",
            do="Make it first; nothing was written.",
        )

    # A link fails where a name exists, in one step of the file system: of two processes that
    # publish at once, one is told so. A rename would replace the other's file.
    draft = _draft(path)
    try:
        write(draft)
        os.link(draft, path)
        _sync_folder(path.parent)
    except FileExistsError:
        raise LedgerExists(
            expected="a path where nothing is yet",
            got=str(path),
            do="Choose another path; nothing is ever overwritten.",
        ) from None
    except OSError as refused:
        raise LedgerUnavailable(
            expected=f"to create {path}",
            got=str(refused),
            do="Check the folder and its permissions.",
        ) from refused
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_new(owner: str, path: object, content: str) -> None:
    """Write a text to a new file, whole or not at all; never over another.

    Raises:
        ParameterError: in the name of the owner: no path, something is there, or the folder does
            not allow it.
    """
    place = checked_path(owner, path)

    def write(draft: Path) -> None:
        draft.write_text(content, encoding="utf-8", newline="\n")

    try:
        publish(place, write)
    except (LedgerExists, LedgerUnavailable) as wrong:
        expected = "where nothing is yet, in a folder to write to"
        raise ParameterError(owner=owner, name="path", expected=expected, got=wrong.got) from None


def read_file(owner: str, path: object) -> str:
    """The text of a file.

    Raises:
        ParameterError: in the name of the owner: no path, no such file, or no UTF-8.
    """
    try:
        return checked_path(owner, path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise ParameterError(
            owner=owner, name="path", expected="a readable UTF-8 file", got=str(wrong)
        ) from None


def overwrite(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file under another name, and put it in the place of `path` when it is
    whole and on disk.

    Whoever reads `path`, also after a crash, finds the old file or the new one.

    Raises:
        OSError: the folder does not allow it; `path` is as it was.
    """
    draft = _draft(path)
    try:
        write(draft)

        # The content before the name: after a crash the name could otherwise lead to an empty file.
        with draft.open("rb+") as file:
            os.fsync(file.fileno())

        draft.replace(path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_over(owner: str, path: Path, content: bytes) -> None:
    """Write a file whole or not at all, in the place of an earlier one.

    Raises:
        ParameterError: in the name of the owner: the folder does not allow it.
    """

    def write(draft: Path) -> None:
        draft.write_bytes(content)

    try:
        overwrite(path, write)
    except OSError as wrong:
        expected = "a path to write to"
        raise ParameterError(owner=owner, name="path", expected=expected, got=str(wrong)) from None


def is_terminal(stream: object) -> bool:
    """Whether somebody watches a stream; also for what users put in the place of a standard one."""
    ask = getattr(stream, "isatty", None)
    return callable(ask) and bool(ask())


def _draft(path: Path) -> Path:
    # In the same folder, as neither a link nor a rename reaches into another file system.
    return path.with_name(f".{secrets.token_hex(8)}.new")


def _sync_folder(folder: Path) -> None:
    # A new name is an entry of the folder, which has to be on disk as well.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
