"""Rules of products: axes of operands have letters, and axes with the same letter meet.

Letters that the result lacks are summed over. Records lie along one letter. Every operand that has
it must have the same records there, or be public and the same for every record; operands without it
must be public. If the result has the letter, records lie along it; otherwise it is a sum over
records. Matrix products, distances and attention are all of this form: pairs of records always end
as two letters.

Axes with the same letter have the same length. Some kernels take the length from one operand alone:
with a shorter one they would read on into the memory of the next record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.operands import SUM, Operands, Rule, Unknown

__all__ = ["RULES", "Letters", "Meeting"]

Letters: TypeAlias = Sequence[str | int]
"""Of the axes of a tensor, in their order. Axes that have numbers are broadcast."""


class Meeting:
    """Operands that meet by the letters of their axes.

    Args:
        operands: of the call.
        terms: every tensor that may have records, with its letters.
        stretched: the tensor that is broadcast to the others, if there is one.
        free: letters whose axes may have different lengths.

    Attributes:
        letter: along which records lie.

    Raises:
        Unknown: records lie along different letters, or are folded in different ways; or axes with
            the same letter have different lengths.
    """

    def __init__(
        self,
        operands: Operands,
        terms: Sequence[tuple[Tensor, Letters]],
        stretched: Tensor | None = None,
        free: Collection[str] = (),
    ) -> None:
        _require_lengths(terms, stretched, free)
        places = set()
        for tensor, letters in terms:
            rows = operands.rows(tensor)
            if rows is not None:
                places.add((letters[rows.dim], rows.inner, rows.outer))
        if len(places) != 1:
            raise Unknown("records meet other records")
        self.letter, self._inner, self._outer = places.pop()
        self._operands = operands
        self._terms = terms

    def in_result(self, result: Tensor, letters: Letters) -> State:
        """The state of a result with these letters."""
        if self.letter not in letters:
            return SUM
        for tensor, axes in self._terms:
            if self.letter in axes and self._operands.rows(tensor) is None:
                self._operands.require_uniform(tensor, self._rows(axes))
        return self._operands.kept(self._rows(letters), result)

    def _rows(self, letters: Letters) -> Rows:
        return Rows(list(letters).index(self.letter), self._inner, self._outer)


def _require_lengths(
    terms: Sequence[tuple[Tensor, Letters]],
    stretched: Tensor | None,
    free: Collection[str],
) -> None:
    """Raise `Unknown` unless axes that meet have the same length, or are broadcast."""
    lengths: dict[str | int, int] = {}
    for tensor, letters in terms:
        for letter, length in zip(letters, tensor.shape, strict=True):
            is_broadcast = tensor is stretched or isinstance(letter, int)
            if letter in free or (is_broadcast and length == 1):
                continue
            if lengths.setdefault(letter, length) != length:
                raise Unknown("operands whose sizes do not fit")


def _product(letters: Mapping[str, str], result: str, added: str = "") -> Rule:
    """Make the rule of a product whose operands have fixed ranks.

    Args:
        letters: of the operands, by name.
        result: its letters.
        added: the operand that is added to the product; broadcast, so it may lack leading axes.
    """

    def rule(operands: Operands) -> State:
        operands.require_known(*letters)
        terms = []
        for name, axes in letters.items():
            tensor = operands[name]
            missing = len(axes) - tensor.ndim
            if missing and name != added:
                raise Unknown("operands of another rank")
            terms.append((tensor, axes[missing:]))
        stretched = operands[added] if added else None
        return Meeting(operands, terms, stretched).in_result(operands.result, result)

    return rule


def _linear(operands: Operands) -> State:
    """(..., k) times (o, k), and (o,) added."""
    operands.require_known("input", "weight", "bias")
    features, weight, bias = operands["input"], operands["weight"], operands["bias"]
    if weight.ndim != 2 or (bias is not None and bias.ndim != 1):
        raise Unknown("a weight that is no matrix, or a bias that is no vector")
    batch = tuple(range(features.ndim - 1))
    terms: list[tuple[Tensor, Letters]] = [(features, (*batch, "k")), (weight, "ok")]
    if bias is not None:
        terms.append((bias, "o"))
    return Meeting(operands, terms).in_result(operands.result, (*batch, "o"))


def _trilinear(operands: Operands) -> State:
    """Three operands that get new axes (`expand`), are multiplied, and summed over `sumdim`."""
    names = ("i1", "i2", "i3")
    operands.require_known(*names)
    terms: list[tuple[Tensor, Letters]] = []
    total = 0
    for number, name in enumerate(names, 1):
        tensor, expanded = operands[name], operands[f"expand{number}"]
        total = tensor.ndim + len(expanded)
        terms.append((tensor, [axis for axis in range(total) if axis not in expanded]))
    remaining = [axis for axis in range(total) if axis not in operands["sumdim"]]
    return Meeting(operands, terms).in_result(operands.result, remaining)


def _with_batch(tensor: Tensor, last: str) -> Letters:
    """Letters of (..., last); leading axes are broadcast, so they are counted from the right."""
    batch = tensor.ndim - len(last)
    return (*range(-batch, 0), *last)


def _distances(operands: Operands) -> State:
    """All pairs of (..., n, k) and (..., m, k)."""
    operands.require_known("x1", "x2")
    terms = [
        (operands["x1"], _with_batch(operands["x1"], "nk")),
        (operands["x2"], _with_batch(operands["x2"], "mk")),
    ]
    return Meeting(operands, terms).in_result(operands.result, _with_batch(operands.result, "nm"))


def _distances_backward(operands: Operands) -> State:
    """The gradient of `x1`: of all pairs, those with one of its rows are summed."""
    letters = {"grad": "nm", "x1": "nk", "x2": "mk", "cdist": "nm"}
    operands.require_known(*letters)
    terms = [(operands[name], _with_batch(operands[name], last)) for name, last in letters.items()]
    return Meeting(operands, terms).in_result(operands.result, _with_batch(operands.result, "nk"))


_MATRICES = {"mat1": "nk", "mat2": "km"}
_BATCHES = {"batch1": "bnk", "batch2": "bkm"}

RULES: dict[str, Rule] = {
    "mm": _product({"self": "nk", "mat2": "km"}, "nm"),
    "bmm": _product({"self": "bnk", "mat2": "bkm"}, "bnm"),
    "mv": _product({"self": "nk", "vec": "k"}, "n"),
    "dot": _product({"self": "k", "tensor": "k"}, ""),
    "vdot": _product({"self": "k", "other": "k"}, ""),
    "addmm": _product({"self": "nm", **_MATRICES}, "nm", added="self"),
    "_addmm_activation": _product({"self": "nm", **_MATRICES}, "nm", added="self"),
    "addmv": _product({"self": "n", "mat": "nk", "vec": "k"}, "n", added="self"),
    "addr": _product({"self": "nm", "vec1": "n", "vec2": "m"}, "nm", added="self"),
    "addbmm": _product({"self": "nm", **_BATCHES}, "nm", added="self"),
    "baddbmm": _product({"self": "bnm", **_BATCHES}, "bnm", added="self"),
    "linear": _linear,
    "_trilinear": _trilinear,
    "_cdist_forward": _distances,
    "_euclidean_dist": _distances,
    "_cdist_backward": _distances_backward,
}
"""By name of the operation."""
