"""Fourier transforms: many sequences at once, in passes, parts or by chirps."""
