"""Scripts that measure; those that share modules (`step`, `growth`, `utility` and others) run with
`python -m`.
"""
