"""Fine-tuning a few parameters: adapters of the peft library on tiny models, and some by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import Case, Catalogue, Loss, Output, find
from .perception_models import image_class, labelled_images
from .transformers_models import (
    SMALL,
    T5_SIZES,
    labelled_text,
    make_model,
    next_token,
    sequence_class,
    text,
    token_losses,
    translation,
)

CATALOGUE = Catalogue()


def _gpt2() -> Any:
    return make_model("GPT2", "LMHeadModel", **SMALL)


def _llama() -> Any:
    return make_model("Llama", "ForCausalLM", **SMALL, num_key_value_heads=1)


def _bert() -> Any:
    return make_model("Bert", "ForSequenceClassification", **SMALL)


def _vit() -> Any:
    return make_model("ViT", "ForImageClassification", **SMALL, image_size=8, patch_size=4)


def _t5() -> Any:
    return make_model("T5", "ForConditionalGeneration", **{**SMALL, **T5_SIZES})


def stirred(model: Any) -> Any:
    """The model with small random numbers added to what is trained: many adapters begin at zero."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def adapted(model: Any, kind: str, **options: Any) -> Any:
    """A model with an adapter of peft, not at its first values."""
    import peft

    return stirred(peft.get_peft_model(model, find(peft, kind)(**options)))


Body = tuple[Callable[[], Any], Loss, Callable[[], Any]]

GPT2: Body = (_gpt2, next_token, text)
LLAMA: Body = (_llama, next_token, text)
BERT: Body = (_bert, sequence_class, labelled_text)
VIT: Body = (_vit, image_class, labelled_images)
T5: Body = (_t5, translation, text)


def _adapter(name: str, body: Body, kind: str, **options: Any) -> None:
    make, loss, batch = body
    CATALOGUE.add(name, lambda: Case(adapted(make(), kind, **options), loss, batch()))


_ATTENTION = ["query", "value"]
_PROJECTIONS = ["q_proj", "v_proj"]

_adapter("lora on gpt2", GPT2, "LoraConfig", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
_adapter(
    "lora on llama", LLAMA, "LoraConfig", r=2, target_modules=["q_proj", "v_proj", "down_proj"]
)
_adapter(
    "lora on bert, with its head",
    BERT,
    "LoraConfig",
    r=2,
    target_modules=_ATTENTION,
    task_type="SEQ_CLS",
)
_adapter(
    "lora on vit, with its head",
    VIT,
    "LoraConfig",
    r=2,
    target_modules=["q_proj", "v_proj"],
    modules_to_save=["classifier"],
)
_adapter("lora on vit, patches too", VIT, "LoraConfig", r=2, target_modules=["projection"])
_adapter("lora on t5", T5, "LoraConfig", r=2, target_modules=["q", "v"])
_adapter("lora on words", LLAMA, "LoraConfig", r=2, target_modules=["embed_tokens", "q_proj"])
_adapter("lora with biases", BERT, "LoraConfig", r=2, target_modules=_ATTENTION, bias="all")
_adapter(
    "lora scaled by the root of its rank",
    BERT,
    "LoraConfig",
    r=4,
    use_rslora=True,
    target_modules=_ATTENTION,
)
_adapter(
    "lora with its own magnitudes (DoRA)",
    LLAMA,
    "LoraConfig",
    r=2,
    use_dora=True,
    target_modules=_PROJECTIONS,
)
_adapter(
    "lora from singular vectors (PiSSA)",
    LLAMA,
    "LoraConfig",
    r=2,
    init_lora_weights="pissa",
    target_modules=_PROJECTIONS,
)
_adapter(
    "adalora", BERT, "AdaLoraConfig", init_r=3, target_r=2, total_step=10, target_modules=_ATTENTION
)
_adapter("loha", BERT, "LoHaConfig", r=2, target_modules=_ATTENTION)
_adapter("lokr", BERT, "LoKrConfig", r=2, target_modules=_ATTENTION)
_adapter("oft", BERT, "OFTConfig", r=0, oft_block_size=4, target_modules=_ATTENTION)
_adapter("boft", BERT, "BOFTConfig", boft_block_size=4, target_modules=_ATTENTION)
_adapter("vera", BERT, "VeraConfig", r=3, target_modules=_ATTENTION)
_adapter("fourier weights", BERT, "FourierFTConfig", n_frequency=10, target_modules=_ATTENTION)
_adapter("reflections (HRA)", BERT, "HRAConfig", r=2, target_modules=_ATTENTION)
_adapter(
    "vector bank",
    BERT,
    "VBLoRAConfig",
    r=2,
    num_vectors=6,
    vector_length=4,
    topk=2,
    target_modules=_ATTENTION,
)
_adapter("shards (MiSS)", BERT, "MissConfig", r=2, target_modules=_ATTENTION)
_adapter("circular weights (C3A)", BERT, "C3AConfig", block_size=4, target_modules=_ATTENTION)
_adapter("sparse entries (SHiRA)", BERT, "ShiraConfig", r=1, target_modules=_ATTENTION)
_adapter(
    "ia3 on gpt2",
    GPT2,
    "IA3Config",
    target_modules=["c_attn", "mlp.c_proj"],
    feedforward_modules=["mlp.c_proj"],
    fan_in_fan_out=True,
)
_adapter(
    "ia3 on bert",
    BERT,
    "IA3Config",
    target_modules=["key", "value", "output.dense"],
    feedforward_modules=["output.dense"],
    task_type="SEQ_CLS",
)
_adapter("layer norms alone", BERT, "LNTuningConfig", target_modules=["LayerNorm"])
_adapter(
    "some rows of the words",
    LLAMA,
    "TrainableTokensConfig",
    token_indices=[2, 5],
    target_modules=["embed_tokens"],
)


# --- prompts ---


def _prompted(name: str, kind: str, **options: Any) -> None:
    """Add GPT-2 with virtual tokens before the text."""

    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen = batch
        logits = model(input_ids=tokens, attention_mask=seen).logits[:, -tokens.shape[1] :]
        return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, 1:])

    def factory() -> Case:
        settings = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3, **options}
        return Case(adapted(_gpt2(), kind, **settings), loss, text())

    CATALOGUE.add(name, factory)


_prompted("prompt tuning", "PromptTuningConfig")
_prompted("prompts by an encoder (p-tuning)", "PromptEncoderConfig", encoder_hidden_size=8)
_prompted("prefix tuning", "PrefixTuningConfig")
_prompted(
    "prefix tuning by a projection",
    "PrefixTuningConfig",
    prefix_projection=True,
    encoder_hidden_size=8,
)
_adapter(
    "prompt tuning on bert", BERT, "PromptTuningConfig", task_type="SEQ_CLS", num_virtual_tokens=2
)
_adapter(
    "adaption prompts on llama",
    LLAMA,
    "AdaptionPromptConfig",
    adapter_len=2,
    adapter_layers=1,
    task_type="CAUSAL_LM",
)


@CATALOGUE.entry("multitask prompts")
def multitask_prompts() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, tasks = batch
        logits = model(input_ids=tokens, attention_mask=seen, task_ids=tasks).logits
        logits = logits[:, -tokens.shape[1] :]
        return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, 1:])

    model = adapted(
        _gpt2(),
        "MultitaskPromptTuningConfig",
        task_type="CAUSAL_LM",
        num_virtual_tokens=3,
        num_tasks=2,
        num_ranks=1,
    )
    return Case(model, loss, (*text(), torch.tensor([0, 1, 1, 0])))


# --- by hand ---


@CATALOGUE.entry("biases alone (BitFit)")
def biases_alone() -> Case:
    model = _bert()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("bias" in name or "classifier" in name)
    return Case(model, sequence_class, labelled_text())


@CATALOGUE.entry("last layer alone")
def last_layer_alone() -> Case:
    model = _gpt2().requires_grad_(False)
    model.transformer.h[-1].requires_grad_(True)
    model.transformer.ln_f.requires_grad_(True)
    return Case(model, next_token, text())


class Bottleneck(nn.Module):
    """A layer and a narrow detour after it."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.down, self.up = nn.Linear(width, 2), nn.Linear(2, width)

    def forward(self, hidden: Tensor) -> Tensor:
        outputs: Tensor = self.layer(hidden)
        detour: Tensor = self.up(F.gelu(self.down(outputs)))
        return outputs + detour


@CATALOGUE.entry("bottleneck adapters")
def bottleneck_adapters() -> Case:
    model = _gpt2().requires_grad_(False)
    for block in model.transformer.h:
        block.mlp.c_proj = Bottleneck(block.mlp.c_proj, 8)
    return Case(model, next_token, text())


@CATALOGUE.entry("a head on frozen features")
def head_on_frozen_features() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        tokens, seen, labels = batch
        with torch.no_grad():
            hidden = model.body(input_ids=tokens, attention_mask=seen).last_hidden_state
        return F.cross_entropy(model.head(hidden[:, 0]), labels, reduction="none")

    parts = nn.ModuleDict({"body": _bert().bert.requires_grad_(False), "head": nn.Linear(8, 3)})
    return Case(parts, _by_name(loss), labelled_text())


class _Named:
    """Parts of a module dict as attributes."""

    def __init__(self, parts: Any) -> None:
        self.body, self.head = parts["body"], parts["head"]


def _by_name(loss: Loss) -> Loss:
    return lambda parts, batch: loss(_Named(parts), batch)


@CATALOGUE.entry("two adapters of one body")
def two_adapters() -> Case:
    """A ladder beside a frozen body: features of all layers, mixed by learnt gates."""

    def loss(model: Any, batch: Any) -> Output:
        tokens, seen, labels = batch
        outputs = model["body"](input_ids=tokens, attention_mask=seen, output_hidden_states=True)
        states = torch.stack([state[:, 0] for state in outputs.hidden_states], 1)
        mixed = (model["gates"].weight.softmax(1) @ states).squeeze(1)
        return F.cross_entropy(model["head"](mixed), labels, reduction="none")

    body = _bert().bert.requires_grad_(False)
    gates = nn.Linear(2, 1, bias=False)
    model = nn.ModuleDict({"body": body, "gates": gates, "head": nn.Linear(8, 3)})
    return Case(model, loss, labelled_text())


# --- what takes long, and near relatives ---

CATALOGUE.leave_all_to_full_suite_but(
    "lora on gpt2",
    "loha",
    "sparse entries (SHiRA)",
    "ia3 on gpt2",
    "some rows of the words",
    "prompt tuning",
    "prefix tuning",
    "biases alone (BitFit)",
    "a head on frozen features",
)
