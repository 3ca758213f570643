"""Digests of everything that private training releases: does a change of the engine change a bit?

    python scripts/digests.py [--only NAME] [--save gradients.pt]     prints digests as JSON
    python scripts/digests.py --compare OTHER_SRC [--only NAME]       this tree and another one

Every model of `digest_models.py` is trained for five steps, with a test key and fixed records,
through the public interface alone: so the same script runs on an older and on a newer source tree.
What is digested: the gradient of every parameter after each step, the released statistics, what the
ledger was charged, the buffers of the model, and the scores of canaries.

The engine picks the form in which it sums gradients by measuring time, and forms differ in their
last bits. So each model is trained in several ways that leave nothing to the machine's clock:

    lean     passes of five records, the last one padded, and a memory budget in which no gradient
             of a single record fits: always the first form
    roomy    one pass, enough memory, and a clock by which what is measured later is faster: always
             the last form
    middle   the same with a clock by which the second of three forms is fastest; for models in
             which only convolutions have a choice

and in each of them twice. With clipping and noise, sums are rounded to a grid of about 2^-25 clip
norms, so smaller changes of gradients and norms do not show. In a bare run sums are released as
they are, not clipped: every bit of them shows, and norms do not.

These clocks take the place of those of the module `time`. A tree that measures otherwise may choose
other forms: `--compare` then prints the forms of both trees. Another form has another rounding, and
for records of several positions another inner clip norm: gradients differ by a factor that is
within about 0.2 % of 1.

`--compare` runs both trees twice, in processes of their own. It names the models that are
identical, those that differ and by how much, and those that differ in two runs of one tree. All
runs are on one machine, because another processor may give other bits. Exit code 1 if anything
differs, 2 if a tree cannot be run.
"""  # noqa: INP001

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import accumulate, count, cycle, product
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

SOURCE = Path(__file__).parents[1] / "src"
SEED = 7
LEAN = {"memory_budget": 8, "microbatch": 5}
CLOCKS = ("process_time", "perf_counter", "thread_time")
COMPARED = ("gradients", "statistics", "charges", "buffers", "canaries")
"""Entries that must be identical. `path`, which says how a model was computed, may change."""

Digests: TypeAlias = dict[str, Any]
Values: TypeAlias = dict[str, list[dict[str, Tensor]]]
"""Gradients and statistics: for each step, tensors by name."""


def main() -> int:
    """0, or 1 if two trees differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--compare", metavar="OTHER_SRC", type=Path, help="source of another tree")
    parser.add_argument("--only", default="", metavar="NAME", help="models with this in their name")
    parser.add_argument("--save", metavar="FILE", type=Path, help="also write gradients, for torch")
    asked = parser.parse_args()
    if asked.compare is not None:
        return compare(SOURCE, asked.compare, asked.only)
    _say(json.dumps(digests_of_all(asked.only, asked.save), indent=1))
    return 0


def _say(text: str, *, aside: bool = False) -> None:
    print(text, file=sys.stderr if aside else sys.stdout, flush=True)


# --- digests of one tree ---


def digests_of_all(part_of_name: str, save: Path | None) -> Digests:
    """Digests of all models whose name has this part, and where the library was imported from."""
    # Imported here, so that two trees are compared even where this one cannot be imported.
    from digest_models import CASES  # noqa: PLC0415

    import discreet  # noqa: PLC0415

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    models, values = {}, {}
    ways = [(name, case, way) for name, case in CASES.items() for way in case.ways]
    for (name, case, way), bare in product(ways, (False, True)):
        title = f"{name} / {way}{', bare' if bare else ''}"
        if part_of_name in title:
            start = time.perf_counter()
            models[title], values[title] = digests_of(case, way, bare=bare)
            _say(f"{time.perf_counter() - start:5.1f} s  {title}", aside=True)
    if save is not None:
        torch.save(values, save)
    imported_from = Path(discreet.__file__).parents[1]
    return {"source": str(imported_from), "torch": torch.__version__, "models": models}


def digests_of(case: Any, way: str, *, bare: bool) -> tuple[Digests, Values]:
    """Digests of a model that is trained in one way, and the values that were digested.

    What a tree raises is part of the result: the next model is looked at nevertheless.
    """
    values: Values = {"gradients": [], "statistics": []}
    clock = clock_with(INTERVALS[way]()) if way in INTERVALS else nullcontext()
    try:
        with clock:
            digests = trained(case, values, bare=bare, room=LEAN if way == "lean" else {})
    except Exception as error:  # noqa: BLE001
        digests = {"error": f"{type(error).__name__}: {error}"}
    for kind, steps in values.items():
        digests[kind] = [{name: digest(tensor) for name, tensor in step.items()} for step in steps]
    return digests, values


def trained(case: Any, values: Values, *, bare: bool, room: Mapping[str, int]) -> Digests:
    """Train a model, append what is released to `values`, and digest the rest."""
    torch.manual_seed(SEED)
    model, loss, records = case.build()
    canaries = case.canaries()
    run = case.run(model, bare=bare, canaries=canaries, **room)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for batch in run.batches(TensorDataset(*records), progress=False):
        release = run.backward(loss, batch)
        values["gradients"].append(gradients(model))
        values["statistics"].append(statistics(release))
        optimizer.step()
        optimizer.zero_grad()
    return {
        "path": path_of(run),
        "charges": text_digest(map(repr, run.ledger.charges())),
        "buffers": {name: digest(buffer) for name, buffer in model.named_buffers()},
        "canaries": canary_digest(canaries),
    }


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the gradient of every parameter that has one."""
    by_name = {name: weight.grad for name, weight in model.named_parameters()}
    return {name: grad.clone() for name, grad in by_name.items() if grad is not None}


def statistics(release: Any) -> dict[str, Tensor]:
    """The released sums, with the standard deviation of their noise and their divisors."""
    tensors = {leaf: torch.as_tensor(release[leaf]).clone() for leaf in release}
    for title, numbers in (("noise_std", release.noise_std), ("divisor", release.divisors)):
        for leaf, number in numbers.items():
            tensors[f"{title} of {leaf}"] = torch.tensor(float(number), dtype=torch.float64)
    return tensors


def canary_digest(canaries: Any) -> str:
    """Digest of the coins, and of the scores where a run computes them; empty without canaries."""
    if canaries is None:
        return ""
    scores = canaries.scores() if hasattr(canaries, "scores") else None
    arrays = [canaries.inside] if scores is None else [scores.values, scores.inside]
    return text_digest(repr(array.tolist()) for array in arrays)


def path_of(run: Any) -> str:
    """How the engine computed a model: the form of every leaf, or why there was a loop."""
    engine = getattr(run, "engine", None)
    reason = getattr(engine, "one_by_one", None)
    if reason is not None:
        return f"one by one: {reason}"
    choices = getattr(engine, "choices", ())
    return ", ".join(f"{choice.leaf.removeprefix('grad/')} {choice.form}" for choice in choices)


def digest(tensor: Tensor) -> str:
    """Digest of the kind, the shape and the bytes of a tensor."""
    head = f"{tensor.dtype} {tuple(tensor.shape)} "
    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(head.encode() + content).hexdigest()


def text_digest(lines: Iterable[str]) -> str:
    """Digest of several lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# --- clocks ---


def ever_shorter() -> Iterator[float]:
    """Seconds between calls of a clock by which what is measured last is fastest."""
    return (1.0 / number for number in count(1))


def second_of_three() -> Iterator[float]:
    """Seconds between calls of a clock by which the second of three forms is fastest.

    Each form is measured twice, and each measurement is two calls.
    """
    return cycle(seconds for form in (4.0, 4.0, 1.0, 1.0, 4.0, 4.0) for seconds in (0.0, form))


INTERVALS: dict[str, Callable[[], Iterator[float]]] = {
    "roomy": ever_shorter,
    "middle": second_of_three,
}


@contextmanager
def clock_with(intervals: Iterator[float]) -> Iterator[None]:
    """Replace the clocks of the module `time` by one with these seconds between its calls."""
    ticks = accumulate(intervals)
    with ExitStack() as stack:
        for name in CLOCKS:
            stack.enter_context(patch.object(time, name, ticks.__next__))
        yield


# --- two trees ---


def compare(source: Path, another: Path, part_of_name: str) -> int:
    """Run both trees twice and print how they differ; 1 if they do, 2 if one cannot be run."""
    trees = [source.resolve(), another.resolve()]
    try:
        with tempfile.TemporaryDirectory() as folder:
            first = [dump_of(tree, part_of_name, Path(folder)) for tree in trees]
            second = [dump_of(tree, part_of_name, Path(folder)) for tree in trees]
    except ImportError as error:
        _say(str(error), aside=True)
        return 2
    names = sorted({*first[0], *first[1]})
    differing = 0
    for name in names:
        now, before = (dump.get(name, {}) for dump in first)
        again = [dump.get(name, {}) for dump in second]
        changed = difference(now, before)
        unsteady = [
            f"two runs of {tree} differ in {what}"
            for tree, *pair in zip(trees, (now, before), again, strict=True)
            if (what := difference(*pair))
        ]
        differing += bool(changed or unsteady)
        _say(verdict(name, changed, unsteady))
        _say_paths(now.get("path", ""), before.get("path", ""))
    _say(f"{len(names) - differing} of {len(names)} identical; {differing} differ")
    return 1 if differing else 0


def dump_of(tree: Path, part_of_name: str, folder: Path) -> dict[str, Digests]:
    """What this script gives on a tree: digests by model, with the gradients themselves put in."""
    file = folder / "gradients.pt"
    search = os.pathsep.join([str(tree), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--only", part_of_name, "--save", str(file)]
    result = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise ImportError(f"{tree} cannot be run:\n{result.stderr}")
    dump = json.loads(result.stdout)
    if Path(dump["source"]) != tree:
        raise ImportError(f"{tree} was asked for, and {dump['source']} was imported")
    for name, values in torch.load(file).items():
        dump["models"][name]["values"] = values["gradients"]
    models: dict[str, Digests] = dump["models"]
    return models


def difference(now: Digests, before: Digests) -> str:
    """What differs, and for gradients by how much; empty if nothing does."""
    errors = [tree.get("error", "missing" if not tree else "") for tree in (now, before)]
    if any(errors):
        same = errors[0] == errors[1]
        return "" if same else f"errors ({errors[0] or 'none'}; and {errors[1] or 'none'})"
    parts = [kind for kind in COMPARED if now[kind] != before[kind]]
    if "gradients" in parts:
        steps = map(relative_difference, now["values"], before["values"])
        shown = ", ".join(f"{step:.0e}" for step in steps)
        parts[parts.index("gradients")] = f"gradients (step by step {shown})"
    return ", ".join(parts)


def relative_difference(now: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> float:
    """The largest difference of two steps' gradients over the largest entry.

    Infinite if parameters or shapes differ, or all entries are zero.
    """
    shapes = [{name: grad.shape for name, grad in tree.items()} for tree in (now, before)]
    largest = max((float(grad.abs().max()) for grad in before.values()), default=0.0)
    if shapes[0] != shapes[1] or not largest:
        return float("inf")
    gaps = [(now[name].double() - before[name].double()).abs().max() for name in before]
    return float(max(gaps)) / largest


def verdict(name: str, changed: str, unsteady: list[str]) -> str:
    """One line on one model."""
    word = "DIFFERS" if changed else "UNSTEADY" if unsteady else "identical"
    reasons = [reason for reason in (changed, *unsteady) if reason]
    return f"{word:<10} {name}" + (f": {'; '.join(reasons)}" if reasons else "")


def _say_paths(now: str, before: str) -> None:
    """Print how both trees computed a model, if not alike."""
    if now != before:
        _say(f"{'':<11}now: {now}\n{'':<11}before: {before}")


if __name__ == "__main__":
    sys.exit(main())
