"""The registry of custom-call targets. Safe to use from several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from hlokit.errors import BuildError, EvaluationError, HlokitError
from hlokit.forks import lock
from hlokit.hlo.values import TOKEN_VALUE, Array, Device, Function
from hlokit.types.literal import as_array
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.ops.custom import CustomCall


@dataclass(frozen=True, slots=True, eq=False)
class Invocation:
    """One execution of a custom-call: its operands' values, the result's shape, and what the instruction says.

    >>> b = hk.Builder()
    >>> def scaled(call: hk.Invocation):
    ...     return call.operands[0] * float(call.opaque)
    >>> hk.register_custom_call("example_scaled", scaled, whole_call=True, replace=True)
    >>> module = b.build(hk.custom_call(b, "example_scaled", [b.constant([1.0, 2.0])], hk.f32[2], "10"))
    >>> hk.evaluate(module)
    array([10., 20.], dtype=float32)

    Attributes
    ----------
    operands : tuple
        The values of the operands: read-only arrays, row-major (layouts are not applied); tuples of them; None for a
        token.
    shape : Shape
        The result's shape.
    opaque : str
        The instruction's `backend_config`.
    computations : sequence of callable
        The computations that the instruction calls, as functions of values.
    op : Op
        The op with its attributes.
    device : Device
        The device that it runs on.
    """

    operands: tuple[Any, ...]
    shape: Shape
    opaque: str
    computations: Sequence[Function]
    op: CustomCall
    device: Device


Target: TypeAlias = Callable[[Invocation], Any]

_targets: dict[str, Target] = {}
_built_in: dict[str, Target] = {}
"""The targets that come with hlokit."""
_finders: dict[str, Callable[[str], Target | None]] = {}
_lock = lock()


def register_custom_call(
    name: str, function: Callable[..., Any], *, whole_call: bool = False, replace: bool = False
) -> None:
    """Makes a Python function the target `name` of custom-calls (CCALL-2, CCALL-3).

    It is called with the operands as read-only arrays (tuples of them, None for a token) and returns an array, or a
    tuple of arrays for a tuple result, of exactly the declared shape and element types (CCALL-6). Unless the
    instruction has custom_call_has_side_effect the function must be pure (CCALL-7): it may run any number of times.

    Parameters
    ----------
    name : str
        The name that instructions call it by.
    function : callable
        function(*operands); with `whole_call` function(invocation).
    whole_call : bool, optional
        Whether the function takes one `Invocation`: operands, result shape, opaque string, computations.
    replace : bool, optional
        Whether a target of this name may exist already.

    Raises
    ------
    BuildError
        The name is reserved, `$...` (CCALL-5), or taken (CCALL-2), or `function` cannot be called.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.register_custom_call("example_twice", lambda x: 2 * x, replace=True)
    >>> hk.evaluate(b.build(hk.custom_call(b, "example_twice", [b.constant([1, 2])], hk.s32[2])))
    array([2, 4], dtype=int32)
    """
    if not callable(function):
        raise BuildError(f"custom-call target {name!r}: {function!r} is not a function")
    add_target(name, function if whole_call else _of_operands(function), replace=replace)


def unregister_custom_call(name: str) -> None:
    """Removes a target of custom-calls.

    Parameters
    ----------
    name : str
        The name that it was registered under.

    Raises
    ------
    BuildError
        No target has this name (CCALL-4).

    Examples
    --------
    >>> hk.register_custom_call("example_gone", lambda x: x, replace=True)
    >>> hk.unregister_custom_call("example_gone")
    """
    _load_built_in()
    with _lock:
        if _targets.pop(name, None) is None:
            raise BuildError(f"custom-call target {name!r} is not registered", "CCALL-4")


def add_target(name: str, target: Target, *, replace: bool = False) -> None:
    _load_built_in()
    _add(name, target, replace)


def _add(name: str, target: Target, replace: bool) -> None:
    if name.startswith("$"):
        raise BuildError(f"custom-call target {name!r}: names that start with $ are reserved", "CCALL-5")
    with _lock:
        if name in _targets and not replace:
            raise BuildError(f"custom-call target {name!r} is registered already", "CCALL-2")
        _targets[name] = target


def find_target(name: str) -> Target | None:
    """The target of this name: of the registry, else what the first of the finders gives that knows one."""
    _load_built_in()
    found = _targets.get(name)
    return found if found is not None else next(filter(None, (find(name) for find in _finders.values())), None)


def is_built_in(name: str) -> bool:
    """Whether the target of this name is the one that comes with hlokit."""
    found = find_target(name)
    return found is not None and found is _built_in.get(name)


def add_finder(where: str, find: Callable[[str], Target | None]) -> None:
    """Has names that the registry lacks looked for by `find`; `where`: what it looks through, for errors."""
    _finders[where] = find


def searched() -> str:
    """The places where `find_target` looks, as text."""
    return " or ".join(("hlokit", *_finders)).replace(" or ", ", ", max(0, len(_finders) - 1))


def built_in(*names: str) -> Callable[[Target], Target]:
    """Registers a target that comes with hlokit, under each of the names."""

    def add(target: Target) -> Target:
        for name in names:
            _add(name, target, replace=False)
            _built_in[name] = target
        return target

    return add


@cache
def _load_built_in() -> None:
    """Imports the targets that come with hlokit, 10 ms that a program without custom-calls does without."""
    import_module("hlokit.ops.custom_targets.built_in")


def _of_operands(function: Callable[..., Any]) -> Target:
    return lambda call: function(*call.operands)


def result_of(target: Target, call: Invocation) -> Any:
    """The target's result. EvaluationError from what it raises (CCALL-2), or if the result does not fit (CCALL-6)."""
    name = call.op.custom_call_target
    try:
        value = target(call)
    except HlokitError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise EvaluationError(f"custom-call target {name!r} raised {reason} [CCALL-2]") from error
    return _checked_result(name, call.shape.without_buffers(), value)


def read_only(value: Any) -> Any:
    """An operand as a target sees it: views that cannot be written through, None for tokens."""
    if isinstance(value, tuple):
        return tuple(read_only(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if value is TOKEN_VALUE:
        return None
    view: Array = value.view()
    view.flags.writeable = False
    return view


def _checked_result(name: str, shape: Shape, value: Any) -> Any:
    """`value` as a value of `shape`. Raises EvaluationError (CCALL-6) if it is not one."""
    if shape.is_token:
        return TOKEN_VALUE
    if shape.is_tuple:
        parts = cast("Sequence[Any]", value)
        if not isinstance(value, (tuple, list)) or len(parts) != len(shape.elements):
            raise _misfit(name, value, f"a tuple for {shape}")
        return tuple(_checked_result(name, s, part) for s, part in zip(shape.elements, parts, strict=True))
    try:
        array = as_array(value)
    except (HlokitError, TypeError, ValueError) as error:
        raise _misfit(name, value, shape) from error
    sizes_fit = len(array.shape) == shape.rank and all(
        n == d or (f and n <= d) for n, d, f in zip(array.shape, shape.dimensions, shape.dynamic, strict=True)
    )
    if array.dtype != shape.dtype.numpy or not sizes_fit:
        raise _misfit(name, array, shape)
    return array


def _misfit(name: str, value: Any, expected: object) -> EvaluationError:
    found = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__
    return EvaluationError(f"custom-call target {name!r}: found {found}, expected {expected} [CCALL-6]")
