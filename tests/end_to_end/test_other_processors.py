"""The numerical suites on other processors than the present one: what they claim holds whatever the
last digits are.

Not for `make test`: each suite runs in a process of its own, once for each setting.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processors import dispatched, settings
from support.source import ROOT

SETTINGS = settings()
ONE = "as it is, 1 thread"
SUITES = {
    "bounds": (
        "tests/unit/accounting",
        "tests/golden",
        "src/discreet/accounting",
        "tests/end_to_end/test_cli_docs.py",
    ),
    "noise and sums": (
        "tests/unit/numerics",
        "tests/unit/randomness",
        "tests/laws/test_bit_identity.py",
        "tests/laws/test_precision.py",
        "tests/laws/test_sums.py",
        "src/discreet/numerics",
        "src/discreet/randomness",
    ),
    "training": (
        "tests/unit/training",
        # These wait for other processes, and compute little.
        "--ignore=tests/unit/training/data/test_loading.py",
        "--ignore=tests/unit/training/shown/test_logs.py",
    ),
}
ASKED = """
import hashlib, json, math, numpy, torch
from discreet.native import kernels
numbers = torch.linspace(-30.0, 30.0, 90_000, dtype=torch.float64)
square = numbers.view(300, 300)
computed = {
    "sums of NumPy": square.numpy() @ square.numpy(),
    "sums of torch": (square @ square).numpy(),
    "exp of NumPy": numpy.exp(numbers.numpy()),
    "exp of C": numpy.array([math.exp(number) for number in numbers.tolist()]),
}
print(json.dumps({
    "NumPy": numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", []),
    "torch": torch.backends.cpu.get_cpu_capability(),
    "discreet": kernels(may_compile=True).instructions,
    "threads": torch.get_num_threads(),
    "digits": {
        name: hashlib.sha256(values.tobytes()).hexdigest() for name, values in computed.items()
    },
}))
"""


def run(setting: str, *command: str) -> str:
    """What a process prints that believes in another processor."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=kept | {"PYTHONPATH": str(ROOT / "src")} | SETTINGS[setting],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (setting, done.stdout[-8000:] + done.stderr[-2000:])
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_suites_are_green_on_other_processors(setting: str, suite: str, tmp_path: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={tmp_path / 'inner'}")
    assert " passed" in run(setting, "-m", "pytest", *options, *SUITES[suite])


@pytest.mark.full
def test_the_settings_take_effect() -> None:
    """Wrong: variables that a library does not know, and suites that run on the same processor
    again and again.
    """
    found = {name: json.loads(run(name, "-W", "error", "-c", ASKED)) for name in SETTINGS}
    here = found[ONE]
    assert here["NumPy"] == list(dispatched())
    for name, asked in SETTINGS.items():
        assert found[name]["threads"] == int(asked["OMP_NUM_THREADS"])
        if "ATEN_CPU_CAPABILITY" in asked:
            assert found[name]["torch"] == asked["ATEN_CPU_CAPABILITY"].upper()
            assert found[name]["discreet"] == asked.get("DISCREET_INSTRUCTIONS", here["discreet"])
            assert set(found[name]["NumPy"]) == set(here["NumPy"]) - set(
                asked.get("NPY_DISABLE_CPU_FEATURES", "").split()
            )
    if "AVX2" in SETTINGS:  # three generations, and no two of them agree in all digits
        assert len({json.dumps(found[name]["digits"]) for name in (ONE, "AVX2", "SSE4.2")}) == 3
