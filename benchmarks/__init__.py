"""Scripts that measure; `benchmarks.step` and `benchmarks.growth` share modules, so they run with `python -m`."""
