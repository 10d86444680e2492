"""`jit`: JAX functions that run on hlokit, without a platform."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, overload

import jax as _jax

from hlokit.api import compile, evaluate
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.interop.jax.lowering import Lowered, is_tracing, lowered_of, maker, reader
from hlokit.tracebacks import public

jax: Any = _jax  # JAX's own types are unknown to pyright in many places

_BACKENDS = ("cpu", "interpreter")

Numbers = int | Iterable[int]
Names = str | Iterable[str]


@overload
def jit(f: Callable[..., Any], **options: Any) -> Function: ...
@overload
def jit(f: None = None, **options: Any) -> Callable[[Callable[..., Any]], Function]: ...


@public
def jit(f: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`f`, a function of JAX's arrays, run by hlokit. It can be used as a decorator, with or without options.

    Parameters
    ----------
    f : callable, optional
        The function.
    options : Any
        Those of `Function`: static_argnums, donate_argnums, backend, and hlokit.compile's.

    Returns
    -------
    Function
        The compiled function, or a decorator if `f` is not given.
    """
    return functools.partial(jit, **options) if f is None else Function(f, **options)


class Function:
    """A JAX function that is traced once for each kind of arguments, and runs as a program of hlokit.

    Arguments are pytrees of what jax.jit takes. Results are NumPy arrays in the tree that the function gives, keys of
    jax.random JAX's arrays of keys. It can be called while JAX traces another Function, of which it becomes a part; in
    other transformations of JAX (grad, vmap, jax.jit) it raises ArgumentError: transform the function inside instead.
    What JAX or the function itself raises while it is traced comes as it is.

    Parameters
    ----------
    f : callable
        The function.
    static_argnums, static_argnames : int, str or sequence, optional
        Arguments that are part of the program: hashable values.
    donate_argnums, donate_argnames : int, str or sequence, optional
        Arguments whose NumPy arrays a call may overwrite with results.
    backend : str, optional
        "cpu": machine code; "interpreter": hlokit.evaluate.
    options : Any
        hlokit.compile's, such as threads, strict, shadow.

    Raises
    ------
    ArgumentError
        A call's arguments do not fit, or it is in another transformation of JAX.
    UnsupportedError
        JAX has no rule for a part of the function, or hlokit does not read it.
    EvaluationError
        A callback fails.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        *,
        static_argnums: Numbers | None = None,
        static_argnames: Names | None = None,
        donate_argnums: Numbers | None = None,
        donate_argnames: Names | None = None,
        backend: str = "cpu",
        **options: Any,
    ) -> None:
        if not callable(f):
            raise ArgumentError(f"jit: expected a function, got {type(f).__name__}")
        if backend not in _BACKENDS:
            raise UnsupportedError(f"jit(backend={backend!r}): one of {', '.join(map(repr, _BACKENDS))}")
        functools.update_wrapper(self, f)
        self._static = _Static(f, static_argnums, static_argnames)
        self._jitted = jax.jit(
            f,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            keep_unused=True,
        )
        self._backend = backend
        self._options = options
        self._programs: dict[Any, _Program] = {}
        self._lock = threading.RLock()

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, by hlokit."""
        fixed, dynamic = self._static.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        try:
            avals: tuple[Any, ...] = tuple([jax.typeof(leaf) for leaf in leaves])
        except TypeError as error:
            raise ArgumentError(f"{self}: {error}") from error
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._inlined(args, kwargs)
        return self._program((fixed, tree, avals, _context()), args, kwargs)(leaves)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """Binds `self`, as methods do."""
        return self if owner is None else functools.partial(self, owner)

    def __repr__(self) -> str:
        return f"hlokit.interop.jax.jit({getattr(self, '__name__', 'function')})"

    def _inlined(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not is_tracing():
            raise ArgumentError(
                f"{self} is called inside a JAX transformation, which would run it by JAX: "
                "transform the function that it is made of (jit(jax.grad(f)), not jax.grad(jit(f)))"
            )
        return self._jitted(*args, **kwargs)

    def _program(self, key: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Program:
        try:
            found = self._programs.get(key)
        except TypeError as error:
            raise ArgumentError(f"{self}: static arguments must be hashable: {error}") from error
        if found is not None:
            return found
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._made(args, kwargs, key[2])
            return self._programs[key]

    def _made(self, args: Sequence[Any], kwargs: dict[str, Any], avals: Sequence[Any]) -> _Program:
        lowered = lowered_of(self._jitted, args, kwargs, hoist=True)
        module = lowered.module
        if module.replica_count * module.num_partitions > 1:
            raise UnsupportedError(f"{module.name}: a program for several devices; hlokit.interop.jax.jit runs on one")
        if self._backend == "interpreter":
            return _Program(lowered, functools.partial(evaluate, module, **self._options), avals)
        made = cast("Any", compile)(module, **self._options)  # options decide nothing of its kind: it is for one device
        return _Program(lowered, made, avals)


class _Program:
    """A compiled function for arguments of one kind, whose avals are these."""

    def __init__(self, lowered: Lowered, run: Callable[..., Any], avals: Sequence[Any]) -> None:
        self._run = run
        self._lowered = lowered  # its callbacks live with it
        results, self._tree = jax.tree.flatten(lowered.result)
        self._readers = [reader(aval) for aval in avals]
        self._makers = [maker(aval) for aval in results]
        self._tokens = lowered.tokens
        self._before = (*(None,) * self._tokens, *lowered.constants)
        self._is_one = not lowered.module.entry.root.shape.is_tuple

    def __call__(self, leaves: Sequence[Any]) -> Any:
        try:
            arrays = [read(leaf) for read, leaf in zip(self._readers, leaves, strict=True)]
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"an argument is not an array: {error}") from error
        values = self._run(*self._before, *arrays)
        results = (values,) if self._is_one else values[self._tokens :]
        made = [v if make is None else make(v) for make, v in zip(self._makers, results, strict=True)]
        return jax.tree.unflatten(self._tree, made)


class _Static:
    """The static arguments, by position and by name: as jax.jit has it, one implies the other."""

    def __init__(self, f: Callable[..., Any], numbers: Numbers | None, names: Names | None) -> None:
        from jax._src import api_util

        if numbers is None and names is None:
            self._numbers, self._names = (), frozenset[str]()
            return
        try:
            signature = inspect.signature(f)
        except (ValueError, TypeError):
            signature = None
        infer: Any = api_util.infer_argnums_and_argnames  # pyright: ignore
        found, found_names = infer(signature, numbers, names) if signature else (numbers or (), names or ())
        self._numbers: tuple[int, ...] = (found,) if isinstance(found, int) else tuple(found)
        self._names = frozenset((found_names,) if isinstance(found_names, str) else found_names)

    def split(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """(the static arguments, with the types that tell 1 from True; the others)."""
        if not self._numbers and not self._names:
            return (), (args, kwargs)
        at = {n % len(args) for n in self._numbers if -len(args) <= n < len(args)}
        fixed: list[Any] = [(n, args[n]) for n in sorted(at)]
        fixed += [(name, value) for name, value in sorted(kwargs.items()) if name in self._names]
        rest = [value for n, value in enumerate(args) if n not in at]
        types: tuple[Any, ...] = tuple([type(value) for _, value in fixed])
        return (types, *fixed), (rest, {name: value for name, value in kwargs.items() if name not in self._names})


def _context() -> Any:
    """The settings of JAX that tracing depends on: 64-bit types, precisions, the default random bits."""
    from jax._src import config

    return config.trace_context()  # pyright: ignore
