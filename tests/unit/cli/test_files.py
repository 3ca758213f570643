"""Outputs are checked before, and whole or not there at all after."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.cli.files import (
    check_outputs,
    read_declared,
    read_ledger_or_plan,
    read_plan,
    write_all,
)
from discreet.errors import DiscreetError


def test_all_files_or_none_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, calls = os.link, 0

    def second_fails(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        link(source, target)

    monkeypatch.setattr(os, "link", second_fails)
    with pytest.raises(
        DiscreetError, match="No space left on device. Check the folder. Nothing was written."
    ):
        write_all({tmp_path / "one.md": b"1", tmp_path / "two.md": b"2"}, force=False)
    assert not list(tmp_path.iterdir())


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_bytes(b"theirs")
    with pytest.raises(DiscreetError, match="File exists"):
        write_all({tmp_path / "one.md": b"ours"}, force=False)
    assert (tmp_path / "one.md").read_bytes() == b"theirs"
    write_all({tmp_path / "one.md": b"ours"}, force=True)
    assert (tmp_path / "one.md").read_bytes() == b"ours"
    assert [path.name for path in tmp_path.iterdir()] == ["one.md"]


def test_an_input_is_never_an_output_under_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("plan.json")
    for name in ("plan.json", "link.json", "./plan.json"):
        with pytest.raises(DiscreetError, match="a file that is read"):
            check_outputs(
                [tmp_path / name], suffixes=(".json",), force=True, inputs=[tmp_path / "plan.json"]
            )


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "new.md").symlink_to("nowhere.md")
    with pytest.raises(DiscreetError, match="it exists"):
        check_outputs([tmp_path / "new.md"], suffixes=(".md",), force=False)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_programme_is_told_from_a_plan_by_content(tmp_path: Path, suffix: str) -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=10, noise_multiplier=1.1)
    programme = dp.Programme({"first": plan, "second": plan})
    programme.save(tmp_path / f"both{suffix}")
    plan.save(tmp_path / f"plan{suffix}")
    assert (
        read_declared(tmp_path / f"both{suffix}")
        == read_ledger_or_plan(tmp_path / f"both{suffix}")
        == programme
    )
    assert (
        read_declared(tmp_path / f"plan{suffix}") == read_plan(tmp_path / f"plan{suffix}") == plan
    )
    with pytest.raises(DiscreetError, match="a programme of 2 plans"):
        read_plan(tmp_path / f"both{suffix}")
