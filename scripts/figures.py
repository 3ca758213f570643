"""Figures of the training engine: how much code it is, and how much of it runs in a step.

    python scripts/figures.py [SRC]

SRC is the `src` folder of a tree, by default that of this script. Printed, as Markdown:

    statements   nodes of the syntax tree that are statements (`ast.stmt`; docstrings are statements
                 too), for each file of `discreet/training` and in all
    loss runs    how often the loss of the user is called by a backward of a two-layer MLP
    calls        Python functions of `discreet` that it calls (events "call" of `sys.setprofile`, in
                 the thread of the backward; a generator that is resumed is one more call)

The last two are counted through the public interface, for the first backward of a run and for the
later ones, on full batches and with a test key.
"""  # noqa: INP001

from __future__ import annotations

import ast
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
RECORDS, STEPS = 32, 6


def main() -> int:
    """Print all figures of a tree."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE).resolve()
    sys.path.insert(0, str(source))
    counts = statements(source / "discreet" / "training")
    _say(f"# Figures of {source}\n")
    _say(table("statements in discreet/training", counts) + "\n")
    _say("A two-layer MLP, 32 records, full batches:\n")
    _say("| backward | loss runs | calls of functions of discreet |\n|---|---|---|")
    for number, (losses, calls) in enumerate(backwards(source / "discreet"), 1):
        _say(f"| {number} | {losses} | {calls} |")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


# --- code ---


def statements(folder: Path) -> dict[str, int]:
    """Statements of every Python file of a folder, by its path in that folder."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    return {
        str(path.relative_to(folder)): sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
        for path, tree in trees.items()
    }


def table(title: str, counts: Mapping[str, int]) -> str:
    """Rows of numbers by file, with their sum."""
    rows = [f"| {name} | {number} |" for name, number in counts.items()]
    files = f"| **{len(counts)} files** | **{sum(counts.values())}** |"
    return "\n".join([f"| file | {title} |", "|---|---|", *rows, files])


# --- steps ---


def backwards(package: Path) -> Iterator[tuple[int, int]]:
    """For each backward of a run: how often the loss ran, and calls of functions of the package."""
    import torch  # noqa: PLC0415
    from torch import Tensor, nn  # noqa: PLC0415
    from torch.utils.data import TensorDataset  # noqa: PLC0415

    import discreet as dp  # noqa: PLC0415  (from the folder that was asked for)
    from discreet.training import PrivateRun  # noqa: PLC0415

    if package not in Path(dp.__file__).parents:
        raise ImportError(f"{package} was asked for, and {dp.__file__} was imported")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    warnings.simplefilter("ignore")
    runs = threading.local()  # which no pass puts back, as it does what a loss counts

    def loss(model: nn.Module, batch: Any) -> Tensor:
        runs.number += 1
        inputs, classes = batch
        return nn.functional.cross_entropy(model(inputs), classes, reduction="none")

    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
    sampler = dp.Sampler(dp.Everything(), records=RECORDS, steps=STEPS)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 1.0))
    source = dp.randomness.Source.unsafe_test_key(bytes(range(32)))
    run = PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), source=source)
    records = TensorDataset(torch.randn(RECORDS, 6), torch.randint(3, (RECORDS,)))
    for batch in run.batches(records, progress=False):
        runs.number = 0
        with calls_of(package) as calls:
            run.backward(loss, batch)
        yield runs.number, calls[0]


@contextmanager
def calls_of(package: Path) -> Iterator[list[int]]:
    """Count calls of Python functions whose file is in a folder; the list holds their number."""
    calls = [0]
    prefix = f"{package}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        calls[0] += event == "call" and frame.f_code.co_filename.startswith(prefix)

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    sys.exit(main())
