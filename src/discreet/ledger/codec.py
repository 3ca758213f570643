"""Rows and events to bytes and back: JSON with a schema version and a closed table of names.

Nothing is imported, unpickled or looked up outside the tables below. A name that is not in them, a field too many or
too few, a key given twice, a value outside its range: an error, never a guess.
"""

from __future__ import annotations

import json
from dataclasses import fields
from enum import Enum
from typing import Any, NoReturn

from discreet.errors import LedgerCorrupt, ParameterError, UnknownEvent
from discreet.ledger import events
from discreet.ledger.rows import Began, Marked, Opened, Reserved, Row, RunInfo, Settled
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = ["SCHEMA", "decode", "encode"]

SCHEMA = 1
"""Version of the vocabulary. It grows when a name is added; a reader refuses rows of any other version."""

_EVENTS: dict[str, type] = {
    "everything": events.Everything,
    "poisson": events.Poisson,
    "truncated-poisson": events.TruncatedPoisson,
    "fixed-size": events.FixedSize,
    "shuffled": events.Shuffled,
    "balls-in-bins": events.BallsInBins,
    "gaussian-sum": events.GaussianSum,
    "laplace-sum": events.LaplaceSum,
    "exponential-choice": events.ExponentialChoice,
    "randomized-response": events.RandomizedResponse,
    "correlated-gaussian-sum": events.CorrelatedGaussianSum,
}
_EVENT_NAMES = {kind: name for name, kind in _EVENTS.items()}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in (*_EVENT_NAMES, RunInfo)}


# --- to bytes ----------------------------------------------------------------------------------------------------


def encode(row: Row) -> bytes:
    """One row as one line of JSON, the same bytes for equal rows."""
    return json.dumps(_row_to_json(row), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _row_to_json(row: Row) -> dict[str, Any]:
    match row:
        case Opened():
            return {"schema": SCHEMA, "kind": "opened", "ledger": row.ledger, "opened": row.opened}
        case Began():
            info = {name: _plain(getattr(row.info, name)) for name in _FIELDS[RunInfo]}
            return {"schema": SCHEMA, "kind": "began", "info": info, "software": dict(row.software), "began": row.began}
        case Reserved():
            step = row.step if isinstance(row.step, int) else _step_to_json(row.step)
            return {"schema": SCHEMA, "kind": "reserved", "run": row.run, "step": step, "count": row.count}
        case Settled():
            return {"schema": SCHEMA, "kind": "settled", "lease": row.lease, "taken": row.taken}
        case Marked():
            return {"schema": SCHEMA, "kind": "marked", "run": row.run, "mark": row.mark}


def _step_to_json(step: events.Step) -> dict[str, Any]:
    return {"sampling": _event_to_json(step.sampling), "queries": [_event_to_json(query) for query in step.queries]}


def _event_to_json(event: events.Sampling | events.Query) -> dict[str, Any]:
    kind = type(event)
    return {"kind": _EVENT_NAMES[kind]} | {name: getattr(event, name) for name in _FIELDS[kind]}


def _plain(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case Unit():
            return value.name
        case tuple():
            return list(value)
        case _:
            return value


# --- and back ----------------------------------------------------------------------------------------------------


def decode(body: bytes, number: int) -> Row:
    """The row behind `encode`'s bytes.

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
        raise UnknownEvent(expected=unknown.expected, got=unknown.got, do=unknown.do, row=number) from None
    except (ParameterError, ValueError, TypeError, KeyError, RecursionError) as wrong:
        raise LedgerCorrupt(
            expected=f"a row of schema {SCHEMA}",
            got=f"{body[:80]!r} ({wrong})",
            do="Restore the ledger from a copy, or ask for it to be exported again.",
            row=number,
        ) from wrong


def _object(pairs: list[tuple[str, Any]]) -> Any:
    """A JSON object: an event if its kind is in the table (then with exactly its fields), else a dictionary."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key stands twice")
    event = _EVENTS.get(content.get("kind", ""))
    if event is None:
        return content
    del content["kind"]
    return event(**content)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


def _parse(text: str) -> dict[str, Any]:
    content, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("more than one value")
    return _mapping(content)


def _row_from_json(content: dict[str, Any]) -> Row:
    schema, kind = content.pop("schema"), content.pop("kind")
    if type(schema) is not int or schema != SCHEMA:
        raise _unknown(f"schema {SCHEMA}", f"schema {schema!r}")
    match kind:
        case "opened":
            return Opened(**_exactly(content, {"ledger", "opened"}))
        case "began":
            _exactly(content, {"info", "software", "began"})
            software = tuple(sorted(_mapping(content["software"]).items()))
            return Began(_info_from_json(content["info"]), software, content["began"])
        case "reserved":
            _exactly(content, {"run", "step", "count"})
            step = content["step"]
            return Reserved(content["run"], step if isinstance(step, int) else _step_from_json(step), content["count"])
        case "settled":
            return Settled(**_exactly(content, {"lease", "taken"}))
        case "marked":
            return Marked(**_exactly(content, {"run", "mark"}))
        case _:
            raise _unknown("opened, began, reserved, settled or marked", repr(kind))


def _info_from_json(content: object) -> RunInfo:
    info = _exactly(_mapping(content), set(_FIELDS[RunInfo]))
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
    for event in (step["sampling"], *_sequence(step["queries"])):
        if isinstance(event, dict):
            raise _unknown("one of " + ", ".join(_EVENTS), f"the event {event.get('kind')!r}")
    return events.Step(step["sampling"], step["queries"])


def _unknown(expected: str, got: str) -> UnknownEvent:
    do = "Read this ledger with the version of discreet that wrote it, or a newer one."
    return UnknownEvent(expected=expected, got=got, do=do)


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
