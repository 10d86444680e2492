"""The tools that compare, reduce and judge programs, held against faults that are put in by a seed."""

FAULT_SEED = 218994547140744
"""Draws the faults of `tests.judge.faults`: fixed before the tools that look for them were written."""
