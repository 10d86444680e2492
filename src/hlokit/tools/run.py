"""hlokit run: evaluates a program, on the reference interpreter or as machine code."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from cyclopts import Parameter

from hlokit.api import compile, evaluate, parse, verify
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.files.arrays import arrays_in, leaves_of, named_arrays, npz_of
from hlokit.hlo.computation import counted
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interpreter.nan_trap import nan_trap
from hlokit.interpreter.process import StepHook
from hlokit.interpreter.routes import Place
from hlokit.judge.closeness.equality import is_floating, is_nan
from hlokit.proto.snapshot import Snapshot
from hlokit.runtime.devices import DeviceExecutable
from hlokit.runtime.executable import Executable
from hlokit.stablehlo.lowering import UnknownSizes
from hlokit.tools.files import content_of, is_standard, loaded, path_of, snapshot_in, write
from hlokit.tools.inputs import Inputs, arguments_for, file_in
from hlokit.tools.job import Job, job
from hlokit.tools.progress import is_terminal, progress
from hlokit.tools.status import DONE, FOUND
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]

_SEPARATOR = re.compile(r"^[ \t]*// -----[^\n]*\n", re.MULTILINE)


def run(
    file: Path,
    *,
    input: Inputs = (),
    random: int | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    expect: Path | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    replicas: int | None = None,
    partitions: int | None = None,
    seed: int = 0,
    trap_nan: bool = False,
    after: str | None = None,
    backend: Literal["interpreter", "cpu"] | None = None,
    shadow: Path | None = None,
    profile: Path | None = None,
    xla_dump_to: Annotated[Path | None, Parameter(name="--xla_dump_to")] = None,
    xla_dump_hlo_pass_re: Annotated[str | None, Parameter(name="--xla_dump_hlo_pass_re")] = None,
    xla_disable_hlo_passes: Annotated[str | None, Parameter(name="--xla_disable_hlo_passes")] = None,
) -> int:
    """Runs the entry computation of a module and prints its result.

    For several devices, {device} in the names of --input and --output stands for the device's number, counted replica
    by replica, partition by partition. Under mpirun each process is a device.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input. One of XLA's snapshots also contains
        the arguments. In a file of StableHLO tests (separated by `// -----`) each test is run; failed assertions
        (check.expect_eq, ...) are errors.
    input:
        an .npz with an array for each parameter, named after the parameters, or in0, in1, ..., or arr_0, arr_1, ...;
        `-` is standard input. Types that NumPy lacks (bf16, f8, ...) may be stored as unsigned integers of the same
        width. Without {device} in the name, all devices take the same arguments. Alternatively values, one --input for
        each parameter in order: a shape and the value of all elements, f32[4,8]=1 or 4x8xf32=1, or an HLO literal,
        's32[3]={1, 2, 3}'.
    random:
        use random arguments with this seed; each device has different ones.
    output:
        an .npz for the results, out0, out1, ...; types that NumPy lacks are stored as unsigned integers. `-`: write it
        to standard output and print nothing else.
    expect:
        an .npz with the expected results, out0, out1, ...; exit status 1 if a result differs.
    rtol, atol:
        with --expect, results may differ by atol + rtol times the expected value; without these, the values must be
        equal.
    replicas:
        number of replicas; by default the number in the file, under mpirun one for each process.
    partitions:
        number of partitions.
    seed:
        the seed of the program's own random numbers.
    trap_nan:
        on the interpreter, stop at the first instruction that makes a NaN from operands without one; exit status 1.
    after:
        names of instructions, separated by commas: on the interpreter, print the result of each after it has run.
    backend:
        interpreter, or cpu for machine code, which the following options imply.
    shadow:
        check every kernel against the interpreter; a reproducer of a wrong kernel is written to this folder.
    profile:
        print the times of the steps, and write a trace for Perfetto or chrome://tracing to this file.
    xla_dump_to:
        the folder for dumps of the program at all stages ("-": standard output).
    xla_dump_hlo_pass_re:
        also dump the program after each pass that changes it and whose name matches.
    xla_disable_hlo_passes:
        names of passes to skip, separated by commas.
    """
    flags = {
        "xla_dump_to": xla_dump_to,
        "xla_dump_hlo_pass_re": xla_dump_hlo_pass_re,
        "xla_disable_hlo_passes": xla_disable_hlo_passes,
    }
    given = [shlex.quote(f"--{name}={value}") for name, value in flags.items() if value is not None]
    backend = _backend(backend, given, shadow, profile, trap_nan, after)
    way = _Way(backend, given, seed, trap_nan, after, shadow, profile)
    source = file_in(input)
    if is_standard(file) and is_standard(source):
        raise ArgumentError("the program and --input cannot both be standard input")
    with job() as devices:
        modules, recorded = _loaded(file, None if source is None else path_of(source, devices.rank))
        if len(modules) > 1 and (output is not None or profile is not None):
            raise ArgumentError(f"--output, --profile: {file} holds {len(modules)} programs")
        if input or random is not None:
            recorded = None
        is_expected = True
        for module in modules:
            verify(module)
            places = devices.places(module, replicas, partitions)
            _check_several(len(places), output, profile, after)
            own = devices.own(places)
            arguments = _arguments_of_all(module, input, random, recorded, own, len(places))
            results = way.results(devices, module, arguments, places)
            _give(devices, module, own, results, output, several=len(places) > 1)
            if expect is not None:
                for place, result in zip(own, results, strict=True):
                    is_expected &= _as_expected(result, path_of(expect, place.device), rtol, atol)
    return DONE if is_expected else FOUND


def _as_expected(result: Any, path: Path, rtol: float, atol: float) -> bool:
    """Whether a result is what a file has; says on standard error where it is not."""
    if rtol < 0 or atol < 0:
        raise ArgumentError("--rtol and --atol must be at least 0")
    arrays = arrays_in(content_of(path))
    found = [leaf for leaf in leaves_of(result) if leaf is not None]
    if len(arrays) != len(found):
        raise ArgumentError(f"{path} has {len(arrays)} arrays, the program {len(found)} results")
    same = True
    for number, (leaf, wanted) in enumerate(zip(found, named_arrays(arrays, _names(arrays)), strict=True)):
        if wanted.dtype != leaf.dtype and wanted.dtype.itemsize == leaf.dtype.itemsize and wanted.dtype.kind == "u":
            wanted = wanted.view(leaf.dtype)
        what = _difference(leaf, wanted, rtol, atol)
        if what:
            print(f"{path}: out{number}: {what}", file=sys.stderr)
            same = False
    return same


def _names(arrays: Mapping[str, _Array]) -> list[str]:
    stem = "arr_" if "arr_0" in arrays else "out"
    return [f"{stem}{number}" for number in range(len(arrays))]


def _difference(found: _Array, wanted: _Array, rtol: float, atol: float) -> str:
    """Where two arrays are not as close as that; empty if they are. NaN is NaN."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"found {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    wide = np.complex128 if found.dtype.kind == "c" else np.float64 if is_floating(found.dtype) else None
    with np.errstate(all="ignore"):
        if wide is None or not (rtol or atol):
            far = (found != wanted) & ~(is_nan(found) & is_nan(wanted))
        else:
            far = ~np.isclose(found.astype(wide), wanted.astype(wide), rtol, atol, equal_nan=True)
    if not np.any(far):
        return ""
    index = tuple(int(i) for i in np.argwhere(far)[0])
    return f"found {found[index]} at {list(index)}, expected {wanted[index]}; {int(np.sum(far))} of {far.size} differ"


def _backend(
    backend: Literal["interpreter", "cpu"] | None,
    flags: Sequence[str],
    shadow: Path | None,
    profile: Path | None,
    trap_nan: bool,
    after: str | None,
) -> Literal["interpreter", "cpu"]:
    """The backend that these options ask for; ArgumentError if they ask for both."""
    compiled = bool(flags) or shadow is not None or profile is not None
    if backend is None:
        backend = "cpu" if compiled else "interpreter"
    if backend == "interpreter" and compiled:
        raise ArgumentError("--shadow, --profile and the xla flags need --backend cpu")
    if backend == "cpu" and (trap_nan or after is not None):
        raise ArgumentError("--trap-nan and --after need the interpreter: omit --backend cpu and options that imply it")
    return backend


@dataclass(frozen=True)
class _Way:
    """The backend that runs programs, and its options."""

    backend: Literal["interpreter", "cpu"]
    flags: Sequence[str]
    seed: int
    trap_nan: bool
    after: str | None
    shadow: Path | None
    profile: Path | None

    def results(self, devices: Job, module: HloModule, arguments: list[list[Any]], places: list[Place]) -> list[Any]:
        """The results of each of this process's devices."""
        grid: dict[str, Any] = {"replicas": places[0].replica_count, "partitions": places[0].partition_count}
        if self.backend == "interpreter":
            hook = _shown_after(module, self.after.split(",")) if self.after is not None else None
            hook = nan_trap(hook) if self.trap_nan else hook
            with _counted(module, hook, is_shown=len(places) == 1 and self.after is None) as counted:
                return devices.call(partial(evaluate, module, after=counted), arguments, places, seed=self.seed, **grid)
        with _xla_flags(self.flags):
            # of either kind, as the counts say
            made = cast(Any, compile)(module, shadow=self.shadow if self.shadow is not None else False, **grid)
            executable: Executable | DeviceExecutable = made
            results = devices.call(executable, arguments, places, seed=self.seed)
            if self.profile is not None and isinstance(executable, Executable):
                found = executable.profile(*arguments[0], seed=self.seed)
                print(found)
                found.save(self.profile)
        return results


def _give(
    devices: Job, module: HloModule, own: Sequence[Place], results: Sequence[Any], output: Path | None, *, several: bool
) -> None:
    """Prints and writes the results."""
    if output is None or not is_standard(output):
        heads = [f"{place}:\n" if several else "" for place in own]
        devices.say([head + _shown(module, result) for head, result in zip(heads, results, strict=True)])
    if output is not None:
        for place, result in zip(own, results, strict=True):
            _save(path_of(output, place.device), result)


def _shown_after(module: HloModule, names: Sequence[str]) -> StepHook:
    """A hook that prints what the instructions of these names give."""
    wanted = {name.strip().removeprefix("%") for name in names}
    present = {instruction.name for instruction in module.instructions()}
    for name in sorted(wanted - present):
        from difflib import get_close_matches

        close = get_close_matches(name, present, 3)
        raise ArgumentError(
            f"--after: no instruction {name!r}" + (f"; did you mean {', '.join(close)}?" if close else "")
        )

    def show(instruction: Instruction, values: tuple[Any, ...]) -> None:
        if instruction.name in wanted:
            for part in leaves_of(values[0]):
                print(f"{instruction.name} = {instruction.shape}\n{np.array2string(np.asarray(part), threshold=50)}")

    return show


@contextmanager
def _counted(module: HloModule, hook: StepHook | None, *, is_shown: bool) -> Generator[StepHook | None]:
    """The hook; on a terminal one that shows how much of the entry has run, too."""
    if not is_shown or not is_terminal():
        yield hook
        return
    done = 0
    with progress(module.name, len(module.entry)) as advance:

        def count(instruction: Instruction, values: tuple[Any, ...]) -> None:
            nonlocal done
            if hook is not None:
                hook(instruction, values)
            if instruction.parent is module.entry:
                done += 1
                advance(done)

        yield count


def _check_several(count: int, output: Path | None, profile: Path | None, after: str | None) -> None:
    if count > 1 and after is not None:
        raise UnsupportedError("--after: for one device only")
    if count > 1 and output is not None and "{device}" not in str(output):
        raise ArgumentError(f"--output {output}: the name must contain {{device}}, for {count} devices")
    if count > 1 and profile is not None:
        raise UnsupportedError("--profile: for one device only")


def _shown(module: HloModule, result: Any) -> str:
    """The parts of a result."""
    shapes = module.program_shape.result.leaves()
    return "\n".join(
        f"out{number} = {shape}" + (f"\n{np.array2string(leaf, threshold=50)}" if leaf is not None else "")
        for number, (leaf, shape) in enumerate(zip(leaves_of(result), shapes, strict=True))
    )


def _save(path: Path, result: Any) -> None:
    content = npz_of(result)
    write(path if is_standard(path) or path.suffix == ".npz" else Path(f"{path}.npz"), content)


@contextmanager
def _xla_flags(flags: Sequence[str]) -> Generator[None, None, None]:
    """XLA_FLAGS with these behind what it holds."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = " ".join([*([before] if before else []), *flags])
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def _loaded(file: Path, input: Path | None) -> tuple[list[HloModule], Snapshot | None]:
    """The module, or those of a file of StableHLO tests, which lines of `// -----` part; a snapshot's arguments."""
    snapshot = snapshot_in(file)
    if snapshot is not None:
        return [snapshot.module], snapshot
    try:
        text = content_of(file).decode() if file.suffix == ".mlir" else ""
    except UnicodeDecodeError:
        text = ""
    parts = _SEPARATOR.split(text)
    if len(parts) == 1:
        return [_one(file, input)], None
    before = ""
    found: list[HloModule] = []
    for part in parts:
        if "func.func" in part:
            found.append(parse(before + part))
        before += "\n" * (part.count("\n") + 1)
    return found, None


def _one(file: Path, input: Path | None) -> HloModule:
    """The module, for the sizes that the arguments have where it leaves them open."""
    try:
        return loaded(file)
    except UnknownSizes as error:
        if input is None:
            raise ArgumentError(f"{error} -- or give the arguments themselves: --input FILE.npz") from None
        found = named_arrays(arrays_in(content_of(input)), [name for name, _ in error.parameters])
        sizes = [array.shape for array in found]
        types = [written.dtype for _, written in error.parameters]
        return loaded(file, [Shape.array(t, s) for t, s in zip(types, sizes, strict=True)])


def _arguments_of_all(
    module: HloModule,
    input: Inputs,
    random: int | None,
    recorded: Snapshot | None,
    own: Sequence[Place],
    count: int,
) -> list[list[Any]]:
    """The arguments of each of these devices; `count`: how many devices there are in all."""
    if recorded is None:
        return [arguments_for(module, input, random, place.device) for place in own]
    if len(recorded.arguments) != count:
        devices = counted(len(recorded.arguments), "device")
        raise ArgumentError(f"the snapshot has arguments of {devices}, {count} run the program")
    return [recorded.arguments[place.device] for place in own]
