"""P45: no number of privacy is tested for its truth, where zero would pass for "not given"."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source import PACKAGE, modules

NUMBERS = frozenset(
    {"clip_norm", "delta", "epsilon", "noise_multiplier", "noise_std", "probability", "sensitivity"}
)


def conditions(node: ast.AST) -> Iterator[ast.expr]:
    """What this node takes for true or false."""
    match node:
        case (
            ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test)
        ):
            yield test
        case ast.BoolOp(op=ast.Or(), values=[_, ast.Constant(value=0.0)]):
            pass  # a zero stays a zero
        case ast.BoolOp(values=values):
            yield from values[:-1]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.comprehension(ifs=ifs):
            yield from ifs


def numbers_as_truth(package: Path) -> list[str]:
    found = []
    for path, tree in modules(package):
        for expression in (one for node in ast.walk(tree) for one in conditions(node)):
            match expression:
                case ast.Name(id=name) | ast.Attribute(attr=name) if name in NUMBERS:
                    found.append(f"{path}:{expression.lineno}: {name}")
    return found


def test_p45_no_number_is_tested_for_its_truth() -> None:
    assert numbers_as_truth(PACKAGE) == []


@pytest.mark.parametrize(
    "line",
    [
        "if epsilon: pass",
        "delta = plan.delta or 1e-5",
        "x = 1 if not self.noise_std else 2",
        "[x for x in y if epsilon]",
    ],
)
def test_p45_such_a_test_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "planted.py").write_text(line + "\n")
    assert len(numbers_as_truth(tmp_path)) == 1
