"""A claim of the proof, held to its word: other records are exchanged, and records change places.

The code under test runs under the proof, which says of each result whose it is. Then it runs many
times without the proof:

    others      all other records are exchanged, or become noise, NaN, infinite, huge or zero: the
                rows of a record keep every bit, and what is claimed to be public keeps every bit
                everywhere
    places      all records move on by one place: results move with them, up to rounding
    writes      no operation changes an argument that its schema, or `UNDECLARED_WRITES`, does not
                name

Memory that nobody has written is zeros, as under the proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import CoupledRecords
from discreet.training.separation.doors import Doors
from discreet.training.separation.marks import no_functions
from discreet.training.separation.operation import operation_of
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import (
    FILLED,
    Mixed,
    OneByOne,
    Rows,
    SharedDraws,
    State,
)
from discreet.training.separation.table.operands import tensors_among
from separation.exchange import changed, close, moved, rows_of, same


@dataclass
class Report:
    """What was tried and found, of one operator or of all."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        self.counts.update(other.counts)
        self.wrong += other.wrong
        self.reasons.update(other.reasons)


@dataclass(frozen=True)
class Choice:
    """Records along axes of some tensors; and tensors that are made the same along an axis."""

    rows: dict[int, Rows]
    count: int
    alike: dict[int, int] = field(default_factory=dict)


# --- modes ---


class Bare(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Does nothing, but is there: with a mode, some composite operations take another path."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here: this leaves out a wrapper around every call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operation = operation_of(func)
        if operation.uninitialised:
            out.zero_()
        # Attention is tagged as well, but without dropout it draws nothing.
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        self.draws |= seeded and "attention" not in operation.name
        return out


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Compares all arguments of an operation before and after."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.undeclared: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operation = operation_of(func)
        if operation.is_geometry:
            return func(*args, **(kwargs or {}))
        arguments = {**dict(zip(operation.argument_names, args, strict=False)), **(kwargs or {})}
        declared = {
            _address(tensor)
            for name in (*operation.written, *operation.undeclared)
            for tensor in tensors_among(arguments.get(name))
        }
        everything = tensors_among(arguments)
        watched = [tensor for tensor in everything if _address(tensor) not in declared]
        before = [tensor.clone() for tensor in watched]
        out = func(*args, **(kwargs or {}))
        if operation.uninitialised:
            out.zero_()
        for tensor, copy in zip(watched, before, strict=True):
            if not same(tensor, copy):
                self.undeclared.add(operation.full_name)
        return out


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


# --- ways to run code ---


def mapped(function: Callable[[Tensor], Tensor], thing: Any) -> Any:
    """The same structure with other tensors."""
    if isinstance(thing, Tensor):
        return function(thing)
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return type(thing)(mapped(function, part) for part in thing)
    if isinstance(thing, dict):
        return {name: mapped(function, part) for name, part in thing.items()}
    return thing


Seed: TypeAlias = Callable[[int, Tensor], Tensor]
"""The gradient of a result, by its number and value."""


class Way:
    """Code on the tensors of a sample: forward, in place, or backward.

    Going back, the gradients of the results have records where the results have them.

    Args:
        kind: `forward`, `in place` or `backward`.
        function: the code; for `in place`, one that changes its first argument.
        arguments: (first, others, named), whose tensors are replaced.
    """

    def __init__(self, kind: str, function: Any, arguments: tuple[Any, Any, Any]) -> None:
        self.kind = kind
        self._function = function
        self._arguments = arguments

    def __call__(self, tensors: Sequence[Tensor], seed: Seed) -> tuple[list[Tensor], list[Tensor]]:
        """Results, and the arguments as they are afterwards, under the modes that are on."""
        if self.kind == "backward":
            return self._backward(tensors, seed), []
        own = [tensor.clone() for tensor in tensors]
        first, others, named = self._with(own)
        results = tensors_among(self._function(first, *others, **named))
        return (results, own) if self.kind == "forward" else ([first], own[1:])

    def _with(self, tensors: Sequence[Tensor]) -> Any:
        left = list(tensors)
        return mapped(lambda _: left.pop(0), self._arguments)

    def _backward(self, tensors: Sequence[Tensor], seed: Seed) -> list[Tensor]:
        leaves = [
            tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex())
            for tensor in tensors
        ]
        first, others, named = self._with(leaves)
        made = tensors_among(self._function(first, *others, **named))
        results = [result for result in made if result.requires_grad]
        if not results:
            return []
        seeds = [seed(number, result) for number, result in enumerate(results)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = torch.autograd.grad(results, wanted, seeds, allow_unused=True)
        return [gradient for gradient in gradients if gradient is not None]


def ramp_like(tensor: Tensor) -> Tensor:
    """A gradient with a number of its own in each entry."""
    numbers = torch.linspace(0.5, 1.5, max(1, tensor.numel()), dtype=torch.float64)
    return numbers[: tensor.numel()].view(tensor.shape).to(tensor.dtype)


# --- one claim ---


class Trial:
    """One way to run code, with records in one place.

    Args:
        way: to run it.
        tensors: of the sample.
        choice: where records are.
        report: to be filled.
        turn: a number; in each turn another record is the one that stays, the first or the last.
    """

    def __init__(
        self, way: Way, tensors: Sequence[Tensor], choice: Choice, report: Report, turn: int = 0
    ) -> None:
        self.kind = way.kind
        self._way = way
        self._tensors = [
            _alike(tensor, choice.alike[number]) if number in choice.alike else tensor
            for number, tensor in enumerate(tensors)
        ]
        self._choice = choice
        self._report = report
        self._turn = turn
        self._label = ""
        self._seeds: list[tuple[Tensor, Rows | None]] = []
        self._draws = False

    def run(self, label: str, changes: Sequence[str]) -> bool:
        """Ask the proof for claims, and hold it to them. Gives whether a result has records."""
        self._label = label
        told = self._told()
        if told is None:
            return False
        states, results = told
        claims = {at: state for at, state in enumerate(states) if not isinstance(state, Mixed)}
        of_results = [state for at, state in claims.items() if at < results]
        secret = any(isinstance(state, Rows) for state in of_results)
        verdict = "rows" if secret else "public" if of_results else "mixed"
        self._report.counts[f"{self.kind} {verdict}"] += 1
        if of_results:
            self._compare(claims, changes)
        elif not self._turn:  # what became of the arguments
            self._compare(claims, changes[:1])
        return secret

    def _told(self) -> tuple[list[State], int] | None:
        """States of results and arguments, and the number of results; None if nothing is proved."""
        torch.default_generator.manual_seed(
            42
        )  # as samples of the database seed it themselves, which a loss may not
        proof = Proof(self._choice.count)
        try:
            try:
                states, results = self._proved(proof)
            except SharedDraws:  # as a run does
                proof = Proof(self._choice.count, shares_draws=True)
                states, results = self._proved(proof)
        except (OneByOne, CoupledRecords):
            self._report.counts[f"{self.kind} left"] += 1
            return None
        except Exception as error:  # noqa: BLE001  (samples that torch itself refuses)
            self._report.counts[f"{self.kind} raised"] += 1
            self._report.reasons[f"raised: {type(error).__name__}: {error}"[:150]] += 1
            return None
        for reason in proof.reasons[:1]:
            self._report.reasons[reason] += 1
        return states, results

    def _proved(self, proof: Proof) -> tuple[list[State], int]:
        tensors = [
            proof.begin(tensor, self._choice.rows[number])
            if number in self._choice.rows
            else tensor.clone()
            for number, tensor in enumerate(self._tensors)
        ]

        def seed(_: int, result: Tensor) -> Tensor:
            with no_functions():
                state = proof.state(result)
            gradient = ramp_like(result)
            rows = state if isinstance(state, Rows) else None
            self._seeds.append((gradient, rows))
            return gradient if rows is None else proof.begin(gradient, rows)

        with proof, Doors(proof):
            results, arguments = self._way(tensors, seed)
        proof.check()
        states = [proof.state(tensor) for tensor in (*results, *arguments)]
        for tensor, state in zip((*results, *arguments), states, strict=True):
            if state is FILLED and not _one_number(tensor):
                self._wrong("claimed to be one number everywhere")
        return states, len(results)

    def _compare(self, claims: Mapping[int, State], changes: Sequence[str]) -> None:
        plain = self._plain(lambda tensor, _: tensor)
        draws = self._draws
        again = self._plain(lambda tensor, _: tensor)
        if plain is None or again is None:
            self._report.counts["raises without the proof"] += 1
            return
        steady = {
            at: state
            for at, state in claims.items()
            if plain[at].layout is torch.strided and same(plain[at], again[at])
        }
        for number, kind in enumerate(changes):
            record = (0, self._choice.count - 1)[(number + self._turn) % 2]
            self._compare_others(plain, steady, record, kind)
        if not draws:
            self._compare_places(plain, steady)

    def _plain(self, change: Callable[[Tensor, Rows], Tensor]) -> list[Tensor] | None:
        """Results and arguments without the proof, with records changed; None if that raises."""
        rows = self._choice.rows
        tensors = [
            change(tensor, rows[number]) if number in rows else tensor
            for number, tensor in enumerate(self._tensors)
        ]

        def seed(number: int, _: Tensor) -> Tensor:
            gradient, place = self._seeds[number]
            return gradient if place is None else change(gradient, place)

        torch.default_generator.manual_seed(0)
        bare = Bare()
        try:
            # Some functions are given other arguments in a pass, so also here.
            with bare, Doors(Proof(1, shown=True)):
                results, arguments = self._way(tensors, seed)
        except Exception:  # noqa: BLE001  (an error fails a pass; it is no claim)
            return None
        self._draws = bare.draws
        return [tensor.detach() for tensor in (*results, *arguments)]

    def _compare_others(
        self, plain: Sequence[Tensor], claims: Mapping[int, State], record: int, kind: str
    ) -> None:
        count = self._choice.count
        other = self._plain(lambda tensor, rows: changed(tensor, rows, count, record, kind))
        if other is None:
            self._report.counts["raises with other records"] += 1
            return
        for at, state in claims.items():
            self._report.counts["comparisons"] += 1
            one, two = plain[at], other[at]
            if isinstance(state, Rows) and one.shape == two.shape:
                one, two = rows_of(one, state, count, record), rows_of(two, state, count, record)
            if not same(one, two):
                self._wrong(f"{state} depends on other records ({kind})")

    def _compare_places(self, plain: Sequence[Tensor], claims: Mapping[int, State]) -> None:
        count = self._choice.count
        other = self._plain(lambda tensor, rows: moved(tensor, rows, count))
        if other is None:
            self._report.counts["raises with other records"] += 1
            return
        for at, state in claims.items():
            self._report.counts["comparisons of places"] += 1
            expected = moved(plain[at], state, count) if isinstance(state, Rows) else plain[at]
            if not close(expected, other[at]):
                self._wrong(f"{state} depends on places")

    def _wrong(self, what: str) -> None:
        shapes = [tuple(tensor.shape) for tensor in self._tensors]
        place = f"{self._choice}; shapes {shapes}"
        self._report.wrong.append(f"{self._label} {self.kind}: {what}; {place}")


def _alike(tensor: Tensor, dim: int) -> Tensor:
    return tensor.narrow(dim, 0, 1).expand_as(tensor).contiguous()


def _one_number(tensor: Tensor) -> bool:
    return not tensor.numel() or same(tensor, tensor.flatten()[0].expand_as(tensor))
