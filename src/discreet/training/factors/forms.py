"""Which form of a factor is fastest: measured once, in the first step, among those for which there
is memory.

Every form gives the same norms and sums up to rounding, which the sensitivity covers; so the choice
is about time alone. Forms are tried on eight records first, and on many only where that does not
settle it. Uses of equal shapes share what was measured.

Memory: a backward pass gives back activations while factors are stored. When it has come to a
certain call,

    stored so far + this factor  <=  SHARE * (peak of plain training) + activations given back

so that both together stay below (1 + SHARE) times what plain training takes; 16 MB, which nobody
notices, are always free. Where even the first form, which holds what the pass holds anyway, is
above that, it is taken nevertheless: microbatches bound it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from discreet.training.factors.factors import Factor, tensors_of
from discreet.training.factors.memory import Activations
from discreet.training.rounding.precision import most_spread

__all__ = ["SHARE", "Choice", "Chooser", "choices_table"]

SHARE = 0.35
"""Of the memory of plain training, that factors may take in addition to it."""

_SMALL = 2**24  # bytes
_FEW, _MANY = 8, 128  # records of the first trial, and of the second
_CLEAR = 1.5  # a form that is so many times slower than the best one is out

_Signature: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured for one use of a leaf.

    Args:
        leaf: name of the use.
        form: that was chosen.
        seconds: by form; none where there was no choice.
        bytes: that the chosen form keeps until the sum.
    """

    leaf: str
    form: str
    seconds: dict[str, float]
    bytes: int


def choices_table(choices: Collection[Choice]) -> str:
    """A text: the form of each leaf, how long each form takes, and what is kept until the sum.

    >>> seconds = {"streamed": 0.02, "folded": 0.0105}
    >>> print(choices_table([Choice("grad/0.weight", "folded", seconds, 4_700_000)]))
    leaf           form    kept MB  milliseconds by form
    grad/0.weight  folded      4.7  streamed 20.0, folded 10.5
    """
    # Columns are as wide as their longest entry.
    leaves = max(len("leaf"), *(len(choice.leaf) for choice in choices))
    forms = max(len("form"), *(len(choice.form) for choice in choices))
    lines = [f"{'leaf':<{leaves}}  {'form':<{forms}}  kept MB  milliseconds by form"]

    for choice in choices:
        names = f"{choice.leaf:<{leaves}}  {choice.form:<{forms}}"
        times = [f"{name} {1e3 * seconds:.1f}" for name, seconds in choice.seconds.items()]
        lines.append(f"{names}  {choice.bytes / 1e6:7.1f}  {', '.join(times) or 'the only one'}")

    return "\n".join(lines)


class Chooser:
    """Chooses the form of every leaf once, and remembers it.

    Args:
        budget: bytes that gradients of single records may take, all leaves together.
        form: always this form, where a factor has it; None to measure.
    """

    def __init__(self, budget: int, form: str | None = None) -> None:
        self._budget = budget
        self._form = form
        self._measured: dict[_Signature, dict[str, float]] = {}
        self.activations = Activations()
        self.choices: dict[str, Choice] = {}

    def finished(self, leaf: str, factor: Factor, call: int) -> Factor:
        """The factor in the form that was chosen for this leaf.

        Args:
            leaf: name of the use.
            factor: as its rule made it.
            call: how far the backward pass has come; public.
        """
        if leaf not in self.choices:
            self.choices[leaf] = self._chosen(leaf, factor, call)

        name, forms = self.choices[leaf].form, factor.forms()
        return forms[name]() if name in forms else factor

    def _chosen(self, leaf: str, factor: Factor, call: int) -> Choice:
        forms = factor.forms()
        first, now_bytes = next(iter(forms)), _bytes(factor)

        # Every other form holds one gradient for each record.
        dense_bytes = factor.records * torch.Size(factor.shape).numel() * _itemsize(factor)

        # The first form is always among them: it holds what the pass holds anyway.
        room = self._room(factor.records, call)
        names = [name for name in forms if name == first or dense_bytes <= room]

        # A form that the user asks for needs no room, and no measurement.
        if self._form is not None:
            names = [self._form] if self._form in forms else names[:1]

        # Nothing is measured where there is no choice.
        seconds = self._seconds(factor, names) if len(names) > 1 else {}
        form = min(seconds, key=lambda name: seconds[name]) if seconds else names[0]

        return Choice(leaf, form, seconds, now_bytes if form == first else dense_bytes)

    def _room(self, records: int, call: int) -> float:
        # Bytes that one more factor may keep.
        stored = sum(choice.bytes for choice in self.choices.values())
        beside = SHARE * self.activations.peak + self.activations.given_back(call)
        return min(self._budget, max(_SMALL, records * beside)) - stored

    def _seconds(self, factor: Factor, names: list[str]) -> dict[str, float]:
        # Layers of equal shapes take equal time: a deep network is measured once.
        shapes = [tuple(tensor.shape) for tensor in tensors_of(factor)]
        signature = (type(factor), factor.shape, *names, *shapes)

        if signature not in self._measured:
            # On zeros: numbers next to zero are slow to compute with, and no record may decide how
            # the others are summed.
            zeros = factor.keep(torch.zeros(factor.records, dtype=torch.bool))
            seconds = _times(zeros, names, _FEW)
            fastest = min(seconds.values())

            # What is not clear from a few records is measured on many, for the close ones only.
            close = [name for name in names if seconds[name] <= _CLEAR * fastest]
            if len(close) > 1:
                seconds |= _times(zeros, close, _MANY)

            self._measured[signature] = seconds

        return dict(self._measured[signature])


def _times(factor: Factor, names: list[str], records: int) -> dict[str, float]:
    # Seconds of each form for all records, from a trial on the first ones.
    tried = _first(factor, records)
    return {name: _time(tried, name, 2) * factor.records / max(1, tried.records) for name in names}


def _time(factor: Factor, name: str, runs: int) -> float:
    """Seconds for norms and sum in a form: the least of several runs.

    The first run has to get its memory. On a processor its own time is what counts: it does not
    depend on what else the machine does.
    """
    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors_of(factor))
    clock = time.process_time if on_cpu else time.perf_counter

    least = float("inf")

    for _ in range(runs):
        start = clock()
        formed = factor.forms()[name]()
        squares, _spreads = formed.measured()
        total = squares.new_zeros(factor.shape)
        formed.add_to(total, torch.ones_like(squares), most_spread(formed.positions))
        float(total.view(-1)[0])  # a device may still be at work
        least = min(least, clock() - start)

    return least


def _first(factor: Any, records: int) -> Any:
    """The factor of the first records only."""
    parts: dict[str, Any] = {}
    for field in fields(factor):
        part = getattr(factor, field.name)
        if isinstance(part, Tensor):
            parts[field.name] = part[:records]

        # What holds no tensor, such as a geometry, has no records to cut.
        elif is_dataclass(part) and tensors_of(part):
            parts[field.name] = _first(part, records)

    return replace(factor, **parts)


def _bytes(factor: Factor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(factor))


def _itemsize(factor: Factor) -> int:
    # Ids are integers, and gradients are not formed of them.
    floats = [tensor for tensor in tensors_of(factor) if tensor.is_floating_point()]
    return max([tensor.element_size() for tensor in floats], default=4)
