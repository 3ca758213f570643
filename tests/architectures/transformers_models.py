"""Models of the transformers library, tiny and with random weights: nothing is downloaded.

Text models get two padded records of four and their attention mask, where they take one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import (
    RECORDS,
    Case,
    Catalogue,
    Loss,
    Output,
    find,
    padding_mask,
    random_labels,
    random_tokens,
)

CATALOGUE = Catalogue()

WORDS = 20
LENGTH = 6
LABELS = 3

SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "num_labels": LABELS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""What most configurations call the size of their parts."""


def library() -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def without_dropout(config: Any) -> Any:
    """The same configuration, and those within it, with every rate of dropout at zero."""
    for name, value in list(vars(config).items()):
        is_rate = "drop" in name or name in {"mask_time_prob", "mask_feature_prob"}
        if is_rate and isinstance(value, float):
            setattr(config, name, 0.0)
        elif hasattr(value, "to_dict"):
            without_dropout(value)
    return config


def make_model(
    family: str, task: str, *, attention: str = "", config: str = "", **options: Any
) -> Any:
    """Make a model of the library.

    Args:
        family: with which the names of its class and of its configuration begin.
        task: with which the name of its class ends.
        attention: "sdpa" or "eager"; the library's own choice if empty.
        config: name of its configuration's class, if it is not the family's.
        options: of the configuration; those that are None are left out.
    """
    models = library()
    settings = {name: value for name, value in options.items() if value is not None}
    made = without_dropout(find(models, config or f"{family}Config")(**settings))
    if attention:
        made._attn_implementation = attention
    return find(models, family + task)(made)


# --- losses ---


def token_losses(logits: Tensor, tokens: Tensor, seen: Tensor) -> Tensor:
    """Mean cross entropy of the tokens of a record that are there."""
    losses = F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")
    return (losses * seen).sum(1) / seen.sum(1)


def next_token(model: nn.Module, batch: Any) -> Output:
    """Of a decoder: every token from those before it."""
    tokens, seen = batch
    logits = model(input_ids=tokens, attention_mask=seen).logits
    return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, 1:])


def next_token_without_mask(model: nn.Module, batch: Any) -> Output:
    """The same for models that take no mask, or are given none."""
    tokens, seen = batch
    logits = model(input_ids=tokens).logits
    return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, 1:])


def sequence_class(model: nn.Module, batch: Any) -> Output:
    """Of an encoder: the class of a text."""
    tokens, seen, labels = batch
    logits = model(input_ids=tokens, attention_mask=seen).logits
    return F.cross_entropy(logits, labels, reduction="none")


def every_token(model: nn.Module, batch: Any) -> Output:
    """Of an encoder: the words themselves."""
    tokens, seen, _ = batch
    return token_losses(model(input_ids=tokens, attention_mask=seen).logits, tokens, seen)


def every_token_without_mask(model: nn.Module, batch: Any) -> Output:
    """Of an encoder that takes no mask."""
    tokens, seen, _ = batch
    return token_losses(model(input_ids=tokens).logits, tokens, seen)


def translation(model: nn.Module, batch: Any) -> Output:
    """Of an encoder and a decoder: the text itself, backwards."""
    tokens, seen = batch
    answers = tokens.flip(1)
    logits = model(input_ids=tokens, attention_mask=seen, decoder_input_ids=answers).logits
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), answers[:, 1:], reduction="none").mean(1)


# --- batches ---


def text() -> tuple[Tensor, Tensor]:
    """Tokens, and 1 where there is one: records 1 and 2 are padded with zeros."""
    padding = padding_mask(LENGTH)
    return random_tokens(WORDS, LENGTH).masked_fill(padding, 0), (~padding).long()


def labelled_text() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their mask and a class of the whole."""
    return *text(), random_labels(LABELS)


def full_text() -> tuple[Tensor, Tensor]:
    """Tokens without padding."""
    return random_tokens(WORDS, LENGTH), torch.ones(RECORDS, LENGTH, dtype=torch.long)


def _add(
    name: str,
    family: str,
    task: str,
    loss: Loss,
    batch: Callable[[], Any],
    **options: Any,
) -> None:
    def factory() -> Case:
        return Case(make_model(family, task, **{**SMALL, **options}), loss, batch())

    CATALOGUE.add(name, factory)


def _decoder(name: str, family: str, task: str = "ForCausalLM", **options: Any) -> None:
    _add(name, family, task, next_token, text, **options)


def _encoder(name: str, family: str, **options: Any) -> None:
    _add(name, family, "ForSequenceClassification", sequence_class, labelled_text, **options)


def _translator(
    name: str, family: str, task: str = "ForConditionalGeneration", **options: Any
) -> None:
    _add(name, family, task, translation, text, **options)


# --- decoders ---

_decoder("gpt2, padded, sdpa", "GPT2", task="LMHeadModel", attention="sdpa")
_decoder("gpt2, padded, eager", "GPT2", task="LMHeadModel", attention="eager")
_add("gpt2, no mask", "GPT2", "LMHeadModel", next_token_without_mask, full_text)
_decoder(
    "gpt neo",
    "GPTNeo",
    num_hidden_layers=2,
    num_heads=2,
    attention_types=[[["global", "local"], 1]],
    window_size=3,
)
_decoder("gptj", "GPTJ", n_embd=8, n_layer=1, n_head=2, n_positions=32, rotary_dim=2)
_decoder("gpt neox", "GPTNeoX")
_decoder("gpt bigcode", "GPTBigCode", n_embd=8, n_layer=1, n_head=2, n_positions=32)
_decoder(
    "codegen",
    "CodeGen",
    hidden_size=16,
    num_attention_heads=4,
    n_positions=32,
    n_ctx=32,
    rotary_dim=2,
)
_decoder("llama, padded, sdpa", "Llama", attention="sdpa", num_key_value_heads=1)
_decoder("llama, padded, eager", "Llama", attention="eager", num_key_value_heads=1)
_decoder("mistral, sliding window", "Mistral", num_key_value_heads=1, sliding_window=3, head_dim=4)
_decoder("qwen2", "Qwen2", num_key_value_heads=1)
_decoder("qwen3", "Qwen3", num_key_value_heads=1, head_dim=4)
_decoder("gemma", "Gemma", num_key_value_heads=1, head_dim=4)
_decoder("gemma2", "Gemma2", num_key_value_heads=1, head_dim=4, sliding_window=3)
_decoder(
    "gemma3",
    "Gemma3",
    config="Gemma3TextConfig",
    num_key_value_heads=1,
    head_dim=4,
    sliding_window=3,
)
_decoder("phi", "Phi")
_decoder("phi3", "Phi3")
_decoder("opt", "OPT", ffn_dim=12, word_embed_proj_dim=8)
_decoder("bloom", "Bloom", n_layer=1, n_head=2)
_decoder("falcon", "Falcon", alibi=False)
_decoder("falcon, slopes", "Falcon", alibi=True)
_decoder("mpt", "Mpt", d_model=8, n_heads=2, n_layers=1, max_seq_len=32)
_decoder("olmo", "Olmo")
_decoder("olmo2", "Olmo2")
_decoder("stablelm", "StableLm", num_key_value_heads=1)
_decoder("starcoder2", "Starcoder2", num_key_value_heads=1)
_decoder("persimmon", "Persimmon")
_decoder("cohere", "Cohere", num_key_value_heads=1)
_decoder("granite", "Granite", num_key_value_heads=1)
_decoder("smollm3", "SmolLM3", num_key_value_heads=1)
_decoder("glm", "Glm", num_key_value_heads=1, head_dim=4)
_decoder("nemotron", "Nemotron", num_key_value_heads=1, head_dim=4)
_decoder("xglm", "XGLM", d_model=8, ffn_dim=12, num_layers=1, attention_heads=2)
_decoder("biogpt", "BioGpt")
_decoder("ctrl", "CTRL", task="LMHeadModel", n_embd=8, dff=12, n_layer=1, n_head=2, n_positions=32)
_decoder(
    "openai gpt", "OpenAIGPT", task="LMHeadModel", n_embd=8, n_layer=1, n_head=2, n_positions=32
)
_decoder(
    "xlnet",
    "XLNet",
    task="LMHeadModel",
    max_position_embeddings=None,
    d_model=8,
    n_layer=1,
    n_head=2,
    d_inner=12,
)
_decoder("mamba", "Mamba", state_size=3, expand=2, time_step_rank=2)
_decoder(
    "mamba2", "Mamba2", state_size=4, expand=2, num_heads=4, head_dim=4, n_groups=1, chunk_size=3
)
_add(
    "rwkv",
    "Rwkv",
    "ForCausalLM",
    next_token_without_mask,
    full_text,
    attention_hidden_size=8,
    context_length=16,
    num_hidden_layers=2,
)
_decoder(
    "mixtral, experts", "Mixtral", num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2
)

# --- encoders ---

_encoder("bert, padded, sdpa", "Bert", attention="sdpa")
_encoder("bert, padded, eager", "Bert", attention="eager")
_add("bert, words", "Bert", "ForMaskedLM", every_token, labelled_text)
_encoder(
    "distilbert, padded, sdpa",
    "DistilBert",
    attention="sdpa",
    dim=8,
    hidden_dim=12,
    n_layers=1,
    n_heads=2,
)
_encoder(
    "distilbert, padded, eager",
    "DistilBert",
    attention="eager",
    dim=8,
    hidden_dim=12,
    n_layers=1,
    n_heads=2,
)
_encoder("roberta", "Roberta")
_encoder("xlm roberta", "XLMRoberta")
_encoder("camembert", "Camembert")
_encoder("albert", "Albert", embedding_size=4)
_encoder("electra", "Electra", embedding_size=4)
_add(
    "electra, replaced words",
    "Electra",
    "ForMaskedLM",
    every_token,
    labelled_text,
    embedding_size=4,
)
_encoder("deberta", "Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"])
_encoder(
    "deberta v2",
    "DebertaV2",
    relative_attention=True,
    pos_att_type=["c2p", "p2c"],
    position_buckets=4,
)
_encoder(
    "mobilebert",
    "MobileBert",
    embedding_size=8,
    intra_bottleneck_size=4,
    true_hidden_size=4,
    num_feedforward_networks=1,
)
_encoder("mpnet", "MPNet")
_encoder(
    "squeezebert",
    "SqueezeBert",
    embedding_size=8,
    q_groups=2,
    k_groups=2,
    v_groups=2,
    post_attention_groups=1,
    intermediate_groups=2,
    output_groups=2,
)
_encoder(
    "convbert",
    "ConvBert",
    embedding_size=8,
    num_attention_heads=4,
    hidden_size=16,
    head_ratio=2,
    conv_kernel_size=3,
)
_add(
    "fnet",
    "FNet",
    "ForMaskedLM",
    every_token_without_mask,
    labelled_text,
    tpu_short_seq_length=LENGTH,
)
_encoder("nystromformer", "Nystromformer", num_landmarks=LENGTH, segment_means_seq_len=LENGTH)
_encoder("yoso", "Yoso", use_expectation=True)
_encoder("longformer", "Longformer", attention_window=[4])
_encoder("big bird, full attention", "BigBird", attention_type="original_full")
_encoder(
    "funnel",
    "Funnel",
    num_hidden_layers=None,
    block_sizes=[1, 1],
    d_model=8,
    n_head=2,
    d_head=4,
    d_inner=12,
    num_decoder_layers=1,
)
_encoder("xlm", "XLM", emb_dim=8, n_layers=1, n_heads=2, bos_index=1, pad_index=0)
_encoder("flaubert", "Flaubert", emb_dim=8, n_layers=1, n_heads=2, pad_index=0)
_encoder(
    "canine",
    "Canine",
    local_transformer_stride=2,
    downsampling_rate=2,
    num_hash_functions=2,
    num_hash_buckets=8,
    attend_to_chunk_width=4,
    attend_to_chunk_stride=4,
    upsampling_kernel_size=2,
)
_encoder("ernie", "Ernie")
_encoder("rembert", "RemBert", input_embedding_size=4, output_embedding_size=4)
_encoder("megatron bert", "MegatronBert")
_encoder(
    "roc bert",
    "RoCBert",
    shape_vocab_size=10,
    pronunciation_vocab_size=10,
    shape_embed_dim=4,
    pronunciation_embed_dim=4,
)
_encoder("roformer", "RoFormer", embedding_size=8)
_encoder("modernbert", "ModernBert", local_attention=4)
_encoder("layoutlm", "LayoutLM")
_encoder("esm", "Esm", position_embedding_type="rotary", mask_token_id=3, token_dropout=False)
_encoder("gpt2, class", "GPT2")

# --- encoders with decoders ---

T5_SIZES: dict[str, Any] = {
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 12,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
BART_SIZES: dict[str, Any] = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "decoder_start_token_id": 0,
    "scale_embedding": True,
}
_translator("t5, padded, sdpa", "T5", attention="sdpa", **T5_SIZES)
_translator("t5, padded, eager", "T5", attention="eager", **T5_SIZES)
_translator(
    "t5, gated", "T5", feed_forward_proj="gated-gelu", tie_word_embeddings=False, **T5_SIZES
)
_translator("mt5", "MT5", **T5_SIZES)
_translator("long t5", "LongT5", local_radius=3, **T5_SIZES)
_translator("umt5", "UMT5", **T5_SIZES)
_translator(
    "switch transformers",
    "SwitchTransformers",
    num_experts=2,
    expert_capacity=64,
    num_sparse_encoder_layers=1,
    num_sparse_decoder_layers=1,
    router_jitter_noise=0.0,
    **T5_SIZES,
)
_translator("bart", "Bart", **BART_SIZES)
_translator("mbart", "MBart", **BART_SIZES)
_translator("pegasus", "Pegasus", **BART_SIZES)
_translator("pegasus x", "PegasusX", num_global_tokens=2, block_size=4, **BART_SIZES)
_translator("blenderbot", "Blenderbot", **BART_SIZES)
_translator("blenderbot small", "BlenderbotSmall", **BART_SIZES)
_translator("marian", "Marian", task="MTModel", **BART_SIZES)
_translator("m2m 100", "M2M100", **BART_SIZES)
_translator("plbart", "PLBart", **BART_SIZES)
_translator("mvp", "Mvp", **BART_SIZES)
_translator(
    "led",
    "LED",
    attention_window=[4],
    max_encoder_position_embeddings=32,
    max_decoder_position_embeddings=32,
    **BART_SIZES,
)
_translator(
    "prophetnet",
    "ProphetNet",
    num_hidden_layers=None,
    num_encoder_layers=1,
    num_decoder_layers=1,
    num_encoder_attention_heads=2,
    num_decoder_attention_heads=2,
    encoder_ffn_dim=12,
    decoder_ffn_dim=12,
    ngram=2,
    num_buckets=4,
    relative_max_distance=8,
    decoder_start_token_id=0,
)
_translator(
    "fsmt", "FSMT", langs=["a", "b"], src_vocab_size=WORDS, tgt_vocab_size=WORDS, **BART_SIZES
)

# --- other heads ---


@CATALOGUE.entry("bert, answers in a text")
def bert_answers() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, start, end = batch
        outputs = model(input_ids=tokens, attention_mask=seen)
        first = F.cross_entropy(outputs.start_logits, start, reduction="none")
        return first + F.cross_entropy(outputs.end_logits, end, reduction="none")

    model = make_model("Bert", "ForQuestionAnswering", **{**SMALL, "num_labels": 2})
    return Case(model, loss, (*text(), random_labels(3), random_labels(3)))


@CATALOGUE.entry("bert, choices")
def bert_choices() -> Case:
    """Every record has three texts; the model folds them into the batch axis."""

    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, labels = batch
        logits = model(input_ids=tokens, attention_mask=seen).logits
        return F.cross_entropy(logits, labels, reduction="none")

    model = make_model("Bert", "ForMultipleChoice", **SMALL)
    seen = torch.ones(RECORDS, 3, LENGTH, dtype=torch.long)
    seen[1, 0, 4:] = 0
    return Case(model, loss, (torch.randint(1, WORDS, seen.shape), seen, random_labels(3)))


@CATALOGUE.entry("bert, checkpointed")
def bert_checkpointed() -> Case:
    model = make_model("Bert", "ForSequenceClassification", **SMALL)
    model.gradient_checkpointing_enable()
    return Case(model.train(), sequence_class, labelled_text())


@CATALOGUE.entry("bert, two kinds of segments")
def bert_segments() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, segments, labels = batch
        logits = model(input_ids=tokens, attention_mask=seen, token_type_ids=segments).logits
        return F.cross_entropy(logits, labels, reduction="none")

    model = make_model("Bert", "ForSequenceClassification", **SMALL)
    segments = torch.randint(2, (RECORDS, LENGTH))
    return Case(model, loss, (*text(), segments, random_labels(LABELS)))


@CATALOGUE.entry("gpt2, from embeddings")
def gpt2_from_embeddings() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        tokens, seen = batch
        words = model.transformer.wte(tokens) * 2.0
        logits = model(inputs_embeds=words, attention_mask=seen).logits
        return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, 1:])

    return Case(make_model("GPT2", "LMHeadModel", **SMALL), loss, text())


@CATALOGUE.entry("gpt2, padded on the left, own positions")
def gpt2_padded_on_the_left() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen = batch
        places = (seen.cumsum(1) - 1).clamp(min=0)
        logits = model(input_ids=tokens, attention_mask=seen, position_ids=places).logits
        return token_losses(logits[:, :-1], tokens[:, 1:], seen[:, :-1])

    tokens, seen = text()
    model = make_model("GPT2", "LMHeadModel", **SMALL)
    return Case(model, loss, (tokens.flip(1), seen.flip(1)))


@CATALOGUE.entry("bert and gpt2, translating")
def bert_and_gpt2() -> Case:
    models = library()
    encoder = without_dropout(models.BertConfig(**SMALL))
    decoder = without_dropout(models.GPT2Config(**SMALL, add_cross_attention=True, is_decoder=True))
    config = models.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return Case(models.EncoderDecoderModel(config=config), translation, text())


# --- what must be refused ---


def _ranges_of_records() -> Case:
    """I-BERT keeps the largest activations it has seen."""
    model = make_model("IBert", "ForSequenceClassification", **SMALL)
    return Case(model, sequence_class, labelled_text())


def _loss_of_the_model() -> Case:
    """The model's own loss is one number for the batch."""

    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, _ = batch
        return model(input_ids=tokens, labels=tokens).loss.expand(len(tokens))

    return Case(make_model("GPT2", "LMHeadModel", **SMALL), loss, full_text())


def _landmarks() -> Case:
    """The inverse of a record's own matrix is scaled by the largest entry of all records'."""
    settings = {**SMALL, "num_landmarks": 2, "segment_means_seq_len": LENGTH}
    model = make_model("Nystromformer", "ForMaskedLM", **settings)
    return Case(model, next_token_without_mask, full_text())


def _state_on_layers() -> Case:
    """Its recurrent layers keep their last states as attributes."""
    sizes = {"lru_width": 8, "attention_window_size": 4, "num_hidden_layers": 3}
    model = make_model(
        "RecurrentGemma", "ForCausalLM", **{**SMALL, "num_key_value_heads": 1, **sizes}
    )
    return Case(model, next_token, text())


CATALOGUE.add_refused("recurrent gemma", _state_on_layers)
CATALOGUE.add_coupled("nystromformer, landmarks", _landmarks)
CATALOGUE.add_refused("ibert, ranges of records", _ranges_of_records)
CATALOGUE.add_coupled("gpt2, the model's own loss", _loss_of_the_model)


# --- what takes long, and near relatives ---

CATALOGUE.leave_all_to_full_suite_but(
    "gpt2, padded, sdpa",
    "gpt2, padded on the left, own positions",
    "llama, padded, eager",
    "bloom",
    "mamba",
    "mixtral, experts",
    "bert, padded, sdpa",
    "bert, choices",
    "bert, two kinds of segments",
    "distilbert, padded, eager",
    "deberta v2",
    "canine",
    "gpt2, the model's own loss",
    "nystromformer, landmarks",
    "ibert, ranges of records",
)
