"""Programs for several devices: their arguments, a list for each device, and runs of the reference on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from hlokit.devices.mpmd import run_grid
from hlokit.errors import ArgumentError
from hlokit.files.arrays import arguments_from_arrays
from hlokit.hlo.module import HloModule
from hlokit.interpreter.arguments import arguments_of
from hlokit.interpreter.checks import device_counts
from hlokit.interpreter.process import Process


def devices_of(module: HloModule) -> int:
    """The number of devices that a program runs on, as its header says."""
    return prod(device_counts(module, None, None))


def checked_arguments(module: HloModule, arguments: Sequence[Any]) -> list[Any]:
    """The values of the parameters, for several devices a list for each. Raises ArgumentError (EXEC-3)."""
    count = devices_of(module)
    if count == 1:
        return arguments_of(module, arguments)
    if len(arguments) != count:
        found = f"{len(arguments)} lists of arguments"
        raise ArgumentError(f"{module.name}: {found}, expected one for each of {count} devices")
    return [arguments_of(module, own) for own in arguments]


def arguments_in(module: HloModule, arrays: Mapping[str, Any]) -> list[Any]:
    """The arguments in a file: for several devices in0, in1, ... of the first, then those of the next, and so on."""
    count = devices_of(module)
    if count == 1:
        return arguments_from_arrays(module, arrays)
    each = sum(len(list(p.shape.leaves())) for p in module.entry.parameters)
    found: list[Any] = []
    for first in range(0, count * each, each) if each else [0] * count:
        own = {f"in{k}": arrays[f"in{first + k}"] for k in range(each) if f"in{first + k}" in arrays}
        found.append(arguments_from_arrays(module, own))
    return found


def on_each(module: HloModule, arguments: Sequence[Any], run: Callable[[Process, Sequence[Any]], Any]) -> Any:
    """The result of `run` with a device and its arguments; for several devices a list of the results of each."""
    counts = device_counts(module, None, None)
    if counts == (1, 1):
        return run(Process(), arguments)
    return run_grid([module] * prod(counts), arguments, counts, machine=run)
