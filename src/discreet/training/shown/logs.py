"""Logs of a run: released and public values, never a raw loss, accuracy or norm (P42).

    run = PrivateRun(model, plan, ledger=..., statistics={"metric/accuracy": 1},
    logs=[CsvLog("metrics.csv")])

A log is any function of `Logged`. What it is given was noised and charged, so it may be kept and
shown to anybody.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet._files import checked_path
from discreet.aggregation.release import Release
from discreet.errors import ParameterError

__all__ = ["CsvLog", "Log", "Logged", "ScalarWriter", "TensorBoardLog"]

# Columns of every CSV log.
_FIRST = ["step", "batch", "epsilon"]


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """What a log gets to see of one step: released or public, all of it.

    Args:
        step: steps that are done, this one included.
        batch: number within the step, where a step has several batches.
        means: noised average of every statistic: its noised sum over the expected batch size.
        noise_std: standard deviation of the noise in these averages.
        clip_norms: of adaptive groups, after this step.
        epsilon: at most this would have been spent, if the run ended here for a public reason; None
            where no running bound is valid. It is no claim: of a list all that was planned counts,
            as `run.guarantee()` says, and so does what others charge meanwhile.
    """

    step: int
    batch: int
    means: Mapping[str, NDArray[np.float64]]
    noise_std: Mapping[str, float]
    clip_norms: Mapping[str, float]
    epsilon: float | None

    @classmethod
    def of(
        cls,
        release: Release,
        *,
        leaves: Mapping[str, int],
        clip_norms: Mapping[str, float],
        epsilon: float | None,
    ) -> Logged:
        """What a release says of these statistics."""
        # A mean is a noised sum over a public number, and so is its noise.
        return cls(
            step=release.step + 1,
            batch=release.batch,
            means={leaf: release.mean(leaf) for leaf in leaves},
            noise_std={leaf: release.noise_std[leaf] / release.divisors[leaf] for leaf in leaves},
            clip_norms=dict(clip_norms),
            epsilon=epsilon,
        )

    def scalars(self) -> dict[str, float]:
        """Everything as named numbers; the coordinates of a longer statistic as name/0, name/1, ...

        >>> means, noise_std = {"metric/loss": np.array([0.5])}, {"metric/loss": 0.1}
        >>> Logged(1, 0, means, noise_std, {"grad/*": 1.0}, None).scalars()
        {'metric/loss': 0.5, 'clip_norm/grad/*': 1.0}
        """
        # In the order of the columns of a CSV file: epsilon, statistics, clip norms.
        numbers = {} if self.epsilon is None else {"epsilon": self.epsilon}

        # A statistic of one number goes by its own name: most of them are, losses and accuracies.
        for leaf, mean in self.means.items():
            if mean.size == 1:
                numbers[leaf] = float(mean[0])
                continue

            for index, number in enumerate(mean.tolist()):
                numbers[f"{leaf}/{index}"] = number

        # Under a prefix: a group may have the name of a statistic.
        for group, norm in self.clip_norms.items():
            numbers[f"clip_norm/{group}"] = float(norm)

        return numbers


Log: TypeAlias = Callable[[Logged], None]
"""Called once after every release."""


class CsvLog:
    """Writes one line per step to a CSV file.

    A resumed run goes on in the same file, and repeated steps appear again.

    Args:
        path: new, or a file that the same statistics were logged to.

    Raises:
        ParameterError: for something else than such a file; at the first step, for one with other
            statistics.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Refused now, before the run has spent anything.
        self._path = checked_path("CsvLog", path)
        if not self._path.parent.is_dir():
            self._refuse("a file in a folder that exists", "no such folder")

        # Also a link that leads nowhere is looked at, and is an error: it is not a new file.
        begins = _header(self._path)[: len(_FIRST)] if os.path.lexists(self._path) else []
        if begins not in ([], _FIRST):
            self._refuse(
                f"a new file, or one that begins with the columns {_FIRST}", "other columns"
            )

    def __call__(self, logged: Logged) -> None:
        """Append the line of one step."""
        # The column of epsilon is there also where no bound is valid, and then empty.
        row = {"step": logged.step, "batch": logged.batch, "epsilon": "", **logged.scalars()}
        header = list(row)

        # The columns are those of the first line for ever: others would shift the numbers below.
        new = not self._path.exists() or not self._path.stat().st_size
        columns = header if new else _header(self._path)

        if columns != header:
            self._refuse(f"a new file, or one with the columns {header}", f"{columns}")

        # Opened for every line: whoever reads the file while the run goes on finds whole lines.
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, header)
            if new:
                writer.writeheader()

            writer.writerow(row)

    def _refuse(self, expected: str, got: str) -> NoReturn:
        raise ParameterError(
            owner="CsvLog", name="path", expected=expected, got=f"{self._path} with {got}"
        )


def _header(path: Path) -> list[str]:
    # An empty file has no header, and may be written to.
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ParameterError(
            owner="CsvLog", name="path", expected="a CSV file", got=f"{path}: {error}"
        ) from error


class ScalarWriter(Protocol):
    """The method of `torch.utils.tensorboard.SummaryWriter` that a log needs."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, walltime: float) -> None:
        """Write one number of one step."""


class TensorBoardLog:
    """Hands every number to a TensorBoard writer.

    As time it gets the number of the step: how long a step took depends on the size of its sample,
    which is sensitive.

    Args:
        writer: of the user, such as `torch.utils.tensorboard.SummaryWriter()`; the user closes it.
    """

    def __init__(self, writer: ScalarWriter) -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise ParameterError(
                owner="TensorBoardLog",
                name="writer",
                expected="a SummaryWriter, with add_scalar(tag, value, step, time)",
                got=type(writer).__name__,
            )

        self._writer = writer

    def __call__(self, logged: Logged) -> None:
        """Write the numbers of one step."""
        # The number of the step in the place of the time.
        step = check.whole("TensorBoardLog", "step", logged.step, least=0)
        for name, value in logged.scalars().items():
            self._writer.add_scalar(name, value, step, float(step))
