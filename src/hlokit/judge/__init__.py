"""Judging programs and engines: differences of modules, the smallest program that shows a fault, and verdicts."""
