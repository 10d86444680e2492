"""Random programs of JAX on the platform hlokit, compared with JAX's own CPU client.

    python -m tests.jax.random.run --count 100 --seed 0 [--operations | --compositions]

A composition is a few steps on large arrays (compositions.py, steps.py), an operation is one product, convolution, sort
or the like (operations.py). compare.py runs a program on both; if they differ, the reference interpreter decides which
of them is wrong.
"""
