"""One record alone, with torch's own gradients: what the engine's numbers are held against before they are trusted.

Legend: g_i the gradient of record i by torch's autograd, over all leaves; tolerance relative to its largest leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from discreet.mechanisms.group import Group
from discreet.training.contributions import Contributions
from discreet.training.precision import most_spread
from discreet.training.quiet import plain_forward

__all__ = ["agree", "losses_of", "true_gradients", "within"]

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_HALF = 5e-2
_OTHER_DEVICES = 1e-2  # matrix units of graphics cards round float32 to 10 bits
_SUM_ROUNDING = 1e-4  # of one record's float32 sum; what it costs is in the sensitivity (docs/proofs/sums.md)

_TINY = 1e-100


def losses_of(result: Any) -> Tensor:
    """The losses of what a user's function returned."""
    found: Tensor = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    return found


def true_gradients(
    model: nn.Module, loss: Callable[[Any, Any], Any], batch: Any, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Gradients of the sum of the losses, by leaf; zeros where it does not depend on it. The model is left as it was."""
    with plain_forward(model), torch.enable_grad():
        total = losses_of(loss(model, batch)).sum()
        found: tuple[Tensor | None, ...] = (None,) * len(parameters)
        if total.requires_grad:
            found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return {
        leaf: torch.zeros_like(parameter) if gradient is None else gradient.detach().to_dense()
        for (leaf, parameter), gradient in zip(parameters.items(), found, strict=True)
    }


def within(tensors: Iterable[Tensor]) -> float:
    """How far apart two ways of computing with these tensors may be, relative."""
    kinds = {(tensor.dtype, tensor.device.type) for tensor in tensors if tensor.is_floating_point()}
    return max(
        (max(_TOLERANCE.get(dtype, _HALF), 0.0 if device == "cpu" else _OTHER_DEVICES) for dtype, device in kinds),
        default=_HALF,
    )


def agree(found: Contributions, row: int, truth: Mapping[str, Tensor], tolerance: float) -> bool:
    """Whether norms and sums of a record are those of its true gradients, and clipping bounds what it adds.

    Args:
        found: by the engine; sensitive.
        row: of the record.
        truth: its gradients by torch's autograd; sensitive.
        tolerance: relative to the largest leaf.
    """
    kept = torch.arange(found.records, device=next(iter(truth.values())).device) == row
    alone = found.keep(kept)
    bounds = found.measured(truth)[0][row]
    lengths = torch.stack([_length(gradient) for gradient in truth.values()])
    if not bool(torch.isfinite(lengths).all()):
        return not bool(torch.isfinite(bounds).all())  # such a record must be seen to have no norm: it counts as zero
    allowed = tolerance * float(lengths.max())
    squares = 0.0
    for at, (leaf, gradient) in enumerate(truth.items()):
        total = torch.zeros(gradient.numel(), dtype=torch.float64, device=gradient.device)
        for piece in alone.pieces.get(leaf, ()):
            piece.factor.add_to(piece.place_in(total), kept.to(total), most_spread(max(1, piece.factor.positions)))
        squares += float(_length(total)) ** 2
        if not float(_length(total.sub_(gradient.reshape(-1)))) <= allowed or not bounds[at].sqrt() >= lengths[at] - allowed:
            return False
    return _bounded(squares**0.5, bounds)


def _bounded(length: float, bounds: Tensor) -> bool:
    """Whether a record of this length, clipped by its certified norms, is within a clip norm of half its length."""
    if length < _TINY:
        return True
    leaves = tuple(str(at) for at in range(len(bounds)))
    group = Group(name="trial", leaves=leaves, scales=(1.0,) * len(leaves), clip_norm=length / 2, noise_std=1.0)
    return float(group.weights(bounds.unsqueeze(0))[0]) * length <= group.clip_norm * (1.0 + _SUM_ROUNDING)


def _length(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values.detach(), dtype=torch.float64)
    return length.cpu()
