"""The record of what happened: events, rows, an append-only store."""
