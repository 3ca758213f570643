"""Every strategy gives what a loop over batches of one gives,
for every geometry that torch takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.errors import ParameterError
from discreet.training.rules.convolution import geometry as convolution
from discreet.training.rules.convolution.geometry import Convolution
from support.convolutions import Case, cases, close


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_p07_gradients_equal_a_loop(case: Case) -> None:
    truth = case.by_loop()
    close(case.how.folded(case.x, case.g), truth)
    close(case.how.unfolded(case.x, case.g), truth)


def test_p07_a_grouped_convolution_equals_a_loop() -> None:
    torch.manual_seed(2)
    case = Case(
        {"padding": 1, "groups": 2},
        False,
        torch.randn(4, 3, 3),
        torch.randn(5, 6, 7),
        torch.randn(5, 4, 7),
    )
    close(case.how.folded(case.x, case.g), case.by_loop())
    close(case.how.unfolded(case.x, case.g), case.by_loop())


@given(cases(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_p07_sums_equal_the_weighted_sum_of_a_loop(case: Case, microbatch: int) -> None:
    weights = torch.rand(len(case.x), dtype=case.x.dtype)
    rows = case.by_loop() * weights.view(-1, *(1,) * case.weight.ndim)
    truth, largest = rows.sum(0), rows.abs().sum(0) if len(rows) else rows.sum(0)
    for found in (
        case.how.streamed(case.x, case.g, weights),
        case.how.streamed(case.x, case.g, weights, microbatch=microbatch),
    ):
        assert found.dtype == torch.float64
        close(found, truth, largest)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_windows_have_their_stated_shape_and_arguments_stay_as_they_are(case: Case) -> None:
    x, g = case.x.clone(), case.g.clone()
    wide, narrow = case.how.sides(case.x, case.g)
    positions = narrow[0, 0].numel() if len(narrow) else torch.zeros(narrow.shape[2:]).numel()
    assert case.how.patches(wide).shape == (len(wide), case.how.groups, positions, case.how.window)
    case.how.unfolded(case.x, case.g)
    case.how.streamed(case.x, case.g, torch.zeros(len(x), dtype=x.dtype))
    assert torch.equal(case.x, x)
    assert torch.equal(case.g, g)


def test_many_records_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """More records than fit into the cache, so that there are several pieces,
    the last one ragged.
    """
    torch.manual_seed(0)
    weight = torch.randn(4, 3, 3, 3)
    case = Case({"padding": 1}, False, weight, torch.randn(11, 3, 9, 9), torch.randn(11, 4, 9, 9))
    sizes, right_product = [], convolution.product

    def counted(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        sizes.append(len(a))
        return right_product(a, b, out)

    monkeypatch.setattr(convolution, "_CACHE", 3 * 81 * 27 * 4)
    monkeypatch.setattr(convolution, "product", counted)
    close(case.how.unfolded(case.x, case.g), case.by_loop())
    assert sizes == [3, 3, 3, 2]
    weights = torch.rand(11)
    close(
        case.how.streamed(case.x, case.g, weights, microbatch=5),
        torch.einsum("m,mabcd->abcd", weights, case.by_loop()),
    )


@pytest.mark.parametrize("worst", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", ["x", "g"])
def test_p13_a_record_of_weight_zero_contributes_nothing_whatever_it_holds(
    worst: float, side: str
) -> None:
    torch.manual_seed(1)
    x, g, weights = torch.randn(5, 2, 6), torch.randn(5, 3, 4), torch.rand(5)
    weights[2] = 0.0
    how = Convolution.of((3, 2, 3))
    clean = how.streamed(x, g, weights)
    (x if side == "x" else g)[2, 1, 2] = worst
    assert torch.equal(how.streamed(x, g, weights), clean)


def test_gradients_are_detached_and_autocast_changes_nothing() -> None:
    x, g, weights = torch.randn(2, 2, 6, requires_grad=True), torch.randn(2, 3, 4), torch.rand(2)
    how = Convolution.of((3, 2, 3))
    plain = how.folded(x, g), how.unfolded(x, g), how.streamed(x, g, weights)
    with torch.autocast("cpu", torch.bfloat16):
        short = how.folded(x, g), how.unfolded(x, g), how.streamed(x, g, weights)
    for one, other in zip(plain, short, strict=True):
        assert not one.requires_grad
        assert torch.equal(one, other)


@pytest.mark.parametrize("kernel", [(2,), (4, 3), (2, 4, 6)])
def test_same_padding_with_an_even_kernel_puts_the_odd_zero_at_the_end(
    kernel: tuple[int, ...],
) -> None:
    how = Convolution.of((1, 1, *kernel), padding="same")
    assert how.padding == tuple(((size - 1) // 2, size - 1 - (size - 1) // 2) for size in kernel)
    assert how.positions((7,) * len(kernel)) == (7,) * len(kernel)


def test_arguments_come_in_the_order_of_torch() -> None:
    x, weight = torch.randn(2, 4, 5), torch.randn(4, 3, 3)
    for arguments in ((3, 1, 2, 2, 1), (2, 1, 1, 1, 3)):
        y = torch.conv_transpose1d(x, weight, None, *arguments)
        Convolution.of_transposed(weight.shape, *arguments).sides(x, y)
    x = torch.randn(2, 6, 9)
    for plain in ((2, 1, 3, 2), ([2], (1,), 1, 2), (1, "same", 3, 2)):
        y = torch.conv1d(x, weight, None, *plain)
        Convolution.of(weight.shape, *plain).sides(x, y)


@pytest.mark.parametrize(
    ("x", "g"),
    [
        (torch.zeros(2, 2, 6), torch.zeros(3, 3, 4)),  # unequal records
        (torch.zeros(2, 2, 6), torch.zeros(2, 3, 5)),  # a position too many
        (torch.zeros(2, 2, 6), torch.zeros(2, 2, 4)),
        (torch.zeros(2, 3, 6), torch.zeros(2, 3, 4)),
        (torch.zeros(2, 6), torch.zeros(3, 4)),  # no record axis
        (torch.zeros(2, 2, 6), torch.zeros(2, 3, 4).double()),
    ],
)
def test_p10_tensors_that_do_not_belong_together_are_refused(x: Tensor, g: Tensor) -> None:
    how = Convolution.of((3, 2, 3))
    for run in (how.folded, how.unfolded):
        with pytest.raises(ParameterError, match="x, g"):
            run(x, g)


@pytest.mark.parametrize("shape", [(4, 1, 6), (4, 2, 2), (4, 2), (4, 2, 6, 6)])
def test_windows_never_reach_into_another_record(shape: tuple[int, ...]) -> None:
    """With fewer channels than the weight's, strides alone would find the next record's numbers."""
    with pytest.raises(ParameterError, match="wide"):
        Convolution.of((3, 2, 3)).patches(torch.zeros(shape))


@pytest.mark.parametrize("weights", [torch.ones(3), torch.ones(2, 1), torch.ones(2).double()])
def test_weights_must_be_one_per_record(weights: Tensor) -> None:
    how, x, g = Convolution.of((3, 2, 3)), torch.zeros(2, 2, 6), torch.zeros(2, 3, 4)
    with pytest.raises(ParameterError, match="weights"):
        how.streamed(x, g, weights)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_are_the_same_numbers_by_places_and_by_strides(
    axes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: places of another geometry that was remembered."""
    for groups, stride, dilation, padding in ((1, 1, 1, 0), (2, 2, 1, 1), (2, 1, 2, 2)):
        how = Convolution.of((4, 6 // groups, *(3, 2, 1)[:axes]), stride, padding, dilation, groups)
        wide = torch.randn(3, 6, *(7, 6, 5)[:axes])
        found = []
        for limit in (0, 2**20):
            monkeypatch.setattr(convolution, "_INDEXED", limit)
            found.append(how.patches(wide))
        assert torch.equal(*found)
        assert torch.equal(how.patches(wide.transpose(0, 1).contiguous().transpose(0, 1)), found[0])
