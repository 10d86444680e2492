"""Routines of the kernel form, one file each: matrix products, sort, FFT, ...; routine.KERNELS has them by name."""
