"""Arrays at the edges of mapped memory: python -m bench.edges [--calls 100]

A vector load whose lanes are all masked is free, but where no memory is mapped it takes a microsecond on x86-64;
padding is read by such loads. The table has the time of a call whose argument lies within mapped memory, and, as a
multiple of it, that of a call where the pages before the argument and behind it must not be touched.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hlokit as hk

AROUND = 1 << 20
"""Bytes before and behind an array that must not be touched."""
PAGE = 4096


def programs() -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    """Functions of one array, and its dimensions."""

    def convolved(*weights: int, stride: int = 1, groups: int = 1, layout: str = "NHWC") -> Callable[..., Any]:
        numbers = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW"), "NWC": ("NWC", "WIO", "NWC")}
        strides = (stride,) * (len(weights) - 2)
        kernel = np.ones(weights, np.float32)
        return lambda x: lax.conv_general_dilated(
            x, kernel, strides, "SAME", dimension_numbers=numbers[layout], feature_group_count=groups
        )

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")

    return {
        "conv 3x3": (convolved(3, 3, 32, 32), (1, 100, 100, 32)),
        "conv 3x3 NCHW": (convolved(32, 32, 3, 3, layout="NCHW"), (1, 32, 100, 100)),
        "conv 7x7 strided": (convolved(7, 7, 3, 64, stride=2), (1, 224, 224, 3)),
        "conv 1D": (convolved(5, 16, 16, layout="NWC"), (8, 2000, 16)),
        "depthwise": (convolved(3, 3, 1, 64, groups=64), (1, 100, 100, 64)),
        "depthwise NCHW": (convolved(64, 1, 3, 3, groups=64, layout="NCHW"), (1, 64, 100, 100)),
        "max pool": (pooled, (1, 101, 101, 32)),
        "max pool's gradient": (lambda x: jax.grad(lambda y: (pooled(y) ** 2).sum())(x), (1, 101, 101, 32)),
        "pad": (lambda x: jnp.pad(x, 5), (500, 500)),
        "difference of rows": (lambda x: x - jnp.pad(x, ((1, 0), (0, 0)))[:-1], (1000, 500)),
    }


def placed(array: np.ndarray[Any, Any], *, at_end: bool | None) -> np.ndarray[Any, Any]:
    """A copy at the start or the end of mapped memory; None: within it. Its memory is kept until the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = -(-array.nbytes // PAGE) * PAGE
    start = libc.mmap(None, size + 2 * AROUND, 3, 0x22, -1, 0)  # read and write; private and anonymous
    if at_end is None:
        ctypes.memset(start, 0, size + 2 * AROUND)
    elif libc.mprotect(start, AROUND, 0) or libc.mprotect(start + AROUND + size, AROUND, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    first = start + AROUND + ((size - array.nbytes) // 64 * 64 if at_end else 0)
    copy = np.frombuffer((ctypes.c_char * array.nbytes).from_address(first), array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def seconds(call: Callable[..., object], array: np.ndarray[Any, Any], calls: int) -> float:
    """The median of so many calls with the array."""
    found: list[float] = []
    for _ in range(calls):
        begin = time.perf_counter()
        call(array)
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    print(f"{'program':20s} {'us':>8s} {'at the start':>13s} {'at the end':>11s}")
    for name, (function, dimensions) in programs().items():
        array = np.random.default_rng(0).standard_normal(dimensions, "float32")
        executable = hk.compile(hk.parse(jax.jit(function).lower(array).as_text()), threads=1)
        arrays = [placed(array, at_end=at_end) for at_end in (None, False, True)]
        within, start, end = (seconds(executable, each, options.calls) for each in arrays)
        print(f"{name:20s} {1e6 * within:8.1f} {start / within:13.2f} {end / within:11.2f}", flush=True)


if __name__ == "__main__":
    main()
