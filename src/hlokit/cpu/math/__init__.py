"""Arithmetic that no single instruction does: element formats, and the transcendental functions."""
