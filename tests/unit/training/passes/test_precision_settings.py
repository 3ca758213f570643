"""Every setting that shortens float32 is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from discreet.errors import NumericsError
from discreet.training.passes import precision_settings
from discreet.training.passes.precision_settings import full_precision, refuse_short_formats

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def owner_of(path: str) -> Any:
    owner: Any = torch.backends
    for name in path.split(".") if path else ():
        owner = getattr(owner, name)
    return owner


@contextmanager
def precision(path: str, value: str) -> Iterator[None]:
    owner = owner_of(path)
    before = owner.fp32_precision
    # torch's own database of operators, which other tests load, forbids to set it without this.
    allowed = getattr(torch.backends, "__allow_nonbracketed_mutation")
    with allowed():
        owner.fp32_precision = value
    try:
        yield
    finally:
        with allowed():
            owner.fp32_precision = before


def test_nothing_is_refused_as_torch_comes() -> None:
    refuse_short_formats(CPU)
    with full_precision(CPU):
        pass


@pytest.mark.parametrize("path", ["mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"])
def test_each_part_of_onednn(path: str) -> None:
    with precision(path, "bf16"), pytest.raises(NumericsError, match=path) as caught:
        refuse_short_formats(CPU)
    assert f'torch.backends.{path}.fp32_precision = "ieee"' in caught.value.do
    with precision(path, "ieee"):
        refuse_short_formats(CPU)
    refuse_short_formats(CPU)


def test_the_setting_for_all_of_torch() -> None:
    with precision("", "tf32"), pytest.raises(NumericsError, match=r"torch\.backends\.fp32"):
        refuse_short_formats(CPU)
    refuse_short_formats(CPU)


@pytest.mark.parametrize("value", ["high", "medium"])
def test_the_precision_of_products(value: str) -> None:
    torch.set_float32_matmul_precision(value)
    try:
        with pytest.raises(NumericsError, match="set_float32_matmul_precision"):
            full_precision(CPU)
    finally:
        torch.set_float32_matmul_precision("highest")
    refuse_short_formats(CPU)


@pytest.mark.parametrize("name", ["ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"])
def test_the_variables_of_onednn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("BF16", "bf16", "ANY", "F16", "TF32"):
        monkeypatch.setenv(name, value)
        with pytest.raises(NumericsError, match=f"without the variable {name}"):
            refuse_short_formats(CPU)
    for value in ("STRICT", "strict", ""):
        monkeypatch.setenv(name, value)
        refuse_short_formats(CPU)


def test_a_graphics_card_has_more_settings() -> None:
    with pytest.raises(NumericsError) as caught:  # as torch comes, its convolutions are short
        refuse_short_formats(CUDA)
    for name in ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision", "allow_bf16_reduced"):
        assert name in caught.value.got
    assert "torch.backends.cudnn.conv.fp32_precision = " in caught.value.do


def test_every_precision_that_torch_knows_is_read() -> None:
    """Torch may get new ones: what carries `fp32_precision` must be in the list."""
    names = {setting.name for setting in precision_settings._settings_for("cuda")}
    for module in ("cuda", "cudnn", "mkldnn"):
        for part in ("", ".matmul", ".conv", ".rnn"):
            path = f"{module}{part}"
            try:
                owner_of(path).fp32_precision  # noqa: B018  (whether there is one)
            except AttributeError:
                continue
            assert f"torch.backends.{path}.fp32_precision" in names
    assert "torch.backends.fp32_precision" in names


def test_an_older_torch_is_read_by_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_settings, "_read_precision", None)
    settings = precision_settings._settings_for.__wrapped__("cuda")
    names = [setting.name for setting in settings]
    assert "torch.backends.cuda.matmul.allow_tf32" in names
    assert "torch.backends.cudnn.allow_tf32" in names
    assert not any(name.endswith("fp32_precision") for name in names)
    short = {setting.name for setting in settings if setting.read() not in precision_settings._LONG}
    assert "torch.backends.cudnn.allow_tf32" in short


def test_autocast_is_off_within() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        with full_precision(CPU):
            product = torch.ones(2, 2) @ torch.ones(2, 2)
            assert product.dtype == torch.float32
        assert torch.is_autocast_enabled("cpu")
