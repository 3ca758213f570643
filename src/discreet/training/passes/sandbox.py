"""Circumstances of a pass: what a user's loss finds, and what it must not do while it runs.

    as written     compiled models and checkpointed blocks run as they are written
    masks          libraries are told not to branch on data, so that masks are always passed
    refused        threads, processes, pools of them, scaled losses, memory for other libraries
    the same       generators that a loss makes without a seed, in all passes of a step
    afterwards     parameters, gradients and attributes of modules are what they were before

Functions of torch and Python that are other ones meanwhile (`_REPLACED`) are so for the threads
that are in a pass; for all other threads they do what they always do.

**Masks.** transformers leaves a mask out where no record of the batch needs one, so that one record
decides which kernel computes all others. It does not look at the mask where torch says that it is
compiling, because a compiler cannot follow a branch on data; nor can a proof. So torch says so
during a pass (`torch.compiler.is_compiling`, a flag of one module). The other way, to answer
transformers' own question (`masking_utils.is_tracing`), was left: it reaches fewer branches on data
(torch's encoder layers and models with questions of their own ask torch), and each version of
transformers asks in another place. Where torch drops the flag nothing is proved wrongly: passes in
which masks are looked at go record by record.
"""

from __future__ import annotations

import _thread
import gc
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import pool
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint, dlpack
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import ModelError
from discreet.training.data.seeding import shared_numbers, shared_seed
from discreet.training.passes.replaced import Replaced
from discreet.training.passes.scripted import unseen_in
from discreet.training.separation.own import current_proof
from discreet.training.separation.proof import Proof
from discreet.training.state.moved import Moved, Noted
from discreet.training.state.untouched import Buffers, Untouched

__all__ = ["Erasable", "Traces", "plain_forward", "prepared", "seeded_pass"]

_AS_IT_IS = nullcontext()


@contextmanager
def plain_forward(
    model: nn.Module,
    *,
    restore: bool = True,
    trained: Mapping[str, Tensor] | None = None,
    several: bool = True,
    function: Callable[..., Any] | None = None,
) -> Iterator[Moved]:
    """The circumstances of a pass over a model; what it made of public state of Python, when it has
    ended.

    That state is put back: attributes of modules and objects, variables, containers.

    Args:
        model: of the user.
        restore: whether it is a trial: buffers and random numbers are afterwards what they were,
            and Python's and NumPy's numbers are the same in every trial.
        trained: the parameters that require a gradient, by leaf, where they are known.
        several: whether the pass is over several records. One by itself decides for nobody else:
            masks are passed as its model likes.
        function: of the user, which runs.

    Raises:
        ModelError: the pass wrote into a parameter or its gradient, past clipping and noise
            (gradients are put back); it moved state that cannot be put back; or it did what is
            refused during a pass.
    """
    parameters = _trained(model) if trained is None else trained
    untouched = Untouched(parameters)
    noted, moved = Noted(model, function), Moved()

    # In earnest, the proof of the pass puts back what was written into memory from before it.
    buffers = Buffers(model) if restore else None
    random_numbers = torch.random.fork_rng() if restore else _AS_IT_IS
    python_numbers = _public_numbers() if restore else _AS_IT_IS

    try:
        with (
            _REPLACED,
            _MASKED if several else _AS_IT_IS,
            random_numbers,
            python_numbers,
            _uncompiled(),
        ):
            yield moved
    finally:
        # State of Python first: a buffer that was assigned anew is an attribute.
        noted.put_back(moved)
        if buffers is not None:
            buffers.restore()

        written = untouched.written()

    # A backward() in the loss would add gradients that nobody has clipped (T10).
    if written:
        raise ModelError(
            expected="a loss that leaves parameters and their gradients alone",
            got=f"one that writes into {', '.join(written)}, past clipping and noise",
            do=(
                "Return the losses; leave out backward() and optimizer steps: the run computes "
                "gradients itself."
            ),
        )

    if moved.refusal is not None:
        raise moved.refusal


class Erasable(Protocol):
    """What holds memory of records."""

    def erase(self) -> None:
        """Overwrite it."""


@final
class Traces:
    """What passes leave behind until their sums are done: memory of records, and public state that
    they changed.

    Attributes:
        unerased: proofs of passes, and what recordings of passes made, whose contributions may not
            be in the sums yet.
        begin_numbers: is to be called before each pass over several records, for what Python and
            NumPy draw.
        stateful: whether a pass has changed public state. Public.
        may_tell: whether an error of the present step, or of the one that failed last, may tell of
            a record: an operation failed on records, or Python saw them, one by one. Otherwise all
            that Python saw is public, and so are its errors.
        shares_draws: numbers of records in a pass for which all that torch draws for no record in
            particular serves all records alike. Public.
    """

    __slots__ = (
        "_collects_later",
        "_in_step",
        "_moved",
        "_seed",
        "begin_numbers",
        "may_tell",
        "shares_draws",
        "stateful",
        "unerased",
    )

    def __init__(self) -> None:
        self.unerased: list[Erasable] = []
        self.begin_numbers: Callable[[], None] = _nothing
        self.stateful = False
        self.may_tell = False
        self.shares_draws: set[int] = set()

        self._seed: int | None = None  # of the step
        self._collects_later = False  # whether garbage is not collected until passes are erased
        self._in_step = False
        self._moved: dict[bool, Moved] = {}  # by the first augmentation and loss of the step

    def note(self, moved: Moved, *, augmenting: bool, trial: bool) -> None:
        """A pass has changed public state, which was put back."""
        self.stateful = self.stateful or bool(moved)

        # The first pass of a step only: how many follow depends on the size of the sample.
        if not trial:
            self._moved.setdefault(augmenting, moved)

    def one_step(self, seed: int | None = None) -> AbstractContextManager[None]:
        """For the time of a step: public state that passes change (buffers, attributes, generators)
        is the same for all of them, and moves once, at the end, by what the first of them made.

        Args:
            seed: secret; of what all records share. None: generators go on as they are.
        """
        # Passes of a step call it again: the step is what counts.
        return _AS_IT_IS if self._in_step else self._step(seed)

    @contextmanager
    def _step(self, seed: int | None) -> Iterator[None]:
        self._in_step, self._seed, self.may_tell = True, seed, False
        self._moved.clear()
        numbers = nullcontext(_nothing) if seed is None else shared_numbers(seed)

        try:
            with numbers as self.begin_numbers:
                yield

            # Only where all passes came to their end: a step that failed moves nothing.
            for moved in self._moved.values():
                moved.write()

            self.may_tell = False
        finally:
            self._in_step, self._seed, self.begin_numbers = False, None, _nothing
            self._moved.clear()

    def shared_draw(self, number: int) -> AbstractContextManager[None]:
        """For the time of one draw of torch's whose numbers all records share: they are the same in
        all passes of a step.

        Args:
            number: which draw of the pass it is; public.
        """
        # Each from a seed of its own: what is drawn for single records in between goes on.
        return nullcontext() if self._seed is None else seeded_pass(shared_seed(self._seed, number))

    def hold_finalizers(self) -> None:
        """Until `erase`, garbage is not collected: a finalizer of the user's would see what is in
        memory, or write there, and nobody would look.
        """
        # Between the pass and the sums no code of the user's may run.
        if gc.isenabled():
            gc.disable()
            self._collects_later = True

    def erase(self) -> None:
        """Overwrite what passes made of records: their contributions were added to the sums.

        Whatever a loss has kept, in whatever way, holds nothing from now on.
        """
        for remains in self.unerased:
            remains.erase()

        self.unerased.clear()

        # A finalizer finds nothing of records any more. Where the user had switched collection off,
        # it stays off.
        if self._collects_later:
            self._collects_later = False
            gc.enable()


def _nothing() -> None:
    """Without a seed nothing begins anew."""


@contextmanager
def seeded_pass(seed: int) -> Iterator[None]:
    """For the time of a pass, torch's own random numbers follow from a secret seed.

    Afterwards they go on as before.
    """
    if torch.accelerator.is_available():
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield

        return

    # Where there is only the processor, torch.manual_seed would remember a call for devices that
    # never come, with its stack.
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)

    try:
        yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def _public_numbers() -> Iterator[None]:
    """Public numbers of Python and NumPy: what a trial teaches must not be due to chance."""
    with shared_numbers(0) as begin:
        begin()
        yield


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def _uncompiled() -> AbstractContextManager[object]:
    """Compiled functions run as they are written. Where none was made, there is nothing to do."""
    if "torch._dynamo" not in sys.modules:
        return _AS_IT_IS

    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


# --- what is otherwise during a pass ---


@final
class _Straight:
    """In the place of torch's checkpoints: run the function once, and keep what it makes.

    Memory is bounded by microbatches; recomputing would hide the second run from the rules.
    """

    @staticmethod
    # Torch's own signature.
    def apply(function: Any, preserve: bool, *args: Any) -> Any:  # noqa: FBT001
        if _REPLACED.here:
            return function(*args)

        return _REPLACED.original(_Straight).apply(function, preserve, *args)


def _no_checkpoint(*args: Any, **kwargs: Any) -> Iterator[None]:
    """In the place of checkpoints that are not reentrant: a generator that goes on once."""
    if _REPLACED.here:
        return iter((None,))

    return _REPLACED.original(_no_checkpoint)(*args, **kwargs)  # type: ignore[no-any-return]


def _checked_by(check: Callable[..., None]) -> Any:
    """A function that calls the one for which it stands, after a check of the arguments."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return _REPLACED.original(checked)(*args, **kwargs)

    return checked


def _proof_here() -> Proof | None:
    """The proof of the pass in which this thread is; None outside of passes.

    Code of other threads may carry the context of a pass along, and is not part of it.
    """
    return current_proof() if _REPLACED.here else None


def _refuse_threads(*_: Any, **__: Any) -> None:
    """In another thread or process nobody would see what becomes of records."""
    if _REPLACED.here:
        raise ModelError(
            expected="a loss that computes in its own thread",
            got="one that starts a thread or a process, or gives work to a pool of them, where "
            "records cannot be followed",
            do="Compute everything in the loss itself.",
        )


def _refuse_scaled(scaler: Any, *_: Any, **__: Any) -> None:
    """Refuse losses that were multiplied: gradients would be divided after the noise (P17)."""
    if _REPLACED.here and scaler.is_enabled():
        raise ModelError(
            expected="losses as they are",
            got="losses that a GradScaler multiplied: records would be clipped at many times their "
            "gradient, and gradients divided afterwards",
            do=(
                "Leave the GradScaler out, in the loss and around optimizer.step(): bfloat16 "
                "needs none."
            ),
        )


def _refuse_import(*_: Any, **__: Any) -> None:
    """Memory that another library hands in has no mark: it may hold records of any pass."""
    proof = _proof_here()
    if proof is not None:
        proof.fail("from_dlpack brings memory into the pass, of which nobody knows whose it is")


def _refuse_export(*_: Any, **__: Any) -> None:
    """Neither mode of torch sees these functions; what they hand out can be read at any time."""
    proof = current_proof()  # in whatever thread
    if proof is not None:
        proof.fail("to_dlpack lets what records made leave for Python")


def _refuse_scripted(function: Any, *_: Any, **__: Any) -> None:
    """TorchScript turns tensors into lists and texts where no mode looks."""
    proof = _proof_here()

    # Looked into during passes alone: a function that is called elsewhere may do what it likes.
    if proof is not None and (unseen := unseen_in(function)):
        proof.fail(f"a scripted function may let what records made leave for Python, by {unseen}")


def _refuse_saving(hooks: Any) -> None:
    """Hooks on tensors that autograd saves are called where no function is seen; only our own are
    known.
    """
    proof = _proof_here()
    if proof is not None and not hooks.pack_hook.__module__.startswith("discreet."):
        proof.fail("hooks on saved tensors are called where nobody looks")


def _refuse_mode(mode: Any) -> None:
    """Another dispatch mode sees operations before the proof does."""
    proof = _proof_here()
    if proof is not None and not isinstance(mode, Proof):
        proof.fail("a dispatch mode of the loss's own sees records")


def _refuse_swap(*_: Any, **__: Any) -> None:
    """Tensors that change places are not put back after the pass: no operation has written."""
    proof = _proof_here()
    if proof is not None:
        proof.fail("tensors change places")


def _new_storage(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """Memory that is made by hand holds zeros in a pass: else it could hold what was freed."""
    storage = _REPLACED.original(_new_storage)(kind, *args, **kwargs)
    if _REPLACED.here and all(isinstance(size, int) for size in args):  # nothing to begin with
        storage.fill_(0)

    return storage


def _resize_storage(storage: Any, size: int) -> Any:
    """As `_new_storage`, of what memory grows by."""
    size_before = storage.nbytes()
    resized = _REPLACED.original(_resize_storage)(storage, size)
    if _REPLACED.here and size > size_before:
        storage[size_before:] = 0

    return resized


# --- generators that are new in every pass ---


def _fresh_bits(count: int) -> int:
    """What NumPy seeds a generator with that is given no seed: in a pass, numbers of Python's
    global generator, which are the same in all passes of a step.
    """
    if _REPLACED.here:
        return random.getrandbits(count)

    return _REPLACED.original(_fresh_bits)(count)  # type: ignore[no-any-return]


def _seed_of_python(generator: Any, a: Any = None, version: int = 2) -> None:
    """As `_fresh_bits`, for a generator of Python's."""
    number = random.getrandbits(_SEED_BITS) if a is None and _REPLACED.here else a
    _REPLACED.original(_seed_of_python)(generator, number, version)


def _seed_of_all(a: Any = None, version: int = 2) -> None:
    """In the place of `random.seed`, which without a number asks the operating system."""
    number = random.getrandbits(_SEED_BITS) if a is None and _REPLACED.here else a
    _REPLACED.original(_seed_of_all)(number, version)


def _refuse_entropy(*_: Any, **__: Any) -> None:
    """Numbers of the operating system serve all records of a pass, and are others in the next."""
    proof = _proof_here()
    # Of a single record they are its own, as any that are drawn for it.
    if proof is not None and proof.count > 1:
        proof.fail(
            "random numbers of the operating system (SystemRandom, secrets, uuid, os.urandom, "
            "torch.seed) are others in every pass of a step"
        )


_SEED_BITS = 128
_urandom = _checked_by(_refuse_entropy)
_torch_seed = _checked_by(_refuse_entropy)

# One function for several names of the same.
_start_new_thread, _to_dlpack = _checked_by(_refuse_threads), _checked_by(_refuse_export)

_REPLACED = Replaced(
    [
        (checkpoint, "CheckpointFunction", _Straight),
        (checkpoint, "_checkpoint_without_reentrant_generator", _no_checkpoint),
        (torch.amp.GradScaler, "scale", _checked_by(_refuse_scaled)),
        (threading.Thread, "start", _checked_by(_refuse_threads)),
        (_thread, "start_new_thread", _start_new_thread),
        (_thread, "start_new", _start_new_thread),
        (os, "fork", _checked_by(_refuse_threads)),
        # Pools that were there before start nothing. All methods of a `Pool` that give it work ask
        # first whether it is running.
        (ThreadPoolExecutor, "submit", _checked_by(_refuse_threads)),
        (ProcessPoolExecutor, "submit", _checked_by(_refuse_threads)),
        (pool.Pool, "_check_running", _checked_by(_refuse_threads)),
        (torch._C.ScriptFunction, "__call__", _checked_by(_refuse_scripted)),  # noqa: SLF001
        (torch._C.ScriptMethod, "__call__", _checked_by(_refuse_scripted)),  # noqa: SLF001
        (saved_tensors_hooks, "__enter__", _checked_by(_refuse_saving)),
        (TorchDispatchMode, "__enter__", _checked_by(_refuse_mode)),
        (torch._C, "_swap_tensor_impl", _checked_by(_refuse_swap)),  # noqa: SLF001
        (torch.UntypedStorage, "__new__", _new_storage),
        (torch.UntypedStorage, "resize_", _resize_storage),
        (np.random.bit_generator, "randbits", _fresh_bits),
        (random.Random, "seed", _seed_of_python),
        (random, "seed", _seed_of_all),
        # What SystemRandom calls, and so `secrets`; `uuid` asks `os`.
        (random, "_urandom", _urandom),
        (os, "urandom", _urandom),
        (os, "getrandom", _checked_by(_refuse_entropy)),
        (torch, "seed", _torch_seed),
        (torch.random, "seed", _torch_seed),
        (dlpack, "to_dlpack", _to_dlpack),
        (torch, "to_dlpack", _to_dlpack),
        (torch._C, "_to_dlpack", _to_dlpack),  # noqa: SLF001  (what the others are)
        (torch._C, "_from_dlpack", _checked_by(_refuse_import)),  # noqa: SLF001
        (torch._C, "_to_dlpack_versioned", _checked_by(_refuse_export)),  # noqa: SLF001
    ]
)

prepared = _REPLACED.installed
"""Context for the time of a run, in which passes begin faster."""

_MASKED = Replaced([(torch.compiler, "_is_compiling_flag", True)])
