"""Functions with nanobind's behaviour: overloads, arguments checked and converted in order, TypeError if none matches.

A parameter is annotated with a type that carries an `Argument`: its name in the signature, and how a value given by
the caller becomes what the function body takes (hlokit's handle for an XlaOp, and so on).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import hlokit as hk
from hlokit.errors import HlokitError
from hlokit.interop.xla_client.builder import RefusedOp, XlaBuilder, XlaOp
from hlokit.interop.xla_client.errors import status_error

REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Argument:
    """A type of argument. `convert` raises TypeError for a value that is none."""

    name: str
    convert: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    argument: Argument
    default: Any

    def __str__(self) -> str:
        default = "" if self.default is REQUIRED else f" = {self.default!r}"
        return f"{self.name}: {self.argument.name}{default}"


class Signature:
    """One way to call an op function: what it takes, and the function that does it."""

    def __init__(self, function: Callable[..., Any], returns: str) -> None:
        self.function = function
        self.returns = returns
        found = inspect.signature(function).parameters.values()
        self.parameters = [Parameter(p.name.rstrip("_"), _argument(p), _default(p)) for p in found]
        self.positional_only = any(p.kind is p.POSITIONAL_ONLY for p in found)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The arguments in order, defaults filled in; None if they do not fit the parameters."""
        if len(args) > len(self.parameters) or (kwargs and self.positional_only):
            return None
        values = list(args)
        used = 0
        for parameter in self.parameters[len(args) :]:
            if parameter.name in kwargs:
                values.append(kwargs[parameter.name])
                used += 1
            elif parameter.default is REQUIRED:
                return None
            else:
                values.append(parameter.default)
        return values if used == len(kwargs) else None

    def convert(self, values: Sequence[Any]) -> list[Any]:
        return [p.argument.convert(v) for p, v in zip(self.parameters, values, strict=True)]

    def text(self, name: str) -> str:
        end = ", /" if self.positional_only else ""
        return f"{name}({', '.join(map(str, self.parameters))}{end}) -> {self.returns}"


class OpFunction:
    """A function of the `ops` module.

    What its builder finds wrong is recorded there, and the result is then a handle that stands for nothing; `results`
    says how many handles it returns.
    """

    def __init__(self, name: str, function: Callable[..., Any], results: int, returns: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.results = results
        self.returns = returns
        self.signatures = [Signature(function, returns)]
        self._summary = inspect.getdoc(function) or ""

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        lines = [signature.text(self.__name__) for signature in self.signatures]
        error = "A broken rule makes the builder's `build` raise XlaRuntimeError."
        if "XlaOp" not in self.returns:
            error = "Raises XlaRuntimeError if a rule is broken."
        more = f"Parameters, result and rules: {self.described_by}. {error}"
        return "\n".join([*lines, "", self._summary, "", more])

    @property
    def described_by(self) -> str:
        """The function of hlokit whose docstring describes the op, as it is written there."""
        return _described_by(self.signatures[0].function)

    def overload(self, function: Callable[..., Any]) -> OpFunction:
        """Adds another way to call it."""
        self.signatures.append(Signature(function, self.returns))
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for signature in self.signatures:
            values = signature.bind(args, kwargs)
            if values is None:
                continue
            builder = _builder_of(values)
            try:
                converted = signature.convert(values)
            except TypeError:
                continue
            except RefusedOp as refused:
                return self._refused(builder, refused.error)
            return self._run(builder, signature.function, converted)
        raise TypeError(self._misuse(args, kwargs))

    def _run(self, builder: XlaBuilder | None, function: Callable[..., Any], values: list[Any]) -> Any:
        if builder is None:
            return function(*values)
        if builder.error is not None:
            return self._refused(builder, builder.error)
        try:
            with builder.marking():
                result = function(*values)
        except HlokitError as error:
            return self._refused(builder, error)
        if self.results == 1:
            return XlaOp(builder, result)
        return tuple(XlaOp(builder, handle) for handle in result)

    def _refused(self, builder: XlaBuilder | None, error: HlokitError) -> Any:
        if builder is None:
            raise status_error(error) from error
        builder.record(error)
        nothing = tuple(XlaOp(builder, None) for _ in range(self.results))
        return nothing[0] if self.results == 1 else nothing

    def _misuse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        ways = "".join(f"\n    {i}. {s.text(self.__name__)}" for i, s in enumerate(self.signatures, 1))
        given = [type(a).__name__ for a in args] + [f"{k}: {type(v).__name__}" for k, v in kwargs.items()]
        return (
            f"{self.__name__}(): incompatible function arguments. The following argument types are supported:{ways}\n\n"
            f"Invoked with types: {', '.join(given)}"
        )

    def __repr__(self) -> str:
        return f"<op function {self.__name__}>"


def _described_by(function: Callable[..., Any]) -> str:
    """The public function that an op function's body calls: the one whose docstring describes the op."""
    called = (*function.__code__.co_names, *(cell.cell_contents.__name__ for cell in function.__closure__ or ()))
    names = [name for name in called if name != "hk"]
    owners = {"hk": hk, "Builder": hk.Builder}
    return next(f"`{owner}.{name}`" for name in names for owner, found in owners.items() if hasattr(found, name))


def op(results: int = 1, returns: str = "XlaOp") -> Callable[[Callable[..., Any]], OpFunction]:
    """Makes a function of hlokit's handles an op function of the same name."""
    if results > 1:
        returns = f"tuple[{', '.join(['XlaOp'] * results)}]"
    return lambda function: OpFunction(function.__name__, function, results, returns)


def _argument(parameter: inspect.Parameter) -> Argument:
    return next(a for a in get_args(parameter.annotation) if isinstance(a, Argument))


def _default(parameter: inspect.Parameter) -> Any:
    return REQUIRED if parameter.default is NEEDED else parameter.default


NEEDED: Any = object()
"""The default of a parameter that has none but stands behind one that has."""


def _builder_of(values: Sequence[Any]) -> XlaBuilder | None:
    """The builder among the arguments, or that of the first handle."""
    for value in values:
        if isinstance(value, XlaBuilder):
            return value
        first: Any = value[0] if isinstance(value, (list, tuple)) and value else value  # pyright: ignore[reportUnknownVariableType]
        if isinstance(first, XlaOp):
            return first.builder
    return None
