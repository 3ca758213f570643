"""Questions about the source code, asked of any tree so that the tests can also plant a violation
and see it found.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "discreet"
MAY_IMPORT_TORCH = ("training",)
HAND_ON_ARGUMENTS = (  # stand in the place of functions of torch, Python and users
    Path("training", "extending.py"),
    Path("training", "passes", "sandbox.py"),
)
# They seed generators, or put them back, and draw nothing that is released.
MAY_IMPORT_RANDOM = frozenset(
    {
        Path("training", "data", "generators.py"),
        Path("training", "data", "seeding.py"),
        Path("training", "passes", "sandbox.py"),
        Path("training", "state", "holders.py"),
    }
)


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package), ast.parse(path.read_text(), filename=str(path))


def forbidden_statements(package: Path) -> list[str]:
    """What could let a privacy check vanish, be swallowed, or bring code in by name (P45, P46)."""
    found = []
    for path, tree in modules(package):
        for node in ast.walk(tree):
            match node:
                case ast.Assert():
                    what = "assert, which vanishes under -O"
                case ast.Call(func=ast.Name(id="hasattr" | "eval" | "exec" | "__import__" as name)):
                    what = f"{name}()"
                case ast.FunctionDef(args=ast.arguments(kwarg=ast.arg(arg=name))) if (
                    path not in HAND_ON_ARGUMENTS
                ):
                    what = f"**{name}, which swallows misspelt parameters"
                case ast.ExceptHandler(type=None):
                    what = "a bare except"
                case ast.Import() | ast.ImportFrom():
                    names = {imported.split(".")[0] for imported in imports(node)}
                    bad = names & {
                        "pickle",
                        "shelve",
                        "marshal",
                        "warnings",
                        "random",
                        "dill",
                        "cloudpickle",
                    }
                    if path in MAY_IMPORT_RANDOM:
                        bad -= {"random"}
                    if not bad and "importlib.import_module" not in imports(node):
                        continue
                    what = f"import of {sorted(bad) or 'import_module'}"
                case _:
                    continue
            found.append(f"{path}:{node.lineno}: {what}")
    return found


def imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def torch_imports(package: Path) -> list[str]:
    """Files outside the training folder that import torch."""
    return [
        str(path)
        for path, tree in modules(package)
        if path.parts[0] not in MAY_IMPORT_TORCH
        and any(
            name.split(".")[0] == "torch"
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in imports(node)
        )
    ]


def inexact_exports(package: Path) -> list[str]:
    """Modules whose `__all__` is missing, unsorted, or not just what they define (an `__init__`:
    what it imports).
    """
    found = []
    for path, tree in modules(package):
        declared = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        public = sorted(
            {name for node in tree.body for name in _defined(node, path.name == "__init__.py")}
        )
        names = ast.literal_eval(declared[0]) if declared else None
        if names is None and not public:
            continue
        if sorted(names or []) != public:  # their order is the business of the linter (RUF022)
            found.append(f"{path}: __all__ is {names}, public are {public}")
    return found


def _defined(node: ast.stmt, is_init: bool) -> list[str]:
    names: list[str] = []
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            names = [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            names = [name]
        case ast.ImportFrom(names=imported) if is_init:
            names = [alias.asname or alias.name for alias in imported]
    return [name for name in names if not name.startswith("_") or name == "__version__"]


def long_files(package: Path, most: int = 550) -> list[str]:
    return [
        str(path)
        for path, _ in modules(package)
        if len((package / path).read_text().splitlines()) > most
    ]
