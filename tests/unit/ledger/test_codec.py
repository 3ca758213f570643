"""The codec refuses everything that it could not have written."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import discreet as dp
from discreet.ledger.codec import SCHEMA, decode, encode
from discreet.ledger.rows import Began, Marked, Opened, Reserved, Row, Settled
from support.examples import INFO, OTHER_STEP, STEP

ROWS: list[Row] = [
    Opened("0123", "2026-01-01T00:00:00+00:00"),
    Began(INFO, (("discreet", "0.1.0"), ("python", "3.11.7")), "2026-01-01T00:00:00+00:00"),
    Reserved(1, OTHER_STEP, 10),
    Reserved(1, 2, 10),
    Settled(2, 0),
    Marked(1, "unsafe_test_key"),
]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_comes_back_equal_and_as_the_same_bytes(row: Row) -> None:
    assert decode(encode(row), 0) == row
    assert encode(decode(encode(row), 0)) == encode(row)


def changed(row: Row, change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(encode(row))
    change(content)
    return json.dumps(content).encode()


@pytest.mark.parametrize("schema", [SCHEMA + 1, 0, "1", None, True, 1.5])
def test_another_schema_version_is_named(schema: object) -> None:
    with pytest.raises(dp.UnknownEvent, match=r"Row 7 .* Expected schema 1. Got schema"):
        decode(changed(ROWS[2], lambda row: row.update(schema=schema)), 7)


def test_an_unknown_event_is_named_and_refused() -> None:
    def newer(row: dict[str, Any]) -> None:
        row["step"]["queries"][0]["kind"] = "quantum-sum"

    with pytest.raises(dp.UnknownEvent, match="the event 'quantum-sum'") as caught:
        decode(changed(ROWS[2], newer), 3)
    assert caught.value.row == 3
    with pytest.raises(dp.UnknownEvent, match="'refund'"):
        decode(changed(ROWS[4], lambda row: row.update(kind="refund")), 3)


def test_p46_a_name_is_looked_up_in_a_table_and_never_imported() -> None:
    for name in ("os.system", "discreet.ledger.events.GaussianSum", "GaussianSum", "__class__", ["gaussian-sum"], {"a": 1}, 5):

        def renamed(row: dict[str, Any], name: object = name) -> None:
            row["step"]["queries"][0]["kind"] = name

        with pytest.raises(dp.LedgerCorrupt):
            decode(changed(ROWS[2], renamed), 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b"\xff",
        b"cos\nsystem\n(S'ls'\ntR.",
        b"[" * 100_000,
        encode(ROWS[4]) + b"{}",
        encode(ROWS[4]).replace(b'"taken":0', b'"taken":0,"taken":9'),
        encode(ROWS[4]).replace(b'"taken":0', b'"taken":-1'),
        encode(ROWS[4]).replace(b'"taken":0', b'"taken":0.5'),
        encode(ROWS[4]).replace(b'"taken":0', b'"taken":true'),
        encode(ROWS[4]).replace(b'"taken":0', b'"taken":0,"refund":1'),
        encode(ROWS[4]).replace(b',"taken":0', b""),
        encode(ROWS[2]).replace(b'"noise_std":40.0', b'"noise_std":NaN'),
        encode(ROWS[2]).replace(b'"noise_std":40.0', b'"noise_std":1e999'),
        encode(ROWS[2]).replace(b'"noise_std":40.0', b'"noise_std":"40"'),
        encode(ROWS[2]).replace(b'"noise_std":40.0', b'"noise_std":40.0,"more":1'),
        encode(ROWS[2]).replace(b'"noise_std":40.0,', b""),
        encode(ROWS[2]).replace(b'"count":10', b'"count":0'),
        encode(ROWS[2]).replace(b'"count":10', b'"count":' + b"9" * 5000),
        encode(ROWS[1]).replace(b"add-or-remove", b"whatever"),
        encode(ROWS[5]).replace(b"unsafe_test_key", b"harmless"),
    ],
)
def test_what_is_no_row_is_refused_with_its_number(body: bytes) -> None:
    assert body not in [encode(row) for row in ROWS]
    with pytest.raises(dp.LedgerCorrupt, match=r"Row 4 of the ledger is wrong. Expected a row of schema 1") as caught:
        decode(body, 4)
    assert caught.value.row == 4


def test_numbers_are_written_so_that_they_come_back_exactly() -> None:
    step = dp.Step(dp.Poisson(0.1), dp.GaussianSum("grad", 5e-324, 1.7976931348623157e308))
    assert decode(encode(Reserved(1, step, 1)), 0) == Reserved(1, step, 1)
    assert step != STEP
