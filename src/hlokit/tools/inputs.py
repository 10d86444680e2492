"""Arguments of commands: from an .npz, or random."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, HlokitError
from hlokit.files.arrays import arguments_from_arrays, arrays_in, made_up
from hlokit.hlo.module import HloModule
from hlokit.judge.devices import arguments_in, devices_of
from hlokit.text.literals import parse_literal
from hlokit.text.shapes import parse_shape
from hlokit.tools.files import content_of

_LITERAL = re.compile(
    r"(?:(?P<type>[a-z]\w*\[[\d,]*\])|(?P<sizes>(?:\d+x)*)(?P<element>[a-z]\w*))\s*=\s*(?P<value>.+)", re.DOTALL
)


def is_literal(word: str) -> bool:
    """Whether an --input is a value (f32[4,8]=1, 4x8xf32=1), not the name of a file."""
    return _LITERAL.fullmatch(word) is not None


def values_of(module: HloModule, words: Sequence[str]) -> list[Any]:
    """The arguments that words like f32[4,8]=1 and 's32[3]={1, 2, 3}' say, one for each parameter.

    Raises ArgumentError for another count, and for what is not a value of its type.
    """
    parameters = module.entry.parameters
    if len(words) != len(parameters):
        raise ArgumentError(f"--input: {len(words)} values, {module.name} takes {len(parameters)}")
    return [_value(word) for word in words]


def _value(word: str) -> Any:
    found = _LITERAL.fullmatch(word)
    if found is None:
        raise ArgumentError(f"--input {word}: expected a type and a value, such as f32[4,8]=1")
    try:
        if found["type"] is not None:
            shape = parse_shape(found["type"])
        else:
            shape = parse_shape(f"{found['element']}[{','.join(found['sizes'].split('x')[:-1])}]")
        text = found["value"].strip()
        if text.startswith("{") or not shape.rank:
            return parse_literal(text, shape).to_python()
        one = parse_literal(text, shape.with_dimensions(())).to_python()
    except HlokitError as error:
        raise ArgumentError(f"--input {word}: {error}") from None
    return np.full(shape.dimensions, one, shape.dtype.numpy)


def arguments_of_devices(module: HloModule, input: Path | None, random: int | None) -> list[Any]:
    """As `arguments_for`; for several devices a list for each, of one file."""
    count = devices_of(module)
    if count == 1:
        return arguments_for(module, input, random)
    if input is None:
        return [arguments_for(module, None, random, device) for device in range(count)]
    try:
        return arguments_in(module, arrays_in(content_of(input)))
    except ArgumentError as error:
        error.file = str(input)
        raise


def arguments_for(module: HloModule, input: Path | None, random: int | None, device: int = 0) -> list[Any]:
    """One argument for each parameter: from a file, else made up by the seed `random`.

    Raises ArgumentError where neither is given, for a file that does not fit (with its name) and for a negative seed.
    """
    parameters = module.entry.parameters
    if input is not None:
        try:
            return arguments_from_arrays(module, arrays_in(content_of(input)))
        except ArgumentError as error:
            error.file = str(input)
            raise
    if random is not None:
        if random < 0:
            raise ArgumentError(f"--random {random}, expected a seed of at least 0")
        generator = np.random.default_rng([random, device] if device else random)
        return [made_up(generator, p.shape) for p in parameters]
    if parameters:
        raise ArgumentError(
            f"{module.name} takes {len(parameters)} argument(s): give --input FILE.npz or --random SEED"
        )
    return []
