"""Passes that are proved once and executed later, without a user's Python: `static=True`."""
