"""Whole programs as people run them through JAX: training steps, inference, science, and code that is not jitted."""
