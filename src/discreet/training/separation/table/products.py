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
from discreet.training.separation.table.operands import SUM, Operands, Rule, require

__all__ = ["RULES", "Letters", "Meeting", "trailing"]

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
        # Lengths first: kernels that trust them would read on into other records.
        _require_lengths(terms, stretched, free)
        of_terms = [(operands.rows(tensor), letters) for tensor, letters in terms]
        places = {
            (letters[rows.dim], rows.inner, rows.outer)
            for rows, letters in of_terms
            if rows is not None
        }

        # Two letters would be pairs of records; two foldings, other records at the same index.
        require(len(places) == 1, "records meet other records")
        self.letter, self._inner, self._outer = places.pop()
        self._operands = operands
        self._terms = terms

    def in_result(self, result: Tensor, letters: Letters) -> State:
        """The state of a result with these letters."""
        if self.letter not in letters:
            return SUM

        # Operands without the letter are public: records lie along no other.
        for tensor, axes in self._terms:
            if self.letter in axes:
                self._operands.require_records(tensor, self._rows(axes))

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

            # The first axis with a letter says how long all others must be.
            fits = lengths.setdefault(letter, length) == length
            require(fits, "operands whose sizes do not fit")


def trailing(letters: str, tensor: Tensor) -> str:
    """Letters of a tensor that may lack the first of these axes."""
    return letters[len(letters) - tensor.ndim :]


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
            fits = tensor.ndim == len(axes) or name == added
            require(fits, "operands of another rank")
            terms.append((tensor, trailing(axes, tensor)))

        stretched = operands[added] if added else None
        return Meeting(operands, terms, stretched).in_result(operands.result, result)

    return rule


def _linear(operands: Operands) -> State:
    """(..., k) times (o, k), and (o,) added."""
    operands.require_known("input", "weight", "bias")
    features, weight, biases = operands["input"], operands["weight"], operands.tensors(["bias"])
    plain = weight.ndim == 2 and all(bias.ndim == 1 for bias in biases)
    require(plain, "a weight that is no matrix, or a bias that is no vector")

    # Leading axes are a batch, in the input and in the result alike.
    batch = tuple(range(features.ndim - 1))
    terms: list[tuple[Tensor, Letters]] = [(features, (*batch, "k")), (weight, "ok")]
    terms += [(bias, "o") for bias in biases]
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
        terms.append((tensor, _without(expanded, total)))

    return Meeting(operands, terms).in_result(operands.result, _without(operands["sumdim"], total))


def _without(axes: Sequence[int], total: int) -> Letters:
    """All axes of a shape but these; their numbers are their letters."""
    return [axis for axis in range(total) if axis not in axes]


def _with_batch(tensor: Tensor, last: str) -> Letters:
    """Letters of (..., last); leading axes are broadcast, so they are counted from the right."""
    batch = tensor.ndim - len(last)
    return (*range(-batch, 0), *last)


def _distances(operands: Operands) -> State:
    """All pairs of (..., n, k) and (..., m, k)."""
    return _paired(operands, {"x1": "nk", "x2": "mk"}, "nm")


def _distances_backward(operands: Operands) -> State:
    """The gradient of `x1`: of all pairs, those with one of its rows are summed."""
    return _paired(operands, {"grad": "nm", "x1": "nk", "x2": "mk", "cdist": "nm"}, "nk")


def _paired(operands: Operands, letters: Mapping[str, str], result: str) -> State:
    """Operands, by name, and the result have these letters after the axes of their batches."""
    operands.require_known(*letters)
    terms = [(operands[name], _with_batch(operands[name], last)) for name, last in letters.items()]
    in_result = _with_batch(operands.result, result)
    return Meeting(operands, terms).in_result(operands.result, in_result)


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
