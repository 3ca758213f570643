"""The rules by name of torch's function. Every rule is a function of one `Call`.

To add one: a function that computes the output from `call.plain(...)` values and taps it with what
makes the factor of each value from the output's gradient; its name in `RULES`; a test against a
loop over single records. docs/own-rules.md has a worked example.
"""

from __future__ import annotations

from functools import partial

from discreet.training.rules.broadcast import elementwise, expand, masked_fill
from discreet.training.rules.call import Rule
from discreet.training.rules.convolution.rule import convolution, transposed_convolution
from discreet.training.rules.copies import one_copy_each
from discreet.training.rules.embedding import embedding, embedding_bag, getitem
from discreet.training.rules.linear import addmm, bilinear, linear, matmul
from discreet.training.rules.normalisation import channel_norm, group_norm, layer_norm, rms_norm
from discreet.training.rules.recurrent.layer import Kind
from discreet.training.rules.recurrent.rule import recurrent

__all__ = ["RULES"]

_ELEMENTWISE = (
    "__rpow__", "__rsub__", "add", "add_", "addcdiv", "addcmul", "div", "div_", "lerp", "maximum",
    "minimum", "mul", "mul_", "multiply", "pow", "rsub", "scaled_dot_product_attention", "sub",
    "sub_", "subtract", "true_divide", "where",
)  # fmt: skip
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_RECURRENT: tuple[Kind, ...] = ("gru", "lstm", "rnn_relu", "rnn_tanh")
_EXPANDING = ("broadcast_to", "expand", "expand_as", "repeat")

RULES: dict[str, Rule] = {
    "*": one_copy_each,
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_EXPANDING, expand),
    **dict.fromkeys(_CONVOLUTIONS, convolution),
    **dict.fromkeys(_TRANSPOSED, transposed_convolution),
    **{kind: partial(recurrent, kind) for kind in _RECURRENT},
    "__getitem__": getitem,
    "addmm": addmm,
    "batch_norm": channel_norm,
    "bilinear": bilinear,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "group_norm": group_norm,
    "instance_norm": channel_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "masked_fill": masked_fill,
    "matmul": matmul,
    "mm": matmul,
    "rms_norm": rms_norm,
}
