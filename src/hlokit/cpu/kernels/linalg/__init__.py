"""Factorizations, triangular solves and eigenvectors, by blocks and in lanes; calls of LAPACK."""
