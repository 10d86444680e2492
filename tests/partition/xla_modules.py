"""Programs of XLA's and Shardy's own tests of partitioners, in parts and whole: python -m tests.partition.xla_modules.

    --mirror FOLDER     holds bare git repositories: openxla+openxla/repo, openxla+shardy/repo (or MIRROR says it)
    --match REGEX       only programs whose names match
    --show              prints each program
    --markdown FILE     writes the table of docs/partition.md
    --compiled          machine code runs the parts too

Modules of HLO stand in tests in C++ as raw strings, functions of StableHLO in files of MLIR. Each is read, partitioned
for the number of devices that its test says, and evaluated in parts and whole on random arguments. Of Shardy's
executable tests the checks that they make themselves are run on the partitioned functions as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.judge.closeness.equality import differs, info_of, is_floating, leaves
from hlokit.judge.closeness.spread import near, rules_that_allow
from hlokit.passes.partitioner import partition

SECONDS = 120
INTERPRETED, LARGEST = 1 << 20, 1 << 25
"""Elements of the largest array of programs that the interpreter and machine code run."""
_ROUNDINGS = 8
"""Roundings of the largest value that results may be apart where their spread is not known."""
CLASSES = ("equal", "too large", "no reference", "refused", "not read", "differs", "no end", "fault")
"""What may come of a program; too large: to be evaluated, but partitioned; no reference: it cannot be evaluated whole."""
_SERVICE = "xla/service"
_HLO = {
    "spmd_partitioner_test": f"{_SERVICE}/spmd/spmd_partitioner_test.cc",
    "sharding_propagation_test": f"{_SERVICE}/sharding_propagation_test.cc",
    "shardy_xla_pass_test": f"{_SERVICE}/spmd/shardy/shardy_xla_pass_test.cc",
    "stateful_rng_spmd_partitioner_test": f"{_SERVICE}/spmd/stateful_rng_spmd_partitioner_test.cc",
    "spmd_prepare_test": f"{_SERVICE}/spmd/spmd_prepare_test.cc",
    "cpu_spmd_compile_test": f"{_SERVICE}/cpu/tests/cpu_spmd_compile_test.cc",
    "gpu_spmd_e2e_compile_test": f"{_SERVICE}/gpu/tests/gpu_spmd_e2e_compile_test.cc",
    "auto_sharding_test": "xla/hlo/experimental/auto_sharding/auto_sharding_test.cc",
}
_SHARDY = "shardy/dialect/sdy/transforms"
_MLIR = {
    "xla shardy": ("openxla+openxla", f"{_SERVICE}/spmd/shardy/test"),
    "propagation": ("openxla+shardy", f"{_SHARDY}/propagation/test"),
    "import": ("openxla+shardy", f"{_SHARDY}/import/test"),
    "insert_explicit_reshards": ("openxla+shardy", f"{_SHARDY}/export/test/insert_explicit_reshards"),
    "pad_for_divisibility": ("openxla+shardy", f"{_SHARDY}/export/test/pad_for_divisibility"),
    "convert_global_to_local": ("openxla+shardy", f"{_SHARDY}/export/test/convert_global_to_local"),
    "executable": ("openxla+shardy", f"{_SHARDY}/export/test/executable_"),
}


@dataclass(frozen=True)
class Program:
    """A program of a test.

    suite       the test file or folder; name: of the test and, if it has several programs, a number
    devices     as the test says; 0 where shardings alone say it
    check       of an executable test: the text of its second part, which calls the function `function`
    """

    suite: str
    name: str
    text: str
    devices: int = 0
    function: str = ""
    check: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.suite}/{self.name}"


def programs(mirror: Path) -> Iterator[Program]:
    """All programs that state shardings."""
    for suite, path in _HLO.items():
        yield from hlo_programs(suite, _git(mirror / "openxla+openxla" / "repo", "show", f"HEAD:{path}"))
    for suite, (repository, folder) in _MLIR.items():
        repo = mirror / repository / "repo"
        for path in _git(repo, "ls-tree", "-r", "--name-only", "HEAD").split():
            if path.startswith(folder) and path.endswith(".mlir"):
                yield from mlir_programs(suite, Path(path).stem, _git(repo, "show", f"HEAD:{path}"))


def hlo_programs(suite: str, source: str) -> Iterator[Program]:
    """The modules in raw strings of a test in C++, named by the test they stand in."""
    tests = re.split(r"^(?:TEST|TEST_P|TEST_F|XLA_TEST_F)\(\s*\w+,\s*(\w+)\)", source, flags=re.MULTILINE)
    for name, body in zip(tests[1::2], tests[2::2], strict=True):
        found = [t for _, t in re.findall(r'R"(\w*)\((.*?)\)\1"', body, re.DOTALL) if "ENTRY" in t and "sharding=" in t]
        counts = [int(n) for n in re.findall(r"num_(?:devices|partitions)=\*/\s*(\d+)", body)]
        for number, text in enumerate(found):
            devices = counts[min(number, len(counts) - 1)] if counts else 0
            yield Program(suite, name if len(found) == 1 else f"{name}.{number}", text.strip(), devices)


def mlir_programs(suite: str, name: str, source: str) -> Iterator[Program]:
    """Each function of each part of a file of MLIR that states shardings, as the main function."""
    parts = source.split("//--- part2.mlir")
    check = parts[1] if len(parts) == 2 else ""
    for number, text in enumerate(re.split(r"^// -----.*$", parts[0], flags=re.MULTILINE)):
        if "expected-error" in text or "harding" not in text:
            continue
        file = MlirFile(text)
        called = {called for chunk in file.functions.values() for called in re.findall(r"call @(\w+)", chunk)}
        for function in file.functions:
            if check and function.startswith("parallel"):
                sequential = file.functions.get(function.replace("parallel", "sequential", 1), "")
                yield Program(suite, f"{name}.{function}", file.program(function), 0, function, sequential + check)
            elif not check and function not in called:
                yield Program(suite, f"{name}.{number}.{function}", file.program(function))


class MlirFile:
    """A part of a file of MLIR: what stands before functions, and the lines of each function, by name."""

    def __init__(self, text: str) -> None:
        self.header: list[str] = []
        self.functions: dict[str, str] = {}
        self.footer = ""
        name = ""
        for line in text.splitlines():
            if line.lstrip().startswith("//"):
                continue
            found = re.match(r"\s*(?:func\.func|sdy\.mesh)(?: public| private)? @(\w+)", line)
            if found is not None:
                name = found[1] if "func.func" in line else ""
            if name:
                self.functions[name] = self.functions.get(name, "") + line + "\n"
            else:
                self.header.append(line)
        if any(re.match(r"\s*(?:builtin\.)?module\b", line) for line in self.header) and self.functions:
            last = next(reversed(self.functions))
            self.functions[last] = self.functions[last].rstrip().removesuffix("}")
            self.footer = "}"

    def program(self, function: str) -> str:
        """The function as @main, with what it calls, and the meshes that these name."""
        kept, waiting = list[str](), [function]
        while waiting:
            name = waiting.pop()
            if name in self.functions and name not in kept:
                kept.append(name)
                waiting += re.findall(r"@(\w+)", self.functions[name])
        text = "\n".join(self.functions[name] for name in kept)
        named = set(re.findall(r"@(\w+)", text))
        meshes = [re.match(r"\s*sdy\.mesh @(\w+)", line) for line in self.header]
        lines = [line for line, mesh in zip(self.header, meshes, strict=True) if mesh is None or mesh[1] in named]
        text = "\n".join([*lines, text, self.footer])
        if function != "main":
            text = re.sub(r"@main\b", "@other_main", text)
        return re.sub(rf"@{function}\b", "@main", text)


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "--git-dir", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# -- one program


def answer(program: Program, compiled: bool = False) -> tuple[str, str]:
    """A program's class, and what was found: ("equal", ""), ("refused", message), ..."""
    try:
        module = hk.parse(program.text, keeps_regions=True)
    except hk.HlokitError as error:
        return "not read", _message(error)
    try:
        found = _partitioned(module.clone(), program.devices)
    except hk.HlokitError as error:
        return "refused", _message(error)
    sizes = [leaf.size for m in (module, found.module) for i in m.instructions() for leaf in i.shape.leaves()]
    if max(sizes, default=0) > LARGEST:
        return "too large", f"{max(sizes):,} elements"
    run = hk.evaluate if max(sizes, default=0) <= INTERPRETED else _compiled
    numbers = np.random.default_rng(0)
    arguments = [_random(numbers, p.shape) for p in module.entry.parameters]
    parts = found.split(*arguments)
    with np.errstate(all="ignore"):
        try:
            want, whole = _whole(program, module, found, arguments, run)
            if run is _compiled:
                whole = None  # too large for many runs of the reference
        except hk.HlokitError as error:
            return "no reference", _message(error)
        problem = _difference(found.join(run(found.module, *parts)), want, whole, arguments)
        if not problem and compiled:
            problem = _difference(found.join(hk.compile(found.module)(*parts)), want, whole, arguments)
    if not problem and program.check:
        problem = _checked(program, module, found)
    return ("differs", problem.split("\n")[0]) if problem else ("equal", "")


def _partitioned(module: hk.HloModule, devices: int) -> Any:
    """In parts on the mesh of its shardings, or on one of the devices that the test names."""
    if module.num_partitions == 1 and devices:
        module.num_partitions = devices
    try:
        return partition(module)
    except hk.ArgumentError:  # it states no shardings of several devices
        return partition(module, f"x={devices or 2}")


def _whole(
    program: Program, module: hk.HloModule, found: Any, arguments: list[Any], run: Any
) -> tuple[Any, hk.HloModule | None]:
    """The result of the program whole: without its shardings, or of the first device where it has regions that all
    devices run; and the program that one device runs, if one does."""
    targets = {getattr(i.op, "custom_call_target", "") for i in module.instructions()}
    if targets & {"SPMDFullToShardShape", "SPMDShardToFullShape"}:
        if program.text.startswith("HloModule"):
            raise hk.UnsupportedError("regions that devices run by themselves, as HLO")
        return run(hk.parse(program.text), *_terms(found, arguments))[0], None
    whole = without_shardings(module)
    communicates = any(i.op.form == "communicate" or i.op.asks_device for i in whole.instructions())
    if communicates:
        return run(whole, *[arguments] * module.num_partitions)[0], None
    return run(whole, *arguments), whole


def _terms(found: Any, arguments: list[Any]) -> list[list[Any]]:
    """Each device's arguments: whole ones, and of those that are unreduced a zero on all devices but the first."""
    parts = found.split(*[np.ones_like(a) for a in arguments])
    return [[a if not a.size or np.any(p) else np.zeros_like(a) for a, p in zip(arguments, part)] for part in parts]


def without_shardings(module: hk.HloModule) -> hk.HloModule:
    """The program on whole values, on one device unless devices communicate."""
    whole = module.clone()
    for instruction in whole.instructions():
        if instruction.extra is not None:
            instruction.extra.sharding = None
    if not any(i.op.form == "communicate" or i.op.asks_device for i in whole.instructions()):
        whole.num_partitions = 1
    return whole


def _compiled(module: hk.HloModule, *arguments: Any) -> Any:
    return hk.compile(module)(*arguments)


def _difference(got: Any, want: Any, whole: hk.HloModule | None, arguments: list[Any]) -> str:
    """Where the results differ by more than rounding may make of them: by the spread of the whole program's results,
    in any order of terms that its rules leave open; where no one device runs it, by some roundings of its type."""
    if (found := differs(got, want)) is None:
        return ""
    if whole is not None:
        problem = near(got, want, whole, arguments, 0)
        return problem if problem and not rules_that_allow(got, want, whole, arguments) else ""
    for one, other in zip(leaves(got), leaves(want), strict=True):
        if differs((one,), (other,)) is None:
            continue
        if one.shape != other.shape or one.dtype != other.dtype or not is_floating(other.dtype):
            return found
        a, b = one.astype(np.float64), other.astype(np.float64)
        room = _ROUNDINGS * float(info_of(other.dtype).eps) * float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
        if not np.allclose(a, b, rtol=0, atol=room, equal_nan=True):
            return found
    return ""


def _checked(program: Program, module: hk.HloModule, found: Any) -> str:
    """What fails of the test's own checks, which call the function in parts and the function on whole values."""
    given = program.function.replace("parallel", "sequential", 1)
    texts = [_as_function(hk.to_stablehlo(found.module), program.function)]
    if f"func.func @{given}" not in program.check:
        texts.append(_as_function(hk.to_stablehlo(without_shardings(module)), given))
    text = "\n".join([*texts, program.check])
    try:
        hk.evaluate(hk.parse(text))
    except hk.HlokitError as error:
        return _message(error)
    return ""


def _as_function(text: str, name: str) -> str:
    """A module's functions, the main one under this name, and the others under names that begin with it."""
    lines = text.strip().splitlines()[1:-1]
    own = set(re.findall(r"func\.func (?:public |private )?@(\w+)", text))
    return re.sub(
        r"@(\w+)",
        lambda m: f"@{name if m[1] == 'main' else f'{name}_{m[1]}'}" if m[1] in own else m[0],
        "\n".join(lines),
    )


def _random(numbers: np.random.Generator, shape: Any) -> Any:
    if shape.is_tuple:
        return tuple(_random(numbers, element) for element in shape.elements)
    if not shape.is_array:
        return None
    if shape.dtype.is_floating or shape.dtype.is_complex:
        return numbers.integers(-3, 4, shape.dimensions).astype(shape.dtype.numpy)
    if shape.dtype.kind == "predicate" or shape.dtype.name == "pred":
        return numbers.integers(0, 2, shape.dimensions).astype(bool)
    return numbers.integers(0, 8, shape.dimensions).astype(shape.dtype.numpy)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _answered(program: Program, compiled: bool, end: Any) -> None:
    try:
        end.send(answer(program, compiled))
    except Exception as error:
        end.send(("fault", _message(error) if str(error) else repr(error)))


def in_process(program: Program, compiled: bool) -> tuple[str, str]:
    """The answer of a process of its own, which is ended after SECONDS."""
    here, there = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=_answered, args=(program, compiled, there))
    process.start()
    there.close()
    try:
        found = here.recv() if here.poll(SECONDS) else ("no end", f"in {SECONDS} seconds")
    except EOFError:
        found = ("fault", "the process died")
    process.kill()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=Path, default=os.environ.get("MIRROR"))
    parser.add_argument("--match", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    if given.mirror is None:
        parser.error("--mirror, or the environment variable MIRROR, names the folder of snapshots")
    counts: dict[str, Counter[str]] = {}
    for program in programs(Path(given.mirror)):
        if not re.search(given.match, program.full_name):
            continue
        if given.show:
            print(f"// {program.full_name} devices={program.devices}\n{program.text}")
        kind, what = in_process(program, given.compiled)
        counts.setdefault(program.suite, Counter())[kind] += 1
        if kind != "equal":
            print(f"{program.full_name}: {kind}: {what[:300]}", flush=True)
    for suite, count in counts.items():
        print(f"{suite}: " + ", ".join(f"{kind} {n}" for kind, n in count.most_common()))
    if given.markdown is not None:
        given.markdown.write_text(table(counts), encoding="utf-8")


def table(counts: dict[str, Counter[str]]) -> str:
    """A row for each suite, a column for each class."""
    lines = ["| tests | programs | " + " | ".join(CLASSES) + " |", "| --- " + "| ---: " * (len(CLASSES) + 1) + "|"]
    for suite, count in counts.items():
        numbers = [sum(count.values()), *(count[kind] for kind in CLASSES)]
        lines.append(f"| {suite} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
