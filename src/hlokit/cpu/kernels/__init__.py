"""Routines of the kernel form, one file each: matrix products, sort, FFT, ... Importing this registers all."""

from hlokit.cpu import lapack as lapack
from hlokit.cpu.kernels import cholesky as cholesky
from hlokit.cpu.kernels import convolution as convolution
from hlokit.cpu.kernels import dot as dot
from hlokit.cpu.kernels import fft as fft
from hlokit.cpu.kernels import ragged_dot as ragged_dot
from hlokit.cpu.kernels import random as random
from hlokit.cpu.kernels import sort as sort
from hlokit.cpu.kernels import topk as topk
from hlokit.cpu.kernels import triangular_solve as triangular_solve
