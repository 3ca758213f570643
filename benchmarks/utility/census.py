"""The lines of Adult as vectors of length 1: every category, bin and range is from its
documentation or set by hand.

Nothing here is computed from the data, so it costs no privacy: a vector is a function of its own
    line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIMENSION", "vectors"]

# As adult.names lists them; whatever is not in a list counts as unknown, a category of its own.
_CATEGORIES = {
    "work": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
    "Without-pay, Never-worked",
    "married": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, "
    "Prof-specialty, Handlers-cleaners, "
    "Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, "
    "Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, "
    "Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, "
    "Mexico, Portugal, "
    "Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, "
    "Guatemala, Nicaragua, "
    "Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands",
}
_COLUMNS = {
    "work": 1,
    "married": 5,
    "occupation": 6,
    "relationship": 7,
    "race": 8,
    "sex": 9,
    "country": 13,
}
_EDUCATION, _INCOME = 4, 14
_AGE, _GAIN, _LOSS, _HOURS = 0, 10, 11, 12
_BINS = {  # edges: years, hours a week, dollars
    _AGE: (20, 23, 26, 29, 32, 35, 38, 42, 46, 50, 55, 60, 65, 70),
    _HOURS: (15, 25, 35, 39, 41, 46, 51, 60),
    _GAIN: (1, 2000, 3000, 3500, 4000, 4500, 5000, 5200, 6000, 7000, 8000, 10000, 20000),
    _LOSS: (1, 1400, 1600, 1700, 1800, 1900, 2000, 2200, 2300, 2500, 3000),
}
_MONEY = 3.0  # weight of gains and losses: few have any, and then it says much

_Codes = tuple[NDArray[np.int64], int]  # the category of each record, and how many there are


def vectors(lines: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """One row of length 1 for each line, and whether the income is above $50,000.

    Args:
        lines: of adult.data or adult.test.
    """
    cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    codes: dict[str | int, _Codes] = {name: _categories(cells, name) for name in _CATEGORIES}
    numbers = {
        column: np.array([float(row[column]) for row in cells]) for column in (_EDUCATION, *_BINS)
    }
    codes[_EDUCATION] = np.clip(numbers[_EDUCATION], 1, 16).astype(np.int64) - 1, 16
    codes |= {
        column: (np.digitize(numbers[column], edges), len(edges) + 1)
        for column, edges in _BINS.items()
    }
    lives_with_spouse: _Codes = np.isin(codes["married"][0], (0, 6)).astype(np.int64), 2
    crossed = [
        _cross(codes[by], lives_with_spouse)
        for by in (_EDUCATION, _AGE, "occupation", _HOURS, "work", _GAIN)
    ]
    parts = [
        _indicators(one, _MONEY if name in (_GAIN, _LOSS) else 1.0) for name, one in codes.items()
    ]
    parts += [
        _indicators(one, 1.0) for one in (*crossed, _cross(codes["relationship"], codes["sex"]))
    ]
    rows = np.concatenate([*parts, _MONEY * _scaled(numbers), np.ones((len(cells), 1))], axis=1)
    labels = np.array([row[_INCOME].startswith(">50K") for row in cells], np.int64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def _categories(cells: list[list[str]], name: str) -> _Codes:
    known = {category: code for code, category in enumerate(_CATEGORIES[name].split(", "))}
    return np.array([known.get(row[_COLUMNS[name]], len(known)) for row in cells], np.int64), len(
        known
    ) + 1


def _cross(first: _Codes, second: _Codes) -> _Codes:
    return first[0] * second[1] + second[0], first[1] * second[1]


def _indicators(codes: _Codes, weight: float) -> NDArray[np.float64]:
    return weight * np.eye(codes[1])[codes[0]]


def _scaled(numbers: dict[int, NDArray[np.float64]]) -> NDArray[np.float64]:
    """About -1 to 1, by public ranges; money on a logarithmic scale."""
    gain, loss = (
        np.log1p(np.maximum(numbers[column], 0.0)) / np.log(100_000.0) for column in (_GAIN, _LOSS)
    )
    return np.stack(
        [
            numbers[_AGE] / 30 - 1.5,
            numbers[_EDUCATION] / 5 - 1.8,
            numbers[_HOURS] / 30 - 1.33,
            gain,
            loss,
        ],
        axis=1,
    )


DIMENSION = vectors(["39, ?, 0, ?, 9, ?, ?, ?, ?, ?, 0, 0, 40, ?, <=50K"])[0].shape[1]
