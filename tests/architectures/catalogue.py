"""All models of all files."""

from __future__ import annotations

from dataclasses import replace

from . import (
    attention_models,
    function_models,
    generative_models,
    loss_models,
    peft_models,
    perception_models,
    picture_models,
    sequence_models,
    structure_models,
    torch_models,
    transformers_models,
    vision_models,
)
from .harness import Entry

FILES = {
    "torch": torch_models.CATALOGUE,
    "structure": structure_models.CATALOGUE,
    "attention": attention_models.CATALOGUE,
    "sequence": sequence_models.CATALOGUE,
    "function": function_models.CATALOGUE,
    "loss": loss_models.CATALOGUE,
    "generative": generative_models.CATALOGUE,
    "vision": vision_models.CATALOGUE,
    "picture": picture_models.CATALOGUE,
    "transformers": transformers_models.CATALOGUE,
    "perception": perception_models.CATALOGUE,
    "peft": peft_models.CATALOGUE,
}
"""Catalogues by the kind of their models."""


def entries() -> list[Entry]:
    """Every model, named after its kind: "vision/swin windows"."""
    return [
        replace(entry, name=f"{kind}/{entry.name}")
        for kind, catalogue in FILES.items()
        for entry in catalogue
    ]
