"""Plant secret codes in texts, train a tiny character model with and without privacy, and look for
the codes in it.

    python examples/auditing/secret_codes.py [--epsilon 2] [--steps 300]

Each text is one record: "the code of ada is 482". Half of the names are in the training data, by a
coin. Exposure of a code is how far up it stands among all 1000 codes, by the model's own loss: 10
bits for the first, 1 bit for the middle.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet import training
from discreet.auditing import SecretText, exposure_limit
from discreet.canaries import Canaries
from discreet.sampling import Sampler

NAMES = (
    "ada",
    "bob",
    "cleo",
    "dan",
    "eva",
    "finn",
    "gus",
    "hal",
    "ida",
    "jon",
    "kay",
    "lea",
    "max",
    "nia",
    "otto",
    "pia",
)
LETTERS = " 0123456789abcdefghijklmnopqrstuvwxyz"
LENGTH, SEEN, DELTA = (
    24,
    12,
    1e-5,
)  # characters of a padded text; those before a character that predict it
CODES = SecretText(template="the code of {name} is {secret}", length=3)
ORDINARY = 484  # texts of other people, whose codes are drawn alike


def encoded(texts: Sequence[str]) -> Tensor:
    """Numbers of the characters, padded in front, so that every code ends at the end."""
    return torch.tensor(
        [[LETTERS.index(letter) for letter in text.rjust(LENGTH + SEEN)] for text in texts]
    )


class Characters(nn.Module):
    """The next character from the last few."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 12)
        self.layers = nn.Sequential(
            nn.Linear(12 * SEEN, 64), nn.Tanh(), nn.Linear(64, len(LETTERS))
        )

    def forward(self, texts: Tensor) -> Tensor:
        """Scores of every character, at every place that has enough before it."""
        windows = self.letters(texts[:, :-1]).unfold(1, SEEN, 1)
        scores: Tensor = self.layers(windows.flatten(2))
        return scores


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Of each text: the average over its characters."""
    texts = batch[0]
    scores = model(texts)
    return functional.cross_entropy(scores.transpose(1, 2), texts[:, SEEN:], reduction="none").mean(
        1
    )


def exposures(model: nn.Module, secrets: Sequence[str]) -> NDArray[np.float64]:
    """Of every name's code, among all codes."""

    def losses(texts: Sequence[str]) -> NDArray[np.float64]:
        return training.losses(model, loss, TensorDataset(encoded(texts)), batch_size=2000)

    return np.array(
        [
            CODES.exposure(name, secret, losses).bits
            for name, secret in zip(NAMES, secrets, strict=True)
        ]
    )


def train(plan: dp.Plan, texts: Tensor, canaries: Canaries) -> nn.Module:
    """An ordinary loop; the run leaves out the texts whose coin says so."""
    model = Characters()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with (
        # These texts are made up; a real ledger belongs to its data set and is kept.
        dp.Ledger.in_memory() as ledger,
        training.PrivateRun(model, plan, ledger=ledger, canaries=canaries) as run,
    ):
        for batch in run.batches(TensorDataset(texts), progress=False):
            run.backward(loss, batch)
            optimizer.step()
            optimizer.zero_grad()
    return model


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    secrets = CODES.draw(len(NAMES))
    others = [
        CODES.text("".join(LETTERS[11 + number // 26**place % 26] for place in range(4)), code)
        for number, code in enumerate(CODES.draw(ORDINARY))
    ]
    texts = encoded([*map(CODES.text, NAMES, secrets), *others])
    batch = 64
    plans = {
        "not private": dp.Plan(
            sampler=Sampler(
                dp.Poisson(batch / len(texts)), records=len(texts), steps=options.steps
            ),
            mechanism=dp.NotPrivate(),
        ),
        "private": dp.Plan.dpsgd(
            records=len(texts),
            expected_batch_size=batch,
            steps=options.steps,
            epsilon=options.epsilon,
            delta=DELTA,
        ),
    }
    for kind, plan in plans.items():
        canaries = Canaries(range(len(NAMES)))
        bits = exposures(train(plan, texts, canaries), secrets)
        listed = sorted(zip(bits, NAMES, canaries.inside, strict=True), reverse=True)
        shown = ", ".join(
            f"{name}{'*' if inside else ''} {one:.1f}" for one, name, inside in listed
        )
        print(
            f"{kind}: median exposure of codes that were in "
            f"{np.median(bits[canaries.inside]):.1f} bits, "
            f"of codes that were out {np.median(bits[~canaries.inside]):.1f} bits"
        )
        print(f"    (* was in) {shown}")
    limit = exposure_limit(epsilon=options.epsilon, delta=DELTA, probability=0.05)
    print(
        f"With epsilon {options.epsilon:g}, a code that is in reaches {limit:.1f} bits with "
        "probability 5 % at most."
    )


if __name__ == "__main__":
    main()
