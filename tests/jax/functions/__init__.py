"""Functions of JAX's public modules on the platform hlokit, compared with JAX's own CPU client.

    python -m tests.jax.functions.run [--module jax.numpy.fft] [--jobs 1]

areas/ has the tables of cases, table.py what a case is, worker.py what runs them.
"""
