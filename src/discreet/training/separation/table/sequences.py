"""Rules of attention and of recurrent layers that torch runs as one operation."""

from __future__ import annotations

from torch import Tensor

from discreet.training.separation.states import State
from discreet.training.separation.table.operands import INSIDE, SUM, Operands, Rule, require
from discreet.training.separation.table.products import Letters, Meeting, trailing

__all__ = ["RULES"]

# t time, n batch, i features of the input, l layers (one), f features of states.
_RECURRENT = {"input": "tni", "grad_output": "tnf", "output": "tnf"}
_OF_STATE = "lnf"

_OF_LAYER = ("weight0", "weight1", "weight2", "weight3", "weight4", "workspace")

# n batch, h heads, l queries, s keys, e features.
_ATTENTION = {
    "grad_out": "nhle",
    "query": "nhle",
    "key": "nhse",
    "value": "nhse",
    "out": "nhle",
    "logsumexp": "nhl",
    "attn_mask": "nhls",
}


def _attended(operands: Operands) -> Meeting:
    """Where records are: in the batch, in heads, or in queries if each of these sees the same keys.

    A causal mask tells queries apart by their place.
    """
    operands.require_known(*_ATTENTION)
    terms: list[tuple[Tensor, Letters]] = []
    for name, letters in _ATTENTION.items():
        for tensor in operands.tensors([name]):
            fits = tensor.ndim == len(letters) or name == "attn_mask"
            require(fits, "attention without batch and heads")
            terms.append((tensor, trailing(letters, tensor)))

    # Fewer heads of keys than of queries: each is for a group of queries.
    shared = operands["key"].shape[1]
    fit = shared == operands["value"].shape[1] and operands["query"].shape[1] % shared == 0
    require(fit, "heads that do not fit")

    # Along keys and features attention sums up. Queries are attended to one by one.
    meeting = Meeting(operands, terms, operands["attn_mask"], free="h")
    apart = "nh" if operands["is_causal"] else "nhl"
    require(str(meeting.letter) in apart, "attends over records")
    return meeting


def _attention(operands: Operands) -> list[State]:
    meeting = _attended(operands)
    output, logsumexp = operands.results
    return [meeting.in_result(output, "nhle"), meeting.in_result(logsumexp, "nhl")]


def _attention_backward(operands: Operands) -> list[State]:
    """Gradients of query, key and value; where records are queries, the other two are sums."""
    meeting = _attended(operands)
    of_query, of_key, of_value = operands.results
    return [
        meeting.in_result(of_query, "nhle"),
        meeting.in_result(of_key, "nhse"),
        meeting.in_result(of_value, "nhse"),
    ]


def _require_second(operands: Operands, *names: str) -> Meeting:
    """Where records are in sequences (time, batch, features) and states (..., batch, features)."""
    operands.require_known(*names, public=_OF_LAYER)
    require(not operands["batch_sizes"], "packed sequences")
    terms = [
        (tensor, trailing(_RECURRENT.get(name, _OF_STATE), tensor))
        for name in names
        for tensor in operands.tensors([name])
    ]

    # Time and features run through a recurrent layer; only the batch does not.
    meeting = Meeting(operands, terms)
    require(meeting.letter == "n", "records in another place than the second axis")
    return meeting


def _recurrent(operands: Operands) -> list[State]:
    """The recurrent layer of oneDNN; its workspace is read by its backward only."""
    meeting = _require_second(operands, "input", "hx_", "cx_")
    of_record, workspace = operands.results[:3], operands.results[3:]
    return [
        *(meeting.in_result(result, trailing("tnf", result)) for result in of_record),
        *[INSIDE] * len(workspace),
    ]


def _recurrent_backward(operands: Operands) -> list[State]:
    """Gradients of the input, of four weights, and of the two initial states."""
    names = ("grad_output", "grad_hy", "grad_cy", "hx_", "cx_tmp", "output", "hy_", "cy_")
    meeting = _require_second(operands, "input", *names)
    of_input, weights, of_states = operands.results[0], operands.results[1:5], operands.results[5:]
    return [
        meeting.in_result(of_input, "tnf"),
        *[SUM] * len(weights),
        *(meeting.in_result(result, trailing("tnf", result)) for result in of_states),
    ]


RULES: dict[str, Rule] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
}
"""By name of the operation."""
