"""Batch normalisation with private statistics: the record's own moments are one more vector of the
record.

    forward: normalised with the running statistics, released values only ──> every record's
        moments, as leaf "bn/<layer>"
    release: clipped, noised sums, as of any leaf ──> running statistics moved by the layer's
        momentum

So no record is seen through another one's, and what a model keeps of its inputs is what was
released (docs/proofs/mechanisms.md, section 9). [Ponomareva2023, section 5.5.1 (b)]

Legend: m records, C channels, P positions of a record.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedBuffer

from discreet import _validate as check
from discreet.errors import CoupledRecords, ModelError, ParameterError
from discreet.mechanisms import BatchNorm, Groups
from discreet.plan import Plan
from discreet.training.factors.factors import wide
from discreet.training.passes.trials import without_dropout
from discreet.training.separation.doors import Doors
from discreet.training.separation.exits import layer_of
from discreet.training.separation.own import current_proof
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import is_public

__all__ = ["Alone", "Noting", "PrivateBatchNorm"]

_TRAINING = 5  # place of `training` in torch.batch_norm, and in torch.nn.functional.batch_norm
_NONE: Mapping[int, Any] = MappingProxyType({})
_Arguments: TypeAlias = tuple[Sequence[Any], dict[str, Any]]


class PrivateBatchNorm:
    """The batch normalisation layers of a model whose statistics are released with noise.

    Guarantee: while a run lasts, the running statistics are the initial ones moved by what `apply`
    was given, which must be released values, and by nothing else. A pass computes with them alone,
    so that a record's loss, gradient and moments are functions of that record and of released
    values. What the layers held before the run counts as public, as do the weights.

    Layers in train mode that track running statistics are taken. All others are left: in eval mode
    they are harmless, and in train mode, now or later, the engine refuses them.

    Args:
        model: with layers that were called once if they are lazy.
        floor: least variance that is ever taken over from a release; public.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    >>> norm = PrivateBatchNorm(model)
    >>> norm.leaves
    {'bn/1': 6}
    >>> norm.apply({"bn/1": np.zeros(6)})  # no record, and by chance no noise: as before
    >>> model[1].running_mean.tolist(), int(model[1].num_batches_tracked)
    ([0.0, 0.0, 0.0], 1)
    """

    def __init__(self, model: nn.Module, *, floor: float = 1e-5) -> None:
        least = check.positive("PrivateBatchNorm", "floor", floor)
        self._layers = {
            f"bn/{name}": _Layer.of(name, module, least)
            for name, module in model.named_modules()
            if _is_private(module)
        }

    @classmethod
    def in_plan(cls, model: nn.Module, plan: Plan) -> PrivateBatchNorm:
        """Find the private layers of a model for a run of this plan.

        Raises:
            CoupledRecords: the model has such layers, and the plan has no group for their
                statistics.
        """
        norms = cls(model)

        # A plan of one mechanism takes every leaf that there is.
        groups = plan.mechanism.mechanisms if isinstance(plan.mechanism, Groups) else ("*",)
        unclaimed = [
            leaf
            for leaf in norms.leaves
            if not any(fnmatchcase(leaf, pattern) for pattern in groups)
        ]

        # Left to torch, they would normalise with the statistics of the batch (P09).
        if unclaimed:
            names = ", ".join(repr(leaf.removeprefix("bn/")) for leaf in unclaimed)
            raise CoupledRecords(
                expected=(
                    "layers that treat every record by itself, or a plan with a group for "
                    "batch-norm statistics"
                ),
                got=f"batch normalisation in train mode in {names}, and no such group",
                do='Replace it by GroupNorm, or put it in eval mode, or add a group "bn/*" to the '
                'plan: Groups({"grad/*": ..., '
                '"bn/*": Gaussian(clip_norm=1.0, noise_multiplier=...)}).',
            )

        return norms

    @property
    def leaves(self) -> dict[str, int]:
        """Dimension of every leaf, for the plan."""
        return {leaf: layer.statistic.dimension for leaf, layer in self._layers.items()}

    def noting(self, names: Mapping[int, str] = _NONE) -> AbstractContextManager[Noting]:
        """For the time of a pass. Afterwards the layers hold what they held before, whatever the
        pass has tried.

        Args:
            names: the modules of the model, `id` to name, for messages.
        """
        # Most models have no such layer, and nothing to put back.
        return self._noting(names) if self._layers else nullcontext(Noting(_NONE, names))

    @contextmanager
    def _noting(self, names: Mapping[int, str]) -> Iterator[Noting]:
        # By their buffers, in every pass anew: a module that was moved or loaded may have others.
        self.check_untouched()
        by_mean = {
            id(layer.module.running_mean): (leaf, layer) for leaf, layer in self._layers.items()
        }

        # Put back whatever happens, and refused only if nothing else was.
        try:
            yield Noting(by_mean, names)
        finally:
            changed = self._set_back()

        _refuse_changed(changed, "during a pass, without noise")

    def apply(self, averages: Mapping[str, Any]) -> None:
        """Move the running statistics; all of them, or none if anything is wrong. Layers in eval
        mode stay as they are.

        Args:
            averages: the released, noised sum of each leaf over the public divisor of its group.
        """
        self.check_untouched()
        missing = sorted(self._layers.keys() - averages.keys())
        if missing:
            raise ParameterError(
                owner="PrivateBatchNorm.apply",
                name="averages",
                expected="the release of every leaf",
                got=f"none of {', '.join(missing)}",
            )

        # All of them before any layer moves: an average that is no such array ends it here.
        moments = {leaf: layer.decoded(averages[leaf]) for leaf, layer in self._layers.items()}
        for leaf, layer in self._layers.items():
            if layer.module.training:
                layer.move(*moments[leaf])

    def take_over(self) -> None:
        """What the layers hold now was released: a checkpoint was loaded."""
        self._layers = {
            leaf: _Layer.of(leaf.removeprefix("bn/"), layer.module, layer.statistic.floor)
            for leaf, layer in self._layers.items()
        }

    def check_untouched(self) -> None:
        """Refuse, and undo, what was not released."""
        _refuse_changed(
            self._set_back(),
            "outside of the run, perhaps by a forward pass in train mode (and were set back)",
        )

    def _set_back(self) -> list[str]:
        """Names of the layers whose statistics were not the released ones; now they are."""
        return [
            leaf.removeprefix("bn/") for leaf, layer in self._layers.items() if layer.set_back()
        ]


def _is_private(module: nn.Module) -> bool:
    """Whether a layer has statistics that a release can move."""
    # SyncBatchNorm talks to other processes before anything is clipped: it is left to be refused.
    if not isinstance(module, _BatchNorm) or isinstance(module, nn.SyncBatchNorm):
        return False

    return module.training and module.track_running_stats and module.running_mean is not None


def _refuse_changed(layers: list[str], how: str) -> None:
    # What a forward pass in train mode writes there is the batch's own, without noise (P09).
    if layers:
        raise CoupledRecords(
            expected="running statistics that only releases move",
            got=f"those of {', '.join(map(repr, layers))} were changed {how}",
            do=(
                "Use model.eval() for whatever is not a step of the run, and model.train() after "
                "it."
            ),
        )


@dataclass(slots=True, eq=False)
class _Layer:
    """One layer, and a copy of its released statistics that nobody else can change."""

    module: _BatchNorm
    statistic: BatchNorm
    mean: Tensor
    variance: Tensor
    count: int

    @classmethod
    def of(cls, name: str, module: nn.Module, floor: float) -> _Layer:
        if not isinstance(module, _BatchNorm) or isinstance(
            module.running_mean, UninitializedBuffer
        ):
            raise ModelError(
                expected="layers whose number of channels is known",
                got=f"{name!r}, which was never called",
                do="Call the model once, in eval mode, with any input.",
            )

        # With others every record's moments would be NaN, and no record would count (P13).
        mean, variance = _buffers(module)
        are_numbers = torch.isfinite(mean) & torch.isfinite(variance) & (variance >= 0.0)
        if not bool(are_numbers.all()):
            raise ModelError(
                expected="running statistics that are numbers, variances not negative",
                got=f"others in {name!r}",
                do="Call reset_running_stats() on the layer.",
            )

        tracked = module.num_batches_tracked
        count = 0 if tracked is None else int(tracked)

        return cls(module, BatchNorm(mean.numel(), floor), mean.clone(), variance.clone(), count)

    def moments(self, rows: Tensor) -> Tensor:
        """(m, 2C): `BatchNorm.encode` of every record (m, C, P), relative to the running
        statistics.
        """
        # From the copies: what the module holds now may be a pass's own doing.
        centre_C = self.mean.to(rows)
        scale_C = (self.variance.double() + self.module.eps).sqrt().to(rows)

        # The second moment by the spread, not by a mean of squares: that would cancel in float32.
        spread_mC, mean_mC = torch.var_mean(rows, 2, correction=0)
        first_mC = (mean_mC - centre_C) / scale_C
        second_mC = spread_mC / scale_C.square() + first_mC.square() - 1.0

        return torch.cat([first_mC, second_mC], 1) / math.sqrt(self.statistic.dimension)

    def decoded(self, average: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Mean and variance of the sample's activations, as released."""
        values = average.detach().cpu().double().numpy() if isinstance(average, Tensor) else average
        mean, variance = (
            part.detach().cpu().double().numpy() for part in (self.mean, self.variance)
        )

        # Moments were taken relative to the variance with eps, as the layer normalises.
        released_mean, spread = self.statistic.decode(
            values, expected_batch_size=1.0, mean=mean, variance=variance + self.module.eps
        )

        # Noise may have made it smaller than a variance can be.
        return released_mean, np.maximum(spread - self.module.eps, self.statistic.floor)

    def move(self, mean: np.ndarray[Any, Any], variance: np.ndarray[Any, Any]) -> None:
        """The running average of releases; without a momentum, the average of all."""
        # Releases are counted, not passes: how many there are depends on the size of the sample.
        self.count += 1
        share = 1.0 / self.count if self.module.momentum is None else self.module.momentum

        # In float64, rounded once to the precision of the layer.
        for running, new in ((self.mean, mean), (self.variance, variance)):
            running.copy_(
                (1.0 - share) * running.double() + share * torch.from_numpy(new).to(running.device)
            )

        self.set_back()

    @torch.no_grad()
    def set_back(self) -> bool:
        """Write the released statistics to the module; whether it had others. Its counter counts
        releases, not passes.
        """
        buffers, released = _buffers(self.module), (self.mean, self.variance)
        changed = not all(map(_same, buffers, released))
        if changed:  # else a graph that holds them would take it for a write
            for buffer, values in zip(buffers, released, strict=True):
                buffer.copy_(values)

        if self.module.num_batches_tracked is not None:
            self.module.num_batches_tracked.fill_(self.count)

        return changed


def _buffers(module: _BatchNorm) -> tuple[Tensor, Tensor]:
    mean, variance = module.running_mean, module.running_var

    # Without them the layer would normalise by the batch, in eval mode too (P09).
    if mean is None or variance is None:
        raise ModelError(
            expected="a layer that tracks statistics",
            got="one that stopped",
            do="Leave its buffers in place.",
        )

    return mean, variance


def _same(buffer: Tensor, released: Tensor) -> bool:
    """Bit for bit, wherever the module was moved to in between."""
    return torch.equal(buffer.detach().to(released), released)


class Noting:
    """In one pass: batch normalisation with released statistics, and every record's own moments,
    noted. Sensitive.

    Args:
        layers: leaf and layer, by the identity of the running mean; none: every layer in train mode
            is refused.
        names: the modules of the model, `id` to name, for messages.
    """

    def __init__(
        self,
        layers: Mapping[int, tuple[str, _Layer]] = _NONE,
        names: Mapping[int, str] = _NONE,
    ) -> None:
        self._layers = layers
        self._names = names
        self._rows: dict[str, list[Tensor]] = {}

    def released_only(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> _Arguments:
        """The arguments of any function; of batch normalisation over the records of a batch, those
        of eval mode.

        Raises:
            CoupledRecords: it belongs to no layer with private statistics.
        """
        named = dict(kwargs)
        is_by_place = len(args) > _TRAINING
        in_training = args[_TRAINING] if is_by_place else named.get("training")
        if func.__name__ != "batch_norm" or not in_training:
            return args, named

        # Of weights, as where they are standardised: no record is involved.
        proof = current_proof()
        if proof is not None and is_public(proof.state(_input(args, named))):
            return args, named

        # Whoever calls it, module or not: a check by class or parameters misses some (P09).
        if self.leaf_of(args, named) is None:
            layer = layer_of(self._names)
            raise CoupledRecords(
                expected="layers that treat every record by itself",
                got="batch normalisation over the records of a batch (also without trained scales, "
                f"also when frozen){f', in the {layer}' if layer else ''}",
                do=(
                    "Replace BatchNorm by GroupNorm, or put it in eval mode, or use private batch "
                    "statistics."
                ),
            )

        if is_by_place:
            return (*args[:_TRAINING], False, *args[_TRAINING + 1 :]), named

        return args, named | {"training": False}

    def leaf_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """The leaf of the layer that calls, if it takes part."""
        for thing in (*args, *kwargs.values()):
            # The running mean is an argument of every call, by place or by name.
            leaf, layer = self._layers.get(id(thing), (None, None))

            # In eval mode a layer takes no part: a release does not move it either.
            if layer is not None and layer.module.training:
                return leaf

        return None

    def note(self, leaf: str, rows: Tensor, channel: int) -> None:
        """Moments of what a layer was given.

        Args:
            leaf: of the layer.
            rows: (m, ...), the record axis first.
            channel: its axis of channels.
        """
        layer = next(layer for name, layer in self._layers.values() if name == leaf)

        # All axes but those of records and channels are positions: (m, C, P).
        rows_mC = wide(rows.detach()).movedim(channel, 1)
        rows_mCP = rows_mC.reshape(*rows_mC.shape[:2], math.prod(rows_mC.shape[2:]))

        self._rows.setdefault(leaf, []).append(layer.moments(rows_mCP))

    @property
    def leaves(self) -> Collection[str]:
        """Of the layers that were called."""
        return self._rows.keys()

    def statistics(self) -> dict[str, Tensor]:
        """(m, 2C) of every leaf that was called; the average, where a layer was called several
        times.
        """
        return {leaf: torch.stack(rows).mean(0) for leaf, rows in self._rows.items()}


class Alone(Doors):
    """Doors of a pass over one record, in which batch normalisation uses released statistics and
    everything is the record's own.
    """

    def __init__(self, proof: Proof, noting: Noting, *, steady: bool = False) -> None:
        super().__init__(proof)
        self._noting = noting
        self._steady = steady  # whether dropout keeps everything

    def _replaced(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Arguments:
        return self._noting.released_only(func, args, kwargs)

    def _called(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._steady:
            args, kwargs = without_dropout(func.__name__, args, kwargs)

        if func.__name__ == "batch_norm":
            args, kwargs = self._noting.released_only(func, args, kwargs)
            leaf = self._noting.leaf_of(args, kwargs)
            if leaf is not None:
                # All rows belong to the one record: they are positions of it.
                self._noting.note(leaf, _input(args, kwargs).unsqueeze(0), 2)

        return func(*args, **kwargs)


def _input(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call of batch normalisation is to normalise."""
    return args[0] if args else kwargs["input"]
