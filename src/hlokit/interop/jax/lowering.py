"""From JAX functions to modules, by JAX's own tracing and lowering and StableHLO text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax as _jax
import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.interop.jax import callbacks, rules
from hlokit.interop.jax.reading import read
from hlokit.tracebacks import public

jax: Any = _jax  # JAX's own types are unknown to pyright in many places

_kept: list[Any] = []
"""The callbacks of what `lower` made: its modules may run as long as the process does."""
_thread = threading.local()
"""`depth`: how many functions of this thread are being traced, one in another."""


@dataclass(frozen=True)
class Lowered:
    """A JAX function as a module.

    Parameters are tokens, then `constants`, then the leaves of the arguments; results are tokens, then the leaves of
    the result, which `result` has as ShapeDtypeStructs in their tree. `keep`: its callbacks, held while it may run.
    """

    module: HloModule
    constants: tuple[Any, ...]
    result: Any
    keep: Sequence[Any]

    @property
    def tokens(self) -> int:
        """The number of orders of effects that the function has."""
        return sum(parameter.shape.is_token for parameter in self.module.entry.parameters)


@public
def lower(
    f: Callable[..., Any],
    *args: Any,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    **kwargs: Any,
) -> HloModule:
    """The module of `f` on arguments like these.

    Its parameters are the arguments' leaves in the order of jax.tree.leaves((args, kwargs)), one each; its result is
    that of `f`, a tuple of the leaves unless that is one array. Keys of jax.random are their words of u32; arrays that
    `f` closes over are constants. For ordered effects there is a token in front of the parameters, and of the results.

    Parameters
    ----------
    f : callable
        A function, also one that is jitted already.
    args, kwargs : Any
        Arrays, numbers, jax.ShapeDtypeStructs, and pytrees of them.
    static_argnums, static_argnames : int, str or sequence, optional
        Arguments that are part of the program, as for jax.jit.

    Returns
    -------
    HloModule
        The module.

    Raises
    ------
    UnsupportedError
        JAX has no rule for a part of the function, or hlokit does not read it.
    """
    jitted = jax.jit(f, static_argnums=static_argnums, static_argnames=static_argnames, keep_unused=True)
    lowered = lowered_of(jitted, args, kwargs, hoist=False)
    _kept.extend(lowered.keep)
    return lowered.module


def lowered_of(jitted: Any, args: Sequence[Any], kwargs: dict[str, Any], hoist: bool) -> Lowered:
    """`jitted`, of jax.jit(keep_unused=True), on such arguments. `hoist`: constants are parameters."""
    from jax._src.interpreters import mlir

    rules.install()
    with _tracing():
        traced = jitted.trace(*args, **kwargs)
    parameters = mlir.LoweringParameters(hoist_constants_as_args=hoist)
    try:
        lowered = traced.lower(lowering_platforms=(rules.PLATFORM,), _private_parameters=parameters)
    except NotImplementedError as error:
        raise UnsupportedError(f"JAX cannot lower {traced.fun_name} for hlokit: {error}") from error
    inside: Any = lowered._lowering  # pyright: ignore
    if inside.compile_args.get("mut"):
        raise UnsupportedError(f"{traced.fun_name}: arguments or constants that are jax.Refs")
    constants = tuple(reader(jax.typeof(constant))(constant) for constant in inside.const_args) if hoist else ()
    module = read(lowered.as_text(debug_info=True))  # each instruction with its line of the user's program
    return Lowered(module, constants, traced.out_info, callbacks.called(callbacks.configurations(module)))


@contextmanager
def _tracing() -> Generator[None, None, None]:
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        yield
    finally:
        _thread.depth -= 1


def is_tracing() -> bool:
    """Whether this thread traces a function for hlokit."""
    return getattr(_thread, "depth", 0) > 0


def reader(aval: Any) -> Callable[[Any], Any]:
    """A function from a leaf of this aval to NumPy's array of it; of keys of jax.random, their words."""
    if _is_key(aval):
        return lambda leaf: np.asarray(jax.random.key_data(leaf))
    dtype = aval.dtype
    return lambda leaf: np.asarray(leaf, dtype)  # no masked array: JAX refuses those


def maker(aval: Any) -> Callable[[Any], Any] | None:
    """A function from an array of the result to the leaf; None where the leaf is the array itself."""
    if _is_key(aval):
        name = aval.dtype._impl.name
        return lambda words: jax.random.wrap_key_data(jax.numpy.asarray(words), impl=name)
    if aval.dtype == jax.dtypes.float0:
        return lambda _: np.zeros(aval.shape, jax.dtypes.float0)
    return None


def _is_key(aval: Any) -> bool:
    return jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key)
