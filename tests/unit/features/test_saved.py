"""Files of public arrays: of one owner, whole or not at all, never over another."""

from pathlib import Path

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.features import _saved


def test_a_frozen_array_is_a_copy_that_cannot_be_written_to() -> None:
    """A view would change with the caller's array."""
    array = np.arange(3, dtype=np.float32)
    copy = _saved.read_only(array)
    array[0] = 9.0
    assert copy.tolist() == [0.0, 1.0, 2.0]
    assert copy.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 1.0


def test_a_file_belongs_to_its_owner_and_has_the_arrays_that_are_named(tmp_path: Path) -> None:
    """Read by names alone, a file of another class with the same arrays would pass."""
    path = tmp_path / "a.npz"
    _saved.save_arrays("Owner", path, {"x": np.arange(3.0)})
    assert _saved.load_arrays("Owner", path, ("x",))["x"].tolist() == [0.0, 1.0, 2.0]
    for owner, names in (
        ("Thief", ("x",)),
        ("Owner", ("y",)),
        ("Owner", ("x", "y")),
        ("Owner", ()),
    ):
        with pytest.raises(ParameterError, match=f"{owner}.save wrote"):
            _saved.load_arrays(owner, path, names)


def test_numbers_of_another_kind_are_refused(tmp_path: Path) -> None:
    """Loaded as they are, float32 means would standardise otherwise than those that were saved."""
    path = tmp_path / "a.npz"
    arrays = {"discreet.features": np.array("Owner"), "x": np.arange(3, dtype=np.float32)}
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(ParameterError):
        _saved.load_arrays("Owner", path, ("x",))


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    _saved.save_arrays("Owner", path, {"x": np.zeros(1)})
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="where nothing is yet"):
        _saved.save_arrays("Owner", path, {"x": np.ones(1)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
