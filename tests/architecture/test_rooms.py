"""The rooms of training: few files in each, one place that calls a user's loss, and little that
changes in the engine.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.source import PACKAGE, modules

TRAINING = PACKAGE / "training"
AT_THE_DOOR = 12
IN_A_ROOM = range(3, 13)
MUTABLE = 4
# Losses themselves: an average over copies of a record, and those of a finished model, for audits.
OTHER_CALLS = frozenset({Path("data", "copies.py"), Path("extras", "losses.py")})


def rooms(training: Path) -> dict[str, int]:
    """Number of files of each folder, by name, without `__init__.py`; the door's name is empty."""
    files = [path for path in training.rglob("*.py") if path.name != "__init__.py"]
    names = [str(path.parent.relative_to(training)).strip(".") for path in files]
    return {name: names.count(name) for name in names}


def callers_of_a_loss(training: Path) -> list[str]:
    """Files outside of `passes` that call something named `loss`."""
    found = []
    for path, tree in modules(training):
        if path.parts[0] == "passes" or path in OTHER_CALLS:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="loss") | ast.Attribute(attr="loss")):
                    found.append(f"{path}:{node.lineno}")
    return found


def imports_for_types(training: Path) -> list[str]:
    """Files with a cycle that only a checker of types may see."""
    return [
        str(path)
        for path, tree in modules(training)
        if "TYPE_CHECKING" in {_name(node) for node in ast.walk(tree)}
    ]


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name
    return ""


def mutable_attributes(path: Path, of: str) -> set[str]:
    """Attributes of a class that are assigned outside of `__init__`."""
    tree = ast.parse(path.read_text())
    (its,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == of)
    methods = [
        node for node in its.body if isinstance(node, ast.FunctionDef) and node.name != "__init__"
    ]
    found = set()
    for node in (part for method in methods for part in ast.walk(method)):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def test_there_are_few_files_at_the_door_and_in_every_room() -> None:
    counts = rooms(TRAINING)
    assert counts.pop("") <= AT_THE_DOOR
    assert {room: count for room, count in counts.items() if count not in IN_A_ROOM} == {}


def test_passes_alone_call_a_users_loss() -> None:
    assert callers_of_a_loss(TRAINING) == []


def test_there_is_no_cycle_for_types() -> None:
    assert imports_for_types(TRAINING) == []


def test_little_changes_in_an_engine() -> None:
    names = mutable_attributes(TRAINING / "engine.py", "Engine")
    assert 0 < len(names) <= MUTABLE


@pytest.mark.parametrize("line", ["loss(model, batch)", "self.loss(model, batch)"])
def test_these_checks_would_notice(tmp_path: Path, line: str) -> None:
    room = tmp_path / "rules"
    room.mkdir()
    types = "from typing import TYPE_CHECKING"
    (room / "planted.py").write_text(
        f"{types}\nclass Engine:\n    def passes(self):\n        self.count = {line}\n"
    )
    assert rooms(tmp_path) == {"rules": 1}
    assert callers_of_a_loss(tmp_path) == ["rules/planted.py:4"]
    assert imports_for_types(tmp_path) == ["rules/planted.py"]
    assert mutable_attributes(room / "planted.py", "Engine") == {"count"}
