"""Compiled steps of an LSTM: accurate, and refused where they are not."""

import weakref

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.training.rules.recurrent import kernels


def test_compiled_functions_are_accurate_and_keep_nan() -> None:
    """Each within 4 units of 2^-24 of torch in float64, relative to it."""
    near, far = torch.logspace(-30, 1.93, 20_000), torch.linspace(-87.0, 87.0, 20_001)
    x = torch.cat((near, -near, far, torch.tensor([0.0, torch.inf, -torch.inf])))
    for name, function in (("sigmoid_row", torch.sigmoid), ("tanh_row", torch.tanh)):
        run = kernels._function(name, "pn")
        row = x.clone()
        run(row.data_ptr(), row.numel())
        truth = function(x.double())
        inside = x.isfinite() & (x != 0)
        assert float(((row - truth)[inside] / truth[inside]).abs().max()) <= 4 * 2.0**-24
        assert torch.allclose(row.double(), truth, atol=1e-37)
        broken = torch.tensor([torch.nan, 1.0])
        run(broken.data_ptr(), 2)
        assert broken.isnan().tolist() == [True, False]


def test_wrong_compiled_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "backward", lambda *_: lambda *_: None)
    with pytest.raises(NumericsError, match="agrees with torch"):
        kernels.check_kernels.__wrapped__()


def buffers() -> list[NDArray[np.float32]]:
    """Gates, outputs, cells, tanh of cells: two positions, three records, width five."""
    return [np.zeros((2, 3, 20), "f"), *(np.zeros((n, 3, 5), "f") for n in (3, 3, 2))]


def test_buffers_of_other_shapes_and_kinds_are_refused() -> None:
    """Wrong: compiled code reads and writes behind the end of a buffer."""
    for number in range(4):
        for change in (
            lambda array: array[:, :2],
            lambda array: array.astype(np.float64),
            lambda array: array[..., ::-1],
            np.asfortranarray,
        ):
            arrays = buffers()
            arrays[number] = change(arrays[number])
            with pytest.raises(NumericsError, match="a contiguous array of float32"):
                kernels.forward(*arrays)
    gates, _, cells, tanhs = buffers()
    for dys, dcs in ((cells[0], cells[0, :2]), (cells[0, :2], cells[0])):
        with pytest.raises(NumericsError, match="a contiguous array of float32"):
            kernels.backward(gates, cells, tanhs, dys, dcs)


@pytest.mark.parametrize("step", [(2, 0, 1), (-1, 0, 1), (0, 3, 1), (0, 0, 3), (0, -1, 0)])
def test_steps_that_are_not_in_the_buffers_are_refused(step: tuple[int, int, int]) -> None:
    gates, ys, cells, tanhs = buffers()
    with pytest.raises(NumericsError, match="that were prepared"):
        kernels.forward(gates, ys, cells, tanhs)(*step)
    if step[2] < 3:
        back = kernels.backward(gates, cells, tanhs, ys[0], cells[0].copy())
        with pytest.raises(NumericsError, match="that were prepared"):
            back(*step[:2])


def test_prepared_steps_keep_their_buffers() -> None:
    """Wrong: memory that was given back is written to."""
    arrays = buffers()
    watched = [weakref.ref(array) for array in arrays]
    step = kernels.forward(*arrays)
    del arrays
    assert all(reference() is not None for reference in watched)
    step(0, 0, 1)
