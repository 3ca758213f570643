"""The rules by name of torch's function. Every rule is a function of one `Call`.

To add one: a function that computes the output from `call.plain(...)` values and taps it with what makes the factor of each
value from the output's gradient; its name in `RULES`; a test against a batch-of-one loop.
"""

from __future__ import annotations

from discreet.training.recording import Rule
from discreet.training.rules.broadcast import elementwise, expand
from discreet.training.rules.embedding import embedding, embedding_bag, getitem
from discreet.training.rules.linear import addmm, linear, matmul
from discreet.training.rules.normalisation import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

__all__ = ["RULES"]

_ELEMENTWISE = (
    "add", "add_", "addcdiv", "addcmul", "div", "div_", "lerp", "maximum", "minimum", "mul", "mul_", "multiply", "pow",
    "__rpow__", "__rsub__", "rsub", "scaled_dot_product_attention", "sub", "sub_", "subtract", "true_divide", "where",
)  # fmt: skip
_EXPANDING = ("broadcast_to", "expand", "expand_as", "repeat")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_EXPANDING, expand),
    "__getitem__": getitem,
    "addmm": addmm,
    "batch_norm": batch_norm,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "matmul": matmul,
    "mm": matmul,
    "rms_norm": rms_norm,
}
