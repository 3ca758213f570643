"""Rules of convolutions.

Records lie along the first axis, or are folded into channels, each group of which has one record.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from discreet.training.separation.states import Rows, State, is_public
from discreet.training.separation.table.operands import Operands, Rule, require

__all__ = ["RULES"]


class _Groups:
    """Records folded into groups of channels: group g belongs to record (g // inner) % B.

    A convolution with groups takes apart channels of input, weight and output into as many blocks,
    and never lets two blocks meet. So if every block has one record, and blocks of the same number
    have the same, nothing is mixed.

    Args:
        operands: of the call, with an argument `groups`.
        channels: tensors, each with the axis of its channels.

    Raises:
        Unknown: a block belongs to several records; blocks of one number belong to different ones;
            or a public tensor is not the same for every record.
    """

    def __init__(self, operands: Operands, channels: Sequence[tuple[Tensor, int]]) -> None:
        self._count: int = operands["groups"]
        foldings = set()
        for tensor, axis in channels:
            rows = operands.rows(tensor)
            if rows is None:
                continue

            # Records must change at borders of blocks only, so `inner` is a number of whole blocks.
            block = tensor.shape[axis] // self._count
            whole = rows.dim == axis and rows.inner % block == 0
            require(whole, "a group of channels of several records")
            foldings.add((rows.inner // block, rows.outer))

        require(len(foldings) == 1, "records meet other records")
        self._inner, self._outer = foldings.pop()
        for tensor, axis in channels:
            operands.require_records(tensor, self.along(tensor, axis))

    def along(self, tensor: Tensor, axis: int) -> Rows:
        """Where records are in a tensor with channels along this axis."""
        block = tensor.shape[axis] // self._count
        return Rows(axis, self._inner * block, self._outer)


def _batched(operands: Operands, *names: str) -> bool:
    """Whether records lie along the first axis of one of these, and the weight is public."""
    return operands.has_records_along(0, names) and is_public(operands.state("weight"))


def _convolution(operands: Operands) -> State:
    """A row of the batch is convolved by itself."""
    operands.require_known("input", "weight", "bias")
    image, weight = operands["input"], operands["weight"]
    require(image.ndim == weight.ndim, "an image without a batch axis")
    if _batched(operands, "input"):
        operands.require_public("bias")
        return operands.kept(operands.require_rows("input"), operands.result)

    # Weights of single records, or records folded into channels: then groups keep them apart.
    channels = [(image, 1), (weight, 0), *((bias, 0) for bias in operands.tensors(["bias"]))]
    groups = _Groups(operands, channels)
    return operands.kept(groups.along(operands.result, 1), operands.result)


def _convolution_backward(operands: Operands) -> list[State]:
    """The gradient of the input has its rows; those of weight and bias are sums over the batch."""
    operands.require_known("grad_output", "input", "weight")
    gradient, image, weight = operands["grad_output"], operands["input"], operands["weight"]
    if _batched(operands, "grad_output", "input"):
        rows = operands.matched([gradient, image])
        return operands.gradients(rows)

    # A group of one record has weights of its own: their gradients are no sums over records.
    groups = _Groups(operands, [(gradient, 1), (image, 1), (weight, 0)])
    channel_axes = (1, 0, 0)
    return [
        operands.kept(groups.along(result, channel_axes[number]), result)
        for number, result in zip(operands.asked, operands.results, strict=True)
    ]


RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
"""By name of the operation."""
