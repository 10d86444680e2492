"""Fourier transforms; 5 N log2 N flops a complex one, half for a real one."""

from __future__ import annotations

from bench.programs.lazy import jnp, scipy_fft, torch
from bench.programs.program import MI, Program

PROGRAMS = (
    Program(
        "fft", "fft_c64_1M", lambda draw: (draw.complex(MI),), lambda x: jnp.fft.fft(x), flops=5 * MI * 20,
        numpy=lambda x: scipy_fft.fft(x, workers=2), torch=lambda x: torch.fft.fft(x),
    ),
    Program(
        "fft", "fft_batch_1024x1024", lambda draw: (draw.complex(1024, 1024),), lambda x: jnp.fft.fft(x),
        flops=5 * MI * 10, numpy=lambda x: scipy_fft.fft(x, workers=2), torch=lambda x: torch.fft.fft(x),
    ),
    Program(
        "fft", "rfft2_1024", lambda draw: (draw.normal(1024, 1024),), lambda x: jnp.fft.rfft2(x),
        flops=2.5 * MI * 20, numpy=lambda x: scipy_fft.rfft2(x, workers=2), torch=lambda x: torch.fft.rfft2(x),
    ),
)  # fmt: skip
