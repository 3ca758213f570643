"""Ways by which a number of a record could leave a pass for Python, past the dispatcher.

Most of them are operations that the proof sees (`item`, truth values, `equal`). Some are not:
`numpy`, `tolist`, printing, pickling. They are functions of a tensor, so a function mode of torch
sees them. The rule is a list of what is allowed: a function of a secret tensor that gives no tensor
lets it out, unless what it tells is metadata.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from discreet.training.separation.exits import MENDED
from discreet.training.separation.marks import no_functions
from discreet.training.separation.operation import operation_of
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import NOISE, Mixed, is_public
from discreet.training.separation.table import RULES
from discreet.training.separation.table.operands import tensors_among

__all__ = ["Doors", "is_kernel", "opened", "reads_by_itself"]


def _names(*lines: str) -> frozenset[str]:
    """Names that are separated by blanks."""
    return frozenset(" ".join(lines).split())


_METADATA = _names(
    "size dim stride numel nelement ndimension __len__ is_floating_point is_complex",
    "is_contiguous element_size storage_offset get_device result_type can_cast promote_types",
    "is_same_size backward retain_grad __hash__ __delitem__ is_pinned is_shared is_inference",
    "_is_view is_conj is_neg is_signed is_set_to type is_tensor is_storage broadcast_shapes",
    "requires_grad_ is_coalesced _has_compatible_shallow_copy_type sym_size sym_numel",
    "has_names is_distributed _nested_tensor_size _use_cudnn_ctc_loss",
    "_use_cudnn_rnn_flatten_weight is_cuda cudnn_is_acceptable _is_zerotensor",
    "_debug_has_internal_overlap is_nested _fused_sdp_choice set_ get_overlap_status",
    "can_use_flash_attention can_use_efficient_attention can_use_cudnn_attention",
    "__dlpack_device__ grad is_sparse _dimI _dimV dense_dim sparse_dim",
)
"""Functions whose answers that are no tensors depend on shapes, types and the graph alone."""

_METADATA_PROPERTIES = frozenset(
    {"shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_leaf", "_version"}
)
"""Properties that are no tensors."""

_PAST_THE_DISPATCHER = _names(
    "apply_ map_ map2_ __deepcopy__ share_memory_ tensor_split tensor as_tensor asarray new",
    "new_tensor sparse_coo_tensor sparse_csr_tensor frombuffer from_numpy as_subclass",
    "_make_subclass _make_wrapper_subclass __reduce_ex__ _ctc_loss",
)
"""Functions that give tensors and read numbers, or copy memory, where the dispatcher does not look.
"""

_HANDS_OUT_MEMORY = frozenset(
    {"numpy", "__array__", "data_ptr", "storage", "untyped_storage", "_typed_storage", "__dlpack__"}
)
"""Functions by which Python could look at memory later, when records have been written into it."""

_PUBLIC_KERNELS = frozenset({"mkldnn_rnn_layer", "native_group_norm"})
"""Kernels that have names as if they were for everybody. That of group norms takes it that weights
lie one after the other.
"""

_CHECKED_KERNELS = _names(
    "_to_copy _unsafe_view _softmax _log_softmax _softmax_backward_data",
    "_log_softmax_backward_data _safe_softmax _upsample_bicubic2d_aa _upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
    "_weight_norm _conj _neg_view convolution_backward",
)
"""Internal operations that check their arguments, or whose rules do, and that models are known to
call.
"""

_ENTRY_BY_ENTRY = RULES["pointwise"]

_CHECKS = frozenset({"one_hot"})
"""Functions that look at numbers to raise an error, and for nothing else, if they are told the
number of classes.
"""

_WATCHED_PROPERTIES = frozenset({("__get__", "grad_fn"), ("__set__", "data")})
_HOOKS = frozenset({"__get__", "register_hook", "register_post_accumulate_grad_hook"})
"""Functions that put hooks on tensors, or show the nodes of a graph, which take hooks."""

_CALLS_BACK = frozenset({"apply_", "map_", "map2_"})
_MAKES_TENSORS = frozenset({"tensor", "as_tensor", "asarray", "new", "new_tensor"})
_BESIDE_THE_FIRST = frozenset(
    {"tensor_split", "new", "new_tensor", "sparse_coo_tensor", "sparse_csr_tensor"}
)
"""Functions that read, past the dispatcher, numbers of the arguments after the first."""

_INDEXED = frozenset({"__getitem__", "__setitem__"})
"""Functions that make a tensor of a list of indices, where neither mode looks."""

_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_OPENED_MODULES = frozenset({"torch.nn.functional", "torch.autograd"})
_WRAPPED = Mixed.of("a tensor inside of torch.func")
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001


class _Kind(Enum):
    """What a function mode does with a function."""

    ORDINARY = 0
    METADATA = 1
    PYTHON = 2
    WATCHED = 3
    PROPERTY = 4
    INDEXED = 5
    KERNEL = 6


def _kind(func: Any) -> _Kind:
    if opened(func) is not None:
        return _Kind.PYTHON

    name = _name(func)
    if name in ("__get__", "__set__"):
        return _kind_of_property(name, getattr(func.__self__, "__name__", ""))

    if name in _METADATA:
        return _Kind.METADATA

    if name in _INDEXED:
        return _Kind.INDEXED

    watched = (_CHECKS, _HANDS_OUT_MEMORY, MENDED, _HOOKS, _PAST_THE_DISPATCHER)
    if any(name in names for names in watched):
        return _Kind.WATCHED

    return _Kind.KERNEL if is_kernel(name) else _Kind.ORDINARY


def _kind_of_property(access: str, name: str) -> _Kind:
    """What is done when a property of a tensor is read or set."""
    if (access, name) in _WATCHED_PROPERTIES:
        return _Kind.WATCHED

    # Whatever else is read is a tensor, as x.mT is.
    is_metadata = access == "__set__" or name in _METADATA_PROPERTIES
    return _Kind.METADATA if is_metadata else _Kind.PROPERTY


def reads_by_itself(name: str) -> bool:
    """Whether a function gives tensors and reads numbers, or copies memory, where the dispatcher
    does not look.
    """
    return name in _PAST_THE_DISPATCHER


@cache
def is_kernel(name: str) -> bool:
    """Whether an operation of torch is meant to be called by torch itself.

    Such kernels believe what they are given: sizes of gradients and statistics, indices, what a
    forward kernel kept. With others they read or write in the memory of the next record.
    """
    # torch marks what is its own by one underscore; backward operations mostly lack it.
    is_private = name.startswith("_") and not name.startswith("__")
    is_internal = is_private or "backward" in name or name in _PUBLIC_KERNELS
    if not is_internal or name in _CHECKED_KERNELS:
        return False

    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False

    operations = [operation_of(getattr(packet, overload)) for overload in packet.overloads()]

    # Entry by entry: whatever is not as large as the rest is broadcast, or refused by torch.
    if any(operation.rule is _ENTRY_BY_ENTRY for operation in operations):
        return False

    # Without a rule nothing is proved, by whomever it is called.
    return any(operation.rule is not None or operation.composite for operation in operations)


def _name(func: Any) -> str:
    """The name of a function; without its overload, where it is an operation of torch."""
    name: str = func.__name__
    return name.partition(".")[0]


_kinds: dict[Any, _Kind] = {}
_KNOWN = frozenset(
    {Tensor, nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device}
    | {complex, bytes, range, type(...), torch.layout, torch.memory_format, torch.Generator}
)
# Tensors of other classes have doors of their own; functions are called in backward passes, in
# which the mode is on, or refused by name.
_WITHOUT_CODE = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_TORCHS_OWN_ANSWERS = (
    Tensor.__torch_function__,
    nn.Parameter.__torch_function__,
)


class Doors(TorchFunctionMode):
    """Sees every function of torch that a pass calls, looks inside those that are written in
    Python, watches the doors.

    In backward passes, in which hooks of the user run, that is all; a forward pass is taped as well
    (`passes/tape.py`).

    Args:
        proof: of the pass.
    """

    def __init__(self, proof: Proof) -> None:
        super().__init__()
        self.proof = proof

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch, for every function."""
        del types
        # This runs for every function of every pass: it is written for speed.
        kind = _kinds.get(func)
        if kind is None:
            kind = _kinds[func] = _kind(func)

        if kind is _Kind.METADATA:
            return func(*args, **kwargs) if kwargs else func(*args)

        named = dict(kwargs) if kwargs else {}
        if kind is _Kind.PYTHON:
            args, named = self._replaced(func, args, named)
            with self:
                return opened(func)(*args, **named)

        self._refuse_objects(func, args, named)
        if kind is _Kind.PROPERTY:
            return self._called(func, args, named)

        # What gives no tensor and is not listed as metadata lets a number out.
        if kind is _Kind.ORDINARY:
            out = self._called(func, args, named)
            if not isinstance(out, Tensor) and not tensors_among(out):
                self._refuse_secrets(func.__name__, args, named)

            return out

        if kind is _Kind.WATCHED:
            return self._watched(_name(func), func, args, named)

        if kind is _Kind.KERNEL:
            why = "is called by hand with records, and checks nothing"
            self._refuse_secrets(func.__name__, args, named, why)
        else:  # an index: torch makes tensors of the lists in it, and reads what they hold
            self._refuse_secrets(func.__name__, _lists_in(args[1]), {})

        return self._called(func, args, named)

    def _refuse_objects(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuse arguments with code of their own, which torch would call with this mode off."""
        if not (_are_known(args) and _are_known(kwargs.values())):
            self.proof.fail(f"{func.__name__} gets an object whose code runs where nobody looks")

    def _watched(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that reads numbers itself, if it reads none of records."""
        if name in _HOOKS:
            self._refuse_hooks(args[0])
            return func(*args, **kwargs)

        # Of all properties that are set, `data` alone is watched.
        if name == "__set__":
            return self._exchanged(func, args, kwargs)

        self._refuse_ways_out(name, args, kwargs)
        if name in _CHECKS:
            return self._checking(name, func, args, kwargs)

        # Kernels that would reach into memory of other records with the arguments as they are.
        if name in MENDED:
            return self._called(func, *MENDED[name](args, kwargs))

        if name in _BESIDE_THE_FIRST:
            self._refuse_secrets(name, args[1:], kwargs)
        elif not _gives_itself(name, args, kwargs):
            self._refuse_secrets(name, args, kwargs)

        return self._called(func, args, kwargs)

    def _exchanged(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Another memory is put into a tensor (`.data = ...`): if that was there before the pass,
        the pass would change it for all that follow, where nobody can put it back.
        """
        tensor, value = args

        # Memory that holds records is found on the model after the pass (`kept.py`).
        with no_functions():
            is_public_value = is_public(self.proof.state(value))
            if is_public_value and not self.proof.is_made_here(tensor):
                self.proof.fail("another memory is put into a tensor from before the pass")

        return self._called(func, args, kwargs)

    def _refuse_ways_out(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuse functions through which numbers get to Python, or from there into tensors."""
        if name in _CALLS_BACK:
            self.proof.fail(f"{name} calls a function with numbers, where nobody looks")

        if name in _MAKES_TENSORS and not _is_plain(_data_for(name, args, kwargs)):
            self.proof.fail(f"{name} makes a tensor of an object that cannot be looked into")

        # Also of what is public now: records may be written there later in the pass.
        if name in _HANDS_OUT_MEMORY:
            with no_functions():
                tensors = tensors_among([list(args), kwargs])
                is_of_pass = any(map(self.proof.is_made_here, tensors))

            if is_of_pass:
                self.proof.fail(
                    f"{name} lets what records made leave for Python: it hands out memory of the "
                    "pass"
                )

    def _checking(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that checks numbers by looking, where it may."""
        by_place = args[1] if len(args) > 1 else -1
        classes = kwargs.get("num_classes", by_place)
        # Without a number of classes the largest label decides a shape.
        self.proof.reads_allowed = type(classes) is int and classes != -1

        try:
            return self._called(func, args, kwargs)
        except Exception:
            self.proof.note_error(name)  # which a record may have caused
            raise
        finally:
            self.proof.reads_allowed = False

    def _refuse_secrets(
        self,
        name: str,
        args: Any,
        kwargs: Mapping[str, Any],
        why: str = "lets what records made leave for Python",
    ) -> None:
        """Refuse a function whose arguments tell something of a record."""
        with no_functions():
            for tensor in tensors_among([list(args), dict(kwargs)]):
                # Whether the tensor in a wrapper of torch.func is public is not known.
                state = _WRAPPED if _is_wrapped(tensor) else self.proof.state(tensor)

                if not is_public(state):
                    self.proof.refuse_kept(state)
                    self.proof.fail(f"{name} {why}")

                # Whoever has read random numbers can compare, and so tell places apart.
                if state is NOISE:
                    self.proof.use_up_noise()

    def _refuse_hooks(self, tensor: Any) -> None:
        """Called before a hook is put on a tensor, or on its node in the graph."""

    def _replaced(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments with which a function is called in the place of its own."""
        del func
        return args, kwargs

    def _called(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function as the user did."""
        return func(*args, **kwargs)


_inside: dict[Any, Any] = {}


def opened(func: Any) -> Any:
    """A function that is written in Python, without its question whether a mode wants to see it;
    None for others.

    The mode does want to see, and it sees what happens inside, as if the user had called that.
    """
    if type(func) is not types.FunctionType or not _can_be_opened(func):
        return None

    # The same code, with other names: there nobody asks whether a mode wants to see the function.
    inside = _inside.get(func)
    if inside is None:
        names = dict(func.__globals__) | dict.fromkeys(_GUARDS, _no)
        inside = types.FunctionType(
            func.__code__, names, func.__name__, func.__defaults__, func.__closure__
        )
        inside.__kwdefaults__ = func.__kwdefaults__
        _inside[func] = inside

    return inside


@cache
def _can_be_opened(func: Any) -> bool:
    # Without a guard of its own it chooses between others by a flag, as max_pool2d does: these ask
    # for it again, without end.
    guarded = not set(_GUARDS).isdisjoint(func.__code__.co_names)
    return guarded and (func.__module__ in _OPENED_MODULES or func is Tensor.backward)


def _no(*_: object) -> bool:
    return False


def _is_plain(data: Any) -> bool:
    """Whether tensors in it can be found: numbers, arrays and tensors, in lists and tuples."""
    if isinstance(data, (list, tuple)):
        return all(map(_is_plain, data))

    return isinstance(data, (Tensor, np.ndarray, np.generic, bool, int, float, complex, range))


def _are_known(things: Iterable[Any]) -> bool:
    """Whether torch calls no code of the user's for these arguments.

    An object's `__index__`, `__float__` or `__torch_function__` would run with this mode off.
    """
    for thing in things:
        kind = type(thing)
        if kind in _KNOWN or kind.__module__ == "numpy" or isinstance(thing, _WITHOUT_CODE):
            continue

        # A class of tensors that answers functions of torch itself has code of its own.
        if issubclass(kind, Tensor) and kind.__torch_function__ in _TORCHS_OWN_ANSWERS:
            continue

        if kind is slice:
            parts: Iterable[Any] = (thing.start, thing.stop, thing.step)
        elif kind is dict:
            parts = thing.values()
        elif isinstance(thing, (tuple, list)):
            # Not by the class's own way through it, which is code of the user's.
            kind_of_sequence: Any = tuple if isinstance(thing, tuple) else list
            parts = kind_of_sequence.__iter__(thing)
        else:
            return False

        if not _are_known(parts):
            return False

    return True


def _lists_in(index: Any) -> list[Any]:
    """The lists in an index, of which torch makes tensors itself."""
    # A tuple has a part for each axis, which may be a list or a tuple; else the list is the index.
    if isinstance(index, tuple):
        return [part for part in index if isinstance(part, (list, tuple))]

    return [index] if isinstance(index, list) else []


def _data_for(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function makes a tensor of; methods (`new_tensor`) are given it after the tensor."""
    if name.startswith("new"):
        return args[-1]

    return args[0] if args else kwargs


def _gives_itself(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function gives a tensor back as it is."""
    is_alone = len(args) == 1 and not kwargs
    return is_alone and name in ("as_tensor", "asarray") and isinstance(args[0], Tensor)
