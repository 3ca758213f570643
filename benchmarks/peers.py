"""Who takes the step: plain SGD, opacus with hooks, opacus with ghost clipping, a hand-written
vmap, and this library.

A contender is a function (model, batch, noise_multiplier) -> step. A step is everything from
fetching the records to the
optimizer: the per-record gradients clipped to CLIP_NORM, summed, noised, divided by the number of
records, and one step of SGD. It leaves no gradient behind. A contender that cannot take the model
says so by an exception; the table repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from benchmarks.models import Batch, Task, losses
from discreet.training import PrivateRun

Step: TypeAlias = Callable[[], None]
Contender: TypeAlias = Callable[[nn.Module, Batch, float], Step]

CLIP_NORM = 1.0
LEARNING_RATE = 0.05


class Unavailable(Exception):
    """A contender that is not there, and why."""


def plain(model: nn.Module, batch: Batch, noise_multiplier: float) -> Step:  # noqa: ARG001  (there is no noise)
    """Ordinary SGD: what everything else is compared with."""
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)

    def step() -> None:
        losses(model, fetched(batch)).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def hooks(model: nn.Module, batch: Batch, noise_multiplier: float) -> Step:
    """Opacus as it is by default: every per-record gradient in memory; noise from torch."""
    from opacus import GradSampleModule  # noqa: PLC0415  (a peer, not a requirement)
    from opacus.optimizers import DPOptimizer  # noqa: PLC0415

    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), LEARNING_RATE),
        noise_multiplier=noise_multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
    )

    def step() -> None:
        losses(wrapped, fetched(batch)).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ghost(model: nn.Module, batch: Batch, noise_multiplier: float) -> Step:
    """Opacus with ghost clipping: norms without gradients, a second backward; noise from torch."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping  # noqa: PLC0415  (as above)
    from opacus.optimizers import DPOptimizerFastGradientClipping  # noqa: PLC0415
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping  # noqa: PLC0415

    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), LEARNING_RATE),
        noise_multiplier=noise_multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
    )

    def step() -> None:
        DPTensorFastGradientClipping(wrapped, optimizer, losses(wrapped, fetched(batch))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def vmapped(model: nn.Module, batch: Batch, noise_multiplier: float) -> Step:
    """What one writes by hand with torch.func: vmap of grad, then clip and sum;
    noise from torch.
    """
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        def call(given: Tensor) -> Tensor:
            outputs: Tensor = torch.func.functional_call(model, values, (given,))
            return outputs

        return losses(call, (one.unsqueeze(0), target.unsqueeze(0))).sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        values = {name: parameter.detach() for name, parameter in parameters.items()}
        rows = {name: each.flatten(1) for name, each in gradients(values, *fetched(batch)).items()}
        norms = torch.stack([each.norm(dim=1) for each in rows.values()]).norm(dim=0)
        weights = (CLIP_NORM / norms.clamp(min=1e-6)).clamp(max=1.0)
        for name, parameter in parameters.items():
            total = (weights @ rows[name]).view_as(parameter)
            noise = torch.randn_like(parameter).mul_(noise_multiplier * CLIP_NORM)
            parameter.grad = total.add_(noise).div_(len(batch[0]))
        optimizer.step()
        optimizer.zero_grad()

    return step


def fetched(batch: Batch) -> Batch:
    """The records in a random order, as every training loop has them: part of a step, for all
    contenders.
    """
    order = torch.randperm(len(batch[0]))
    return batch[0][order], batch[1][order]


def ours(
    model: nn.Module,
    batch: Batch,
    noise_multiplier: float,
    numerics: dp.Numerics = dp.Numerics.CERTIFIED,
    *,
    static: bool = False,
) -> Step:
    """This library: sampled, charged, clipped, summed with certified rounding, exact noise from the
    cryptographic source.
    """
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=len(batch[0]), steps=10**9),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(CLIP_NORM, noise_multiplier)}),
        numerics=numerics,
    )
    run = PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), static=static)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    batches = run.batches(TensorDataset(*batch))

    def step() -> None:
        run.backward(losses, next(batches))
        optimizer.step()
        optimizer.zero_grad()

    return step


CONTENDERS: dict[str, Contender] = {
    "plain": plain,
    "ours": ours,
    "ours static": partial(ours, static=True),
    "opacus hooks": hooks,
    "opacus ghost": ghost,
    "vmap": vmapped,
}


def builder(name: str, task: Task) -> Callable[[], nn.Module]:
    """Builds the model that a contender takes."""
    return (
        task.for_opacus if name.startswith("opacus") and task.for_opacus is not None else task.model
    )
