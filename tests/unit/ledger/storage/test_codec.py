"""The codec refuses everything that it could not have written."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import discreet as dp
from discreet.ledger.storage.codec import LEDGER_SCHEMA, decode, decode_with_schema, encode
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Opened, Reserved, Row, Settled
from discreet.ledger.terms import Rule, Terms
from support.examples import INFO, OTHER_STEP, STEP

ROWS: list[Row] = [
    Opened("0123", "2026-01-01T00:00:00+00:00"),
    Began(INFO, (("discreet", "0.1.0"), ("python", "3.11.7")), "2026-01-01T00:00:00+00:00"),
    Reserved(1, OTHER_STEP, 10),
    Reserved(1, 2, 10),
    Settled(2, 0),
    Marked(1, "unsafe_test_key"),
    Ended(1, "power failure"),
    Held(
        Terms(
            rule=Rule.ODOMETER,
            epsilon=9.0,
            delta=1e-6,
            planned=((STEP, 5), (OTHER_STEP, 6)),
            levels=((1, 0.5), (20, 0.125)),
            orders=((1.5, 0.25), (1e6, 0.125)),
        ),
        "",
        "2026-01-01T00:00:00+00:00",
    ),
    Held(Terms(rule=Rule.LIST), "more noise", "2026-01-01T00:00:00+00:00"),
    Began(
        INFO,
        (),
        "2026-01-01T00:00:00+00:00",
        ((STEP, 100), (OTHER_STEP, 1)),
        3,
        '{"plan": "\u00e4\n"}',
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_comes_back_equal_and_as_the_same_bytes(row: Row) -> None:
    assert decode(encode(row), 0) == row
    assert encode(decode(encode(row), 0)) == encode(row)


def changed(row: Row, change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(encode(row))
    change(content)
    return json.dumps(content).encode()


@pytest.mark.parametrize("schema", [LEDGER_SCHEMA + 1, 0, "1", None, True, 1.5])
def test_another_schema_version_is_named(schema: object) -> None:
    with pytest.raises(
        dp.errors.UnknownEvent, match=r"Row 7 .* Expected schema 1 to 2. Got schema"
    ):
        decode(changed(ROWS[2], lambda row: row.update(schema=schema)), 7)


def test_an_unknown_event_is_named_and_refused() -> None:
    def newer(row: dict[str, Any]) -> None:
        row["step"]["queries"][0]["kind"] = "quantum-sum"

    with pytest.raises(dp.errors.UnknownEvent, match="the event 'quantum-sum'") as caught:
        decode(changed(ROWS[2], newer), 3)
    assert caught.value.row == 3
    with pytest.raises(dp.errors.UnknownEvent, match="'refund'"):
        decode(changed(ROWS[4], lambda row: row.update(kind="refund")), 3)


def test_rows_that_schema_1_had_not_are_unknown_there_and_its_own_are_read() -> None:
    for row in (ROWS[6], ROWS[7]):
        with pytest.raises(
            dp.errors.UnknownEvent, match="opened or began or reserved or settled or marked"
        ):
            decode(changed(row, lambda row: row.update(schema=1)), 3)
    with pytest.raises(dp.errors.LedgerCorrupt):
        decode(changed(ROWS[1], lambda row: row.update(schema=1)), 3)  # fields that it had not

    def older(row: dict[str, Any]) -> None:
        row["schema"] = 1
        del row["planned"], row["continues"], row["plan"], row["identity"]

    assert decode_with_schema(changed(ROWS[1], older), 1) == (1, ROWS[1])


def test_p46_a_name_is_looked_up_in_a_table_and_never_imported() -> None:
    for name in (
        "os.system",
        "discreet.ledger.events.GaussianSum",
        "GaussianSum",
        "__class__",
        ["gaussian-sum"],
        {"a": 1},
        5,
    ):

        def renamed(row: dict[str, Any], name: object = name) -> None:
            row["step"]["queries"][0]["kind"] = name

        with pytest.raises(dp.errors.LedgerCorrupt):
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
        encode(ROWS[6]).replace(b'"reason":"power failure"', b'"reason":5'),
        encode(ROWS[6]).replace(b'"reason":"power failure",', b""),
        encode(ROWS[7]).replace(b'"rule":"odometer"', b'"rule":"generous"'),
        encode(ROWS[7]).replace(b'"rule":"odometer"', b'"rule":"list"'),
        encode(ROWS[7]).replace(b'"epsilon":9.0', b'"epsilon":-9.0'),
        encode(ROWS[7]).replace(b'"epsilon":9.0', b'"epsilon":true'),
        encode(ROWS[7]).replace(b'"delta":1e-06', b'"delta":null'),
        encode(ROWS[7]).replace(b"[1,0.5]", b"[1,0.75]"),
        encode(ROWS[7]).replace(b"[1,0.5]", b"[1,0.5,1]"),
        encode(ROWS[7]).replace(b"[1,0.5]", b"[0,0.5]"),
        encode(ROWS[7]).replace(b"[1,0.5]", b'{"1":0.5}'),
        encode(ROWS[7]).replace(b"[1.5,0.25]", b"[1.0,0.25]"),
        encode(ROWS[9]).replace(b'"continues":3', b'"continues":0'),
        encode(ROWS[9]).replace(b'"continues":3', b'"continues":"3"'),
        encode(ROWS[9]).replace(b'"continues":3,', b""),
        encode(ROWS[9]).replace(b"},100]", b"},0]"),
        encode(ROWS[9]).replace(b"},100]", b"}]"),
        encode(ROWS[9]).replace(b"},100]", b"},100,1]"),
    ],
)
def test_what_is_no_row_is_refused_with_its_number(body: bytes) -> None:
    assert body not in [encode(row) for row in ROWS]
    with pytest.raises(
        dp.errors.LedgerCorrupt,
        match=r"Row 4 of the ledger is wrong. Expected a row of schema 1 to 2",
    ) as caught:
        decode(body, 4)
    assert caught.value.row == 4


def test_numbers_are_written_so_that_they_come_back_exactly() -> None:
    step = dp.ledger.Step(
        dp.Poisson(0.1), dp.ledger.GaussianSum("grad", 5e-324, 1.7976931348623157e308)
    )
    assert decode(encode(Reserved(1, step, 1)), 0) == Reserved(1, step, 1)
    assert step != STEP
