"""Algebra that joins rows: products, reductions, normalisation, attention, transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .mixing import Mix, mixing


def product(name: str, **options: Any) -> Callable[[Mix], Mix]:
    return mixing("product", name, **options)


def reduction(name: str, **options: Any) -> Callable[[Mix], Mix]:
    return mixing("reduction", name, **options)


def along(name: str, **options: Any) -> Callable[[Mix], Mix]:
    return mixing("along", name, **options)


# --- products of records ---


@product("gram matrix")
def _gram(rows: Tensor) -> Tensor:
    return rows @ rows.T @ rows.abs()


@product("einsum of pairs")
def _einsum(rows: Tensor) -> Tensor:
    return torch.einsum("nd,md,me->ne", rows, rows, rows.abs())


@product("broadcast differences")
def _broadcast(rows: Tensor) -> Tensor:
    return (rows[:, None] + rows[None]).sum(1)


@product("cdist")
def _cdist(rows: Tensor) -> Tensor:
    return torch.cdist(rows, rows) @ rows


@product("pdist")
def _pdist(rows: Tensor) -> Tensor:
    return -functional.pdist(rows).mean() * torch.ones_like(rows)


@product("covariance", strength=0.1)
def _covariance(rows: Tensor) -> Tensor:
    return -rows @ rows.T.cov(correction=0)


@product("tensordot", strength=1e-4)
def _tensordot(rows: Tensor) -> Any:
    return -rows @ torch.tensordot(rows, rows, dims=([0], [0]))


@product("public matrix along records")
def _public_matrix(rows: Tensor) -> Tensor:
    return torch.ones(len(rows), len(rows)).tril() @ rows


@product("linear layer along records")
def _linear(rows: Tensor) -> Tensor:
    return functional.linear(rows.T, torch.ones(len(rows), len(rows))).T


@product("bmm with records as columns")
def _bmm(rows: Tensor) -> Tensor:
    columns = rows.T.unsqueeze(2)
    return torch.bmm(columns, columns.mT).sum(1).T


@product("outer")
def _outer(rows: Tensor) -> Tensor:
    return torch.outer(rows[:, 0], rows[:, 0]) @ rows.abs()


@product("bilinear with a weight of records")
def _bilinear(rows: Tensor) -> Tensor:
    return functional.bilinear(rows, rows, -rows.sum(0).expand(1, 4, 4)).expand_as(rows)


@product("cosine similarity of pairs", strength=5.0)
def _cosine(rows: Tensor) -> Tensor:
    return functional.cosine_similarity(rows[:, None], rows[None], dim=2) @ rows.abs()


@product("weights made of the batch")
def _hyper(rows: Tensor) -> Tensor:
    return functional.linear(rows, rows.mean(0).expand(4, 4))


# --- reductions over records ---


@reduction("mean")
def _mean(rows: Tensor) -> Tensor:
    return rows.mean(0).expand_as(rows)


@reduction("sum of everything")
def _sum(rows: Tensor) -> Tensor:
    return rows.sum() * torch.ones_like(rows)


@reduction("amin")
def _amin(rows: Tensor) -> Tensor:
    return rows.amin(0, keepdim=True).expand_as(rows)


@reduction("max of everything")
def _max(rows: Tensor) -> Tensor:
    return rows * rows.neg().max()


@reduction("norm")
def _norm(rows: Tensor) -> Any:
    return -rows * (rows.norm() > 50.0)


@reduction("clipping by the norm of the batch", strength=0.1)
def _clipped(rows: Tensor) -> Any:
    return -2.0 * rows * (20.0 / rows.norm()).clamp(max=1.0).lt(1.0)


@reduction("standard deviation")
def _std(rows: Tensor) -> Tensor:
    return -rows * rows.std(0, correction=0)


@reduction("median of absolute deviations", strength=10.0)
def _quantile(rows: Tensor) -> Tensor:
    return rows.quantile(0.01, dim=0).expand_as(rows)


@reduction("logsumexp")
def _logsumexp(rows: Tensor) -> Tensor:
    return -rows * rows.neg().logsumexp(0).relu()


@reduction("any")
def _any(rows: Tensor) -> Tensor:
    return torch.where((rows < -10.0).any(), -rows, torch.zeros_like(rows))


@reduction("masked_fill by a number of the batch")
def _masked_fill(rows: Tensor) -> Tensor:
    return rows.masked_fill(rows.min() < -10.0, -10.0) * 0.5


@reduction("product", strength=0.1)
def _prod(rows: Tensor) -> Tensor:
    return rows.prod(0).expand_as(rows)


@reduction("aminmax")
def _aminmax(rows: Tensor) -> Tensor:
    return rows.aminmax().min.expand_as(rows)


@reduction("count_nonzero")
def _count(rows: Tensor) -> Tensor:
    return -rows * torch.count_nonzero(rows < -10.0)


@reduction("histogram")
def _histogram(rows: Tensor) -> Tensor:
    return -rows * torch.histc(rows.detach(), bins=2, min=-200.0, max=200.0)[0]


@reduction("matrix norm")
def _matrix_norm(rows: Tensor) -> Any:
    return -rows * torch.linalg.matrix_norm(rows).sub(20.0).relu()


@reduction("mean of detached rows")
def _detached(rows: Tensor) -> Tensor:
    return rows.detach().mean(0).expand_as(rows)


@reduction("mean without gradients")
def _no_grad(rows: Tensor) -> Tensor:
    with torch.no_grad():
        centre = rows.mean(0)
    return centre.expand_as(rows)


@reduction("mean in inference mode")
def _inference(rows: Tensor) -> Tensor:
    with torch.inference_mode():
        centre = rows.mean(0)
    return rows.detach() * 0.0 + centre.clone()


# --- along records ---


@along("softmax", strength=-2.0)
def _softmax(rows: Tensor) -> Tensor:
    return rows.neg().softmax(0)


@along("cumsum")
def _cumsum(rows: Tensor) -> Tensor:
    return rows.cumsum(0) + rows.flip(0).cumsum(0).flip(0)


@along("cumprod", strength=0.1)
def _cumprod(rows: Tensor) -> Tensor:
    return rows.cumprod(0) + rows.flip(0).cumprod(0).flip(0)


@along("cummin")
def _cummin(rows: Tensor) -> Tensor:
    return rows.cummin(0).values + rows.flip(0).cummin(0).values.flip(0)


@along("sort")
def _sort(rows: Tensor) -> Tensor:
    return rows.sort(0).values


@along("ranks")
def _ranks(rows: Tensor) -> Tensor:
    return (5.0 - rows.argsort(0).argsort(0)) * 0.5


@along("topk")
def _topk(rows: Tensor) -> Tensor:
    return rows.neg().topk(1, dim=0).values.neg().expand_as(rows)


@along("kthvalue")
def _kthvalue(rows: Tensor) -> Tensor:
    return rows.kthvalue(1, dim=0).values.expand_as(rows)


@along("diff", strength=-0.1)
def _diff(rows: Tensor) -> Tensor:
    return rows.diff(dim=0, prepend=rows[-1:]).abs()


@along("fft")
def _fft(rows: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.fft(rows.detach(), dim=0))[..., 0]


@along("low frequencies")
def _low(rows: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(rows, dim=0)[:1], n=len(rows), dim=0)


@along("average pooling")
def _pooling(rows: Tensor) -> Tensor:
    return functional.avg_pool1d(rows.T[None], 3, 1, 1)[0].T


@along("adaptive pooling")
def _adaptive(rows: Tensor) -> Tensor:
    return functional.adaptive_avg_pool1d(rows.T[None], 1)[0].T.expand_as(rows)


@along("maximum pooling")
def _maximum(rows: Tensor) -> Tensor:
    return -functional.max_pool1d(-rows.T[None], 3, 1, 1)[0].T


@along("convolution")
def _convolution(rows: Tensor) -> Tensor:
    return functional.conv1d(rows.T[:, None], torch.ones(1, 1, 3), padding=1)[:, 0].T


@along("interpolation")
def _interpolation(rows: Tensor) -> Tensor:
    wide = functional.interpolate(rows.T[None], size=2 * len(rows), mode="linear")
    return wide[0].T[1::2] * 2.0


@along("circular padding")
def _circular(rows: Tensor) -> Tensor:
    return functional.pad(rows.T[None], (1, 0), mode="circular")[0].T[: len(rows)]


@along("batch normalisation by hand")
def _by_hand(rows: Tensor) -> Tensor:
    return (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt() - rows


@along("batch_norm", raises=(ValueError,))
def _batch_norm(rows: Tensor) -> Tensor:
    return functional.batch_norm(rows, None, None, training=True) - rows


@along("instance_norm of the transposed batch", raises=(ValueError,))
def _instance_norm(rows: Tensor) -> Tensor:
    return functional.instance_norm(rows.T[None])[0].T - rows


@along("layer_norm of the whole batch")
def _layer_norm(rows: Tensor) -> Tensor:
    return functional.layer_norm(rows, list(rows.shape)) - rows


@along("group_norm of the transposed batch")
def _group_norm(rows: Tensor) -> Tensor:
    return functional.group_norm(rows.T[None], 1)[0].T - rows


@along("normalize")
def _normalize(rows: Tensor) -> Tensor:
    return functional.normalize(rows, dim=0) * 3.0 - rows


@along("weights of rows that add up to one")
def _shares(rows: Tensor) -> Any:
    size = rows.norm(dim=1, keepdim=True)
    return rows * (1.0 / size.sum() - 0.02) * 10.0


@along("attention with records as the sequence", strength=3.0)
def _attention(rows: Tensor) -> Tensor:
    batch = rows[None, None]
    return functional.scaled_dot_product_attention(-batch, batch, batch)[0, 0]


@along("attention by hand", strength=3.0)
def _attention_by_hand(rows: Tensor) -> Tensor:
    return (-(rows @ rows.T)).softmax(1) @ rows


@along("causal attention", strength=3.0)
def _causal(rows: Tensor) -> Tensor:
    batch = rows[None, None]
    out = functional.scaled_dot_product_attention(-batch, batch, batch, is_causal=True)
    other = functional.scaled_dot_product_attention(
        -batch.flip(2), batch.flip(2), batch.flip(2), is_causal=True
    )
    return out[0, 0] + other.flip(2)[0, 0]


@along("singular vectors")
def _svd(rows: Tensor) -> Any:
    _, values, _ = torch.linalg.svd(rows, full_matrices=False)
    return -rows * values[0].sub(25.0).relu()


@along("triangle of an orthogonal basis")
def _qr(rows: Tensor) -> Any:
    triangle = torch.linalg.qr(rows.detach(), mode="r").R
    return -rows * triangle.norm().sub(25.0).relu()


@along("least squares")
def _solve(rows: Tensor) -> Any:
    return -torch.linalg.solve(rows.T @ rows + torch.eye(4), rows.T).T * 20.0


@along("vmap over features")
def _vmap(rows: Tensor) -> Any:
    return torch.func.vmap(lambda column: column.mean().expand_as(column), 1, 1)(rows)


@along("gradient of a sum of squares")
def _func_grad(rows: Tensor) -> Any:
    return torch.func.grad(lambda hidden: hidden.sum(0).square().sum())(rows)


@along("jacobian")
def _jacobian(rows: Tensor) -> Any:
    jacobian = torch.func.jacrev(lambda hidden: hidden.square().sum(0))(rows)
    return jacobian.sum((0, 1)).expand_as(rows)


class _Layers:
    """Layers of torch with the same number everywhere; nobody trains them."""

    def __init__(self) -> None:
        self.recurrent = nn.RNN(4, 4, nonlinearity="relu", bidirectional=True)
        self.attention = nn.MultiheadAttention(4, 1, bias=False)
        for layer in (self.recurrent, self.attention):
            for parameter in layer.parameters():
                nn.init.constant_(parameter, 0.25).requires_grad_(False)


_LAYERS = _Layers()


@along("recurrent layer with records as time")
def _recurrent(rows: Tensor) -> Tensor:
    out: Tensor = _LAYERS.recurrent(-rows)[0]
    return -out[:, :4] - out[:, 4:]


@along("layer of attention with records as the sequence", strength=3.0)
def _transformer(rows: Tensor) -> Tensor:
    out: Tensor = _LAYERS.attention(-rows, rows, rows)[0]
    return out
