"""Calls of the builder's functions with arguments of any kind: each is made, or refused with an error that is clear.

`python -m tests.fuzz.misuse [--seeds FIRST LAST] [--function NAME]` tries more than the tests do.
"""

from __future__ import annotations

import argparse
import inspect
import random
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.builder import functions

METHODS = ("parameter", "constant", "constant_literal", "iota", "infeed", "infeed_with_token", "after_all", "call", "build",
           "get_shape", "is_constant", "get_program_shape", "set_up_alias", "add_buffer_donor", "set_sharding",
           "build_constant_sub_graph", "create_sub_builder", "constant_r0", "constant_r1", "constant_r2",
           "constant_from_array")  # fmt: skip
"""Methods of Builder that are tried too."""
SHAPES = (
    "f32[]", "f32[2,3]", "f32[2,3]", "f32[3]", "f32[4,4]", "f32[2,3,4,5]", "s32[]", "s32[2,3]", "s32[3]", "u32[2]",
    "u64[2]", "pred[]", "pred[2,3]", "c64[2,2]", "bf16[3,3]", "f8e5m2[4]", "s4[6]", "f32[0,2]", "f32[<=4,2]",
    "f32[?,3]", "(f32[2,3], s32[])", "(f32[2], token[])", "()", "token[]", "opaque[]",
)  # fmt: skip
"""Shapes of handles; text, as it makes the list short."""


@cache
def named_functions() -> dict[str, Callable[..., Any]]:
    """The op functions, and the methods of Builder, which take the builder first."""
    names = [n for n, f in vars(functions).items() if inspect.isfunction(f) and not n.startswith("_")]
    return {name: getattr(hk, name) for name in names} | {
        f"Builder.{name}": getattr(hk.Builder, name) for name in METHODS
    }


@cache
def _computations() -> tuple[Any, ...]:
    def of(shapes: Sequence[str], function: Callable[..., Any]) -> hk.HloModule:
        builder = hk.Builder("c")
        return builder.build(function(*[builder.parameter(i, _shape(s)) for i, s in enumerate(shapes)]))

    return (
        of(["f32[]", "f32[]"], hk.add),
        of(["s32[]", "s32[]"], hk.add),
        of(["f32[]", "f32[]"], hk.lt),
        of(["f32[2,3]"], hk.neg),
        of(["f32[]"], lambda x: hk.lt(x, 3.0)),
        of(["pred[]", "pred[]"], hk.and_),
    )


@cache
def _shape(text: str) -> hk.Shape:
    from hlokit.text.shapes import parse_shape

    return parse_shape(text)


class _Strange:
    """An object that says nothing of itself."""


class _Raises:
    """An array that cannot be read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise ValueError("no array")


@dataclass
class Trial:
    """One call. `text` shows it."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    builder: hk.Builder

    @property
    def text(self) -> str:
        given = [*map(_shown, self.args), *(f"{k}={_shown(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(given)})"

    def run(self) -> Any:
        return named_functions()[self.name](*self.args, **self.kwargs)


def trial(name: str, seed: int) -> Trial:
    """A random call of the function: arguments of the kinds that it takes, or of any other, and sometimes too few."""
    return _Draw(random.Random(f"{name} {seed}")).trial(name)


class _Draw:
    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.builder = hk.Builder("b")
        self.other = hk.Builder("b" if random.random() < 0.5 else "other")
        self.numbers = 0

    def trial(self, name: str) -> Trial:
        function = named_functions()[name]
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        strange = self.random.choice((0.0, 0.05, 0.1, 0.3))
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters:
            if parameter.name == "self":
                args.append(self.builder)
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += [self.handle() for _ in range(self.random.randrange(3))] if not kwargs else []
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.default is not parameter.empty and self.random.random() < 0.6:
                continue
            value = self.any() if self.random.random() < strange else self.fitting(parameter)
            if kwargs or parameter.kind is parameter.KEYWORD_ONLY or len(args) < parameters.index(parameter):
                kwargs[parameter.name] = value
            else:
                args.append(value)
        if self.random.random() < 0.05 and len(args) > 1:
            args.pop()
        if self.random.random() < 0.03:
            args.append(self.any())
        return Trial(name, args, kwargs, self.builder)

    # -- arguments

    def fitting(self, parameter: inspect.Parameter) -> Any:
        """Something that the parameter's annotation allows, which need not go with the other arguments."""
        kind = str(parameter.annotation).removesuffix(" | None")
        makers: dict[str, Callable[[], Any]] = {
            "XlaOp": self.handle, "Builder": lambda: self.builder, "int": self.integer, "bool": self.boolean,
            "str": self.text, "float": self.number, "Sequence[int]": self.integers, "DType": self.element_type,
            "DType | Any": self.element_type, "Sequence[Any]": self.handles, "Sequence[XlaOp]": self.handles,
            "XlaOp | Sequence[XlaOp]": self.handle_or_handles, "XlaOp | Sequence[Any]": self.handle_or_handles,
            "Shape": self.shape, "Shape | DType": self.shape, "Sequence[int] | Shape": self.integers,
            "ComputationLike": self.computation, "Callable[..., XlaOp]": self.computation,
            "Callable[..., Any]": self.computation, "Callable[..., Sequence[XlaOp]]": self.computation,
            "Sequence[Shape]": lambda: self.some(self.shape), "Sequence[DType]": lambda: self.some(self.element_type),
            "Sequence[bool]": lambda: self.some(self.boolean), "Sequence[float]": lambda: self.some(self.number),
            "Sequence[float] | Table": lambda: self.some(self.number),
            "Iterable[tuple[int, int]]": self.pairs, "Sequence[tuple[int, int]]": self.pairs, "Pairs": self.pairs,
            "Groups": lambda: self.some(self.integers), "Accuracy": self.accuracy, "Channel": self.channel,
            "ChannelHandle": self.channel, "PrecisionConfig": lambda: self.some(self.text),
            "Sequence[int] | str": self.integers, "Layout": lambda: hk.Layout(tuple(self.integers())),
            "Window": self.window,
        }  # fmt: skip
        maker = makers.get(kind)
        if maker is not None:
            return maker()
        if kind == "Any" and self.random.random() < 0.7:
            return self.random.choice((self.handle, self.number, self.array, self.integers))()
        return self.any()

    def any(self) -> Any:
        """Anything at all."""
        return self.random.choice(
            (
                self.handle,
                self.foreign,
                self.handles,
                self.integer,
                self.integers,
                self.text,
                self.number,
                self.array,
                self.shape,
                self.element_type,
                self.computation,
                self.boolean,
                self.pairs,
                self.channel,
                self.window,
                self.strange,
                self.strange,
                self.numbers_of,
            )
        )()

    def handle(self) -> hk.XlaOp:
        return self._parameter(self.builder)

    def foreign(self) -> hk.XlaOp:
        return self._parameter(self.other)

    def _parameter(self, builder: hk.Builder) -> hk.XlaOp:
        self.numbers += 1
        return builder.parameter(self.numbers - 1, _shape(self.random.choice(SHAPES)))

    def handles(self) -> Any:
        found = self.some(self.handle)
        return tuple(found) if self.random.random() < 0.5 else found

    def handle_or_handles(self) -> Any:
        return self.handle() if self.random.random() < 0.5 else self.handles()

    def integer(self) -> Any:
        large = self.random.random() < 0.1
        return self.random.choice((2**31, 2**63, -(2**63), 10**30, -(2**31) - 1) if large else range(-2, 5))

    def number(self) -> Any:
        return self.random.choice(
            (0, 1, -1, 2.5, float("inf"), float("nan"), 1e300, True, 1j, np.float32(1), np.int64(3))
        )

    def integers(self) -> Any:
        found = self.some(self.integer)
        return self.random.choice((list, list, tuple, np.array, iter))(found) if _fit_int64(found) else found

    def pairs(self) -> list[Any]:
        return self.some(
            lambda: self.random.choice(((0, 1), (1, 0), (self.integer(), self.integer()), (1,), (0, 1, 2)))
        )

    def boolean(self) -> Any:
        return self.random.random() < 0.5

    def text(self) -> str:
        words = ("", "same", "valid", "SAME", "highest", "high", "b01f->bf", "ij,jk->ik", "x", "\0", "RNG_DEFAULT",
                 "rng_default", "{}", "TRANSPOSE", "FFT", "replicated", "\udc80", "x" * 300)  # fmt: skip
        return self.random.choice(words)

    def element_type(self) -> Any:
        return self.random.choice(
            (*hk.DTYPES.values(), np.float32, np.dtype("int32"), "f32", "float32", int, "no type")
        )

    def shape(self) -> Any:
        if self.random.random() < 0.2:
            return self.element_type()
        return _shape(self.random.choice(SHAPES))

    def array(self) -> Any:
        sizes = self.random.choice(((), (3,), (2, 3), (0,), (2, 3, 4)))
        return np.ones(sizes, self.random.choice(("f4", "f8", "i4", "u1", "?", "c8", "O", "U3", "M8[s]")))

    def computation(self) -> Any:
        callables = (
            hk.add,
            hk.sub,
            hk.lt,
            hk.max,
            hk.neg,
            lambda *x: x,
            lambda x, y: None,
            lambda: 1,
            lambda x: hk.lt(x, 2),
        )
        return self.random.choice((*callables, *_computations()))

    def accuracy(self) -> Any:
        return self.random.choice((None, ("highest",), ("tolerance", 1.0, 0.0, 2), ("tolerance",), "highest", (), 3))

    def channel(self) -> Any:
        return self.random.choice(
            (None, 1, hk.ChannelHandle(1, "device_to_device"), hk.ChannelHandle(2, "host_to_device"), -1)
        )

    def window(self) -> Any:
        return hk.Window(
            tuple(hk.WindowDimension(self.random.randrange(-1, 4)) for _ in range(self.random.randrange(4)))
        )

    def numbers_of(self) -> Any:
        return self.random.choice(
            (
                (([1], [0]), ([], [])),
                (([0],), ([1],)),
                hk.DotDimensionNumbers([1], [0], [], []),
                ("NCHW", "OIHW", "NCHW"),
                [[1, 2], [3]],
                [[None]],
                {},
                {"a": 1},
            )
        )

    def strange(self) -> Any:
        return self.random.choice(
            (
                None,
                _Strange(),
                _Strange,
                _Raises(),
                object,
                "text",
                b"bytes",
                [],
                (),
                {},
                set(),
                [None],
                [[]],
                [1.5],
                ["x"],
                [1, None],
                range(3),
                iter([1, 2]),
                (x for x in (1, 2)),
                ...,
                hk,
                hk.add,
                slice(1, 2),
                3 + 4j,
                np.ma.array([1.0, 2.0], mask=[True, False]),
                np.zeros(2, object),
                memoryview(b"ab"),
                [[1, 2], [3]],
                Exception(),
            )
        )

    def some(self, make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(self.random.choice((0, 1, 1, 2, 2, 2, 3, 4)))]


def _fit_int64(numbers: Sequence[int]) -> bool:
    return all(-(2**63) <= n < 2**63 for n in numbers)


def _shown(value: Any) -> str:
    if isinstance(value, hk.XlaOp):
        return f"<{value.shape} of {value.builder.name}>"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(_shown, value))})"
    return f"{value!r}"[:80].replace("\n", " ")


def fault(made: Trial) -> str:
    """What is wrong with how the call was refused; "" if nothing is, or if it was made."""
    try:
        made.run()
    except (hk.HlokitError, TypeError) as error:
        return _unclear(made, error)
    except Exception as error:
        return f"{made.text}: {type(error).__name__}: {error}\n{_place(error)}"
    return ""


_CLEAR = r"its arguments are \(|<lambda>\(\) (takes|missing) .* positional argument"
"""TypeErrors that say enough: of a call with the wrong number of arguments, here or of a function of the caller's."""


def _unclear(made: Trial, error: Exception) -> str:
    """What is wrong with an error of a class that is right."""
    try:
        message = str(error)
    except Exception as other:
        return f"{made.text}: the message of {type(error).__name__} raises {other!r}"
    if not isinstance(error, hk.HlokitError) and not re.search(_CLEAR, message):
        return f"{made.text}: {type(error).__name__}: {message}\n{_place(error)}"
    if len(message) > 1500:
        return f"{made.text}: a message of {len(message)} characters"
    return ""


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return "\n".join(f"  {frame.filename.rpartition('hlokit/')[2]}:{frame.lineno} {frame.line}" for frame in frames)


def limit_memory() -> None:
    """To 8 GB, so that a call that would take all there is fails."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 200))
    parser.add_argument("--function")
    options = parser.parse_args()
    limit_memory()
    faults = 0
    for name in [options.function] if options.function else named_functions():
        for seed in range(*options.seeds):
            found = fault(trial(name, seed))
            if found:
                faults += 1
                print(f"seed {seed}: {found}", flush=True)
    print(f"{faults} faults")
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
