"""Compiled steps of an LSTM: accurate, and refused where they are not."""

import pytest
import torch

from discreet.errors import NumericsError
from discreet.training.rules.recurrent import kernels


def test_compiled_functions_are_accurate_and_keep_nan() -> None:
    """Each within 4 units of 2^-24 of torch in float64, relative to it."""
    near, far = torch.logspace(-30, 1.93, 20_000), torch.linspace(-87.0, 87.0, 20_001)
    x = torch.cat((near, -near, far, torch.tensor([0.0, torch.inf, -torch.inf])))
    for run, function in (
        (kernels._compiled_sigmoid, torch.sigmoid),
        (kernels._compiled_tanh, torch.tanh),
    ):
        row = x.clone()
        run(row.numpy())
        truth = function(x.double())
        inside = x.isfinite() & (x != 0)
        assert float(((row - truth)[inside] / truth[inside]).abs().max()) <= 4 * 2.0**-24
        assert torch.allclose(row.double(), truth, atol=1e-37)
        broken = torch.tensor([torch.nan, 1.0])
        run(broken.numpy())
        assert broken.isnan().tolist() == [True, False]


def test_wrong_compiled_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "backward", lambda *_: None)
    with pytest.raises(NumericsError, match="agrees with torch"):
        kernels._check()
