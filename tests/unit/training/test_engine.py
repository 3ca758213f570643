"""Whole models give what torch gives for one record at a time, without a loop over records."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from discreet.errors import CoupledRecords, ModelError, NumericsError
from discreet.training.engine import Engine
from discreet.training.passes.hooks import refuse_hooks
from support.per_record import TOLERANCE, check_contributions, compare, computed, oracle
from support.tally import Tally

HF: Any = transformers  # its types do not know all of its own options
B = 4  # records
Model = Callable[[], tuple[Any, Any, Any]]  # to model, loss, batch
# By transformers; peft uses the old names, too.
RENAMED = "ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)


def classify(model: nn.Module, batch: Any) -> Tensor:
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def squares(model: nn.Module, batch: Any) -> Tensor:
    out = model(*batch)
    return torch.as_tensor(out.flatten(1).square().mean(1))


def language(model: nn.Module, batch: Any) -> Tensor:
    (ids,) = batch
    logits = model(ids)
    return F.cross_entropy(logits.transpose(1, 2), ids, reduction="none").mean(1)


def labels(classes: int) -> Tensor:
    return torch.randint(classes, (B,))


# --- the seven models of the benchmark, small ---


class Gpt(nn.Module):
    def __init__(self, *, tied: bool, words: int = 13, width: int = 8, length: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("ids", torch.arange(length).unsqueeze(0))
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        h = self.words(ids) + self.places(self.get_buffer("ids")[:, : ids.shape[1]])
        for block in self.blocks:
            h = block(h)
        return torch.as_tensor(self.head(self.norm(h)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, h: Tensor) -> Tensor:
        rows, length, width = h.shape
        parts = (
            self.qkv(self.one(h))
            .view(rows, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        met = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        h = h + self.out(met.transpose(1, 2).reshape(rows, length, width))
        return h + torch.as_tensor(self.mlp(self.two(h)))


class Tagger(nn.Module):
    def __init__(self, kind: Any = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.cells = kind(5, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.cells(self.words(ids))[0]))


def ids(words: int = 11, length: int = 6) -> Tensor:
    return torch.randint(words, (B, length))


def mnist() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(4, 5, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(20, 6), nn.Tanh(), nn.Linear(6, 3),
    )  # fmt: skip


def cifar() -> Any:
    layers: list[nn.Module] = []
    for before, after in ((3, 4), (4, 4), (4, 6)):
        layers += [
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(2, after),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, 3))


SEVEN: dict[str, Model] = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)),
        classify,
        (torch.randn(B, 6), labels(3)),
    ),
    "mnist cnn": lambda: (mnist(), classify, (torch.randn(B, 1, 20, 20), labels(3))),
    "cifar cnn": lambda: (cifar(), classify, (torch.randn(B, 3, 8, 8), labels(3))),
    "gpt": lambda: (Gpt(tied=False), language, (ids(13),)),
    "gpt tied": lambda: (Gpt(tied=True), language, (ids(13),)),
    "lstm": lambda: (Tagger(), language, (ids(),)),
    "logistic regression": lambda: (nn.Linear(9, 3), classify, (torch.randn(B, 9), labels(3))),
}


# --- layers of torch ---


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = (
            nn.Conv2d(2, 4, 3, stride=2, padding=1),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        )
        self.up, self.out = (
            nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
            nn.Conv2d(4, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(
            self.out(torch.cat([x, self.up(F.silu(self.low(F.silu(self.down(x)))))], 1))
        )


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.place = (
            nn.Parameter(torch.randn(1, 1, 8)),
            nn.Parameter(torch.randn(1, 5, 8)),
        )
        self.blocks = nn.Sequential(Block(8, 2), Block(8, 2))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.place
        return torch.as_tensor(self.head(self.blocks(h)[:, 0]))


class Translator(nn.Module):
    def __init__(self, *, batch_first: bool, norm_first: bool) -> None:
        super().__init__()
        options: dict[str, Any] = {
            "dropout": 0.0,
            "batch_first": batch_first,
            "norm_first": norm_first,
        }
        self.batch_first = batch_first
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, **options), 2, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, **options), 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        h = x if self.batch_first else x.transpose(0, 1)
        memory = self.encoder(h, src_key_padding_mask=padding)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        out = self.decoder(
            h, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=padding
        )
        return torch.as_tensor(out if self.batch_first else out.transpose(0, 1))


def translator(*, batch_first: bool, norm_first: bool) -> tuple[Any, Any, Any]:
    padding = torch.zeros(B, 5, dtype=torch.bool)
    padding[1, 3:] = padding[2, 4:] = True
    return (
        Translator(batch_first=batch_first, norm_first=norm_first),
        squares,
        (torch.randn(B, 5, 8), padding),
    )


TORCH: dict[str, Model] = {
    "unet": lambda: (UNet(), squares, (torch.randn(B, 2, 6, 6),)),
    "vit": lambda: (Vit(), classify, (torch.randn(B, 3, 8, 8), labels(3))),
    "transformer": lambda: translator(batch_first=True, norm_first=False),
    "transformer norm first": lambda: translator(batch_first=True, norm_first=True),
    "transformer time first": lambda: translator(batch_first=False, norm_first=True),
    "tagger both ways": lambda: (Tagger(bidirectional=True, num_layers=2), language, (ids(),)),
    "gru": lambda: (Tagger(nn.GRU), language, (ids(),)),
    "rnn": lambda: (Tagger(nn.RNN, nonlinearity="relu"), language, (ids(),)),
}


# --- models of others: random weights, nothing is downloaded ---


def still(config: Any) -> Any:
    for name in config.to_dict():
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


def causal(model: nn.Module, batch: Any) -> Tensor:
    (tokens,) = batch
    logits = model(input_ids=tokens).logits
    losses = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return losses.view(len(tokens), -1).mean(1)


def gpt2() -> Any:
    config = HF.GPT2Config(
        vocab_size=20,
        n_positions=8,
        n_embd=8,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return HF.GPT2LMHeadModel(still(config))


def llama() -> Any:
    return HF.LlamaForCausalLM(
        still(
            HF.LlamaConfig(
                vocab_size=20,
                hidden_size=8,
                intermediate_size=12,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=16,
            )
        )
    )


def bert() -> tuple[Any, Any, Any]:
    config = HF.BertConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    mask = torch.ones(B, 6, dtype=torch.long)
    mask[1, 4:] = 0

    def loss(model: nn.Module, batch: Any) -> Tensor:
        tokens, seen, classes = batch
        return F.cross_entropy(
            model(input_ids=tokens, attention_mask=seen).logits, classes, reduction="none"
        )

    return HF.BertForSequenceClassification(still(config)), loss, (ids(20), mask, labels(2))


def t5() -> tuple[Any, Any, Any]:
    config = HF.T5Config(
        vocab_size=20,
        d_model=8,
        d_kv=4,
        d_ff=12,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )

    def loss(model: nn.Module, batch: Any) -> Tensor:
        (tokens,) = batch
        logits = model(input_ids=tokens, labels=tokens).logits
        return (
            F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
            .view(len(tokens), -1)
            .mean(1)
        )

    return HF.T5ForConditionalGeneration(still(config)), loss, (ids(20),)


def hf_vit() -> tuple[Any, Any, Any]:
    config = HF.ViTConfig(
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=8,
        patch_size=4,
        num_labels=3,
    )

    def loss(model: nn.Module, batch: Any) -> Tensor:
        images, classes = batch
        return F.cross_entropy(model(pixel_values=images).logits, classes, reduction="none")

    return HF.ViTForImageClassification(still(config)), loss, (torch.randn(B, 3, 8, 8), labels(3))


def lora() -> Any:
    config = LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False
    )
    return get_peft_model(gpt2(), config)


OTHERS: dict[str, Model] = {
    "gpt-2": lambda: (gpt2(), causal, (ids(20),)),
    "llama": lambda: (llama(), causal, (ids(20),)),
    "bert": bert,
    "t5": t5,
    "hugging face vit": hf_vit,
    "lora": lambda: (lora(), causal, (ids(20),)),
}


def as_double(batch: Any) -> Any:
    return tuple(part.double() if part.is_floating_point() else part for part in batch)


@pytest.mark.filterwarnings(RENAMED)
@pytest.mark.parametrize("name", [*SEVEN, *TORCH, *OTHERS])
def test_norms_and_sums_are_those_of_single_records(name: str) -> None:
    model, loss, batch = (SEVEN | TORCH | OTHERS)[name]()
    compare(model.double(), loss, as_double(batch))


@pytest.mark.parametrize("form", ["ghost", "direct", "folded", "unfolded"])
@pytest.mark.parametrize("name", SEVEN)
def test_in_single_precision_in_every_form(name: str, form: str) -> None:
    model, loss, batch = SEVEN[name]()
    compare(model, loss, batch, form=form)


# --- precision ---


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_parameters_in_half_precision(kind: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3)).to(kind)
    compare(model, squares, (torch.randn(B, 5, 6, dtype=kind),))


@pytest.mark.parametrize("name", ["mlp", "cifar cnn", "gpt tied"])
def test_autocast_inside_the_loss(name: str) -> None:
    model, loss, batch = SEVEN[name]()

    def cast(model: nn.Module, batch: Any) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.as_tensor(loss(model, batch))

    engine, want = Engine(model), oracle(model, cast, batch, B)
    ((found, _),) = computed(engine, cast, batch, B)
    assert engine.one_by_one is None
    check_contributions(engine, found, want, TOLERANCE[torch.bfloat16])


def test_p14_norms_are_not_computed_in_the_users_autocast() -> None:
    """Gram matrices in bfloat16 lose three digits; a bound that does not know it would be below the
    truth.
    """
    model, batch = nn.Linear(16, 16), (torch.randn(B, 32, 16),)
    engine = Engine(model, form="ghost")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ((found, _),) = computed(engine, squares, batch, B)
    norms, _ = found.measured(engine.leaves)
    assert found.pieces["grad/weight"][0].factor.dense().values.dtype == torch.float32
    formed = (
        found.pieces["grad/weight"][0].factor.dense().values.double().flatten(1).square().sum(1)
    )
    assert torch.all(norms[:, 0] >= formed * (1 - 1e-6))
    assert torch.all(norms[:, 0] <= formed * (1 + 1e-3))


def test_short_products_are_refused() -> None:
    model, loss, batch = SEVEN["mlp"]()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(NumericsError, match="shorter format"):
            list(Engine(model).passes(loss, batch, B, B))
    finally:
        torch.set_float32_matmul_precision(before)


# --- circumstances ---


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.inner, self.reentrant = nn.Linear(6, 6), inner, reentrant

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_changes_nothing(*, reentrant: bool) -> None:
    inner = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    model = Checkpointed(inner, reentrant=reentrant).double()
    batch = (torch.randn(B, 6, dtype=torch.float64),)
    engine, plain = Engine(model), Engine(nn.Sequential(model.first, inner))
    ((found, _),), ((want, _),) = (
        computed(engine, squares, batch, B),
        computed(plain, squares, batch, B),
    )
    assert engine.one_by_one is None
    assert torch.equal(found.measured(engine.leaves)[0], want.measured(plain.leaves)[0])


@pytest.mark.filterwarnings(RENAMED)
def test_hugging_face_checkpointing() -> None:
    model = gpt2().double()
    model.gradient_checkpointing_enable()
    model.train()
    compare(model, causal, (ids(20),))


def test_a_compiled_model_runs_as_written() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    plain = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    model: Any = torch.compile(plain, backend=never)
    batch = (torch.randn(B, 6, dtype=torch.float64),)
    engine = Engine(model)
    ((found, _),) = computed(engine, squares, batch, B)
    assert engine.one_by_one is None
    want = {
        f"grad/_orig_mod.{leaf[5:]}": rows
        for leaf, rows in oracle(plain, squares, batch, B).items()
    }
    check_contributions(engine, found, want, 1e-10)


@pytest.mark.parametrize("train", [True, False])
def test_train_and_eval(*, train: bool) -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3),
        nn.BatchNorm1d(4).eval(),
        nn.Dropout(0.0),
        nn.InstanceNorm1d(4, affine=True),
    ).double()
    model.train(train)
    model[1].eval()
    compare(model, squares, (torch.randn(B, 2, 9, dtype=torch.float64),))


def test_p09_batch_norm_that_is_put_back_into_train_mode_is_refused() -> None:
    """Its scales are frozen, and the structure of the pass was learned before: only a look at every
    call finds it.
    """
    model: Any = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False)).eval()
    engine, batch = Engine(model), (torch.randn(B, 6),)
    list(engine.passes(squares, batch, B, B))
    model.train()
    mean = model[1].running_mean.clone()
    with pytest.raises(CoupledRecords, match="batch normalisation"):
        list(engine.passes(squares, batch, B, B))
    assert torch.equal(mean, model[1].running_mean)


def test_dropout_is_drawn_for_each_record_by_itself() -> None:
    """With the same state of torch's generator, another first record leaves what the others
    contribute as it is.
    """
    model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 3)).double()
    batch = (torch.randn(B, 6, dtype=torch.float64),)
    other = (torch.cat([torch.randn(1, 6, dtype=torch.float64), batch[0][1:]]),)
    engine = Engine(model)
    list(engine.passes(squares, batch, B, B))
    found = []
    for one in (batch, other):
        torch.manual_seed(3)
        ((contributions, _),) = computed(engine, squares, one, B)
        found.append(
            [contributions.pieces[leaf][0].factor.dense().values for leaf in engine.leaves]
        )
    assert all(torch.equal(a[1:], b[1:]) for a, b in zip(*found, strict=True))
    assert not torch.equal(found[0][0][0], found[0][0][1])


class Masked(nn.Module):
    """Dropout whose mask is a function of the record."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (
            torch.sin(1e4 * x.sum(-1, keepdim=True) + torch.arange(x.shape[-1], dtype=x.dtype)) > 0
        )


def test_dropout_with_masks_of_the_record_agrees_with_the_loop() -> None:
    model = nn.Sequential(nn.Linear(6, 32), Masked(), nn.Linear(32, 3)).double()
    compare(model, squares, (torch.randn(B, 6, dtype=torch.float64),))


# --- nothing is left behind ---


class Counting(nn.Module):
    """Keeps a buffer, draws random numbers, and fails at the calls it is told to."""

    def __init__(self, failing: frozenset[int]) -> None:
        super().__init__()
        self.linear, self.failing = nn.Linear(6, 3), failing
        self.calls = Tally()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(1)
        self.seen = torch.as_tensor(self.get_buffer("seen") + 1.0)
        out = self.linear(x + torch.rand_like(x))
        if len(self.calls) in self.failing:
            raise ZeroDivisionError
        return torch.as_tensor(out)


@pytest.mark.parametrize("failing", [{1, 2}, {3}])
def test_everything_is_restored_after_an_exception(failing: set[int]) -> None:
    """The first two passes are on made-up numbers, which say nothing about the model: they may
    fail, followed and not followed, and leave no trace.
    """
    in_earnest = 3
    fails = in_earnest in failing
    model, batch = Counting(frozenset(failing)), (torch.randn(B, 6),)
    model.linear.weight.grad = torch.ones(3, 6)
    kept = torch.utils.checkpoint.CheckpointFunction
    straight = torch.utils.checkpoint._checkpoint_without_reentrant_generator
    with torch.no_grad(), pytest.raises(ZeroDivisionError) if fails else nullcontext():
        list(Engine(model).passes(squares, batch, B, B))
    assert len(model.calls) == in_earnest
    assert float(model.get_buffer("seen")) == (0.0 if fails else 1.0)
    assert torch.is_grad_enabled()
    assert torch.utils.checkpoint.CheckpointFunction is kept
    assert torch.utils.checkpoint._checkpoint_without_reentrant_generator is straight
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]
    assert all(p.requires_grad and not p._backward_hooks for p in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert torch.equal(torch.as_tensor(model.linear.weight.grad), torch.ones(3, 6))
    assert model.linear.bias.grad is None


def test_a_model_that_needs_more_records_than_a_trial_has_is_served() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        if len(batch[0]) not in (1, 12):
            raise ValueError("twelve at a time")
        return squares(model, batch)

    engine = Engine(nn.Linear(6, 3))
    assert len(list(engine.passes(loss, (torch.randn(12, 6),), 12, 12))) == 1
    assert engine.one_by_one is None
    engine = Engine(nn.Linear(6, 3))
    with pytest.raises(ValueError, match="twelve"):
        list(engine.passes(loss, (torch.randn(11, 6),), 11, 11))


def test_a_model_that_fails_only_where_records_are_followed_goes_one_by_one() -> None:
    """Made-up records decide it; an error of real ones would decide for others, and is raised."""

    def loss(model: Any, batch: Any) -> Tensor:
        if torch.compiler.is_compiling():
            raise ValueError("not while a model is compiled")
        return squares(model, batch)

    engine = Engine(nn.Linear(6, 3))
    list(engine.passes(loss, (torch.randn(4, 6),), 4, 4))
    assert engine.one_by_one == "the loss fails where records are followed"


def test_p47_the_model_is_the_users_own() -> None:
    model = gpt2()
    prompt = ids(20)[:1]
    before = copy.deepcopy(model.state_dict())
    model.eval()
    text = model.generate(
        prompt, max_new_tokens=3, do_sample=False, attention_mask=torch.ones_like(prompt)
    )
    engine = Engine(model)
    handle = model.transformer.h[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ModelError, match=r"forward hook on the layer 'transformer\.h\.0'"):
        refuse_hooks(model, engine.parameters)
    handle.remove()
    refuse_hooks(model, engine.parameters)
    list(engine.passes(causal, (ids(20),), B, B))
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    again = copy.deepcopy(model)
    for one in (model, again):
        out = one.generate(
            prompt, max_new_tokens=3, do_sample=False, attention_mask=torch.ones_like(prompt)
        )
        assert torch.equal(out, text)


def test_another_length_in_a_later_batch() -> None:
    model = Gpt(tied=True).double()
    engine = Engine(model)
    for length in (6, 1, 4, B):
        batch = (ids(13, length),)
        ((found, _),) = computed(engine, language, batch, B)
        assert engine.one_by_one is None
        check_contributions(engine, found, oracle(model, language, batch, B), 1e-10)


def test_another_number_of_records_and_padding() -> None:
    model = Vit().double()
    engine = Engine(model)
    for records, present in ((5, 5), (1, 1), (8, 3), (3, 0)):
        batch = (torch.randn(records, 3, 8, 8, dtype=torch.float64), torch.randint(3, (records,)))
        ((found, _),) = computed(engine, classify, batch, records, present)
        want = oracle(model, classify, batch, records)
        for gradients in want.values():
            gradients[present:] = 0.0
        check_contributions(engine, found, want, 1e-10)
    assert engine.one_by_one is None


def test_p06_a_parameter_that_is_unfrozen_later_is_refused() -> None:
    model, loss, batch = SEVEN["mlp"]()
    model[0].bias.requires_grad_(False)
    engine = Engine(model)
    list(engine.passes(loss, batch, B, B))
    model[0].bias.requires_grad_(True)
    with pytest.raises(ModelError, match=r"grad/0\.bias"):
        list(engine.passes(loss, batch, B, B))
