"""The table of rules: names that torch's functions really have."""

import torch
from torch import Tensor

from discreet.training.rules.registry import RULES


def test_every_rule_has_the_name_of_a_function_of_torch() -> None:
    """Wrong: a misspelt name, which is never met; its function then goes by copies of weights."""
    places = (torch, Tensor, torch.nn.functional)
    unknown = [name for name in RULES if not any(name in dir(place) for place in places)]
    assert unknown == ["*"]


def test_functions_that_belong_together_have_one_rule() -> None:
    """Wrong: a convolution that goes by the rule of its transpose, with the sides exchanged."""
    assert RULES["conv1d"] is RULES["conv2d"] is RULES["conv3d"]
    assert RULES["conv2d"] is not RULES["conv_transpose2d"]
    assert RULES["mm"] is RULES["matmul"]
