"""Compiled code is loaded from where nobody but this user, root and the installer can write."""

import os
from pathlib import Path

import pytest

from discreet.native import places
from discreet.native.places import is_private, writable_place

UNIX = pytest.mark.skipif(os.name != "posix", reason="permissions of Unix")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no way to write beside the sources."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    sources = tmp_path / "site" / "native"
    sources.mkdir(parents=True)
    (sources / "__pycache__").write_text("a file, so that no folder can be made")
    monkeypatch.setattr(places, "SOURCES", sources)
    return tmp_path


@UNIX
def test_the_cache_is_made_for_the_user_alone(home: Path) -> None:
    folder = writable_place()
    assert folder == home / ".cache" / "discreet"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert places.places() == (home / "site" / "native", folder)


@UNIX
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o775, 0o757])
@pytest.mark.parametrize("level", ["discreet", ".cache"])
def test_a_folder_that_others_can_write_to_is_ignored(home: Path, mode: int, level: str) -> None:
    """Wrong: whoever can write to the cache, or rename it, executes code in this process."""
    folder = writable_place()
    assert folder is not None
    where = folder if level == "discreet" else folder.parent
    where.chmod(mode)
    assert not is_private(folder)
    assert writable_place() is None
    assert folder not in places.places()


@UNIX
def test_a_file_that_others_can_write_to_is_ignored(home: Path) -> None:
    folder = writable_place()
    assert folder is not None
    path = folder / "kernels.shared"
    path.write_bytes(b"")
    path.chmod(0o755)
    assert is_private(path)
    for mode in (0o775, 0o757):
        path.chmod(mode)
        assert not is_private(path)
    assert not is_private(folder / "missing")


@UNIX
def test_what_belongs_to_others_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = writable_place()
    assert folder is not None
    stat = os.stat_result((0o40700, 0, 0, 1, 12345, 0, 0, 0, 0, 0))
    right = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **_: stat if self == folder else right(self, **_)
    )
    assert not is_private(folder)


@UNIX
def test_a_link_to_a_folder_of_others_is_ignored(home: Path) -> None:
    folder = writable_place()
    assert folder is not None
    elsewhere = home / "open"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    folder.rmdir()
    folder.symlink_to(elsewhere)
    assert writable_place() is None


@UNIX
def test_the_sticky_bit_protects_what_lies_below_and_not_the_folder_itself(home: Path) -> None:
    shared = home / "shared"
    own = shared / "own"
    own.mkdir(parents=True, mode=0o700)
    shared.chmod(0o1777)
    assert is_private(own)
    assert not is_private(shared)
    shared.chmod(0o777)
    assert not is_private(own)


def test_a_cache_named_by_a_relative_path_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert writable_place() == home / ".cache" / "discreet"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    assert writable_place() == home / "other" / "discreet"
