"""Files appear whole or not at all, and nothing is written over by accident."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discreet import _files
from discreet.errors import LedgerExists, LedgerUnavailable, ParameterError


@pytest.mark.parametrize("path", ["", ".", "/", "a\0b", b"a", 3, None])
def test_what_names_no_file_is_refused(path: Any) -> None:
    with pytest.raises(
        ParameterError, match="'path' parameter of Owner must be the path of a file"
    ):
        _files.checked_path("Owner", path)


def test_paths_of_every_kind_are_taken(tmp_path: Path) -> None:
    assert _files.checked_path("Owner", tmp_path / "a") == tmp_path / "a"
    assert _files.checked_path("Owner", "folder/a.json") == Path("folder", "a.json")


def writing(text: str) -> Callable[[Path], None]:
    def write(draft: Path) -> None:
        draft.write_text(text)

    return write


def test_a_file_is_published_once(tmp_path: Path) -> None:
    place = tmp_path / "a"
    _files.publish(place, writing("first"))
    with pytest.raises(LedgerExists):
        _files.publish(place, writing("second"))
    assert place.read_text() == "first"
    assert list(tmp_path.iterdir()) == [place]  # no draft is left behind


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise OSError("disk full")

    with pytest.raises(LedgerUnavailable, match="disk full"):
        _files.publish(tmp_path / "a", fail)
    with pytest.raises(LedgerUnavailable, match="no folder"):
        _files.publish(tmp_path / "nowhere" / "a", fail)
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_text("old")

    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        _files.overwrite(place, fail)
    assert place.read_text() == "old"
    _files.overwrite(place, writing("new"))
    assert place.read_text() == "new"
    assert list(tmp_path.iterdir()) == [place]


def test_texts_are_written_as_they_are_and_errors_name_the_owner(tmp_path: Path) -> None:
    _files.write_new("Owner.save", tmp_path / "a", "ü\n\r\n")
    assert (tmp_path / "a").read_bytes() == "ü\n\r\n".encode()
    for path in (tmp_path / "a", tmp_path / "nowhere" / "a"):
        with pytest.raises(ParameterError, match="Owner.save"):
            _files.write_new("Owner.save", path, "other")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "bytes", tmp_path / "none"):
        with pytest.raises(ParameterError, match="Owner.load.*readable UTF-8"):
            _files.read_file("Owner.load", path)


def test_only_what_says_that_it_is_a_terminal_is_one() -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    assert _files.is_terminal(Terminal())
    assert not _files.is_terminal(io.StringIO())
    assert not _files.is_terminal(None)


def test_writing_over_replaces_and_names_the_owner_where_it_cannot(tmp_path: Path) -> None:
    for content in (b"old", b"new\r\n"):
        _files.write_over("Owner.write", tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == content
    with pytest.raises(ParameterError, match="Owner.write must be a path to write to"):
        _files.write_over("Owner.write", tmp_path / "nowhere" / "a", b"x")
