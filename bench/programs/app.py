"""Small whole applications."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp, lax, torch
from bench.programs.program import MI, Draw, Program

COUNT = 4 * MI
RATE, VOLATILITY = 0.02, 0.3


def black_scholes(s: Any, k: Any, t: Any) -> Any:
    """The price of a call at spot s, strike k, t years ahead."""
    return black_scholes_in(jnp, lambda x: lax.erf(x), s, k, t)


def black_scholes_in(math: Any, erf: Any, s: Any, k: Any, t: Any) -> Any:
    d1 = (math.log(s / k) + (RATE + VOLATILITY**2 / 2) * t) / (VOLATILITY * math.sqrt(t))
    d2 = d1 - VOLATILITY * math.sqrt(t)

    def normal_cdf(x: Any) -> Any:
        return 0.5 * (1 + erf(x * 0.70710678))

    return s * normal_cdf(d1) - k * math.exp(-RATE * t) * normal_cdf(d2)


def mandelbrot_step(math: Any, cr: Any, ci: Any, zr: Any, zi: Any) -> Any:
    """The next z, and where |z| < 2 still held."""
    zr2, zi2 = zr * zr, zi * zi
    inside = (zr2 + zi2) < 4.0
    return math.where(inside, zr2 - zi2 + cr, zr), math.where(inside, 2 * zr * zi + ci, zi), inside


def mandelbrot(cr: Any, ci: Any) -> Any:
    def body(_: Any, state: Any) -> Any:
        zr, zi, count = state
        zr, zi, inside = mandelbrot_step(jnp, cr, ci, zr, zi)
        return zr, zi, count + inside.astype(jnp.int32)

    zero = jnp.zeros_like(cr)
    return lax.fori_loop(0, 100, body, (zero, zero, jnp.zeros(cr.shape, jnp.int32)))[2]


def eager_mandelbrot(math: Any, cr: Any, ci: Any) -> Any:
    zr, zi, count = math.zeros_like(cr), math.zeros_like(cr), math.zeros_like(cr)
    for _ in range(100):
        zr, zi, inside = mandelbrot_step(math, cr, ci, zr, zi)
        count = count + inside
    return count


def plane(draw: Draw) -> Any:
    x, y = np.meshgrid(np.linspace(-2, 1, 1024), np.linspace(-1.5, 1.5, 1024))
    return x.astype(np.float32), y.astype(np.float32)


def nbody(position: Any, mass: Any) -> Any:
    """Accelerations; positions [n, 3], softened gravity."""
    d = position[:, None, :] - position[None, :, :]
    r2 = (d * d).sum(-1) + 1e-3
    w = mass[None, :] * r2**-1.5
    return -(w[:, :, None] * d).sum(1)


def laplacian(u: Any) -> Any:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def heat(u: Any) -> Any:
    def body(_: Any, u: Any) -> Any:
        return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * laplacian(u))

    return lax.fori_loop(0, 10, body, u)


def eager_heat(u: Any) -> Any:
    for _ in range(10):
        v = u.clone() if hasattr(u, "clone") else u.copy()
        v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * laplacian(u)
        u = v
    return u


def life_step(math: Any, byte: Any, board: Any) -> Any:
    shifts = (-1, 0, 1)
    count = sum(math.roll(math.roll(board, i, 0), j, 1) for i in shifts for j in shifts if i or j)
    return ((count == 3) | ((board == 1) & (count == 2))).astype(byte)


def life(board: Any) -> Any:
    return lax.fori_loop(0, 10, lambda _, board: life_step(jnp, jnp.uint8, board), board)


def numpy_life(board: Any) -> Any:
    for _ in range(10):
        board = life_step(np, np.uint8, board)
    return board


PROGRAMS = (
    Program(
        "app", "black_scholes_4M",
        lambda draw: (
            draw.uniform(COUNT, low=10, high=50), draw.uniform(COUNT, low=10, high=50),
            draw.uniform(COUNT, low=1, high=2),
        ),
        black_scholes, vector_ops=120 * COUNT,
        torch=lambda s, k, t: black_scholes_in(torch, torch.erf, s, k, t),
    ),
    Program(
        "app", "mandelbrot_1024_100it", plane, mandelbrot, vector_ops=100 * 10 * MI,
        numpy=lambda cr, ci: eager_mandelbrot(np, cr, ci), torch=lambda cr, ci: eager_mandelbrot(torch, cr, ci),
        # a rounding apart at the border of the set is tens of iterations apart
        canonical=lambda results: [np.histogram(results[0], 10, (0, 100))[0].astype(np.float32)],
        tolerance=1e-3, quick=False,
    ),
    Program(
        "app", "nbody_2048", lambda draw: (draw.normal(2048, 3), draw.uniform(2048)), nbody,
        vector_ops=2048 * 2048 * 16, numpy=nbody, torch=nbody, quick=False,
    ),
    Program(
        "app", "heat2d_2048_10it", lambda draw: (draw.normal(2048, 2048),), heat,
        # every step reads and writes the field: no tiling in time
        moved=10 * 2 * 4 * 4 * MI, vector_ops=10 * 7 * 4 * MI, numpy=eager_heat, torch=eager_heat, quick=False,
    ),
    Program(
        "app", "life_2048_10it",
        lambda draw: ((draw.uniform(2048, 2048) < 0.3).astype(np.uint8),), life,
        moved=10 * 2 * 4 * MI, vector_ops=10 * 12 * MI, numpy=numpy_life, quick=False,
    ),
)  # fmt: skip
