"""Hooks of users are refused by name; those that libraries compute with are not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import prune

from discreet.errors import ModelError
from discreet.training.gradients import GradientWatch
from discreet.training.passes.hooks import OwnHook, refuse_hooks


def net() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))


def trained(model: nn.Module) -> dict[str, Tensor]:
    return {f"grad/{name}": p for name, p in model.named_parameters() if p.requires_grad}


def spy(*_: Any, **__: Any) -> None: ...


class Tracker:
    def look(self, *_: Any) -> None: ...

    def __call__(self, *_: Any) -> None: ...


HOOKS: dict[str, Callable[..., Any]] = {
    "function": spy,
    "lambda": lambda *_: None,
    "partial": functools.partial(spy, 1),
    "method": Tracker().look,
    "partial of a method": functools.partial(Tracker().look, 1),
    "object": Tracker(),
    "decorated": torch.no_grad()(spy),
    "built-in": print,
}

REGISTER: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "gradient": (lambda m, h: m[0].weight.register_hook(h), r"gradient hook on 0\.weight"),
    "post accumulate": (
        lambda m, h: m[1][1].bias.register_post_accumulate_grad_hook(h),
        r"post-accumulate hook on 1\.1\.bias",
    ),
    "forward": (lambda m, h: m[1][1].register_forward_hook(h), r"forward hook on the layer '1\.1'"),
    "forward with kwargs": (
        lambda m, h: m[0].register_forward_hook(h, with_kwargs=True),
        "forward hook on the layer '0'",
    ),
    "forward always": (
        lambda m, h: m[0].register_forward_hook(h, always_call=True),
        "forward hook on the layer '0'",
    ),
    "forward pre": (lambda m, h: m.register_forward_pre_hook(h), "forward pre-hook on the model"),
    "forward pre with kwargs": (
        lambda m, h: m[0].register_forward_pre_hook(h, with_kwargs=True),
        "forward pre-hook on the layer '0'",
    ),
    "full backward": (lambda m, h: m[0].register_full_backward_hook(h), "a backward hook on"),
    "backward pre": (lambda m, h: m[0].register_full_backward_pre_hook(h), "backward pre-hook on"),
    "legacy backward": (lambda m, h: m[0].register_backward_hook(h), "a backward hook on"),
    "all forward": (
        lambda _, h: torch_module.register_module_forward_hook(h),
        "a forward hook on all modules",
    ),
    "all forward pre": (
        lambda _, h: torch_module.register_module_forward_pre_hook(h),
        "a forward pre-hook on all modules",
    ),
    "all backward": (
        lambda _, h: torch_module.register_module_full_backward_hook(h),
        "a backward hook on all modules",
    ),
    "all backward pre": (
        lambda _, h: torch_module.register_module_full_backward_pre_hook(h),
        "a backward pre-hook on all modules",
    ),
}


@contextmanager
def removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("where", REGISTER)
def test_every_kind_of_hook_is_refused(where: str) -> None:
    register, name = REGISTER[where]
    model = net()
    refuse_hooks(model, trained(model))
    with removed(register(model, spy)), pytest.raises(ModelError, match=name) as caught:
        refuse_hooks(model, trained(model))
    assert "spy of" in caught.value.got
    refuse_hooks(model, trained(model))


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("where", ["gradient", "forward", "all forward pre"])
def test_however_it_is_written(where: str, kind: str) -> None:
    register, _ = REGISTER[where]
    model = net()
    with removed(register(model, HOOKS[kind])), pytest.raises(ModelError, match="single records"):
        refuse_hooks(model, trained(model))


def test_hooks_on_several_parameters_at_once() -> None:
    model = net()
    handle = torch.autograd.graph.register_multi_grad_hook(tuple(model.parameters()), spy)
    with removed(handle), pytest.raises(ModelError, match="gradient hook"):
        refuse_hooks(model, trained(model))


def test_hooks_on_what_autograd_saves() -> None:
    model = net()
    saved = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with saved, pytest.raises(ModelError, match="autograd saves"):
        refuse_hooks(model, trained(model))
    with torch.autograd.graph.save_on_cpu():
        refuse_hooks(model, trained(model))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_hooks_of_torch_are_part_of_the_model() -> None:
    model = net()
    nn.utils.weight_norm(model[0])
    nn.utils.spectral_norm(model[1][1])
    prune.l1_unstructured(model[1][1], "bias", amount=1)  # type: ignore[no-untyped-call]
    assert model[0]._forward_pre_hooks
    refuse_hooks(model, trained(model))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_hooks_of_transformers_and_peft_are_part_of_the_model() -> None:
    import peft
    import transformers

    size = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "bos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, eos_token_id=0))
    model.enable_input_require_grads()
    refuse_hooks(model, trained(model))
    adapted = peft.get_peft_model(model, peft.LoraConfig(fan_in_fan_out=True))
    refuse_hooks(adapted, trained(adapted))
    handle = adapted.base_model.register_forward_hook(spy)
    with removed(handle), pytest.raises(ModelError, match="base_model"):
        refuse_hooks(adapted, trained(adapted))


def test_what_prints_activations_is_refused_whoever_wrote_it() -> None:
    from transformers import debug_utils as debug

    model = net()
    debug.DebugUnderflowOverflow(model)
    with pytest.raises(ModelError, match="DebugUnderflowOverflow"):
        refuse_hooks(model, trained(model))


def test_our_own_net_for_gradients_is_no_hook_of_a_user() -> None:
    model = net()
    with GradientWatch(trained(model)).watching():
        assert model[0].weight._post_accumulate_grad_hooks
        refuse_hooks(model, trained(model))
        model[0].weight.register_post_accumulate_grad_hook(spy)
        with pytest.raises(ModelError, match="post-accumulate hook"):
            refuse_hooks(model, trained(model))


def test_no_hook_of_a_user_passes_for_our_own() -> None:
    with pytest.raises(ModelError, match="spy"):
        OwnHook(spy)


def test_a_hook_beside_our_own_is_refused() -> None:
    model = net()
    watch = GradientWatch(trained(model))
    register: Any = model[0].weight.register_post_accumulate_grad_hook
    register(OwnHook(watch.close))
    refuse_hooks(model, trained(model))
    register(spy)
    with pytest.raises(ModelError, match=r"post-accumulate hook on 0\.weight"):
        refuse_hooks(model, trained(model))


def test_frozen_parameters_may_have_what_they_like() -> None:
    model = net()
    model[0].weight.register_hook(spy)
    model[0].requires_grad_(requires_grad=False)
    refuse_hooks(model, trained(model))
