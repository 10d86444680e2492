"""Arguments of commands: from an .npz, as values on the command line, or random."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from cyclopts import Parameter

from hlokit.errors import ArgumentError, HlokitError
from hlokit.files.arrays import arguments_from_arrays, arrays_in, made_up
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.judge.devices import arguments_in, devices_of
from hlokit.text.literals import parse_literal
from hlokit.text.shapes import parse_shape
from hlokit.tools.files import content_of, path_of

Inputs: TypeAlias = Annotated[tuple[str, ...], Parameter(consume_multiple=False, show_default=False)]
"""The option --input, which may be given several times."""

_LITERAL = re.compile(
    r"(?:(?P<type>[a-z]\w*\[[\d,]*\])|(?P<sizes>(?:\d+x)*)(?P<element>[a-z]\w*))\s*=\s*(?P<value>.+)", re.DOTALL
)


def file_in(inputs: Sequence[str]) -> Path | None:
    """The file that --input names; None for values (f32[4,8]=1, 4x8xf32=1), and if there is no --input.

    Raises ArgumentError for several files, and for a file with values.
    """
    files = [word for word in inputs if _LITERAL.fullmatch(word) is None]
    if files and len(inputs) > 1:
        raise ArgumentError("--input: expected one file, or one value for each parameter")
    return Path(files[0]) if files else None


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


def arguments_of_devices(module: HloModule, inputs: Sequence[str], random: int | None) -> list[Any]:
    """As `arguments_for`; for several devices a list for each, of one file."""
    count, source = devices_of(module), file_in(inputs)
    if count == 1:
        return arguments_for(module, inputs, random)
    if source is None:
        return [arguments_for(module, inputs, random, device) for device in range(count)]
    with _of_file(source):
        return arguments_in(module, arrays_in(content_of(source)))


def arguments_for(module: HloModule, inputs: Sequence[str], random: int | None, device: int = 0) -> list[Any]:
    """One argument for each parameter: from a file, in whose name {device} is the device's number, or values like
    f32[4,8]=1 and 's32[3]={1, 2, 3}'; without `inputs` made up by the seed `random`.

    Raises ArgumentError where neither is given, for a file that does not match (with its name), for another number of
    values, for what is not a value of its type and for a negative seed.
    """
    parameters, source = module.entry.parameters, file_in(inputs)
    if source is not None:
        source = path_of(source, device)
        with _of_file(source):
            return arguments_from_arrays(module, arrays_in(content_of(source)))
    if inputs:
        if len(inputs) != len(parameters):
            takes = counted(len(parameters), "argument")
            raise ArgumentError(f"--input: {counted(len(inputs), 'value')}, {module.name} takes {takes}")
        return [_value(word) for word in inputs]
    if random is not None:
        if random < 0:
            raise ArgumentError(f"--random {random}, expected a seed of at least 0")
        generator = np.random.default_rng([random, device] if device else random)
        return [made_up(generator, p.shape) for p in parameters]
    if parameters:
        takes = counted(len(parameters), "argument")
        raise ArgumentError(f"{module.name} takes {takes}: give --input FILE.npz or --random SEED")
    return []


@contextmanager
def _of_file(path: Path) -> Generator[None]:
    """Errors about arguments begin with the file's name."""
    try:
        yield
    except ArgumentError as error:
        error.file = str(path)
        raise
