"""The private mechanism that betrays the most canaries, by linear programming: the truth for a
handful of them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


def most_right_guesses(
    canaries: int, guesses: int, right: int, *, epsilon: float, delta: float
) -> float:
    """The largest P[at least `right` guesses are right] over all (epsilon, delta)-private
    mechanisms that make `guesses`.

    Unknowns: P[t | s] for all coins s and all guesses t, and for neighbours s, s' the excess
    u[s, s', t] >= P[t | s] - e^epsilon P[t | s'], u >= 0, whose sum over t is at most delta.
    """
    coins = list(itertools.product((0, 1), repeat=canaries))
    outputs = [
        dict(zip(places, signs, strict=True))
        for places in itertools.combinations(range(canaries), guesses)
        for signs in itertools.product((0, 1), repeat=guesses)
    ]
    differ = [
        [sum(x != y for x, y in zip(one, other, strict=True)) for other in coins] for one in coins
    ]
    pairs = [(a, b) for a, b in itertools.product(range(len(coins)), repeat=2) if differ[a][b] == 1]
    width, laws = len(outputs), len(coins) * len(outputs)
    good = [[sum(s[i] == sign for i, sign in t.items()) >= right for t in outputs] for s in coins]
    gain = np.concatenate(
        [-np.ravel(good).astype(float) / len(coins), np.zeros(len(pairs) * width)]
    )
    unit = sparse.identity(width, format="csr")
    rows = []
    for a, b in pairs:
        row = sparse.lil_matrix((1, len(coins)))
        row[0, a], row[0, b] = 1.0, -math.exp(epsilon)
        rows.append(sparse.kron(row, unit))
    above = sparse.hstack([sparse.vstack(rows), -sparse.identity(len(pairs) * width)])
    sums = sparse.kron(sparse.identity(len(pairs)), np.ones((1, width)))
    within = sparse.hstack([sparse.csr_matrix((len(pairs), laws)), sums])
    whole = sparse.hstack(
        [
            sparse.kron(sparse.identity(len(coins)), np.ones((1, width))),
            sparse.csr_matrix((len(coins), len(pairs) * width)),
        ]
    )
    limits = np.concatenate([np.zeros(len(pairs) * width), np.full(len(pairs), delta)])
    found = linprog(
        gain, sparse.vstack([above, within]), limits, whole, np.ones(len(coins)), method="highs"
    )
    assert found.success, found.message
    return -float(found.fun)
