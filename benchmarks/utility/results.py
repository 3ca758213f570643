"""What runs reached, as files: one for each recipe and epsilon, one for the same recipe without
privacy.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Certified", "Results", "Run"]

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Certified:
    """What the ledger of one run says.

    Attributes:
        lower: no valid statement at this delta has a smaller epsilon.
        upper: the claim.
        delta: of both.
        statement: the whole of it, in words.
        charges: everything that was charged, in words, one sentence each.
    """

    lower: float
    upper: float
    delta: float
    statement: str
    charges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        accuracy: on the test data, from 0 to 1.
        certified: None without privacy.
        prepare_seconds: to load the data and compute features, on the wall; once for several runs.
        train_seconds: to train and test, on the wall.
        cpu_seconds: the same in CPU time.
        threads: of torch.
        software: versions.
        date: of the run.
    """

    accuracy: float
    certified: Certified | None
    prepare_seconds: float
    train_seconds: float
    cpu_seconds: float
    threads: int
    software: Mapping[str, str]
    date: str


@dataclass(frozen=True, slots=True)
class Results:
    """All runs of one recipe at one epsilon.

    Attributes:
        recipe: its name.
        epsilon: the target; None without privacy.
        runs: in the order of their coming.
    """

    recipe: str
    epsilon: float | None
    runs: tuple[Run, ...] = field(default=())

    @classmethod
    def read(cls, folder: Path, recipe: str, epsilon: float | None) -> Results:
        """From its file; without runs where there is none."""
        path = _path(folder, recipe, epsilon)
        if not path.exists():
            return cls(recipe, epsilon)
        written = json.loads(path.read_text())
        return cls(recipe, epsilon, tuple(_run(run) for run in written["runs"]))

    def with_run(self, run: Run) -> Results:
        """One more."""
        return Results(self.recipe, self.epsilon, (*self.runs, run))

    def write(self, folder: Path) -> Path:
        """To its file, over what was there."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _path(folder, self.recipe, self.epsilon)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path

    # --- what they say ---

    @property
    def accuracies(self) -> list[float]:
        """Of each run."""
        return [run.accuracy for run in self.runs]

    @property
    def mean(self) -> float:
        """Of the accuracies."""
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation of the accuracies; 0 for one run."""
        return statistics.stdev(self.accuracies) if len(self.runs) > 1 else 0.0


def _path(folder: Path, recipe: str, epsilon: float | None) -> Path:
    return folder / f"{recipe}-{'without-privacy' if epsilon is None else f'{epsilon:g}'}.json"


def _run(written: dict[str, Any]) -> Run:
    certified = written.pop("certified")
    if certified is not None:
        certified = Certified(**{**certified, "charges": tuple(certified["charges"])})
    return Run(certified=certified, **written)
