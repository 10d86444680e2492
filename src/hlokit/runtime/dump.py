"""Dumps: the stages of each compiled program, as files with XLA's names.

HLOKIT_DUMP_TO  the folder
XLA_FLAGS       --xla_dump_to=DIR the same ("-" is standard output); --xla_dump_hlo_pass_re=REGEX: the module after each
                pass of such a name that changed it; --xla_dump_hlo_as_text, --xla_dump_hlo_as_proto: the forms of
                modules, text if none is named (protos need protobuf); --xla_disable_hlo_passes=NAME,...: these are left
                out. A value that does not begin with "-" names a file of flags. Of other flags the log says that they
                are ignored

Both are read when a program is compiled.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hlokit.errors import HlokitError
from hlokit.runtime.log import logger

if TYPE_CHECKING:
    from hlokit.cpu.compiler import Program
    from hlokit.cpu.target import Target
    from hlokit.hlo.module import HloModule
    from hlokit.passes.pipeline import PassLike
    from hlokit.runtime.executable import Executable

_LONGEST_NAME = 100
"""Characters of a module's name in a file's, which may have 255 in all."""
_numbers = itertools.count()
_warned: set[str] = set()


@dataclass(frozen=True)
class Settings:
    """folder: where to ("-": standard output), empty for nowhere; passes: after which to dump; disabled: not to run.

    text, proto: in which forms modules are written.
    """

    folder: str = ""
    passes: str = ""
    disabled: tuple[str, ...] = ()
    text: bool = True
    proto: bool = False


_NONE = Settings()


def settings() -> Settings:
    """As the environment has it now. Raises HlokitError for a regular expression or a quotation that is none."""
    text, folder = os.environ.get("XLA_FLAGS", ""), os.environ.get("HLOKIT_DUMP_TO", "")
    if not text and not folder and not _given.get():
        return _NONE
    found = {**_flags(text), **(_given.get() or {})}
    from hlokit.passes.pipeline import pass_name

    disabled = tuple(pass_name(name) for name in found.get("xla_disable_hlo_passes", "").split(",") if name)
    pattern = found.get("xla_dump_hlo_pass_re", "")
    try:
        re.compile(pattern)
    except re.error as error:
        raise HlokitError(f"XLA_FLAGS: --xla_dump_hlo_pass_re={pattern}: {error}") from None
    proto = _is_set(found.get("xla_dump_hlo_as_proto", "false"))
    as_text = _is_set(found.get("xla_dump_hlo_as_text", "false" if proto else "true"))
    return Settings(folder or found.get("xla_dump_to", ""), pattern, disabled, as_text, proto)


def host_device_count() -> int:
    """--xla_force_host_platform_device_count of XLA_FLAGS, 1 without it. Raises HlokitError for what is not a count."""
    text = _flags(os.environ.get("XLA_FLAGS", "")).get(_DEVICES, "1")
    if not text.isdecimal() or not int(text):
        raise HlokitError(f"XLA_FLAGS: --{_DEVICES}={text}: expected a number of devices, 1 or more")
    return int(text)


def _is_set(value: str) -> bool:
    """A boolean flag; one without a value is true."""
    return value.lower() not in ("false", "0")


_given: ContextVar[Mapping[str, str] | None] = ContextVar("_given", default=None)


@contextmanager
def flags(given: Mapping[str, str]) -> Generator[None]:
    """Inside, `settings` has these flags too, before those of XLA_FLAGS."""
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


_KNOWN = (
    "xla_dump_to",
    "xla_dump_hlo_pass_re",
    "xla_disable_hlo_passes",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
)
_DEVICES = "xla_force_host_platform_device_count"
"""The flag that JAX's platform reads too."""


def _flags(text: str) -> dict[str, str]:
    """The flags that hlokit knows. Warns, once each, of the others."""
    if text.strip() and not text.lstrip().startswith("-"):
        try:
            text = Path(text.strip()).read_text(encoding="utf-8")
        except OSError as error:
            _warn(text, f"XLA_FLAGS names a file of flags: {error}")
            return {}
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise HlokitError(f"XLA_FLAGS: {text}: {error}") from None
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if name in _KNOWN or name == _DEVICES:
            found[name] = value
        else:
            _warn(name, f"XLA_FLAGS: --{name} is ignored")
    return found


def _warn(key: str, message: str) -> None:
    if key not in _warned:
        _warned.add(key)
        logger().warning("%s", message)


# -- compiling


def compiled(
    module: HloModule,
    target: Target,
    *,
    strict: bool,
    donated: Sequence[int],
    memory_limit: int | None = None,
    settings: Settings,
    dump: Dump | None,
) -> Program:
    """As compile_program, with passes left out and dumps made as the settings ask."""
    from hlokit.cpu.compiler import EXACT, PIPELINE, compile_program
    from hlokit.passes.pipeline import optimize

    compiles = partial(compile_program, strict=strict, donated=donated, memory_limit=memory_limit)
    if settings == _NONE:
        return compiles(module, target)
    passes = left_in(settings, EXACT if strict else PIPELINE)
    observe = None
    if dump is not None and settings.passes:
        observe = _Passes(dump, settings.passes, [*map(_name, passes)], module.to_text())
    module = optimize(module, passes, observe=observe)
    return compiles(module, target, optimised=True)


def left_in(settings: Settings, passes: Sequence[PassLike]) -> list[PassLike]:
    """The passes that the settings do not leave out."""
    return [one for one in passes if _name(one) not in settings.disabled]


def _name(one: PassLike) -> str:
    return one if isinstance(one, str) else getattr(one, "name", "") or getattr(one, "__name__", type(one).__name__)


class _Passes:
    """Dumps the module after passes: each file is named by the pass before it and the pass after it."""

    def __init__(self, dump: Dump, pattern: str, names: Sequence[str], text: str) -> None:
        self.dump = dump
        self.pattern = re.compile(pattern)
        self.names = [*names, "pipeline-end"]
        self.text = text
        self.at = 0
        self.count = 0

    def __call__(self, name: str, module: HloModule) -> None:
        self.at += 1
        text = module.to_text()
        if text != self.text and self.pattern.search(name):
            self.dump.write(f"{self.count:04}.HLO_passes.after_{name}.before_{self.names[self.at]}.txt", text)
            self.count += 1
        self.text = text


class Dump:
    """The files of one program: module_0000.NAME.*; the number counts the process's programs."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings, self.folder = settings, settings.folder
        cleaned = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:_LONGEST_NAME]
        self.stem = f"module_{next(_numbers):04}.{cleaned}"

    def write(self, suffix: str, content: str | bytes) -> None:
        """One file. Never raises: a dump that cannot be written is said once."""
        name = f"{self.stem}.{suffix}"
        if self.folder == "-":
            if isinstance(content, str):
                sys.stdout.write(f"*** Begin {name} ***\n{content}*** End {name} ***\n")
            return
        path = Path(self.folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            _warn(self.folder, f"cannot dump: {error}")

    def source(self, module: HloModule) -> None:
        self._module("before_optimizations", module)

    def _module(self, stage: str, module: HloModule) -> None:
        if self.settings.text:
            self.write(f"{stage}.txt", module.to_text())
        if self.settings.proto:
            from hlokit.proto.module import hlo_proto

            self.write(f"{stage}.hlo.pb", hlo_proto(module))

    def results(self, executable: Executable) -> None:
        """Writes the stages of what was made of it."""
        from hlokit.runtime.inspection import memory_text, stage_text

        program, target, plan = executable.program, executable.target, executable.plan
        self._module("cpu_after_optimizations", program.module)
        self.write("cpu_after_optimizations-memory-usage-report.txt", memory_text(executable.memory_analysis()))
        self.write("loops.txt", stage_text(program, target, "loops"))
        self.write("ir-no-opt.ll", program.text)
        self.write("ir-with-opt.ll", stage_text(program, target, "llvm-opt"))
        self.write("s", stage_text(program, target, "asm"))
        for number, code in enumerate(plan.objects):
            self.write("o" if number == 0 else f"{number}.o", bytes(code))


