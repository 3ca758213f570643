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
from discreet.training.passes.precision_settings import full_precision
from discreet.training.passes.trials import TrialPass
from discreet.training.rounding.precision import most_spread

__all__ = ["SelfTest", "agree", "tolerance_of"]

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_HALF = 5e-2
_OTHER_DEVICES = 1e-2  # matrix units of graphics cards round float32 to 10 bits
# Of one record's float32 sum; what it costs is in the sensitivity (docs/proofs/sums.md).
_SUM_ROUNDING = 1e-4

_TINY = 1e-100
_COMPARED = 2  # rows


def tolerance_of(tensors: Iterable[Tensor]) -> float:
    """How far apart two ways of computing with these tensors may be, relative."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    tolerances = [_TOLERANCE.get(tensor.dtype, _HALF) for tensor in floats]

    # The least precise of them decides, and the device.
    if any(tensor.device.type != "cpu" for tensor in floats):
        tolerances.append(_OTHER_DEVICES)

    return max(tolerances, default=_HALF)


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
        pieces = gathered(taped.uses, self._parameters, lambda _, factor: factor)
        contributions = Contributions(pieces, count, count)

        # Under autocast, gradients arrive with fewer digits than the parameters have.
        tolerance = max(
            tolerance_of(self._parameters.values()),
            *(_TOLERANCE.get(use.dtype, _HALF) for use in taped.uses),
        )

        for row in range(min(_COMPARED, count)):
            truth = self._true_gradients(loss, select(rows, torch.tensor([row])))
            # Not in the user's autocast, as in earnest.
            with full_precision(next(iter(truth.values())).device):
                if not agree(contributions, row, truth, tolerance):
                    return False

        return True

    def _true_gradients(self, loss: Callable[[Any, Any], Any], row: Any) -> dict[str, Tensor]:
        # A parameter that the loss does not depend on has no gradient in torch, and zeros here.
        truth = {leaf: torch.zeros_like(parameter) for leaf, parameter in self._parameters.items()}
        gradients, _ = self._alone(loss, row, 1, trial=True)
        return truth | {leaf: gradients[leaf] for leaf in truth.keys() & gradients.keys()}


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

    # Such a record must be seen to have no norm: it counts as zero (P13).
    if not bool(torch.isfinite(lengths).all()):
        return not bool(torch.isfinite(bounds).all())

    allowed = tolerance * float(lengths.max())
    squares = 0.0
    for at, (leaf, gradient) in enumerate(truth.items()):
        # What the engine would add up for this record alone, with weight 1.
        total = torch.zeros(gradient.numel(), dtype=torch.float64, device=gradient.device)
        for piece in alone.pieces.get(leaf, ()):
            largest_spread = most_spread(max(1, piece.factor.positions))
            piece.factor.add_to(piece.place_in(total), mask.to(total), largest_spread)

        squares += float(_length(total)) ** 2

        # Written so that NaN, which compares as false, does not agree.
        is_near = float(_length(total.sub_(gradient.reshape(-1)))) <= allowed
        if not (is_near and bounds[at].sqrt() >= lengths[at] - allowed):
            return False

    return _bounded(squares**0.5, bounds)


def _bounded(length: float, bounds: Tensor) -> bool:
    """Whether a record of this length, clipped by its certified norms, is within a clip norm of
    half its length.
    """
    if length < _TINY:
        return True

    # Half of its length: so that it has to be clipped.
    group = Group(
        name="trial",
        leaves=tuple(map(str, range(len(bounds)))),
        scales=(1.0,) * len(bounds),
        clip_norm=length / 2,
        noise_std=1.0,
    )

    clipped = float(group.weights(bounds.unsqueeze(0))[0]) * length
    return clipped <= group.clip_norm * (1.0 + _SUM_ROUNDING)


def _length(values: Tensor) -> Tensor:
    # In float64: squares of large numbers of float32 would overflow.
    length: Tensor = torch.linalg.vector_norm(values.detach(), dtype=torch.float64)
    return length.cpu()
