"""A checkpoint: everything that a run needs to go on, and nothing that could repeat its randomness.

    plan, step, adaptive state, head of the ledger, state_dicts of the model, the optimizer and
    whatever else was named

It holds released and public values, tensors and plain numbers only, is written whole or not at all,
and is read without executing anything (`weights_only`, P46). There is no key in it: a run that goes
on draws fresh samples and noise (P20), and every step that it takes is charged, also one that was
taken before from the same checkpoint (docs/proofs/ledger.md, on checkpoints).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from discreet import _validate as check
from discreet._files import checked_path, overwrite
from discreet.errors import CheckpointError, LedgerCorrupt, ParameterError
from discreet.ledger import Ledger
from discreet.plan import Plan
from discreet.training.separation.marks import holds_records

__all__ = ["Checkpoint", "Stateful", "named", "restore"]

_FORMAT = "discreet checkpoint 1"
_ZIP = b"PK"  # how torch's files begin
_FIELDS = {"format", "plan", "step", "state", "head", "objects"}


class Stateful(Protocol):
    """A model, an optimizer, a scheduler, an average of weights."""

    def state_dict(self) -> Any:
        """Its state, as tensors and plain values."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take over a state that `state_dict` returned earlier."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state of a run between two steps. Public: post-processing of what was released.

    Args:
        plan: as JSON.
        step: steps that were released.
        state: thresholds of adaptive groups.
        head: digest of the ledger's last row when it was saved.
        objects: state_dict of each object, by name.
    """

    plan: str
    step: int
    state: Mapping[str, float]
    head: str
    objects: Mapping[str, Any]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file at `path`, whole or not at all.

        Raises:
            CheckpointError: a state holds something else than tensors and plain values, or the disk
                refuses.
        """
        content = {
            "format": _FORMAT,
            "plan": self.plan,
            "step": self.step,
            "state": {name: float(value) for name, value in self.state.items()},
            "head": self.head,
            "objects": {name: _plain(name, state) for name, state in self.objects.items()},
        }
        place = checked_path("Checkpoint.write", path)
        try:
            _refuse_to_replace(place)
            overwrite(place, lambda draft: torch.save(content, draft))
        # Torch reports a full disk as RuntimeError.
        except (OSError, RuntimeError) as refused:
            raise CheckpointError(
                expected=f"to write {place}",
                got=str(refused),
                do="Check the folder and the space left; the old file is whole.",
            ) from refused

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read the file at `path`, on the CPU, without executing anything.

        Raises:
            CheckpointError: there is none, it is damaged, or something else.
        """
        place = checked_path("Checkpoint.read", path)
        content = _loaded(place)
        fields = content if isinstance(content, dict) else {}
        if set(fields) != _FIELDS or fields["format"] != _FORMAT:
            got = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
            raise CheckpointError(
                expected=f"a file that PrivateRun.save wrote ({_FORMAT})",
                got=f"{place}: {got}",
                do=_OTHER,
            )

        # Read without executing anything, but still written by anybody: every value is checked.
        try:
            return cls(
                plan=check.instance("checkpoint", "plan", content["plan"], str),
                step=check.whole("checkpoint", "step", content["step"], least=0),
                state={
                    name: check.real("checkpoint", "state", value)
                    for name, value in dict(content["state"]).items()
                },
                head=check.label("checkpoint", "head", content["head"]),
                objects={
                    check.instance("checkpoint", "objects", name, str): state
                    for name, state in dict(content["objects"]).items()
                },
            )
        except (ParameterError, TypeError, ValueError) as wrong:
            raise CheckpointError(
                expected="a whole checkpoint", got=f"{place}: {wrong}", do=_OTHER
            ) from wrong

    def refuse_another(self, plan: Plan, ledger: Ledger) -> None:
        """Refuse what was not saved by a run of this plan, or what is ahead of the ledger.

        Raises:
            CheckpointError: also for an older copy of the ledger, from which the checkpoint's steps
                are missing, and for an empty one, which opening a path makes where no file is.
        """
        if self.plan != plan.to_json() or self.step > plan.steps:
            raise CheckpointError(
                expected="a checkpoint of the plan that is executed",
                got="one of another plan",
                do="Begin anew, or use its plan.",
            )

        # Thresholds are asked for as a step would: by binding the plan's groups to them.
        try:
            plan.bound.groups(self.state)
        except ParameterError as wrong:
            raise CheckpointError(
                expected="thresholds of this plan's groups", got=str(wrong), do=_OTHER
            ) from wrong

        self._refuse_another_ledger(ledger)

    def _refuse_another_ledger(self, ledger: Ledger) -> None:
        try:
            ledger.verify(self.head)
        except (LedgerCorrupt, ParameterError) as wrong:
            expected = "the ledger that the checkpoint was saved with, or a later state of it"

            # A path where no ledger was gets a new one, which has no run and so no such head.
            if not ledger.runs():
                raise CheckpointError(
                    expected=expected,
                    got=(
                        "a ledger without a single run: no ledger was at that path, and an empty "
                        "one has just been made"
                    ),
                    do=(
                        "Give the path of the ledger that was charged. If it is lost, so is the "
                        "account of what was released: train anew on a new ledger only if nothing "
                        "of the lost run is used."
                    ),
                ) from wrong

            raise CheckpointError(
                expected=expected,
                got=str(wrong),
                do=(
                    "Restore the ledger of this data set: an older copy would not say what was "
                    "released."
                ),
            ) from wrong


def named(
    model: Stateful,
    optimizer: Stateful | None,
    scheduler: Stateful | None,
    others: Mapping[str, Stateful] | None,
) -> dict[str, Stateful]:
    """What is saved and restored, by name."""
    usual = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    extras = others or {}
    taken = sorted(usual.keys() & extras.keys())
    if taken:
        raise ParameterError(
            owner="PrivateRun", name="others", expected="names of their own", got=", ".join(taken)
        )

    # A run may have no optimizer or scheduler; the others were named, so they must be something.
    objects = {
        **{name: thing for name, thing in usual.items() if thing is not None},
        **extras,
    }
    for name, thing in objects.items():
        if not _is_stateful(thing):
            raise ParameterError(
                owner="PrivateRun",
                name=str(name),
                expected="something with state_dict() and load_state_dict()",
                got=type(thing).__name__,
            )

    return objects


def _is_stateful(thing: object) -> bool:
    methods = ("state_dict", "load_state_dict")
    return all(callable(getattr(thing, name, None)) for name in methods)


_OTHER = "Resume from another checkpoint; the ledger stays as it is."


def _loaded(place: Path) -> Any:
    try:
        return torch.load(place, map_location="cpu", weights_only=True)
    # Whatever torch makes of a damaged or foreign file; it advises to execute it: not repeated.
    except Exception as error:
        raise CheckpointError(
            expected="a checkpoint of tensors and plain values",
            got=(
                str(error)
                if isinstance(error, OSError)
                else f"{place}, which is damaged or something else"
            ),
            do=_OTHER,
        ) from error


def _refuse_to_replace(place: Path) -> None:
    """Refuse to write over anything but a checkpoint: the ledger may be a path away."""
    if place.exists() and not _is_ours(place):
        raise CheckpointError(
            expected="a path where nothing is, or an earlier checkpoint",
            got=f"{place}, which is something else",
            do="Choose another path; nothing was written.",
        )


def _is_ours(place: Path) -> bool:
    """Whether it is a file as torch writes it, or an empty one."""
    if not place.is_file():
        return False

    with place.open("rb") as file:
        return file.read(len(_ZIP)) in (b"", _ZIP)


def restore(
    objects: Mapping[str, Stateful], states: Mapping[str, Any], then: Callable[[], None]
) -> None:
    """Give every object its state: all of them, or none.

    Args:
        objects: by name.
        states: of each.
        then: what else must take over the model's new state, or refuse it.

    Raises:
        CheckpointError: other names than were saved, or a state that an object refuses; all are as
            before.
    """
    if set(objects) != set(states):
        raise CheckpointError(
            expected=f"the objects that were saved: {', '.join(sorted(states))}",
            got=", ".join(sorted(objects)),
            do="Name the same ones as in save().",
        )

    # Copies: a state_dict shows the tensors themselves, which loading overwrites.
    before = {name: copy.deepcopy(thing.state_dict()) for name, thing in objects.items()}
    name = ""
    try:
        for name, thing in objects.items():
            thing.load_state_dict(states[name])

        # What refuses now refuses the state of the model.
        name = "model"
        then()
    except BaseException as error:
        # Also after Ctrl-C: no object is left with half of what another has.
        for earlier_name, state in before.items():
            with suppress(Exception):  # the one that refused may refuse again; it is reported
                objects[earlier_name].load_state_dict(state)

        if not isinstance(error, Exception):
            raise

        raise CheckpointError(
            expected=f"a state that fits the {name}",
            got=str(error),
            do="Build model, optimizer and scheduler as in the run that was saved.",
        ) from error


def _plain(where: str, value: Any) -> Any:
    """Return a state in types that can be read without executing anything: subclasses and numbers
    of NumPy become Python's own.
    """
    match value:
        # A mark on its memory says so: what a loss kept in a buffer, for example.
        case Tensor() if holds_records(value):
            raise CheckpointError(
                expected="released values in what is saved",
                got=f"a tensor in {where} that holds what a pass computed from its records",
                do=(
                    "Leave it out: it would be released without noise. A loss must keep nothing "
                    "of its batch."
                ),
            )
        case Tensor() if type(value.detach()) is Tensor:
            return _alone(value.detach())
        case np.bool_() | np.integer() | np.floating():
            return value.item()
        # Before whole numbers, of which truth values are a kind.
        case None | bool():
            return value
        case str() | int() | float():
            return _exactly(value)
        case Mapping():
            return {
                _key(where, name): _plain(f"{where}.{name}", part) for name, part in value.items()
            }
        case list() | tuple():
            parts = [_plain(f"{where}[{number}]", part) for number, part in enumerate(value)]
            return parts if isinstance(value, list) else tuple(parts)
        case _:
            raise CheckpointError(
                expected="tensors, numbers, texts, lists and dictionaries in what is saved",
                got=f"{type(value).__name__} in {where}",
                do=(
                    "Save it apart, or make it a number. Anything else could not be read back "
                    "without executing code."
                ),
            )


def _alone(tensor: Tensor) -> Tensor:
    """Without the rest of its memory, which torch would write too: a part of something that is not
    to be saved.
    """
    is_whole = (
        tensor.layout is not torch.strided
        or tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    )
    return tensor if is_whole else tensor.clone()


def _key(where: str, name: object) -> str | int | float:
    if isinstance(name, str | int) and not isinstance(name, bool):
        return _exactly(name)

    raise CheckpointError(
        expected=f"texts or numbers as names in {where}", got=repr(name), do="Save it apart."
    )


def _exactly(value: str | float) -> str | int | float:
    """Return a str, int or float that is no subclass, which could not be read back."""
    # Joined from its letters it is a str, whatever a subclass says of itself.
    if isinstance(value, str):
        return "".join(value)

    return int(value) if isinstance(value, int) else float(value)
