"""Structures with slots in the place of tensors."""

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense
from discreet.training.replay.steps import Built, Slot, SlotOrigin, filled, slots_in


def test_tensors_in_lists_tuples_dicts_and_dataclasses_become_slots() -> None:
    slot = Slot(1, SlotOrigin.PASS)
    structure = {"a": (Dense(torch.ones(2, 3)), [torch.ones(1), 5]), "b": "text"}
    changed = filled(structure, lambda _: slot)
    assert isinstance(changed["a"][0], Built)
    assert changed["a"][0].kind is Dense
    assert changed["a"][1] == [slot, 5]
    assert slots_in(changed) == [slot, slot]
    assert len(slots_in(structure, Tensor)) == 2


def test_what_holds_no_tensor_stays_as_it_is() -> None:
    slot = Slot(1, SlotOrigin.PASS)
    assert filled([slot, None, 1.5], lambda _: 0) == [slot, None, 1.5]
