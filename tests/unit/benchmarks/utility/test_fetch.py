"""Data sets that are fetched are checked before a file is there."""

import struct
from pathlib import Path

import numpy as np
import pytest
from benchmarks.utility import fetch as module
from benchmarks.utility.data import DATA_SETS
from benchmarks.utility.fetch import FETCHED, fetch

from discreet.errors import DiscreetError


def test_every_data_set_that_is_a_file_can_be_fetched() -> None:
    assert set(FETCHED) == {name for name, data in DATA_SETS.items() if data.arrays}
    assert set(module._DIGESTS) == set(FETCHED)


def test_other_contents_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        FETCHED, "adult", lambda _: {"train": np.array(["a"]), "test": np.array(["b"])}
    )
    with pytest.raises(DiscreetError, match="other contents"):
        fetch("adult", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FETCHED, "adult", lambda _: pytest.fail("fetched again"))
    (tmp_path / "adult.npz").write_bytes(b"mine")
    assert fetch("adult", tmp_path).read_bytes() == b"mine"


def test_a_missing_tool_and_a_failing_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(DiscreetError, match="the program no-such-tool"):
        module._call(tmp_path, "no-such-tool")
    with pytest.raises(DiscreetError, match="false -x to succeed"):
        module._call(tmp_path, "false", "-x")


def test_the_format_of_mnist_is_read() -> None:
    raw = bytes([0, 0, 8, 2]) + struct.pack(">2I", 2, 3) + bytes(range(6))
    assert module._idx(raw).tolist() == [[0, 1, 2], [3, 4, 5]]
