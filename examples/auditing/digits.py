"""Attack a model that was trained with privacy, and the same model without: handwritten digits, and
canaries among them.

    python examples/auditing/digits.py [--runs 16] [--steps 500] [--epsilon 2] [--write
    docs/images/audit-digits.png]

Every record, digits and canaries alike, is in or out of the training data by a fair coin, anew in
each run. So each run can be attacked with the others as reference models, and whatever an attack
finds is measured against the guarantee. The canaries are digits with a wrong label and images of
noise. Prints a table; with --write, draws it.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from textwrap import fill

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet import training
from discreet.accounting.meaning.tradeoff import Profile, TradeOff, hit_rate, profile_of
from discreet.auditing import (
    Estimate,
    Membership,
    exposure_by_rank,
    lira,
    logit_confidence,
    loss_attack,
    one_run,
)
from discreet.canaries import Canaries, Scores, mislabelled, out_of_distribution
from discreet.sampling import Sampler
from discreet.verdict import audit

Floats = NDArray[np.float64]

DELTA, BATCH, HIDDEN, LEARNING_RATE = 1e-5, 256, 128, 0.02
TEST, WRONG, NOISE, FRESH = (
    360,
    128,
    384,
    4095,
)  # digits to test on; canaries of two kinds; noise that is never in
SPIKES = 2000  # canaries in gradient space, in runs of their own
CONFIDENCE = (
    0.999  # of each bound on epsilon: of honest code, one in a thousand may be above the claim
)
KINDS = ("not private", "private")
EPSILONS = np.linspace(
    0.0, 8.0, 65
).tolist()  # points of the limit: each gives a line, and all hold


@dataclass(frozen=True)
class Data:
    """Records under coins: digits, digits with a wrong label, noise. Beside them: images that no
    run is trained on.
    """

    train: TensorDataset
    fresh: TensorDataset
    test: TensorDataset
    digits: int

    @classmethod
    def load(cls, most: int) -> Data:
        """At most this many digits with their own label."""
        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(
            len(labels)
        )  # a public split; no privacy depends on it
        pixels, labels = (pixels[order] / 16.0).astype(np.float32), labels[order]
        digits = min(most, len(labels) - TEST - WRONG)
        used = digits + WRONG
        noise, noise_labels = out_of_distribution(NOISE + FRESH, (64,), classes=10)
        answers = [labels[:digits], mislabelled(labels[digits:used], 10), noise_labels[:NOISE]]
        return cls(
            train=_set(np.concatenate([pixels[:used], noise[:NOISE]]), np.concatenate(answers)),
            fresh=_set(noise[NOISE:], noise_labels[NOISE:]),
            test=_set(pixels[-TEST:], labels[-TEST:]),
            digits=digits,
        )


@dataclass(frozen=True)
class Run:
    """What one trained model leaves for an attack."""

    losses: Floats
    inside: NDArray[np.bool_]
    fresh: Floats
    accuracy: float


def _set(images: NDArray[np.float32], labels: NDArray[np.int64]) -> TensorDataset:
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")


def plan_for(kind: str, data: Data, steps: int, epsilon: float, spikes: int = 0) -> dp.Plan:
    """The same samples; clipped and noised, or neither."""
    records, probability = len(data.train) + spikes, BATCH / len(data.train)
    if kind == "private":
        return dp.Plan.dpsgd(
            records=records,
            sampling_probability=probability,
            steps=steps,
            epsilon=epsilon,
            delta=DELTA,
        )
    return dp.Plan(
        sampler=Sampler(dp.Poisson(probability), records=records, steps=steps),
        mechanism=dp.NotPrivate(),
    )


def train(
    data: Data, plan: dp.Plan, ledger: dp.Ledger, canaries: Canaries | training.GradientCanaries
) -> nn.Module:
    """An ordinary loop; the run leaves out the canaries whose coin says so."""
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    with training.PrivateRun(model, plan, ledger=ledger, canaries=canaries) as run:
        for batch in run.batches(data.train, progress=False):
            run.backward(loss, batch)
            optimizer.step()
            optimizer.zero_grad()
    return model


def attacked(kind: str, data: Data, steps: int, epsilon: float) -> Run:
    """One run with coins for all records, and the losses of its model."""
    torch.set_num_threads(1)
    canaries = Canaries(range(len(data.train)))
    with (
        dp.Ledger.in_memory() as ledger
    ):  # these data are public; a real ledger belongs to its data set and is kept
        model = train(data, plan_for(kind, data, steps, epsilon), ledger, canaries)
    with torch.no_grad():
        right = model(data.test.tensors[0]).argmax(1) == data.test.tensors[1]
    return Run(
        losses=training.losses(model, loss, data.train),
        inside=canaries.inside.copy(),
        fresh=training.losses(model, loss, data.fresh),
        accuracy=float(right.float().mean()),
    )


def spiked(kind: str, data: Data, steps: int, epsilon: float) -> dict[str, Estimate]:
    """One run with canaries in gradient space, and the bounds that its releases give, by name."""
    torch.set_num_threads(1)
    canaries = training.GradientCanaries(SPIKES)
    with dp.Ledger.in_memory() as ledger:
        train(data, plan_for(kind, data, steps, epsilon, SPIKES), ledger, canaries)
        if kind == "private":
            free, scaled = audit(
                ledger, canaries.scores(), delta=DELTA, confidence=CONFIDENCE, assume_scaled=True
            ).estimates
            return {"gradient canaries": free, "gradient canaries, scaled noise": scaled}
    return {"gradient canaries": one_run(canaries.scores(), delta=DELTA, confidence=CONFIDENCE)}


# --- what the attacks find ---


@dataclass(frozen=True)
class Found:
    """Of all runs of one kind: attacks by name, exposures of the noise that was in, bounds on
    epsilon by name.
    """

    accuracy: float
    attacks: dict[str, Membership]
    exposures: Floats
    bounds: dict[str, Estimate]


def found(data: Data, runs: list[Run], spikes: dict[str, Estimate]) -> Found:
    """Attack each run with the others as reference models, and pool what is found."""
    canary = np.arange(len(data.train)) >= data.digits
    attacks = {}
    for name, part in (("canaries", canary), ("digits", ~canary)):
        losses = [loss_attack(run.losses[part], run.inside[part]).scores for run in runs]
        ratios = [_against_others(runs, number, part).scores for number in range(len(runs))]
        attacks[f"{name}, loss threshold"] = Membership(Scores.pooled(losses))
        attacks[f"{name}, likelihood ratio"] = Membership(Scores.pooled(ratios))
    noise = np.arange(len(data.train)) >= data.digits + WRONG
    exposures = [
        exposure_by_rank(one, run.fresh).bits
        for run in runs
        for one in run.losses[noise & run.inside]
    ]
    everything = np.full(canary.size, fill_value=True)
    first = {
        "loss threshold": loss_attack(runs[0].losses, runs[0].inside).scores,
        "likelihood ratio": _against_others(
            runs, 0, everything
        ).scores,  # the coins of the others are no secret
    }
    bounds = {
        name: one_run(scores, delta=DELTA, confidence=CONFIDENCE) for name, scores in first.items()
    } | spikes
    return Found(
        float(np.mean([run.accuracy for run in runs])), attacks, np.array(exposures), bounds
    )


def _against_others(runs: list[Run], number: int, part: NDArray[np.bool_]) -> Membership:
    confidences = np.stack([logit_confidence(run.losses[part]) for run in runs])
    inside = np.stack([run.inside[part] for run in runs])
    others = np.arange(len(runs)) != number
    return lira(confidences[number], inside[number], confidences[others], inside[others])


# --- what is shown ---


def table(results: dict[str, Found], profile: Profile, epsilon: float) -> str:
    """Every figure, the two models side by side, and what the guarantee allows."""
    rows: list[tuple[str, ...]] = [("", *KINDS, "the guarantee allows")]
    rows.append(("test accuracy", *(f"{results[kind].accuracy:.1%}" for kind in KINDS), ""))
    for name in results["private"].attacks:
        attacks = [results[kind].attacks[name] for kind in KINDS]
        rows.append(
            (f"{name}: area under the curve", *(f"{attack.auc:.3f}" for attack in attacks), "")
        )
        for rate in (0.01, 0.001):
            hits = [attack.hits(rate) for attack in attacks]
            shown = [f"{hit.rate:.1%} ({hit.lower:.1%} to {hit.upper:.1%})" for hit in hits]
            limit = f"{hit_rate(profile, false_positive_rate=rate):.1%}"
            rows.append((f"    members found at {rate:.1%} false alarms", *shown, limit))
    exposures = [results[kind].exposures for kind in KINDS]
    rows.append(
        (
            "exposure of noise images, median",
            *(f"{np.median(bits):.1f} bits" for bits in exposures),
            "",
        )
    )
    share, allowed = _exposures(profile)
    limit = f"{allowed[share >= 0.1][-1]:.1f} bits"
    rows.append(
        (
            "    reached by one in ten",
            *(f"{np.quantile(bits, 0.9):.1f} bits" for bits in exposures),
            limit,
        )
    )
    for name in results["private"].bounds:
        bounds = [results[kind].bounds.get(name) for kind in KINDS]
        shown = ["" if bound is None else f"{bound.lower:.2f}" for bound in bounds]
        rows.append((f"epsilon at least, {name}", *shown, f"{epsilon:.2f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _exposures(profile: Profile) -> tuple[Floats, Floats]:
    """The largest share of secrets that may reach so many bits, and the bits
    (docs/proofs/exposure.md, remark 1).
    """
    bits = np.linspace(0.0, 12.0, 200)
    return 1.0 - TradeOff.of(profile, EPSILONS).miss_rate(2.0**-bits), bits


def draw(results: dict[str, Found], profile: Profile, epsilon: float, path: Path) -> None:
    """Three pictures: hits against false alarms, exposures, and lower bounds against the claim."""
    import matplotlib as mpl  # noqa: PLC0415  (an extra, for the picture only)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    colours = dict(zip(KINDS, ("#D55E00", "#0072B2"), strict=True))
    plt.rcParams |= {
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
    }
    figure, (rates, bits, bounds) = plt.subplots(
        1, 3, figsize=(13.0, 4.3), layout="constrained", width_ratios=(1, 1, 1)
    )

    x = np.geomspace(1e-3, 1.0, 200)
    limit = 1.0 - TradeOff.of(profile, EPSILONS).miss_rate(x)
    for kind in KINDS:
        for attack, style in (("likelihood ratio", "-"), ("loss threshold", ":")):
            wrong, right = results[kind].attacks[f"canaries, {attack}"].roc()
            rates.plot(wrong, right, style, color=colours[kind], lw=1.8, label=f"{kind}, {attack}")
    rates.plot(x, limit, "k--", lw=1.2, label=f"most that \u03b5 = {epsilon:g} allows")
    rates.plot(x, x, color="0.6", lw=1.0, label="chance")
    rates.set(xscale="log", yscale="log", xlim=(1e-3, 1.0), ylim=(1e-3, 1.05))
    rates.set(
        xlabel="false alarms (share of canaries that were out)",
        ylabel="hits (share of canaries that were in)",
    )
    rates.set_title("Who was in the training data?")
    rates.legend(frameon=False, fontsize=8, loc="lower right")

    for kind in KINDS:
        exposures = np.sort(results[kind].exposures)[::-1]
        share = np.arange(1, exposures.size + 1) / exposures.size
        bits.plot(share, exposures, ".", ms=3.5, color=colours[kind], label=kind)
    bits.plot(
        *_exposures(profile),
        "k--",
        lw=1.2,
        label=f"most that \u03b5 = {epsilon:g} allows on average",
    )
    bits.plot(x, -np.log2(x), color="0.6", lw=1.0, label="chance")
    bits.set(xscale="log", xlim=(1e-3, 1.0), ylim=(0.0, 12.3))
    bits.set(
        xlabel="share of canaries at least as exposed", ylabel="exposure of each noise image [bits]"
    )
    bits.set_title("How well is a canary remembered?")
    bits.legend(frameon=False, fontsize=8, loc="upper right")

    names = list(results["private"].bounds)
    for shift, kind in ((-0.2, KINDS[0]), (0.2, KINDS[1])):
        places = [names.index(name) + shift for name in results[kind].bounds]
        lower = [bound.lower for bound in results[kind].bounds.values()]
        bars = bounds.bar(places, lower, 0.38, color=colours[kind], label=kind)
        bounds.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    bounds.axhline(epsilon, color="k", ls="--", lw=1.2, label=f"claimed: \u03b5 = {epsilon:g}")
    bounds.set_xticks(range(len(names)), [fill(name, 12) for name in names])
    bounds.set(
        ylabel=f"\u03b5 is at least (confidence {CONFIDENCE:.1%})",
        ylim=(0.0, 1.35 * bounds.get_ylim()[1]),
    )
    bounds.set_title("What does one run prove?")
    bounds.legend(frameon=False, fontsize=8, loc="upper left")

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--digits", type=int, default=1200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    data, results = Data.load(options.digits), {}
    rest = (data, options.steps, options.epsilon)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = {
            kind: [pool.submit(attacked, kind, *rest) for _ in range(options.runs)]
            for kind in KINDS
        }
        spikes = {kind: pool.submit(spiked, kind, *rest) for kind in KINDS}
        for kind in KINDS:
            results[kind] = found(data, [job.result() for job in jobs[kind]], spikes[kind].result())
    profile = profile_of(plan_for("private", *rest))
    print(f"{len(data.train)} records, each in or out by a coin, {options.runs} runs of each kind")
    print(table(results, profile, options.epsilon))
    if options.write is not None:
        draw(results, profile, options.epsilon, options.write)


if __name__ == "__main__":
    main()
