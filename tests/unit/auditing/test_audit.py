"""The file of an audit: strict, versioned, never overwritten."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from discreet.auditing import Audit

AUDIT = Audit(
    method="one run, gradient canaries",
    lower=1.25,
    delta=1e-6,
    confidence=0.95,
    canaries=1000,
    trials=1,
    unit=dp.Unit("hospital"),
    adjacency=dp.Adjacency.ZERO_OUT,
    ledger_head="0f" * 32,
    made="2026-01-31T12:00:00+00:00",
    assumed_lower=2.5,
    assumes="noise is scaled",
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    AUDIT.save(tmp_path / "audit.json")
    assert Audit.load(tmp_path / "audit.json") == AUDIT
    assert Audit.from_json(AUDIT.to_json()) == AUDIT
    assert json.loads(AUDIT.to_json())["schema"] == 2


def test_an_audit_is_never_overwritten(tmp_path: Path) -> None:
    AUDIT.save(tmp_path / "audit.json")
    with pytest.raises(dp.errors.ParameterError, match="path"):
        replace(AUDIT, lower=0.0).save(tmp_path / "audit.json")
    assert Audit.load(tmp_path / "audit.json") == AUDIT
    with pytest.raises(dp.errors.ParameterError, match="path"):
        AUDIT.save(tmp_path / "nowhere" / "audit.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lower", -0.1),
        ("lower", float("nan")),
        ("lower", float("inf")),
        ("lower", True),
        ("assumed_lower", -0.1),
        ("assumed_lower", float("inf")),
        ("assumes", "two\nlines"),
        ("assumes", 3),
        ("delta", 1.0),
        ("delta", -1e-9),
        ("confidence", 0.0),
        ("confidence", 1.0),
        ("canaries", 0),
        ("trials", 0.5),
        ("unit", "example"),
        ("adjacency", "zero-out"),
        ("ledger_head", "0f"),
        ("ledger_head", "0F" * 32),
        ("made", "yesterday"),
        ("made", "2026-01-31T12:00:00"),
        ("method", ""),
        ("method", "two\nlines"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match=name):
        replace(AUDIT, **{name: value})  # type: ignore[arg-type]


def changed(**changes: object) -> str:
    table = json.loads(AUDIT.to_json()) | changes
    return json.dumps({name: value for name, value in table.items() if value is not None})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        changed(schema=1),
        changed(schema=True),
        changed(schema=None),
        changed(lower=None),
        changed(extra=1),
        changed(adjacency="other"),
        changed(adjacency=["zero-out"]),
        changed(unit=3),
        changed(lower="1.0"),
        AUDIT.to_json().replace("1.25", "NaN"),
        AUDIT.to_json().replace("1.25", "1e999"),
        AUDIT.to_json().replace('"trials"', '"canaries"'),
        "[" * 100_000,
    ],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(dp.errors.ParameterError):
        Audit.from_json(text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "a.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(dp.errors.ParameterError, match="path"):
            Audit.load(path)
    with pytest.raises(dp.errors.ParameterError):
        Audit.from_json(b"{}")  # type: ignore[arg-type]


def test_a_bound_under_an_assumption_is_never_without_its_words() -> None:
    for changes in ({"assumes": ""}, {"assumed_lower": None}):
        with pytest.raises(dp.errors.ParameterError, match="assumes"):
            replace(AUDIT, **changes)
    bare = replace(AUDIT, assumes="", assumed_lower=None)
    assert (AUDIT.strongest, bare.strongest) == (2.5, 1.25)
    assert Audit.from_json(bare.to_json()) == bare


def test_numbers_are_normalised() -> None:
    assert replace(AUDIT, lower=1, canaries=5).lower == 1.0
    assert Audit.from_json(AUDIT.to_json().replace("1.25", "2")).lower == 2.0
