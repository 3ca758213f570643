"""The circumstances of a pass: what is otherwise, what is refused, and what is as before."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint, dlpack
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import ModelError
from discreet.training.passes import sandbox
from discreet.training.passes.sandbox import plain_forward, prepared
from discreet.training.separation.kept import refuse_kept
from discreet.training.separation.own import proving
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def replaced_things() -> list[Any]:
    entries = [*sandbox._REPLACED._replacements, *sandbox._MASKED._replacements]
    return [getattr(owner, name) for owner, name, _ in entries]


@pytest.fixture(autouse=True)
def everything_is_put_back() -> Iterator[None]:
    before = replaced_things()
    yield
    assert all(now is then for now, then in zip(replaced_things(), before, strict=True))
    assert not torch.compiler.is_compiling()


# --- threads ---

STARTS: dict[str, Callable[[], Any]] = {
    "thread": lambda: threading.Thread(target=print).start(),
    "timer": lambda: threading.Timer(0.0, print).start(),
    "pool": lambda: ThreadPoolExecutor(1).submit(print),
    "low level": lambda: _thread.start_new_thread(print, ()),
    "fork": lambda: os.fork(),  # noqa: PLW0108  (looked up in the pass)
    "process": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
}


@pytest.mark.parametrize("kind", STARTS)
def test_a_pass_starts_no_thread(kind: str) -> None:
    with pytest.raises(ModelError, match="starts a thread or a process"), plain_forward(net()):
        STARTS[kind]()


def test_a_pass_gives_no_work_to_a_pool_that_was_there_before() -> None:
    """Wrong: the pool starts no thread, so nobody looks, and what it makes counts as public."""
    with ThreadPoolExecutor(1) as executor, ThreadPool(1) as pool:
        executor.submit(int).result()
        calls: list[Callable[[], object]] = [
            lambda: executor.submit(int),
            lambda: list(executor.map(int, "1")),
            lambda: pool.apply(int),
            lambda: pool.map(int, "1"),
            lambda: list(pool.imap_unordered(int, "1")),
        ]
        for call in calls:
            with pytest.raises(ModelError, match="gives work to a pool"), plain_forward(net()):
                call()
        assert pool.apply(int) == 0


def test_what_runs_elsewhere_meanwhile_may_start_threads() -> None:
    entered, ran = threading.Event(), threading.Event()

    def elsewhere() -> None:
        entered.wait(10)
        threading.Thread(target=ran.set).start()

    other = threading.Thread(target=elsewhere)
    other.start()
    with plain_forward(net()):
        entered.set()
        assert ran.wait(10)
    other.join()
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def test_passes_of_several_threads_overlap() -> None:
    """The first that leaves must not put back what the other still needs, nor the last keep it."""
    before = replaced_things()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with plain_forward(net()):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    with plain_forward(net()), plain_forward(net()):
        leave.set()
        with pytest.raises(ModelError), plain_forward(net()):
            STARTS["thread"]()
        assert torch.compiler.is_compiling()
    thread.join()
    assert all(now is then for now, then in zip(replaced_things(), before, strict=True))


def test_what_somebody_else_replaced_stays() -> None:
    def mine(_: threading.Thread) -> None: ...

    original = threading.Thread.start
    try:
        with plain_forward(net()):
            ours = threading.Thread.start
            threading.Thread.start = mine  # type: ignore[method-assign, assignment]
        assert threading.Thread.start is mine
        threading.Thread.start = ours  # type: ignore[method-assign]
        with plain_forward(net()):
            pass
        thread = threading.Thread(target=int)
        thread.start()  # also where ours was left behind
        thread.join()
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


# --- doors that no mode sees ---

EXPORTS: list[tuple[Any, str]] = [
    (dlpack, "to_dlpack"),
    (torch, "to_dlpack"),
    (torch._C, "_to_dlpack"),
    (torch._C, "_to_dlpack_versioned"),
]


@pytest.mark.parametrize(("module", "name"), EXPORTS)
def test_memory_is_not_handed_out(module: Any, name: str) -> None:
    for records in (1, 4):
        proof = Proof(records)
        batch = proof.begin(torch.ones(records, 3), Rows(0))
        with pytest.raises(OneByOne, match="to_dlpack"), plain_forward(net()), proving(proof):
            getattr(module, name)(batch)
        assert proof.failure is not None
    getattr(module, name)(torch.ones(3))


def test_a_scaled_loss_is_refused() -> None:
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(ModelError, match="GradScaler"), plain_forward(net()):
        scaler.scale(torch.ones(2))
    with plain_forward(net()):
        torch.amp.GradScaler("cpu", enabled=False).scale(torch.ones(2))
    assert scaler.scale(torch.ones(2)).tolist() == [65536.0, 65536.0]


# --- as written ---


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_run_once(reentrant: bool) -> None:
    calls: list[int] = []

    def block(x: Tensor) -> Tensor:
        calls.append(1)
        return x.exp()

    def gradient() -> Tensor:
        x = torch.ones(2, requires_grad=True)
        out = checkpoint.checkpoint(block, x, use_reentrant=reentrant)
        out.sum().backward()
        assert x.grad is not None
        return x.grad

    expected = gradient()
    assert len(calls) == 2
    with plain_forward(net()):
        assert torch.equal(gradient(), expected)
        assert len(calls) == 3


def test_checkpoints_of_other_threads_are_theirs() -> None:
    calls: list[int] = []

    def block(x: Tensor) -> Tensor:
        calls.append(1)
        return x.exp()

    entered, ran = threading.Event(), threading.Event()

    def gradient() -> None:
        entered.wait(10)
        x = torch.ones(2, requires_grad=True)
        checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
        ran.set()

    other = threading.Thread(target=gradient)
    other.start()
    with plain_forward(net()):
        entered.set()
        assert ran.wait(10)
    other.join()
    assert len(calls) == 2


# --- masks ---


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the operations of ATen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def language_model(name: str, attention: str) -> Any:
    import transformers

    sizes: dict[str, dict[str, Any]] = {
        "Bert": {**SIZES, "intermediate_size": 16},
        "GPT2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 30},
        "Llama": {**SIZES, "intermediate_size": 16, "num_key_value_heads": 2},
        "T5": {
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 16,
            "num_layers": 1,
            "num_heads": 2,
            "vocab_size": 30,
        },
        "DistilBert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 30},
    }
    config = getattr(transformers, f"{name}Config")(
        **sizes[name], **TOKENS, attn_implementation=attention
    )
    return getattr(transformers, f"{name}Model")(config).eval()


def operations(model: Any, mask: Tensor) -> list[str]:
    tokens = torch.arange(2, 26).view(3, 8)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": tokens, "decoder_attention_mask": mask}
    seen = Operations()
    with seen:
        model(**inputs)
    return seen.names


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama", "T5", "DistilBert"])
def test_masks_are_passed_whether_or_not_a_record_is_padded(name: str, attention: str) -> None:
    """If this fails, torch or transformers has dropped the question that the flag answers."""
    model = language_model(name, attention)
    whole = torch.ones(3, 8, dtype=torch.long)
    padded = whole.clone()
    padded[1, 5:] = 0
    with plain_forward(model):
        for_whole, for_padded = operations(model, whole), operations(model, padded)
    assert for_whole == for_padded
    assert not any("_local_scalar_dense" in name for name in for_whole)
    assert any("mask" in name or "where" in name or "add" in name for name in for_whole)


def test_without_the_flag_a_record_decides() -> None:
    """Why there is a flag; if this fails, transformers has mended it, and the flag may go."""
    model = language_model("Bert", "sdpa")
    whole = torch.ones(3, 8, dtype=torch.long)
    padded = whole.clone()
    padded[1, 5:] = 0
    assert operations(model, whole) != operations(model, padded)


def test_one_record_by_itself_is_computed_as_its_model_likes() -> None:
    with plain_forward(net(), several=False):
        assert not torch.compiler.is_compiling()


def test_the_flag_is_what_torch_asks() -> None:
    with plain_forward(net()):
        assert torch.compiler.is_compiling()
    assert not torch.compiler.is_compiling()
    with torch.compiler._compile_session_context():
        with plain_forward(net()):
            assert torch.compiler.is_compiling()
        assert torch.compiler.is_compiling()


def test_compiled_models_run_as_they_are_written() -> None:
    model = net()
    compiled: Any = torch.compile(model, backend="eager")
    with plain_forward(compiled):
        assert torch.equal(compiled(torch.ones(2, 3)), model(torch.ones(2, 3)))


# --- as before ---


def test_writing_into_a_parameter_is_refused() -> None:
    model = net()
    weight: Any = model[0].weight
    weight.grad = gradient = torch.ones(4, 3)
    with pytest.raises(ModelError, match=r"writes into 0\.weight"), plain_forward(model):
        assert weight.grad is None
        with torch.no_grad():
            weight.add_(1.0)
    assert weight.grad is gradient
    with pytest.raises(ModelError, match=r"writes into 0\.weight"), plain_forward(model):
        model(torch.ones(1, 3)).sum().backward()
    assert weight.grad is gradient


def test_a_trial_leaves_no_trace() -> None:
    model = nn.BatchNorm1d(3)
    mean = model.running_mean
    before = torch.get_rng_state()
    with plain_forward(model):
        model(torch.randn(5, 3))
        model.running_mean = torch.ones(3)
    assert model.running_mean is mean
    assert torch.equal(torch.as_tensor(mean), torch.zeros(3))
    assert int(torch.as_tensor(model.num_batches_tracked)) == 0
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "error", [RuntimeError("its own"), OneByOne("not proved"), KeyboardInterrupt()]
)
def test_a_pass_that_fails_leaves_no_records_on_the_model(error: BaseException) -> None:
    model: Any = net()
    with pytest.raises(type(error)), plain_forward(model, restore=False):
        proof = Proof(4)
        batch = proof.begin(torch.randn(4, 3), Rows(0))
        with proof:
            model.last = model(batch)
            model[1].cache = [model.last]
        raise error
    refuse_kept(model)
    assert not hasattr(model, "last")


def test_a_run_that_is_collected_while_another_begins_does_not_block_it() -> None:
    """Wrong: a lock that a thread cannot take twice; whether it hangs depends on when Python
    collects.
    """
    with sandbox._REPLACED._lock, prepared():
        assert sandbox._REPLACED._users > 0


def test_memory_made_by_hand_holds_zeros_in_a_pass() -> None:
    """Wrong: it holds what was freed, such as numbers of a record of an earlier pass."""
    storages: Any = torch.UntypedStorage
    written = [storages(64).fill_(7) for _ in range(50)]
    grown = storages(2).fill_(7)
    del written
    with plain_forward(net()):
        fresh = [storages(64) for _ in range(50)]
        given = storages([1, 2])
        grown.resize_(40)
    assert all(not any(storage.tolist()) for storage in fresh)
    assert given.tolist() == [1, 2]
    assert grown.tolist() == [7, 7, *[0] * 38]
    assert storages([3]).tolist() == [3]
