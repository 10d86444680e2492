"""Comparing engines: the same program on each, and a verdict on every difference."""
