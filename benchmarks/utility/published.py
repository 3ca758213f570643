"""What others reached, and where each figure was read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PUBLISHED", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """One figure.

    Attributes:
        accuracy: on the test data, from 0 to 1.
        epsilon: at which; None where the place does not say.
        citation: key in docs/references.bib.
        how: model and method, in words.
        read_in: where the figure was read; empty where it is from memory and was not checked.
    """

    accuracy: float
    epsilon: float | None
    citation: str
    how: str
    read_in: str = ""


_SCATTERING = "scattering features, then a linear model or a CNN"
_TEMPERED = "CNN end to end, tempered sigmoids"
_LECTURE = "a lecture that quotes it [Kamath2020]"
_SUMMARY = "the paper's own summary"

PUBLISHED: dict[str, tuple[Published, ...]] = {
    "mnist": (
        Published(0.981, 1.2, "TramerBoneh2021", _SCATTERING, _LECTURE),
        Published(0.987, 2.93, "TramerBoneh2021", _SCATTERING),
        Published(0.981, 2.93, "PapernotEtAl2021", _TEMPERED, f"{_SUMMARY}, which says: below 3"),
        Published(0.95, 2.0, "Abadi2016", "principal components, one hidden layer"),
    ),
    "fashion-mnist": (
        Published(0.897, 2.7, "TramerBoneh2021", _SCATTERING),
        Published(0.861, 2.7, "PapernotEtAl2021", _TEMPERED, f"{_SUMMARY}, which says: below 3"),
    ),
    "cifar10": (
        Published(0.693, 3.0, "TramerBoneh2021", _SCATTERING, _LECTURE),
        Published(0.670, 3.0, "TramerBoneh2021", "scattering features, linear model"),
        Published(
            0.662, 7.53, "PapernotEtAl2021", _TEMPERED, "the introduction of [TramerBoneh2021]"
        ),
        Published(
            0.723,
            1.0,
            "Tang2023",
            "extractor trained on images of random processes, on accelerators",
            "the paper's abstract",
        ),
        Published(
            0.814,
            8.0,
            "De2022",
            "wide residual network, augmentation multiplicity, on accelerators",
            "the paper's abstract",
        ),
    ),
    "imdb": (
        Published(
            0.84,
            None,
            "Bu2020",
            "embeddings averaged, one hidden layer",
            "the README of opacus' IMDb example, without an epsilon",
        ),
    ),
}
