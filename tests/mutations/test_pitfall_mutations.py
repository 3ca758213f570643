"""Deliberate bugs of whole runs, each applied to the real code, and the test of its pitfall that
catches it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from examples.accounting import composition
from torch import Tensor

import discreet as dp
from discreet.accounting.tight import accountant as tight
from discreet.accounting.tight.lattice import bracket
from discreet.accounting.tight.lattice.compose import compose
from discreet.aggregation.aggregator import Aggregator
from discreet.plan import vocabulary
from discreet.randomness import GaussianNoise
from discreet.training import PrivateRun, step
from discreet.training.passes.contributions import Contributions
from discreet.training.rules.call import Call
from discreet.training.rules.weights import Derived
from discreet.training.step import Stepping
from support.lattices import masses_of
from support.mutations import Mutation, assert_caught, by_name, replaced

ENGINE = "laws/test_pitfalls_engine.py"
RUN = "laws/test_pitfalls_run.py"
K_MEANS = (
    "end_to_end/test_examples.py::"
    "test_p44_private_k_means_spends_what_it_declares_and_noises_empty_clusters"
)

right_backward, right_tap, right_measured = PrivateRun.backward, Call.tap, Contributions.measured
right_in_torch, right_in_numpy = Stepping._noised, Aggregator._noised
right_compose = compose


def hook_left_behind(self: PrivateRun, loss: Any, batch: Any) -> Any:
    self._model.register_forward_hook(lambda *_: None)
    return right_backward(self, loss, batch)


def halved(right: Any) -> Any:
    def wrong(self: dp.Ledger) -> tuple[dp.ledger.Charge, ...]:
        return tuple(
            dp.ledger.Charge(one.run, one.step, -(-one.count // 2), one.unsettled)
            for one in right(self)
        )

    return wrong


def layer_called_again_alone(self: Call, out: Tensor, *pairs: Any, rows: Any = None) -> Tensor:
    """Factors of the layer's first input by itself: what its output is multiplied with afterwards
    is not seen.
    """
    blind = [
        (value, lambda gradient, make=make: make(torch.ones_like(gradient)))
        for value, make in pairs
    ]
    return right_tap(self, out, *blind, rows=rows)


def without_penalty(self: Derived, factor: object) -> Iterator[Any]:
    return iter(())


def norms_of_the_unscaled_loss(self: Contributions, leaves: Any) -> tuple[Tensor, Tensor]:
    squares, spreads = right_measured(self, leaves)
    return squares / 2.0**32, spreads / 2.0**32


def noise_in_the_parameters_type(parameter: Tensor, noised: Any, divisor: float) -> None:
    gradient = torch.from_numpy(noised).to(parameter.dtype).view(parameter.shape) / divisor
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def touched_rows_only(
    self: Stepping, sample: Any, lane: int, group: Any, sums: Any
) -> dict[str, Any]:
    touched = {leaf: sums.sum(leaf) != 0.0 for leaf in group.leaves}
    return {
        leaf: values * touched[leaf]
        for leaf, values in right_in_torch(self, sample, lane, group, sums).items()
    }


def no_noise_where_nobody_is(
    self: Aggregator, integers: Any, group: Any, sample: Any, lane: int
) -> Any:
    somebody = integers != 0.0
    return right_in_numpy(self, integers, group, sample, lane) * somebody


def float_noise(noise: Any, sums: Any, out: Any, start: int, *, spacing: float) -> None:
    """Sum and noise in the precision of the sum, drawn and rounded as everybody does."""
    drawn = np.random.default_rng(start).standard_normal(out.size).astype(sums.dtype)
    out[:] = sums + sums.dtype.type(noise.scale * spacing) * drawn


def untilted(part: Any, length: int, *, extended: bool = False) -> Any:
    """What a transform of the plain masses could tell: nothing below its rounding, which is not
    added to the bound either.
    """
    found = right_compose(part, length, extended=extended)
    steps = zip(part.weights, part.places, part.measures, strict=True)
    mean = sum(count * float(np.sum(weight * place)) for weight, place, (_, count) in steps)
    first = round(mean) - length // 2
    mass = masses_of(found, first, length)
    with np.errstate(divide="ignore"):
        log_tilted = np.log(np.maximum(mass, 0.0))
    loss = part.origin + part.spacing * (first + np.arange(length))
    seen = log_tilted + part.log_total - part.theta * loss > math.log(2.0**-53)
    power = np.fft.rfft(np.roll(np.where(seen, mass, 0.0), first)) / length
    frequency = np.arange(len(power))
    power[1 : (length + 1) // 2] *= 2.0
    return replace(found, frequency=frequency, power=power, atom=0.0, error=0.0)


def classical_formula(noise_multiplier: float, delta: float) -> tuple[float, float]:
    epsilon = math.sqrt(2.0 * math.log(1.25 / delta)) / noise_multiplier
    return epsilon, epsilon


FIRST_ORDER = SimpleNamespace(**(vars(math) | {"log1p": lambda x: x, "expm1": lambda x: x}))

MUTATIONS = [
    Mutation(
        "P04 a layer's further inputs are forgotten",
        replaced(Call, "tap", layer_called_again_alone),
        f"{ENGINE}::test_p04_further_inputs_of_a_layer_count",
    ),
    Mutation(
        "P05 a penalty is not part of the record",
        replaced(Derived, "lift", without_penalty),
        f"{ENGINE}::test_p05_a_penalty_is_clipped_with_the_record",
    ),
    Mutation(
        "P17 norms of the unscaled, gradients of the scaled loss",
        replaced(Contributions, "measured", norms_of_the_unscaled_loss),
        f"{ENGINE}::test_p17_a_scaled_loss_cannot_raise_a_contribution",
    ),
    Mutation(
        "P19 noise in floating point",
        replaced(GaussianNoise, "_release_part", float_noise),
        "statistics/test_attacks.py::test_p13_p14_p19_p20_ours_survives_and_the_naive_one_does_not",
    ),
    Mutation(
        "P21 noise in the parameter's type",
        replaced(step, "_give", noise_in_the_parameters_type),
        f"{RUN}::test_p21_half_precision_is_noised_in_full_and_rounded_once",
    ),
    Mutation(
        "P25 noise on touched rows only",
        replaced(Stepping, "_noised", touched_rows_only),
        "unit/training/test_run.py::test_noise_is_on_every_coordinate_also_of_unused_parameters",
    ),
    Mutation(
        "P31 two draws are charged as one",
        replaced(dp.Ledger, "charges", halved(dp.Ledger.charges)),
        f"{RUN}::test_p31_accumulation_over_two_draws_is_two_steps",
    ),
    Mutation(
        "P36 a transform without tilt, its rounding not added",
        replaced(bracket, "compose", untilted),
        "golden/test_tight.py::test_p36_small_delta_is_not_below_the_truth",
    ),
    Mutation(
        "P40 the classical formula at epsilon ten",
        replaced(tight, "gaussian_epsilon", classical_formula),
        "golden/test_tuning_and_noise.py::test_p40_the_classic_formula_under_noises_at_epsilon_ten",
    ),
    Mutation(
        "P40 amplification as (q epsilon, q delta)",
        replaced(composition, "math", FIRST_ORDER),
        "unit/examples/accounting/test_composition.py::"
        "test_p40_linear_amplification_is_false_and_the_theorem_is_true",
    ),
    Mutation(
        "P41 the plan is charged and not the run",
        replaced(dp.ledger.Lease, "settle_with", lambda self, write: write(None)),
        f"{RUN}::test_p41_what_ran_is_charged_and_not_what_was_planned[3]",
    ),
    Mutation(
        "P44 empty clusters get no noise",
        replaced(Aggregator, "_noised", no_noise_where_nobody_is),
        K_MEANS,
    ),
    Mutation(
        "P45 fields that nobody knows are swallowed",
        replaced(vocabulary, "_exactly", lambda *_: None),
        "laws/test_plans.py::test_p45_a_key_too_many_or_too_few_is_refused",
    ),
    Mutation(
        "P47 a hook is left behind",
        replaced(PrivateRun, "backward", hook_left_behind),
        f"{RUN}::test_p47_optimizers_and_models_stay_what_they_were",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
