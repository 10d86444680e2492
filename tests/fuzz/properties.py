"""What must hold of every module: `broken(module, seed)` names the first property that does not."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.hlo.compare import same_module
from hlokit.judge.fuzz.values import arguments
from hlokit.proto.module import module_from_proto, module_to_proto

MEMORY = 1 << 28
"""What evaluation of one instruction may take: the programs are small."""


def broken(module: hk.HloModule, seed: int, seconds: int = 20) -> str | None:
    """The first property that `module` breaks, or None. Anything but a HlokitError is a broken property."""
    with within(seconds), warnings.catch_warnings():
        warnings.simplefilter("error")
        hk.verify(module)
        found = _text(module) or _proto(normal(module))
        return found or _value(module, seed)


def normal(module: hk.HloModule) -> hk.HloModule:
    """The module with its instructions in post-order, on which, as in XLA, the order of computations depends."""
    return hk.parse(module.to_text("short_parsable"))


def _text(module: hk.HloModule) -> str | None:
    ordered = normal(module)
    if sorted(str(ordered).split("\n\n")) != sorted(str(module).split("\n\n")):
        return "parse(print(m)) prints otherwise"
    for preset in ("default", "short_parsable"):
        text = ordered.to_text(preset)
        again = hk.parse(text)
        if again.to_text(preset) != text:
            return f"parse(print(m)) prints otherwise ({preset})"
        difference = None if "{...}" in text else same_module(ordered, again)
        if difference:
            return f"parse(print(m)) is another module ({preset}): {difference}"
        hk.verify(again)
    return None


def _proto(module: hk.HloModule) -> str | None:
    try:
        data = module_to_proto(module)
    except hk.UnsupportedError:  # a number that is int32 there
        return None
    again = module_from_proto(data)
    if str(again) != str(module):
        return "the module from its proto prints otherwise"
    if module_to_proto(again) != data:
        return "the module from its proto gives another proto"
    hk.verify(again)
    return None


def _value(module: hk.HloModule, seed: int) -> str | None:
    inputs = arguments(module, seed)
    before = [leaf.tobytes() for leaf in leaves(tuple(inputs))]
    results: list[Any] = []
    for given in (inputs, turned(inputs)):
        try:
            results.append(hk.evaluate(module, *given, memory_limit=MEMORY))
        except hk.HlokitError as error:
            results.append(str(error))
    if [leaf.tobytes() for leaf in leaves(tuple(inputs))] != before:
        return "evaluating changes the arguments"
    first, second = results
    if isinstance(first, str) or isinstance(second, str):
        return None if first == second else "evaluating twice gives a value and an error"
    if [a.tobytes() for a in leaves(first)] != [a.tobytes() for a in leaves(second)]:
        return "evaluating twice, with arguments in another order in memory, gives two values"
    return _form(first, module.entry.root.shape)


def turned(value: Any) -> Any:
    """The value with its arrays in another order in memory, the first dimension innermost."""
    if isinstance(value, (tuple, list)):
        return [turned(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value if value is None else np.array(value, order="F")


def _form(value: Any, shape: hk.Shape) -> str | None:
    """Whether the value has the type that the shape declares."""
    if shape.is_tuple:
        pairs = zip(value, shape.elements, strict=True)
        return next((found for part, s in pairs if (found := _form(part, s))), None)
    if not shape.is_array:
        return None if value is None else f"{value!r} for {shape}"
    if not isinstance(value, np.ndarray) or value.dtype != shape.dtype.numpy:
        return f"{value!r} for {shape}"
    fits = len(value.shape) == shape.rank and all(
        n == d or (f and n <= d) for n, d, f in zip(value.shape, shape.dimensions, shape.dynamic, strict=True)
    )
    return None if fits else f"an array of sizes {value.shape} for {shape}"


def leaves(value: Any) -> list[Any]:
    """The arrays in a value."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]  # pyright: ignore[reportUnknownVariableType]
    return [] if value is None else [value]


@contextmanager
def within(seconds: int) -> Generator[None]:
    """Raises TimeoutError if the block takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
