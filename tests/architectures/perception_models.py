"""Models of the transformers library for images, sounds, videos and series, tiny and random."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import RECORDS, Case, Catalogue, Output, random_labels, random_tokens
from .transformers_models import (
    BART_SIZES,
    LABELS,
    LENGTH,
    SMALL,
    WORDS,
    library,
    make_model,
    text,
    without_dropout,
)

CATALOGUE = Catalogue()


# --- losses and batches ---


def image_class(model: nn.Module, batch: Any) -> Output:
    """The class of an image."""
    images, labels = batch
    return F.cross_entropy(model(pixel_values=images).logits, labels, reduction="none")


def sound_class(model: nn.Module, batch: Any) -> Output:
    """The class of a sound."""
    sounds, labels = batch
    return F.cross_entropy(model(sounds).logits, labels, reduction="none")


def labelled_images(size: int = 8) -> tuple[Tensor, Tensor]:
    """Images of three channels with a class."""
    return torch.randn(RECORDS, 3, size, size), random_labels(LABELS)


def _vision(name: str, family: str, size: int = 8, **options: Any) -> None:
    def factory() -> Case:
        settings: dict[str, Any] = {**SMALL, "image_size": size, "patch_size": 4, **options}
        model = make_model(family, "ForImageClassification", **settings)
        return Case(model, image_class, labelled_images(size))

    CATALOGUE.add(name, factory)


# --- images ---

_vision("vit", "ViT")
_vision("deit", "DeiT")
_vision("beit", "Beit", use_relative_position_bias=True)
_vision("data2vec vision", "Data2VecVision")
_vision("dinov2", "Dinov2")
_vision(
    "swin",
    "Swin",
    size=16,
    num_attention_heads=None,
    patch_size=2,
    embed_dim=4,
    depths=[2, 1],
    num_heads=[1, 2],
    window_size=2,
)
_vision(
    "swin v2",
    "Swinv2",
    size=16,
    num_attention_heads=None,
    patch_size=2,
    embed_dim=4,
    depths=[2, 1],
    num_heads=[1, 2],
    window_size=2,
)
_vision(
    "convnext",
    "ConvNext",
    num_hidden_layers=None,
    size=32,
    hidden_sizes=[4, 6],
    depths=[1, 1],
    num_stages=2,
)
_vision(
    "convnext v2",
    "ConvNextV2",
    num_hidden_layers=None,
    size=32,
    hidden_sizes=[4, 6],
    depths=[1, 1],
    num_stages=2,
)
_vision(
    "segformer",
    "Segformer",
    size=32,
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[2, 1],
    hidden_sizes=[4, 8],
    patch_sizes=[7, 3],
    strides=[4, 2],
    num_attention_heads=[1, 2],
    mlp_ratios=[2, 2],
)
_vision(
    "poolformer",
    "PoolFormer",
    size=32,
    num_encoder_blocks=2,
    depths=[1, 1],
    hidden_sizes=[4, 8],
    patch_sizes=[7, 3],
    strides=[4, 2],
    padding=[2, 1],
    mlp_ratio=2.0,
)
_vision(
    "focalnet",
    "FocalNet",
    size=16,
    patch_size=2,
    embed_dim=4,
    hidden_sizes=[4, 8],
    depths=[1, 1],
    focal_levels=[1, 1],
    focal_windows=[3, 3],
)
_vision(
    "pvt v2",
    "PvtV2",
    size=32,
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[2, 1],
    hidden_sizes=[4, 8],
    patch_sizes=[7, 3],
    strides=[4, 2],
    num_attention_heads=[1, 2],
    mlp_ratios=[2, 2],
)
_vision("vit msn", "ViTMSN")
_vision("ijepa", "IJepa")
_vision(
    "siglip vision",
    "Siglip",
    vision_config={**SMALL, "image_size": 8, "patch_size": 4},
    text_config=SMALL,
)

# --- models whose norms see a batch, in evaluation mode ---


def fixed_norms(model: nn.Module) -> nn.Module:
    """The model with its batch norms in evaluation mode, so that their statistics are constants."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    return model


def _vision_with_batch_norm(name: str, family: str, **options: Any) -> None:
    def factory() -> Case:
        model = fixed_norms(
            make_model(family, "ForImageClassification", num_labels=LABELS, **options)
        )
        return Case(model, image_class, labelled_images(32))

    CATALOGUE.add(name, factory)


_vision_with_batch_norm(
    "resnet, fixed norms",
    "ResNet",
    embedding_size=4,
    hidden_sizes=[4, 6],
    depths=[1, 1],
    layer_type="basic",
)
_vision_with_batch_norm(
    "regnet, fixed norms",
    "RegNet",
    embedding_size=4,
    hidden_sizes=[4, 8],
    depths=[1, 1],
    groups_width=2,
    layer_type="y",
)
_vision_with_batch_norm(
    "mobilenet v1, fixed norms", "MobileNetV1", image_size=32, depth_multiplier=0.25
)
_vision_with_batch_norm(
    "mobilenet v2, fixed norms", "MobileNetV2", image_size=32, depth_multiplier=0.25
)
_vision_with_batch_norm(
    "mobilevit, fixed norms",
    "MobileViT",
    image_size=32,
    hidden_sizes=[4, 4, 4],
    neck_hidden_sizes=[4, 4, 4, 4, 4, 4, 8],
    num_attention_heads=2,
    expand_ratio=1.0,
)
_vision_with_batch_norm(
    "levit, fixed norms",
    "Levit",
    image_size=32,
    hidden_sizes=[8, 8, 8],
    num_attention_heads=[1, 1, 1],
    depths=[1, 1, 1],
    key_dim=[4, 4, 4],
)
_vision_with_batch_norm(
    "efficientnet, fixed norms",
    "EfficientNet",
    image_size=32,
    width_coefficient=0.25,
    depth_coefficient=0.1,
    hidden_dim=320,
)
_vision_with_batch_norm(
    "bit, group norms", "Bit", embedding_size=4, num_groups=2, hidden_sizes=[8, 8], depths=[1, 1]
)


# --- several kinds of inputs ---


@CATALOGUE.entry("clip, distance of one's own image and text")
def clip() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, images = batch
        outputs = model(input_ids=tokens, attention_mask=seen, pixel_values=images)
        return 1.0 - (outputs.text_embeds * outputs.image_embeds).sum(1)

    vision = {**SMALL, "image_size": 8, "patch_size": 4}
    model = make_model("CLIP", "Model", text_config=SMALL, vision_config=vision, projection_dim=6)
    return Case(model, loss, (*text(), torch.randn(RECORDS, 3, 8, 8)))


@CATALOGUE.entry("vilt")
def vilt() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, seen, images, labels = batch
        outputs = model(input_ids=tokens, attention_mask=seen, pixel_values=images)
        return F.cross_entropy(outputs.logits, labels, reduction="none")

    settings: dict[str, Any] = {**SMALL, "image_size": 8, "patch_size": 4, "max_image_length": 4}
    model = make_model("Vilt", "ForQuestionAnswering", **settings)
    return Case(model, loss, (*text(), torch.randn(RECORDS, 3, 8, 8), random_labels(LABELS)))


@CATALOGUE.entry("vit masked autoencoder, own noise")
def vit_masked_autoencoder() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        images, noise = batch
        outputs = model(pixel_values=images, noise=noise)
        target = model.patchify(images)  # type: ignore[operator]
        errors = (outputs.logits - target).square().mean(2)
        return (errors * outputs.mask).sum(1) / outputs.mask.sum(1)

    settings: dict[str, Any] = {
        **SMALL,
        "image_size": 8,
        "patch_size": 4,
        "decoder_hidden_size": 8,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 12,
        "mask_ratio": 0.5,
    }
    model = make_model("ViTMAE", "ForPreTraining", **settings)
    return Case(model, loss, (torch.randn(RECORDS, 3, 8, 8), torch.rand(RECORDS, 4)))


@CATALOGUE.entry("detr, with losses of one's own queries")
def detr() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        images, labels, boxes = batch
        outputs = model(pixel_values=images)
        kinds = F.cross_entropy(outputs.logits.transpose(1, 2), labels, reduction="none").mean(1)
        return kinds + (outputs.pred_boxes - boxes).abs().mean((1, 2))

    models = library()
    backbone = models.ResNetConfig(
        embedding_size=4,
        hidden_sizes=[4, 6],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = models.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=3,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        num_labels=LABELS,
    )
    model = fixed_norms(models.DetrForObjectDetection(without_dropout(config)))
    batch = (
        torch.randn(RECORDS, 3, 32, 32),
        torch.randint(LABELS, (RECORDS, 3)),
        torch.rand(RECORDS, 3, 4),
    )
    return Case(model, loss, batch)


@CATALOGUE.entry("segformer, segments")
def segformer_segments() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        images, labels = batch
        logits = model(pixel_values=images).logits
        return F.cross_entropy(logits, labels, reduction="none").mean((1, 2))

    settings: dict[str, Any] = {
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [4, 8],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": 6,
        "num_labels": LABELS,
    }
    model = fixed_norms(make_model("Segformer", "ForSemanticSegmentation", **settings))
    return Case(
        model, loss, (torch.randn(RECORDS, 3, 32, 32), torch.randint(LABELS, (RECORDS, 8, 8)))
    )


@CATALOGUE.entry("decision transformer")
def decision_transformer() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        states, actions, returns, times, seen = batch
        outputs = model(
            states=states,
            actions=actions,
            rewards=returns,
            returns_to_go=returns,
            timesteps=times,
            attention_mask=seen,
        )
        return (outputs.action_preds - actions).square().mean((1, 2))

    settings: dict[str, Any] = {**SMALL, "state_dim": 3, "act_dim": 2, "max_ep_len": 10}
    model = make_model("DecisionTransformer", "Model", **settings)
    batch = (
        torch.randn(RECORDS, 4, 3),
        torch.randn(RECORDS, 4, 2),
        torch.randn(RECORDS, 4, 1),
        torch.arange(4).expand(RECORDS, 4).contiguous(),
        torch.ones(RECORDS, 4, dtype=torch.long),
    )
    return Case(model, loss, batch)


# --- sounds and videos ---

_WAVES = {
    **SMALL,
    "conv_dim": [4, 4],
    "conv_kernel": [5, 3],
    "conv_stride": [3, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 6,
    "apply_spec_augment": False,
    "layerdrop": 0.0,
}


def _sound(name: str, family: str, **options: Any) -> None:
    def factory() -> Case:
        model = make_model(family, "ForSequenceClassification", **{**_WAVES, **options})
        return Case(model, sound_class, (torch.randn(RECORDS, 64), random_labels(LABELS)))

    CATALOGUE.add(name, factory)


_sound("wav2vec2", "Wav2Vec2")
_sound("wav2vec2, layer norms", "Wav2Vec2", feat_extract_norm="layer", do_stable_layer_norm=True)
_sound("hubert", "Hubert")
_sound("wavlm", "WavLM", num_buckets=8, max_bucket_distance=8)
_sound("unispeech", "UniSpeech")
_sound("sew", "SEW", squeeze_factor=2)
_sound("data2vec audio", "Data2VecAudio", num_conv_pos_embeddings=2, conv_pos_kernel_size=3)


@CATALOGUE.entry("wav2vec2, words in a sound")
def wav2vec2_words() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        sounds, targets, times, lengths = batch
        scores = model(sounds).logits.log_softmax(2).transpose(0, 1)
        return F.ctc_loss(scores, targets, times, lengths, reduction="none")

    batch = (
        torch.randn(RECORDS, 64),
        torch.randint(1, WORDS, (RECORDS, 3)),
        torch.full((RECORDS,), 9),
        torch.tensor([3, 2, 3, 1]),
    )
    return Case(make_model("Wav2Vec2", "ForCTC", **_WAVES), loss, batch)


@CATALOGUE.entry("audio spectrogram transformer")
def spectrogram_transformer() -> Case:
    settings: dict[str, Any] = {
        **SMALL,
        "patch_size": 4,
        "frequency_stride": 4,
        "time_stride": 4,
        "max_length": 8,
        "num_mel_bins": 8,
    }
    model = make_model("AST", "ForAudioClassification", **settings)
    return Case(model, sound_class, (torch.randn(RECORDS, 8, 8), random_labels(LABELS)))


@CATALOGUE.entry("whisper")
def whisper() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        features, tokens = batch
        logits = model(input_features=features, decoder_input_ids=tokens).logits
        return F.cross_entropy(
            logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none"
        ).mean(1)

    settings: dict[str, Any] = {
        **BART_SIZES,
        "vocab_size": WORDS,
        "num_mel_bins": 4,
        "max_source_positions": 6,
        "max_target_positions": 8,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }
    model = make_model("Whisper", "ForConditionalGeneration", **settings)
    return Case(model, loss, (torch.randn(RECORDS, 4, 12), random_tokens(WORDS, LENGTH)))


@CATALOGUE.entry("speech to text")
def speech_to_text() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        features, tokens = batch
        logits = model(input_features=features, decoder_input_ids=tokens).logits
        return F.cross_entropy(
            logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none"
        ).mean(1)

    settings: dict[str, Any] = {
        **BART_SIZES,
        "vocab_size": WORDS,
        "input_feat_per_channel": 4,
        "num_conv_layers": 1,
        "conv_kernel_sizes": [3],
        "conv_channels": 8,
        "max_source_positions": 16,
        "max_target_positions": 8,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = make_model("Speech2Text", "ForConditionalGeneration", **settings)
    return Case(model, loss, (torch.randn(RECORDS, 12, 4), random_tokens(WORDS, LENGTH)))


def _video_model(name: str, family: str, **options: Any) -> None:
    def factory() -> Case:
        settings: dict[str, Any] = {
            **SMALL,
            "image_size": 8,
            "patch_size": 4,
            "num_frames": 2,
            **options,
        }
        videos = torch.randn(RECORDS, 2, 3, 8, 8)
        model = make_model(family, "ForVideoClassification", **settings)
        return Case(model, image_class, (videos, random_labels(LABELS)))

    CATALOGUE.add(name, factory)


_video_model("timesformer", "Timesformer")
_video_model("videomae", "VideoMAE", tubelet_size=1)
_video_model("vivit", "Vivit", tubelet_size=[1, 4, 4])


# --- time series ---


def _series(name: str, family: str, **options: Any) -> None:
    """Add a model that forecasts by its own way; the loss is the distance of the forecast."""

    def loss(model: nn.Module, batch: Any) -> Output:
        past, future = batch
        return (model(past_values=past).prediction_outputs - future).square().mean((1, 2))

    def factory() -> Case:
        settings: dict[str, Any] = {
            "context_length": 8,
            "prediction_length": 2,
            "num_input_channels": 2,
            "patch_length": 4,
            "d_model": 8,
            **options,
        }
        batch = (torch.randn(RECORDS, 8, 2), torch.randn(RECORDS, 2, 2))
        return Case(make_model(family, "ForPrediction", **settings), loss, batch)

    CATALOGUE.add(name, factory)


_series(
    "patchtst",
    "PatchTST",
    patch_stride=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    ffn_dim=12,
    norm_type="layernorm",
    loss="mse",
    scaling="std",
)
_series(
    "patchtsmixer",
    "PatchTSMixer",
    patch_stride=4,
    num_layers=1,
    expansion_factor=2,
    norm_mlp="LayerNorm",
    loss="mse",
)


@CATALOGUE.entry("time series transformer")
def time_series_transformer() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        past, past_times, seen, future, future_times = batch
        outputs = model(
            past_values=past,
            past_time_features=past_times,
            past_observed_mask=seen,
            future_values=future,
            future_time_features=future_times,
        )
        mean = outputs.params[1] * outputs.scale + outputs.loc
        return (mean - future).square().mean(1)

    settings: dict[str, Any] = {
        **BART_SIZES,
        "prediction_length": 3,
        "context_length": 5,
        "lags_sequence": [1, 2],
        "num_time_features": 1,
        "distribution_output": "normal",
    }
    model = make_model("TimeSeriesTransformer", "ForPrediction", **settings)
    batch = (
        torch.randn(RECORDS, 7),
        torch.randn(RECORDS, 7, 1),
        torch.ones(RECORDS, 7),
        torch.randn(RECORDS, 3),
        torch.randn(RECORDS, 3, 1),
    )
    return Case(model, loss, batch)


# --- what must be refused, or goes alone ---


def _batch_norms() -> Case:
    settings: dict[str, Any] = {
        "embedding_size": 4,
        "hidden_sizes": [4, 6],
        "depths": [1, 1],
        "layer_type": "basic",
        "num_labels": LABELS,
    }
    model = make_model("ResNet", "ForImageClassification", **settings)
    return Case(model, image_class, labelled_images(32))


def _clip_of_the_batch() -> Case:
    """Contrast of a record's image with the texts of all records."""

    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, images = batch
        outputs = model(input_ids=tokens, pixel_values=images)
        own = torch.arange(len(tokens))
        near = (outputs.text_embeds * outputs.image_embeds).sum(1)
        return F.cross_entropy(outputs.logits_per_image, own, reduction="none") - near

    vision = {**SMALL, "image_size": 8, "patch_size": 4}
    model = make_model("CLIP", "Model", text_config=SMALL, vision_config=vision, projection_dim=6)
    return Case(model, loss, (random_tokens(WORDS, LENGTH), torch.randn(RECORDS, 3, 8, 8)))


CATALOGUE.add_refused("resnet, batch norms", _batch_norms)
CATALOGUE.add_coupled("clip, contrast with the batch", _clip_of_the_batch)


# --- what takes long, and near relatives ---

CATALOGUE.leave_all_to_full_suite_but(
    "vit",
    "resnet, fixed norms",
    "bit, group norms",
    "clip, distance of one's own image and text",
    "wav2vec2",
    "timesformer",
    "patchtst",
    "resnet, batch norms",
    "clip, contrast with the batch",
)
