"""Averages of weights over steps: free of charge, because weights are made of what was released.

a_t = a_(t-1) + w_t (x_t - a_(t-1)), where x_t are the weights after step t = 1, 2, ... (counted
from `start` on) and

    uniform        w_t = 1 / t
    exponential    w_t = (1 - d) / (1 - d^t)

d is the decay: weights d^(t-i) for x_i, corrected so that they add up to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from discreet import _validate as check
from discreet.errors import ModelError, ParameterError, SampleMisuse
from discreet.training.passes.precision_settings import refuse_kinds

__all__ = ["WeightAverage"]

_OWNER = "WeightAverage"
_FIELDS = {"decay", "start", "steps", "weights"}


@final
class WeightAverage:
    """The average of a model's trained parameters over the steps of its optimizer.

    Guarantee: post-processing. `update` reads the parameters and nothing else. If these are made of
    what `PrivateRun.backward` released, so is the average, at no further cost, however often it is
    looked at. Which average is kept must be decided as every other parameter is: in advance, or
    from releases.

    Averages are float64, whatever the parameters are, so that a million small steps do not drift. A
    parameter that is shared counts once. Frozen parameters and buffers are those of the model now.

    Args:
        model: whose trained parameters are averaged; public.
        decay: of an exponential average, in (0, 1); None for a uniform one.
        start: updates that are passed over; until there is an average, it is the model as it is.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, start=1)
    >>> for weight in (9.0, 2.0, 4.0):
    ...     _ = nn.init.constant_(model.weight, weight)  # an optimizer's step
    ...     average.update()
    >>> with average.applied():
    ...     model.weight.item()
    3.0
    >>> model.weight.item()
    4.0
    """

    __slots__ = ("_applied", "_decay", "_model", "_parameters", "_start", "_steps", "_weights")

    def __init__(self, model: nn.Module, *, decay: float | None = None, start: int = 0) -> None:
        self._model = check.instance(_OWNER, "model", model, nn.Module)
        self._decay = None if decay is None else check.fraction(_OWNER, "decay", decay)
        self._start = check.whole(_OWNER, "start", start, least=0)
        self._parameters = _trained(model)
        refuse_kinds(self._parameters)
        # No weights before the first average: until then the model itself is shown.
        self._weights: dict[str, Tensor] = {}
        self._steps = 0
        self._applied = False

    @property
    def steps(self) -> int:
        """Updates so far, those that were passed over included."""
        return self._steps

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now. Call it after every `optimizer.step()`.

        Raises:
            ModelError: other parameters are trained than at the beginning.
            SampleMisuse: within `applied`, where the model has the average itself.
        """
        self._refuse_applied("update")
        if _identities(_trained(self._model)) != _identities(self._parameters):
            raise ModelError(
                expected="the trained parameters that the average began with",
                got="others",
                do="Freeze and unfreeze before the average is made.",
            )

        self._steps += 1
        count = self._steps - self._start
        if count < 1:
            return

        if count == 1:  # w_1 is 1: the average is the weights themselves
            self._weights = {
                name: parameter.detach().to(torch.float64, copy=True)
                for name, parameter in self._parameters.items()
            }
            return

        share = 1.0 / count
        if self._decay is not None:
            # 1 - d^t by expm1: it does not cancel where d is near 1.
            share = (1.0 - self._decay) / -math.expm1(count * math.log(self._decay))

        for name, parameter in self._parameters.items():
            average = self._weights[name]
            average.lerp_(parameter.detach().to(average), share)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Give the averaged weights to the model for good, or to another one of its kind.

        Another one gets the buffers as well, such as running statistics; its frozen parameters stay
        as they are.

        Args:
            model: with parameters of the same names and shapes.

        Raises:
            ModelError: another kind of model; nothing was copied.
            SampleMisuse: the model itself, within `applied`, which would take it back.
        """
        check.instance(f"{_OWNER}.copy_to", "model", model, nn.Module)
        if model is self._model:
            self._refuse_applied("copy_to")

        # Pairs of name and shape that only one of the models has.
        different = _shapes(self._model) ^ _shapes(model)

        if different:
            names = sorted({name for name, _ in different})
            raise ModelError(
                expected="a model with the same parameters and buffers",
                got=f"one that differs in {', '.join(names)}",
                do="Build it as the model whose weights are averaged.",
            )

        # The trained parameters from the average; buffers from the model, for another one.
        targets, buffers = dict(model.named_parameters()), dict(model.named_buffers())

        for name, values in (self._weights or self._parameters).items():
            targets[name].copy_(values)

        if model is not self._model:
            for name, buffer in self._model.named_buffers():
                buffers[name].copy_(buffer)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """For the time of a block the model has the averaged weights; afterwards its own bits.

        Raises:
            SampleMisuse: within itself.
        """
        self._refuse_applied("applied")
        # The model's own bits, to be put back after the block.
        before = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self.copy_to(self._model)
        self._applied = True

        # Whatever happens in the block, the model gets its own bits back.
        try:
            yield
        finally:
            self._applied = False
            with torch.no_grad():
                for name, parameter in self._parameters.items():
                    parameter.copy_(before[name])

    def state_dict(self) -> dict[str, Any]:
        """Everything that it needs to go on, as for `PrivateRun.save(others={"average": ...})`.

        Raises:
            SampleMisuse: within `applied`, where a checkpoint would take the average for the model.
        """
        self._refuse_applied("state_dict")
        return {
            "decay": self._decay,
            "start": self._start,
            "steps": self._steps,
            "weights": dict(self._weights),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Go on from the state of an earlier average.

        Args:
            state_dict: of an average of the same kind, of a model with the same trained parameters.

        Raises:
            ParameterError: another kind; this one is as before.
            SampleMisuse: within `applied`.
        """
        self._refuse_applied("load_state_dict")
        kind: Any = Mapping
        state = check.instance(_LOAD, "state_dict", state_dict, kind)
        if set(state) != _FIELDS or (state["decay"], state["start"]) != (self._decay, self._start):
            raise _other_state(f"an average with decay={self._decay}, start={self._start}")

        steps = check.whole(_LOAD, "steps", state["steps"], least=0)
        weights = check.instance(_LOAD, "weights", state["weights"], dict)
        # Before the first average there are no weights.
        averaged = self._parameters if steps > self._start else {}
        expected = {name: parameter.shape for name, parameter in averaged.items()}
        tensors = {name: values for name, values in weights.items() if isinstance(values, Tensor)}
        shapes = {name: values.shape for name, values in tensors.items()}
        # What is no tensor is missing among the shapes.
        if shapes != expected or len(weights) != len(expected):
            raise _other_state("averages of the parameters that this model trains")

        self._weights = {
            name: weights[name].detach().to(self._parameters[name].device, torch.float64, copy=True)
            for name in expected
        }
        self._steps = steps

    def _refuse_applied(self, call: str) -> None:
        if self._applied:
            raise SampleMisuse(
                expected=f"{call}() while the model has its own weights",
                got="a call within applied(), where it has the average",
                do="Leave the block first: train and update outside, evaluate inside.",
            )


_LOAD = f"{_OWNER}.load_state_dict"


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def _identities(parameters: Mapping[str, Tensor]) -> dict[str, int]:
    # A parameter that was replaced has the name of the old one, and is another tensor.
    return {name: id(parameter) for name, parameter in parameters.items()}


def _shapes(model: nn.Module) -> set[tuple[str, torch.Size]]:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {(name, tensor.shape) for name, tensor in tensors}


def _other_state(expected: str) -> ParameterError:
    return ParameterError(
        owner=_LOAD, name="state_dict", expected=f"the state of {expected}", got="another one"
    )
