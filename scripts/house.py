"""How a source tree reads, in figures, and whether ours stays within its limits.

    python scripts/house.py                  src: prints the figures; exit code 1 above a limit
    python scripts/house.py FOLDER ...       other trees beside it: printed only

What is counted, of all `.py` files of a tree:

    branches per line   if, for, while, except, case, conditional expression, each further operand
                        of and/or, each `for` and each `if` of a comprehension; over the lines of
                        function bodies without their docstrings
    complexity          branches of one function + 1, the largest; of a function inside another
                        one, each counts its own
    wide lines          of more than 100 columns
    comments            lines that hold nothing else, as a share of all lines
    empty names         functions that bind a name which says nothing of what it holds
    riddles             docstrings whose first line has four words or fewer, or begins with a word
                        that refers to something else
    names twice         public names that several files define
    top-level names     what `import package` offers: the entries of its `__all__`, or what its
                        `__init__` imports and defines in public

Limits are for what is easy to enter; where one is met by squeezing, it was met in vain.
"""  # noqa: INP001

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OURS = Path("src")

# The most of each figure; of comments, the least.
LIMITS = {
    "branches per line": 0.22,
    "complexity": 12,
    "wide lines": 0,
    "comments": 0.04,
    "empty names": 19,
    "riddles": 39,
    "names twice": 6,
    "top-level names": 28,
}
AT_LEAST = frozenset({"comments"})
WIDTH = 100

_EMPTY = frozenset(
    {
        *("found", "one", "kept", "most", "others", "held", "few", "given", "other", "left"),
        *("some", "own", "seen", "made", "its", "rest", "both"),
    }
)
_REFERS = re.compile(r"(Of|The same|As|See)\b")
_FEW_WORDS = 4

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ONE_BRANCH = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)


@dataclass(slots=True)
class Tally:
    """What was counted so far in one tree."""

    lines: int = 0
    wide: int = 0
    comments: int = 0
    branches: int = 0
    body: int = 0
    empty: int = 0
    riddles: int = 0
    top_level: int = 0
    complexities: list[tuple[int, str]] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, float]:
        """The figures, under the names of their limits."""
        return {
            "branches per line": self.branches / max(1, self.body),
            "complexity": max(self.complexities, default=(0, ""))[0],
            "wide lines": self.wide,
            "comments": self.comments / max(1, self.lines),
            "empty names": self.empty,
            "riddles": self.riddles,
            "names twice": sum(files > 1 for files in self.names.values()),
            "top-level names": self.top_level,
        }


def tally(tree: Path) -> Tally:
    """Count in all files of a tree."""
    counts = Tally(top_level=_top_level(tree))
    for path in sorted(tree.rglob("*.py")):
        _add_file(counts, path)
    return counts


def excesses(figures: dict[str, float]) -> list[str]:
    """The figures that are above their limits, or below; one sentence each."""
    sentences = []
    for name, limit in LIMITS.items():
        value = figures[name]
        if name in AT_LEAST and value < limit:
            sentences.append(f"{name}: {_shown(name, value)}, at least {_shown(name, limit)} asked")
        if name not in AT_LEAST and value > limit:
            sentences.append(
                f"{name}: {_shown(name, value)}, at most {_shown(name, limit)} allowed"
            )
    return sentences


def main() -> int:
    """Print the figures of each tree; the limits decide for ours alone."""
    trees = [Path(name) for name in sys.argv[1:]] or [OURS]
    too_much: list[str] = []

    for tree in trees:
        counts = tally(tree)
        figures = counts.figures()
        shown = "; ".join(f"{name} {_shown(name, value)}" for name, value in figures.items())
        sys.stdout.write(f"{tree}: {counts.lines} lines; {shown}\n")
        if tree == OURS:
            too_much = excesses(figures)
            _name_places(counts, figures)

    for sentence in too_much:
        sys.stdout.write(f"{OURS}: {sentence}\n")
    return int(bool(too_much))


def _name_places(counts: Tally, figures: dict[str, float]) -> None:
    """Say where a limit is passed, as far as one place can be named."""
    for complexity, place in sorted(counts.complexities, reverse=True):
        if complexity > LIMITS["complexity"]:
            sys.stdout.write(f"  complexity {complexity}: {place}\n")

    if figures["names twice"] > LIMITS["names twice"]:
        twice = sorted(name for name, files in counts.names.items() if files > 1)
        sys.stdout.write(f"  names twice: {' '.join(twice)}\n")


def _shown(name: str, value: float) -> str:
    if name == "comments":
        return f"{value:.1%}"
    return f"{value:.3f}" if name == "branches per line" else f"{value:g}"


# --- counting ---


def _add_file(counts: Tally, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    tree = ast.parse(text, filename=str(path))

    counts.lines += len(lines)
    counts.wide += sum(len(line) > WIDTH for line in lines)
    counts.comments += sum(line.lstrip().startswith("#") for line in lines)

    counts.names.update({name for node in tree.body for name in _public_names(node)})

    for node in ast.walk(tree):
        if isinstance(node, _Function | ast.ClassDef):
            counts.riddles += _is_riddle(ast.get_docstring(node) or "")
        if isinstance(node, _Function):
            _add_function(counts, node, f"{path}:{node.name}")


def _add_function(counts: Tally, function: _Function, place: str) -> None:
    nodes = list(_own_nodes(function))
    branches = sum(map(_branches, nodes))
    counts.branches += branches
    counts.body += _body_lines(function)
    counts.complexities.append((branches + 1, place))

    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and _is_stored(node)}
    counts.empty += bool((parameters | stored) & _EMPTY)


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """All nodes of a function; of functions and lambdas inside of it, the node itself only."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _Function | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, _ONE_BRANCH))


def _body_lines(function: _Function) -> int:
    """Lines from the first statement to the last, blank ones and comments included."""
    docstring = ast.get_docstring(function, clean=False) or ""
    last = function.end_lineno or function.lineno
    return max(1, last - function.body[0].lineno + 1 - len(docstring.splitlines()))


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_riddle(docstring: str) -> bool:
    if not docstring:
        return False
    first = docstring.splitlines()[0]
    return len(first.split()) <= _FEW_WORDS or _REFERS.match(first) is not None


def _public_names(node: ast.stmt) -> set[str]:
    names: set[str] = set()
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            names = {name}
        case ast.Assign(targets=targets):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def _top_level(tree: Path) -> int:
    """Public names of the package that the tree is, or holds."""
    doors = [tree / "__init__.py", *sorted(tree.glob("*/__init__.py"))]
    door = next((path for path in doors if path.exists()), None)
    if door is None:
        return 0

    names: set[str] = set()
    for node in ast.parse(door.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=entries)):
                return len(entries)
            case ast.ImportFrom(names=imported) | ast.Import(names=imported):
                names |= {alias.asname or alias.name for alias in imported}
            case _:
                names |= _public_names(node)
    return sum(not name.startswith("_") for name in names)


if __name__ == "__main__":
    sys.exit(main())
