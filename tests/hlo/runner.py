"""Checks a `.hlo` file: an HLO program whose line comments say what is expected of it.

    // A sum with zero is its other operand.
    // passes: algsimp
    // argument: s32[2] {3, 4}
    // TEXT: ROOT %x = s32[2]{0} parameter(0)
    // TEXT-NOT: add(
    // RESULT: s32[2] {3, 4}
    ENTRY e { ... }

A comment whose first word ends in a colon is a directive. Those in small letters are settings:

    passes     names for TEXT and for the engine `passes`, in place of the whole pipeline
    argument   a literal after its shape, for each parameter in order
    engines    those that RESULT and ERROR are for where they name none: reference, passes, compiled, strict
    target     the processor of LOOPS, LLVM and ASM (hlokit.cpu.target)
    tolerance  of results, relative; without it every bit counts, of a NaN only that it is one
    rule       labels of the rules that the file tests

Those in capitals are checks:

    TEXT              the module as text: after `passes`, else as it was parsed
    LOOPS LLVM ASM    the listings of `hlokit compile --emit`; LOOPS[strict] of strict mode
    RESULT            a literal after its shape; a tuple has a line for each array in it
    ERROR             the type and the message of the error in which parsing or, if that succeeds, running ends

All but RESULT are checks of the program filecheck, with its suffixes (TEXT-NEXT, TEXT-NOT, TEXT-DAG, ...), {{patterns}}
and [[VARIABLES]]. RESULT[compiled,strict] and ERROR[reference] are for these engines; `jaxlib` is XLA by jaxlib, and takes
part only where it is named.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

import hlokit as hk
from hlokit.errors import HlokitError
from hlokit.text.literals import parse_literal
from hlokit.text.numbers import array_text
from tests.fuzz.properties import leaves
from tests.golden.compare import compare

SETTINGS = ("passes", "argument", "engines", "target", "tolerance", "rule")
LISTINGS = ("LOOPS", "LLVM", "ASM")
CHECKS = ("TEXT", *LISTINGS, "RESULT", "ERROR")
HLOKIT = ("reference", "passes", "compiled", "strict")
ENGINES = (*HLOKIT, "jaxlib")

_DIRECTIVE = re.compile(r"//\s*([A-Za-z]\w*)(-[A-Z]+(?:-\d+)?)?(?:\[([^\]]*)\])?(\{LITERAL\})?:(.*)")
_SUFFIXES = re.compile(r"-(NEXT|NOT|SAME|DAG|LABEL|EMPTY|COUNT-[1-9]\d*)")


class Unmet(AssertionError):
    """An expectation that does not hold, or a file that is not written as it should be."""


@dataclass(frozen=True)
class Directive:
    """A directive: its word, suffix ("-NOT" or ""), the engines in its brackets, its text, the number of its line."""

    word: str
    suffix: str
    engines: tuple[str, ...]
    literal: str
    text: str
    line: int


class Program:
    """A file's text and its directives. Raises Unmet for directives that cannot be."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.directives = [d for n, line in enumerate(text.splitlines(), 1) for d in _directive(line.strip(), n)]
        self.used = {"rule"}
        self.engines = tuple(self.words("engines")) or HLOKIT
        for unknown in {*self.engines} - {*ENGINES}:
            raise Unmet(f"engines: {unknown!r} is not one of {', '.join(ENGINES)}")
        if not self.checks():
            raise Unmet("nothing is expected: there is no check")
        for word in {d.word for d in self.checks()}:
            if all(d.suffix == "-NOT" for d in self.checks(word)):
                raise Unmet(f"{word}-NOT alone would hold for an empty text")

    def checks(self, *words: str) -> list[Directive]:
        return [d for d in self.directives if d.word in (words or CHECKS)]

    def setting(self, word: str) -> list[str]:
        """The texts of a setting's lines, which counts as used from now on."""
        self.used.add(word)
        return [d.text for d in self.directives if d.word == word]

    def words(self, word: str) -> list[str]:
        return [name.strip() for text in self.setting(word) for name in text.split(",")]

    def one(self, word: str) -> str | None:
        texts = self.setting(word)
        if len(texts) > 1:
            raise Unmet(f"{word}: is given {len(texts)} times")
        return texts[0] if texts else None

    def expected(self, word: str, engine: str) -> list[Directive]:
        """The checks of this word for an engine."""
        return [d for d in self.checks(word) if engine in (d.engines or self.engines)]


def _directive(line: str, number: int) -> list[Directive]:
    found = _DIRECTIVE.fullmatch(line)
    if found is None:
        return []
    word, suffix, engines, literal, text = found[1], found[2] or "", found[3], found[4] or "", found[5].strip()
    if word not in SETTINGS + CHECKS:
        raise Unmet(f"line {number}: {word!r} is not a directive: {', '.join(SETTINGS + CHECKS)}")
    names = tuple(name.strip() for name in engines.split(",")) if engines is not None else ()
    allowed = ENGINES if word in ("RESULT", "ERROR") else ("strict",) if word in LISTINGS else ()
    if any(name not in allowed for name in names):
        raise Unmet(f"line {number}: {word}[{engines}] is not of one of {', '.join(allowed) or 'no engines'}")
    if suffix and (word in (*SETTINGS, "RESULT") or not _SUFFIXES.fullmatch(suffix)):
        raise Unmet(f"line {number}: {word}{suffix} is not a directive")
    if not text and suffix != "-EMPTY":
        raise Unmet(f"line {number}: {word}{suffix} says nothing")
    return [Directive(word, suffix, names, literal, text, number)]


def check(program: Program) -> None:
    """Raises Unmet for the first expectation that does not hold."""
    try:
        module = hk.parse(program.text)
    except HlokitError as error:
        _refused(program, error)
        return
    if program.checks("TEXT"):
        names = program.words("passes")
        after = hk.optimize(module, names, verify_each=True) if names else module
        matched(str(after), program.checks("TEXT"))
    for word in LISTINGS:
        for strict in (False, True):
            checks = [d for d in program.checks(word) if bool(d.engines) is strict]
            if checks:
                target = program.one("target")
                if target is None:
                    raise Unmet(f"{word}: needs a `target:`, as the listing hangs on it")
                compiled = hk.compile(module, target=target, threads=2, strict=strict)
                matched(compiled.as_text(word.lower()), checks)
    if program.checks("RESULT", "ERROR"):
        for engine in ENGINES:
            _run(program, module, engine)
    for unused in {d.word for d in program.directives if d.word in SETTINGS} - program.used:
        raise Unmet(f"`{unused}:` is for no check of this file")


def _refused(program: Program, error: HlokitError) -> None:
    """The program was not read: that must be all that is expected."""
    if len(program.checks("ERROR")) < len(program.checks()):
        raise Unmet(f"the program is refused: {_told(error)}") from error
    for unused in {d.word for d in program.directives} - {"ERROR", "rule"}:
        raise Unmet(f"`{unused}:` is for no check of this file: the program is refused")
    matched(_told(error), program.checks("ERROR"))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _run(program: Program, module: hk.HloModule, engine: str) -> None:
    results, errors = program.expected("RESULT", engine), program.expected("ERROR", engine)
    if engine == "jaxlib" and not any(engine in d.engines for d in errors):
        errors = []
    if not results and not errors:
        return
    arguments = [_value(text) for text in program.setting("argument")]
    refusals = Exception if engine == "jaxlib" else HlokitError
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            got = _engine(engine, program)(module, arguments)
    except refusals as error:
        if not errors:
            raise Unmet(f"{engine}: {_told(error)}") from error
        matched(_told(error), errors)
        return
    if errors:
        raise Unmet(f"line {errors[0].line}: {engine} raises no error, and gives {_written(got)}")
    _same(program, engine, results, got)


def _engine(engine: str, program: Program) -> Callable[[hk.HloModule, Sequence[Any]], Any]:
    return {
        "reference": lambda module, arguments: hk.evaluate(module, *arguments),
        "passes": lambda module, arguments: hk.evaluate(hk.optimize(module, program.words("passes") or None), *arguments),
        "compiled": lambda module, arguments: hk.compile(module)(*arguments),
        "strict": lambda module, arguments: hk.compile(module, strict=True)(*arguments),
        "jaxlib": lambda module, arguments: on_jaxlib(program.text, arguments),
    }[engine]


def on_jaxlib(text: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What XLA gives, by jaxlib in this process; the test is skipped where jaxlib cannot read HLO text."""
    hlo = pytest.importorskip("jaxlib._hlo")
    import jax
    from jaxlib import xla_client

    proto = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    client = jax.devices("cpu")[0].client
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    portable = xla_client._xla.mlir.hlo_to_stablehlo(proto)
    with jax.enable_x64(True):
        given = [jax.device_put(a) for a in arguments]
    results = client.compile_and_load(portable, devices, xla_client.CompileOptions()).execute_sharded(given)
    return tuple(np.asarray(part[0]) for part in results.disassemble_into_single_device_arrays())


def _same(program: Program, engine: str, expected: list[Directive], got: Any) -> None:
    tolerance = program.one("tolerance")
    how = {"class": "close", "rtol": float(tolerance), "atol": 0.0} if tolerance else {"class": "bits"}
    arrays = [np.asarray(array) for array in leaves(got)]
    if len(arrays) != len(expected):
        raise Unmet(f"{engine} gives {len(arrays)} arrays, expected were {len(expected)}: {_written(got)}")
    for directive, array in zip(expected, arrays, strict=True):
        difference = compare(array, np.asarray(_value(directive.text)), how)
        if difference is not None:
            raise Unmet(f"line {directive.line}: {engine} gives {_literal(array)}: {difference}")


def _value(text: str) -> Any:
    """The array that a literal says, with its shape in front: "s32[2] {1, 2}"."""
    shape, _, value = text.partition(" ")
    return parse_literal(value, hk.parse_shape(shape)).value


def _written(value: Any) -> str:
    return ", ".join(_literal(np.asarray(array)) for array in leaves(value))


def _literal(array: np.ndarray[Any, Any]) -> str:
    dtype = hk.dtype(array.dtype)
    return f"{dtype}[{','.join(map(str, array.shape))}] {array_text(array, dtype)}"


def matched(text: str, checks: list[Directive]) -> None:
    """Raises Unmet with filecheck's account of it if the text does not hold what these checks, of one word, expect."""
    lines: list[str] = []
    for check in checks:
        lines += [""] * (check.line - len(lines) - 1) + [f"{check.word}{check.suffix}{check.literal}: {check.text}"]
    options = Options("the file", check_prefixes=[checks[0].word])
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        parser = Parser(options, io.StringIO("\n".join(lines) + "\n"), *pattern_for_opts(options))
        status = Matcher(options, FInput("the text", text.rstrip("\n") + "\n"), parser).run()
    if status:
        raise Unmet(f"{said.getvalue().strip()}\nThe text:\n{text}")
