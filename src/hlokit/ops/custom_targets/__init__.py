"""Targets of custom-calls: the registry by name, and the targets that XLA itself would expand."""
