"""Factorizations, triangular solves and eigenvectors, by blocks and in lanes; calls of LAPACK."""

LAPACK = "hlokit_lapack_"
"""The names of LAPACK's routines begin so in machine code: `hlokit_lapack_dsyevd`."""
