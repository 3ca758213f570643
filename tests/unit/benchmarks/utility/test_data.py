"""The data sets of `benchmarks.utility`: what is expected is said, and nothing else is taken."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.utility.data import DATA_SETS, load

from discreet.errors import DiscreetError
from support.utility import write_images


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_images_are_read_as_they_are_written(tmp_path: Path, name: str) -> None:
    write_images(tmp_path, name)
    arrays = load(tmp_path, name)
    assert arrays["x_train"].shape == (240, *DATA_SETS[name].arrays["x_train"].shape)
    assert arrays["y_test"].shape == (60,)


@pytest.mark.parametrize("name", [name for name, found in DATA_SETS.items() if found.arrays])
def test_a_missing_file_is_described(tmp_path: Path, name: str) -> None:
    with pytest.raises(DiscreetError) as caught:
        load(tmp_path, name)
    for array in DATA_SETS[name].arrays:
        assert f"{array}: " in caught.value.expected
    assert "--data" in caught.value.do


def broken(kind: str) -> dict[str, object]:
    pixels, labels = np.zeros((6, 28, 28), np.uint8), np.zeros(6, np.uint8)
    arrays: dict[str, object] = {
        "x_train": pixels,
        "y_train": labels,
        "x_test": pixels,
        "y_test": labels,
    }
    match kind:
        case "absent":
            del arrays["y_test"]
        case "shape":
            arrays["x_train"] = pixels[:, :27]
        case "numbers":
            arrays["x_train"] = pixels.astype(np.float32)
        case "length":
            arrays["y_train"] = labels[:5]
        case "empty":
            arrays |= {"x_test": pixels[:0], "y_test": labels[:0]}
        case "objects":
            arrays["y_test"] = np.array([None] * 6)
    return arrays


@pytest.mark.parametrize("kind", ["absent", "shape", "numbers", "length", "empty", "objects"])
def test_p46_another_file_is_refused_and_nothing_is_unpickled(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "mnist.npz", allow_pickle=True, **broken(kind))  # type: ignore[arg-type]
    with pytest.raises(DiscreetError, match="MNIST as a file mnist.npz"):
        load(tmp_path, "mnist")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"not an archive")
    with pytest.raises(DiscreetError):
        load(tmp_path, "mnist")
