"""Rows and events to bytes and back: JSON with a schema version and a closed table of names.

Nothing is imported, unpickled or looked up outside the tables below. A name that is not in them, a
field too many or too few, a key given twice, a value outside its range: an error, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Any

from discreet import _strict_json
from discreet.errors import LedgerCorrupt, ParameterError, UnknownEvent
from discreet.ledger import events
from discreet.ledger.storage.rows import (
    Began,
    Ended,
    Held,
    Marked,
    Opened,
    Reserved,
    Row,
    RunInfo,
    Settled,
)
from discreet.ledger.terms import Planned, Rule, Terms
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = ["LEDGER_SCHEMA", "OLDEST", "decode", "decode_with_schema", "encode"]

LEDGER_SCHEMA = 2
"""Version of the rows that are written. It grows when a kind of row or a field is added; a reader
refuses newer ones. A new event needs no new version: who does not know its name refuses it by name.
"""
OLDEST = 1
"""Oldest version that is read. Its files hold neither budgets nor commitments."""

# The fields of what a run declares are names in the file: they are added to, never renamed.
_INFO = tuple(field.name for field in fields(RunInfo))


# --- to bytes ---


def encode(row: Row) -> bytes:
    """One row as one line of JSON, the same bytes for equal rows."""
    # Digests are taken of these bytes: the order of keys and the separators never change.
    kind, content = _content(row)
    return json.dumps(
        {"schema": LEDGER_SCHEMA, "kind": kind, **content},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    ).encode("ascii")


def _content(row: Row) -> tuple[str, dict[str, Any]]:  # noqa: PLR0911  (one for each kind of row)
    match row:
        case Opened():
            return "opened", {"ledger": row.ledger, "opened": row.opened}
        case Held():
            return "held", {
                "terms": _terms_to_json(row.terms),
                "reason": row.reason,
                "since": row.since,
            }
        case Began():
            return "began", {
                "info": {name: _plain(getattr(row.info, name)) for name in _INFO},
                "software": dict(row.software),
                "began": row.began,
                "planned": _planned_to_json(row.planned),
                "continues": row.continues,
                "plan": row.plan,
                "identity": row.identity,
            }
        case Reserved():
            # A number names the earlier row that spells the step out.
            step = row.step if isinstance(row.step, int) else _step_to_json(row.step)
            return "reserved", {"run": row.run, "step": step, "count": row.count}
        case Settled():
            return "settled", {"lease": row.lease, "taken": row.taken}
        case Ended():
            return "ended", {"run": row.run, "reason": row.reason}
        case Marked():
            return "marked", {"run": row.run, "mark": row.mark}


def _terms_to_json(terms: Terms) -> dict[str, Any]:
    return {
        "rule": terms.rule.value,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "planned": _planned_to_json(terms.planned),
        "levels": [list(pair) for pair in terms.levels],
        "orders": [list(pair) for pair in terms.orders],
    }


def _planned_to_json(planned: Planned) -> list[list[Any]]:
    return [[_step_to_json(step), count] for step, count in planned]


def _step_to_json(step: events.Step) -> dict[str, Any]:
    return {
        "sampling": _event_to_json(step.sampling),
        "queries": [_event_to_json(query) for query in step.queries],
    }


def _event_to_json(event: events.Sampling | events.Query) -> dict[str, Any]:
    return {"kind": event.kind} | event.values()


def _plain(value: object) -> object:
    # Enums by value and units by name: both are words that no later version may change.
    match value:
        case Enum():
            return value.value
        case Unit():
            return value.name
        case tuple():
            return list(value)
        case _:
            return value


# --- and back ---


def decode(body: bytes, number: int) -> Row:
    """The row behind `encode`'s bytes; see `decode_with_schema`."""
    return decode_with_schema(body, number)[1]


def decode_with_schema(body: bytes, number: int) -> tuple[int, Row]:
    """The schema version and the row behind the bytes of one row.

    Args:
        body: one row.
        number: its position in the ledger, for error messages.

    Raises:
        UnknownEvent: for another schema version, or a name that this version does not have.
        LedgerCorrupt: for anything else that is no row.
    """
    try:
        return _row_from_json(_parse(body.decode("ascii")))
    except UnknownEvent as unknown:
        # Not damage: a newer discreet wrote it. Only the row's number is added.
        raise UnknownEvent(
            expected=unknown.expected, got=unknown.got, do=unknown.do, row=number
        ) from None
    except (ParameterError, ValueError, TypeError, KeyError, RecursionError) as wrong:
        # All that wrong bytes can raise on their way through the tables.
        raise LedgerCorrupt(
            expected=f"a row of schema {OLDEST} to {LEDGER_SCHEMA}",
            got=f"{body[:80]!r} ({wrong})",
            do="Restore the ledger from a copy, or ask for it to be exported again.",
            row=number,
        ) from wrong


def _object(content: dict[str, Any]) -> Any:
    """A JSON object: an event if its kind is in the table (then with exactly its fields), else a
    dictionary.
    """
    event = events.EVENTS.get(content.get("kind", ""))
    if event is None:
        return content

    # The event's own constructor refuses a field too many or too few.
    del content["kind"]
    return event(**content)


_DECODER = _strict_json.decoder(_object)


def _parse(text: str) -> dict[str, Any]:
    content, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("more than one value")

    return _mapping(content)


def _row_from_json(content: dict[str, Any]) -> tuple[int, Row]:
    schema, kind = content.pop("schema"), content.pop("kind")

    # `type`, not `isinstance`: JSON's true is an int for Python.
    if type(schema) is not int or not OLDEST <= schema <= LEDGER_SCHEMA:
        raise _unknown(f"schema {OLDEST} to {LEDGER_SCHEMA}", f"schema {schema!r}")

    # A row of a later schema in a file of an earlier one is refused like any unknown name.
    reader = _READERS[schema].get(kind)
    if reader is None:
        raise _unknown(" or ".join(_READERS[schema]), repr(kind))

    return schema, reader(content)


def _opened(content: dict[str, Any]) -> Opened:
    return Opened(**_exactly(content, {"ledger", "opened"}))


def _held(content: dict[str, Any]) -> Held:
    _exactly(content, {"terms", "reason", "since"})
    return Held(_terms_from_json(content["terms"]), content["reason"], content["since"])


def _began_schema_1(content: dict[str, Any]) -> Began:
    _exactly(content, {"info", "software", "began"})
    return Began(_info_from_json(content["info"]), _software(content), content["began"])


def _began(content: dict[str, Any]) -> Began:
    _exactly(content, {"info", "software", "began", "planned", "continues", "plan", "identity"})
    return Began(
        _info_from_json(content["info"]),
        _software(content),
        content["began"],
        _planned_from_json(content["planned"]),
        content["continues"],
        content["plan"],
        content["identity"],
    )


def _reserved(content: dict[str, Any]) -> Reserved:
    _exactly(content, {"run", "step", "count"})
    step = content["step"]
    return Reserved(
        content["run"], step if isinstance(step, int) else _step_from_json(step), content["count"]
    )


def _settled(content: dict[str, Any]) -> Settled:
    return Settled(**_exactly(content, {"lease", "taken"}))


def _ended(content: dict[str, Any]) -> Ended:
    return Ended(**_exactly(content, {"run", "reason"}))


def _marked(content: dict[str, Any]) -> Marked:
    return Marked(**_exactly(content, {"run", "mark"}))


# Schema 2 added budgets, commitments and ends; the other rows are as they were.
_SCHEMA_1: dict[str, Callable[[dict[str, Any]], Row]] = {
    "opened": _opened,
    "began": _began_schema_1,
    "reserved": _reserved,
    "settled": _settled,
    "marked": _marked,
}
_READERS = {1: _SCHEMA_1, 2: {**_SCHEMA_1, "held": _held, "began": _began, "ended": _ended}}


def _software(content: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_mapping(content["software"]).items()))


def _terms_from_json(content: object) -> Terms:
    terms = _exactly(_mapping(content), {"rule", "epsilon", "delta", "planned", "levels", "orders"})
    return Terms(
        rule=Rule(terms["rule"]),
        epsilon=terms["epsilon"],
        delta=terms["delta"],
        planned=_planned_from_json(terms["planned"]),
        levels=tuple(tuple(_sequence(pair)) for pair in _sequence(terms["levels"])),
        orders=tuple(tuple(_sequence(pair)) for pair in _sequence(terms["orders"])),
    )


def _planned_from_json(content: object) -> Planned:
    pairs = [_sequence(pair) for pair in _sequence(content)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a planned step is a step and a count")

    return tuple((_step_from_json(step), count) for step, count in pairs)


def _info_from_json(content: object) -> RunInfo:
    info = _exactly(_mapping(content), set(_INFO))
    return RunInfo(
        unit=Unit(info["unit"]),
        adjacency=Adjacency(info["adjacency"]),
        groups=tuple(_sequence(info["groups"])),
        numerics=Numerics(info["numerics"]),
        randomness=Randomness(info["randomness"]),
        parameters=Parameters(info["parameters"]),
        label=info["label"],
    )


def _step_from_json(content: object) -> events.Step:
    step = _exactly(_mapping(content), {"sampling", "queries"})

    # What `_object` found in the table is an event by now; what is a dictionary still is none.
    for event in (step["sampling"], *_sequence(step["queries"])):
        if isinstance(event, dict):
            raise _unknown("one of " + ", ".join(events.EVENTS), f"the event {event.get('kind')!r}")

    return events.Step(step["sampling"], step["queries"])


def _unknown(expected: str, got: str) -> UnknownEvent:
    return UnknownEvent(
        expected=expected,
        got=got,
        do="Read this ledger with the version of discreet that wrote it, or a newer one.",
    )


def _exactly(content: dict[str, Any], names: set[str]) -> dict[str, Any]:
    if content.keys() != names:
        raise ValueError(f"fields {sorted(content)} instead of {sorted(names)}")

    return content


def _mapping(content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise TypeError(f"{content!r} is not an object")

    return content


def _sequence(content: object) -> list[Any]:
    if not isinstance(content, list):
        raise TypeError(f"{content!r} is not a list")

    return content
