"""Which pair of distributions dominates a step? One file for each kind of sampling and noise."""
