"""Mechanisms, samplers and what a plan protects, to plain data and back: a closed vocabulary with a
schema version.

A value is a table whose `kind` names it, with exactly its fields; a field that is None is left out.
A mapping is a list of [name, value] pairs, because its order counts (the first pattern that matches
wins) and no format promises to keep the order of a table; any other list is a tuple of values.
Nothing is imported or looked up outside the tables below (P46); an unknown name, a field too many
or too few is an error (P45).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from discreet._strict_json import member_named
from discreet.errors import ParameterError
from discreet.ledger.events import SAMPLINGS
from discreet.mechanisms import MECHANISMS
from discreet.plan.calibrated import Target
from discreet.plan.schedule import Schedule
from discreet.plan.text import Plain
from discreet.sampling import Sampler
from discreet.units import Adjacency, Numerics, Unit

__all__ = ["PLAN_FIELDS", "PLAN_SCHEMA", "plain", "read_plan_fields", "read_programme", "written"]

PLAN_SCHEMA = 1
"""Version of the format; a reader refuses any other. A new name needs no new version: who does not
know it refuses it by name.
"""

_KINDS: dict[str, type] = (
    {mechanism.kind: mechanism for mechanism in MECHANISMS}
    | {policy.kind: policy for policy in SAMPLINGS}
    | {"sampler": Sampler, "schedule": Schedule, "target": Target}
)
PLAN_FIELDS = ("unit", "adjacency", "numerics", "leaves", "sampler", "mechanism", "target")
"""What a plan's file holds, besides the schema."""

_NAMES = {kind: name for name, kind in _KINDS.items()}
# Data and code, not declarations; `Plan` refuses to write a sampler that has them.
_NEVER = frozenset({(Sampler, "owners"), (Sampler, "unsafe_drawn_by")})


def written(plan: Mapping[str, object]) -> dict[str, Plain]:
    """Plain data for the fields of a plan, with the schema."""
    return {"schema": PLAN_SCHEMA} | _plain_fields(plan)


def _plain_fields(parts: Mapping[str, object]) -> dict[str, Plain]:
    # TOML has no word for None: a field without a value is left out.
    return {name: plain(part) for name, part in parts.items() if part is not None}


def read_plan_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a plan behind `written`.

    Raises:
        ParameterError: for another schema, an unknown name, a field too many or too few, a value
            outside its range.
    """
    content = _of_schema(data)
    _exactly("file", content, PLAN_FIELDS, {"leaves", "target"})

    # Fields of a plan itself have no kind: which type each has is known here.
    return {
        "unit": Unit(content["unit"]),
        "adjacency": member_named("Plan", "adjacency", Adjacency, content["adjacency"]),
        "numerics": member_named("Plan", "numerics", Numerics, content["numerics"]),
        "leaves": _pairs("leaves", content["leaves"]) if "leaves" in content else None,
        "sampler": _value("sampler", content["sampler"]),
        "mechanism": _value("mechanism", content["mechanism"]),
        "target": _target(content),
    }


def read_programme(data: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], Target | None]:
    """The fields of each plan of a programme, by name, and the programme's target. Errors as for
    `read`.
    """
    content = _of_schema(data)
    _exactly("file", content, ("plans", "target"), {"target"})

    plans = _listed("plans", content["plans"])
    for name, part in plans.items():
        if not isinstance(part, dict):
            raise _wrong(f"plans[{name!r}]", "a plan's table", repr(part)[:80])

    # Each plan states its own schema, so that its table could be cut out and read alone.
    return {name: read_plan_fields(part) for name, part in plans.items()}, _target(content)


def _target(content: Mapping[str, Any]) -> Target | None:
    target: Target | None = _value("target", content["target"]) if "target" in content else None
    return target


def _of_schema(data: Mapping[str, Any]) -> dict[str, Any]:
    content = dict(data)
    schema = content.pop("schema", None)

    # By type too: True and 1.0 are equal to 1 in Python, and are no versions.
    if type(schema) is not int or schema != PLAN_SCHEMA:
        raise _wrong("schema", str(PLAN_SCHEMA), repr(schema)[:80])

    return content


def plain(thing: object) -> Plain:
    """Plain data for a value of the vocabulary."""
    # By exact type: a subclass may do something else, and its file would read back as its parent.
    kind = type(thing)
    if kind in _NAMES:
        parts = {name: getattr(thing, name) for name in _fields(kind)}
        return {"kind": _NAMES[kind]} | _plain_fields(parts)

    match thing:
        # Before str: a member may be a text as well, and its value is what a file holds.
        case Enum():
            return str(thing.value)

        case Unit():
            return thing.name

        case Mapping():
            return [[name, plain(part)] for name, part in thing.items()]

        case tuple():
            return [plain(part) for part in thing]

        case str() | int() | float():
            return thing

    raise _wrong("file", "values of the vocabulary", kind.__name__)


def _value(where: str, data: object) -> Any:
    """The value behind `plain`; `where` is its place in the file, for error messages."""
    if not isinstance(data, dict):
        raise _wrong(where, "a table with a kind", repr(data)[:80])

    content = dict(data)

    # Asked for its type first: a list is no key, and would be a TypeError in place of a sentence.
    name = content.pop("kind", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _wrong(f"{where}.kind", f"one of {', '.join(_KINDS)}", repr(name)[:80])

    # Only what was left out for being None may be missing. Other defaults are written, so that a
    # later version with another default reads the plan that was declared.
    optional = {field.name for field in fields(kind) if field.default is None}
    _exactly(where, content, _fields(kind), optional)

    # The constructor checks every number once more: a file is input like any other.
    return kind(**{name: _part(f"{where}.{name}", part) for name, part in content.items()})


def _part(where: str, data: object) -> object:
    match data:
        case dict():
            return _value(where, data)

        case [list(), *_]:
            return _pairs(where, data)

        # A number, a text, a list of them, or what the constructor refuses.
        case _:
            return data


def _pairs(where: str, data: object) -> dict[str, Any]:
    """A mapping from its list of pairs; tables among the values are read."""
    # Dimensions of leaves and shares of a split are numbers; mechanisms of groups are tables.
    return {
        name: _value(f"{where}[{name!r}]", part) if isinstance(part, dict) else part
        for name, part in _listed(where, data).items()
    }


def _listed(where: str, data: object) -> dict[str, Any]:
    """A mapping from its list of pairs, values as they stand."""
    mapping: dict[str, Any] = {}

    # What is no list is shown whole in the error, as its only entry.
    for pair in data if isinstance(data, list) else [data]:
        match pair:
            # Of two equal names one would be lost, and with it a group's noise.
            case [str(name), value] if name not in mapping:
                mapping[name] = value

            case _:
                raise _wrong(where, "a list of [name, value] pairs, no name twice", repr(pair)[:80])

    return mapping


def _exactly(
    where: str, content: Mapping[str, Any], known: Iterable[str], optional: set[str]
) -> None:
    names = list(known)
    unknown, missing = content.keys() - set(names), set(names) - optional - content.keys()

    # A field that is swallowed is a wish that nobody follows, and nobody hears of it (P45).
    if unknown or missing:
        got = f"unknown {sorted(map(str, unknown))}, missing {sorted(missing)}"
        raise _wrong(where, f"a table with the fields {', '.join(names) or '(none)'}", got[:200])


def _fields(kind: type) -> list[str]:
    # Where a sampler has one of the others, `Plan` refuses to be written at all.
    return [field.name for field in fields(kind) if (kind, field.name) not in _NEVER]


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Plan", name=name, expected=expected, got=got)
