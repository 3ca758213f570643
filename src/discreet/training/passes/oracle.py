"""One record alone, with torch's own gradients: what the engine's numbers are held against before
they are trusted.

Legend: g_i the gradient of record i by torch's autograd, over all leaves; tolerance relative to its
    largest leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from discreet.mechanisms.group import Group
from discreet.training.data.trees import select
from discreet.training.passes.contributions import Contributions, gathered
from discreet.training.passes.passes import TrialPass
from discreet.training.passes.precision_settings import full_precision
from discreet.training.rounding.precision import most_spread

__all__ = ["SelfTest", "agree", "tolerance_of"]

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_HALF = 5e-2
_OTHER_DEVICES = 1e-2  # matrix units of graphics cards round float32 to 10 bits
_SUM_ROUNDING = (
    1e-4  # of one record's float32 sum; what it costs is in the sensitivity (docs/proofs/sums.md)
)

_TINY = 1e-100
_COMPARED = 2  # rows


def tolerance_of(tensors: Iterable[Tensor]) -> float:
    """How far apart two ways of computing with these tensors may be, relative."""
    kinds = {(tensor.dtype, tensor.device.type) for tensor in tensors if tensor.is_floating_point()}
    return max(
        (
            max(_TOLERANCE.get(dtype, _HALF), 0.0 if device == "cpu" else _OTHER_DEVICES)
            for dtype, device in kinds
        ),
        default=_HALF,
    )


class SelfTest:
    """Compares what the rules made of a few rows with torch's own gradients of the first of them,
    each alone.

    A wrong rule would cost accuracy, not privacy (docs/proofs/engine.md, section 1).

    Args:
        parameters: what is trained, by leaf.
        alone: computes one row by itself, as `Passes.alone`.
    """

    def __init__(self, parameters: Mapping[str, Tensor], alone: Callable[..., Any]) -> None:
        self._parameters = parameters
        self._alone = alone

    def passes(self, loss: Callable[[Any, Any], Any], rows: Any, trial: TrialPass) -> bool:
        """Whether both agree, or cannot be compared because the pass draws random numbers."""
        if trial.random:
            return True
        taped = trial.taped
        count = len(taped.losses)
        contributions = Contributions(
            gathered(taped.uses, self._parameters, lambda _, factor: factor), count, count
        )
        kinds = {use.dtype for use in taped.uses}
        tolerance = max(
            tolerance_of(self._parameters.values()),
            *(_TOLERANCE.get(kind, _HALF) for kind in kinds),
        )
        for row in range(min(_COMPARED, count)):
            truth = self._true_gradients(loss, select(rows, torch.tensor([row])))
            with full_precision(
                next(iter(truth.values())).device
            ):  # not in the user's autocast, as in earnest
                if not agree(contributions, row, truth, tolerance):
                    return False
        return True

    def _true_gradients(self, loss: Callable[[Any, Any], Any], row: Any) -> dict[str, Tensor]:
        truth = {leaf: torch.zeros_like(parameter) for leaf, parameter in self._parameters.items()}
        truth |= self._alone(loss, row, 1, trial=True)[0]
        return truth


def agree(
    contributions: Contributions, row: int, truth: Mapping[str, Tensor], tolerance: float
) -> bool:
    """Whether norms and sums of a record are those of its true gradients, and clipping bounds what
    it adds.

    Args:
        contributions: by the engine; sensitive.
        row: of the record.
        truth: its gradients by torch's autograd; sensitive.
        tolerance: relative to the largest leaf.
    """
    mask = torch.arange(contributions.records, device=next(iter(truth.values())).device) == row
    alone = contributions.keep(mask)
    bounds = contributions.measured(truth)[0][row]
    lengths = torch.stack([_length(gradient) for gradient in truth.values()])
    if not bool(torch.isfinite(lengths).all()):
        return not bool(
            torch.isfinite(bounds).all()
        )  # such a record must be seen to have no norm: it counts as zero
    allowed = tolerance * float(lengths.max())
    squares = 0.0
    for at, (leaf, gradient) in enumerate(truth.items()):
        total = torch.zeros(gradient.numel(), dtype=torch.float64, device=gradient.device)
        for piece in alone.pieces.get(leaf, ()):
            piece.factor.add_to(
                piece.place_in(total), mask.to(total), most_spread(max(1, piece.factor.positions))
            )
        squares += float(_length(total)) ** 2
        if (
            not float(_length(total.sub_(gradient.reshape(-1)))) <= allowed
            or not bounds[at].sqrt() >= lengths[at] - allowed
        ):
            return False
    return _bounded(squares**0.5, bounds)


def _bounded(length: float, bounds: Tensor) -> bool:
    """Whether a record of this length, clipped by its certified norms, is within a clip norm of
    half its length.
    """
    if length < _TINY:
        return True
    leaves = tuple(str(at) for at in range(len(bounds)))
    group = Group(
        name="trial",
        leaves=leaves,
        scales=(1.0,) * len(leaves),
        clip_norm=length / 2,
        noise_std=1.0,
    )
    return float(group.weights(bounds.unsqueeze(0))[0]) * length <= group.clip_norm * (
        1.0 + _SUM_ROUNDING
    )


def _length(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values.detach(), dtype=torch.float64)
    return length.cpu()
