"""The functions of the facade that take or return whole modules, and those that register machine code for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from hlokit.devices.evaluate import evaluate
from hlokit.devices.mpmd import evaluate_mpmd
from hlokit.errors import ArgumentError, HlokitError, ParseError, UnsupportedError
from hlokit.files.reading import module_of_bytes, module_of_text, snapshot_of_bytes
from hlokit.forks import unforked
from hlokit.hlo.module import HloModule, check_is_module
from hlokit.interpreter.checks import device_counts
from hlokit.memory import check_arrays_by, named, uncollected
from hlokit.passes.pipeline import optimize
from hlokit.rules import Rule, rules
from hlokit.stack import with_stack
from hlokit.tracebacks import public
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.cpu.target import Target
    from hlokit.debugger.debugger import Debugger
    from hlokit.devices.processes.world import World
    from hlokit.judge.compare.comparing import Comparison
    from hlokit.judge.conform.conforming import Conformance
    from hlokit.judge.diff.differences import ModuleDiff
    from hlokit.judge.engines.engine import Engine
    from hlokit.judge.fuzz.campaign import Campaign
    from hlokit.judge.reduce.search import Reduction, Step
    from hlokit.passes.partitioner import Partitioned
    from hlokit.proto.snapshot import Snapshot
    from hlokit.runtime.devices import DeviceExecutable
    from hlokit.runtime.executable import Executable
    from hlokit.types.mesh import Mesh
    from hlokit.types.sharding import Sharding

__all__ = [
    "compare_engines",
    "compile",
    "conform",
    "debug",
    "diff",
    "evaluate",
    "evaluate_mpmd",
    "explain",
    "export_object",
    "fuzz",
    "load",
    "load_snapshot",
    "mpi_world",
    "optimize",
    "parse",
    "parse_shape",
    "partition",
    "process_world",
    "reduce_module",
    "register_ffi_target",
    "register_ffi_type",
    "to_stablehlo",
    "to_stablehlo_artifact",
    "verify",
]


@public
@unforked
@uncollected
@with_stack
@named
def parse(
    text: str | bytes,
    *,
    arguments: Sequence[Shape] | None = None,
    verify: bool = True,
    keeps_regions: bool = False,
    entry: str | None = None,
) -> HloModule:
    """The module in HLO text, in StableHLO text, or in the bytes of a file of any kind that `load` reads.

    Every rule of the language is checked while reading.

    Parameters
    ----------
    text : str or bytes
        The text, or a file's content.
    arguments : sequence of Shape, optional
        The shapes of the entry's arguments, for StableHLO that leaves sizes open (`?`).
    verify : bool, optional
        Whether to check the rules. With False, HLO is read and printed exactly as it is written, even if operands and
        shapes are inconsistent. `hk.verify` then finds everything that is wrong; functions that run or change modules
        call it first.
    keeps_regions : bool, optional
        Whether the manual regions of StableHLO (`shard_map`) are kept as regions between the custom calls
        SPMDFullToShardShape and SPMDShardToFullShape, for `hk.partition`. By default each device runs the whole program
        and takes its shards of whole values in regions; such a module can be run directly.
    entry : str, optional
        The function of StableHLO that is the program; by default `main`, or the only public function.

    Returns
    -------
    HloModule
        The module.

    Raises
    ------
    ParseError
        The text is not a module, or breaks a rule. The error has the line, the column and the rule's label (for an
        artifact, a byte position).
    UnsupportedError
        The program has parts of StableHLO that HLO or hlokit lacks.
    ArgumentError
        `arguments` do not match the entry, there is no function `entry`, or `text` is neither str nor bytes.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> hk.evaluate(module, [1.0, -2.0])
    array([-1.,  2.], dtype=float32)
    """
    if isinstance(text, bytes):
        return module_of_bytes(text, arguments, verify=verify, keeps_regions=keeps_regions, entry=entry)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"parse: found {type(text).__name__}, expected str or bytes: hlokit.load reads files")
    return module_of_text(text, arguments, verify, keeps_regions, entry)


@public
@unforked
@with_stack
@named
def load(
    path: str | Path,
    *,
    arguments: Sequence[Shape] | None = None,
    verify: bool = True,
    keeps_regions: bool = False,
    entry: str | None = None,
) -> HloModule:
    """The module in a file. The kind of the file is detected from its content; it may be compressed with gzip.

    These kinds are read: HLO text; StableHLO text; a StableHLO artifact (MLIR bytecode); a program that JAX exported
    (`Exported.serialize`); HloModuleProto; HloProto (XLA's dumps, `.hlo.pb`); HloSnapshot and HloUnoptimizedSnapshot,
    whose arguments `load_snapshot` also returns; these messages in protobuf's text format (`.pbtxt`).

    Parameters
    ----------
    path : str or Path
        The file.
    arguments : sequence of Shape, optional
        The shapes of the entry's arguments, for StableHLO that leaves sizes open (`?`).
    verify : bool, optional
        Whether to check the rules of the language while reading, as for `parse`.
    keeps_regions : bool, optional
        Whether the manual regions of StableHLO are kept, for `hk.partition`, as for `parse`.
    entry : str, optional
        The function of StableHLO that is the program, as for `parse`.

    Returns
    -------
    HloModule
        The module.

    Raises
    ------
    OSError
        The file cannot be read.
    ParseError
        The file holds no program of these kinds (HLO text, StableHLO, protos), or one with an error; the message names
        the kind of the file, if that is recognised.
    UnsupportedError
        The program has parts of StableHLO that HLO or hlokit lacks.
    ArgumentError
        `arguments` do not match the entry, or there is no function `entry`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "negate.hlo")
    ...     size = path.write_text("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    ...     hk.load(path)
    <HloModule m: (f32[2]) -> f32[2], 1 computation>
    """
    with _of_file(path):
        return module_of_bytes(Path(path).read_bytes(), arguments, Path(path).name, verify, keeps_regions, entry)


@public
@unforked
@with_stack
@named
def load_snapshot(path: str | Path) -> Snapshot:
    """A program with the arguments with which it was called, from a file written by XLA.

    XLA writes them with `--xla_dump_hlo_snapshots` (HloSnapshot, which has the result too) and
    `--xla_dump_hlo_unoptimized_snapshots`.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Snapshot
        The module, the arguments for each device, the result if the file contains it, and the platform's name.

    Raises
    ------
    OSError
        The file cannot be read.
    ParseError
        The file is not a snapshot.

    Examples
    --------
    >>> s = hk.load_snapshot("dump/module_0000.jit_f.snapshot.1480341154.pb")  # doctest: +SKIP
    >>> hk.evaluate(s.module, *s.arguments[0]), s.result  # doctest: +SKIP
    """
    with _of_file(path):
        found = snapshot_of_bytes(data := Path(path).read_bytes())
        if found is None:
            module_of_bytes(data, name=Path(path).name)
            raise ParseError("found a program without arguments, expected a HloSnapshot or a HloUnoptimizedSnapshot")
        return found


@contextmanager
def _of_file(path: str | Path) -> Generator[None, None, None]:
    """Errors begin with the file's name."""
    try:
        yield
    except HlokitError as error:
        error.file = str(path)
        raise


@public
@with_stack
def parse_shape(text: str) -> Shape:
    """The shape in a text, in the syntax of HLO text: "(f32[2,<=3]{0,1}, token[])".

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    Shape
        The shape.

    Raises
    ------
    ParseError
        The text is not a shape.

    Examples
    --------
    >>> hk.parse_shape("(f32[2,<=3], token[])").elements
    (f32[2,<=3], token[])
    """
    from hlokit.text.shapes import parse_shape

    return parse_shape(text)


@public
@with_stack
def diff(a: HloModule, b: HloModule, *, ignore: Collection[str] = ("names", "metadata")) -> ModuleDiff:
    """Compares two modules, regardless of the order of their instructions and computations.

    Instructions correspond if they compute the same value; otherwise they are matched by their neighbours, opcode,
    attributes, shape and name. A change is reported at the instruction that was changed, and not at those that depend
    on it.

    Parameters
    ----------
    a, b : HloModule
        The modules.
    ignore : collection of str, optional
        The kinds of differences to ignore: "names", "metadata", "layouts" and "shardings".

    Returns
    -------
    ModuleDiff
        `is_equal`, the pairs of instructions with their changes, and the whole as text, JSON or a page.

    Raises
    ------
    ArgumentError
        `ignore` contains another word, or an argument is not a module.

    Examples
    --------
    >>> a = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> b = hk.parse("HloModule m\\nENTRY e { p = f32[2] parameter(0) ROOT q = f32[2] negate(p) }")
    >>> hk.diff(a, b).is_equal, hk.diff(a, b, ignore=()).is_equal
    (True, False)
    """
    from hlokit.judge.diff.differences import diff

    return diff(a, b, ignore)


@public
@with_stack
def debug(
    module: HloModule | Executable,
    *args: Any,
    infeed: Any = (),
    seed: int = 0,
    replicas: int | None = None,
    partitions: int | None = None,
    memory_limit: int | None = None,
    from_host: Any = None,
) -> Debugger:
    """Starts a run of a program on the reference interpreter that can stop anywhere and step backwards.

    To step backwards it runs again from a saved state; calls of the host, such as a Python callback, are then repeated.

    Parameters
    ----------
    module : HloModule or Executable
        The program. A compiled one is run once with each kernel compared with the reference (as with `shadow=True`);
        the debugger then stops before the instruction of the original program whose machine code is wrong, and
        `parting` describes the difference.
    args : array_like
        One for each parameter, as for `hk.evaluate`; for several devices one list for each.
    infeed : iterable, optional
        The values that infeed instructions read; for several devices one for each.
    seed : int, optional
        The seed of the program's own random numbers.
    replicas, partitions : int, optional
        The numbers of replicas and partitions; by default the module's own.
    memory_limit : int, optional
        Limit, in bytes, of the arrays that saved states keep alive and of values that no later instruction uses; by
        default a quarter of the machine's memory. With less memory, stepping backwards takes longer.
    from_host : dict, optional
        The values that host transfers receive, by channel; for several devices one for each.

    Returns
    -------
    Debugger
        The debugger, stopped before the program's first instruction.

    Raises
    ------
    ArgumentError
        Arguments do not match the parameters.
    UnsupportedError
        The module cannot be run in this way, or a compiled program is for several devices or has dynamic dimensions.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) y = f32[2] log(x) ROOT z = f32[2] sqrt(y) }")
    >>> d = hk.debug(module, [0.5, 1.0])
    >>> print(d.run("nan"))
    1 NaN in %z, none in its operands
    >>> d.back().kind, d.operands("z")
    ('step', [(<y: f32[2] log>, array([-0.6931472,  0.       ], dtype=float32))])
    """
    if not isinstance(module, HloModule):
        from hlokit.debugger.compiled import debug_compiled

        if infeed or from_host or replicas is not None or partitions is not None:
            raise ArgumentError("debug: infeed, from_host, replicas and partitions are for modules")
        return debug_compiled(module, args, seed=seed, memory_limit=memory_limit)
    from hlokit.debugger.debugger import Debugger

    return Debugger(
        module, args, infeed=infeed, seed=seed, replicas=replicas, partitions=partitions, memory_limit=memory_limit,
        from_host=from_host,
    )  # fmt: skip


@public
@with_stack
def compare_engines(
    module: HloModule,
    *args: Any,
    engines: Sequence[str | Callable[..., Any] | Engine] = ("passes", "compiled", "strict"),
    seconds: float = 60.0,
    memory: int = 0,
    bisect: bool = True,
    verdict_seconds: float = math.inf,
) -> Comparison:
    """Runs a program on several engines, each in a separate process, and judges their results against the reference.

    A result with the same bits as the reference's is correct. A different result is allowed if rounding explains the
    difference. To determine the effect of rounding, the reference runs again and changes each instruction's result by
    an error that its op may have. For a wrong result, the first instruction whose value is wrong for its operands is
    searched.

    Parameters
    ----------
    module : HloModule
        A program. jaxlib's engines and commands run programs for one device.
    args : array_like
        One for each parameter, as for `hk.evaluate`; for several devices a list for each.
    engines : sequence of str, function or Engine, optional
        Engines, each by its name, by a command that runs it, or as a function. The names are "passes" (the reference
        after the passes), "compiled", "compiled-1" (on one thread), "strict", "jaxlib" (XLA's CPU client in this
        Python), "jaxlib@PYTHON" (in another Python), "jaxlib:FLAGS" (with these XLA_FLAGS) and "pjrt/NAME" (a PJRT
        plugin that JAX knows by this name). A command contains `{hlo}`, `{inputs}` and `{outputs}`: the paths of a
        HloProto, of an .npz with in0, in1, ..., and of the .npz with out0, out1, ... that it must write. A function is
        called in this process with the module and its arguments, and returns an array or a tuple of arrays.
    seconds : float, optional
        The time limit of a run, after which it counts as failed.
    memory : int, optional
        Limit, in bytes, of the address space of an engine's process; 0: no limit.
    bisect : bool, optional
        Whether to search for the instruction or the pass that makes a result wrong.
    verdict_seconds : float, optional
        The time limit of the reference's runs that a verdict needs, after which it is "undecided". No limit by default.

    Returns
    -------
    Comparison
        With `judgements`, one for each engine, with verdict and reasons, and `is_equal`.

    Raises
    ------
    ArgumentError
        An engine does not exist, or arguments do not match the parameters.
    EvaluationError
        The reference itself cannot run the program.

    Examples
    --------
        >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        >>> print(hk.compare_engines(module, [1.0, 2.0], engines=["strict"]))
        strict: equal
    """
    from hlokit.judge.compare.comparing import compare_engines

    return compare_engines(
        module, args, engines, seconds=seconds, memory=memory, bisect=bisect, verdict_seconds=verdict_seconds
    )


@public
@with_stack
def fuzz(
    count: int,
    engines: Sequence[str | Callable[..., Any] | Engine] = ("passes", "compiled", "strict"),
    *,
    seed: int = 0,
    ops: Collection[str] | Mapping[str, int] | None = None,
    types: Sequence[str] | None = None,
    modules: Sequence[HloModule] = (),
    mutate: Sequence[HloModule] = (),
    shardings: bool = False,
    collectives: bool = False,
    folder: str | Path | None = None,
    seconds: float = 60.0,
    reduce_seconds: float = 30.0,
) -> Campaign:
    """Runs random programs on engines and judges their results against the reference, as `hk.compare_engines` does.

    Without `ops`, `types` and `modules`, programs resemble those that compilers encounter: loops, reductions, matrix
    products, data movement. The same seed always gives the same program.

    Parameters
    ----------
    count : int
        The number of programs.
    engines : sequence of str, function or Engine, optional
        As for `hk.compare_engines`.
    seed : int, optional
        The seed of the first program; each following one has the next seed.
    ops : collection of str or mapping of str to int, optional
        The opcodes to use; a mapping also gives a weight for each.
    types : sequence of str, optional
        The names of the element types to use.
    modules : sequence of HloModule, optional
        Programs to start from: random ops are added to copies of them.
    mutate : sequence of HloModule, optional
        Programs to mutate: ops, operands and sizes are changed, a few at a time.
    shardings : bool, optional
        Whether to give arrays random shardings on a mesh, for the engines "partitioned" and "partitioned-compiled".
    collectives : bool, optional
        Whether programs are for 2 to 8 devices, with collectives. Findings of these are not reduced.
    folder : path, optional
        A folder for the smallest program of each cause, its arguments and a report; an interrupted campaign continues
        from it.
    seconds : float, optional
        The time limit of a run.
    reduce_seconds : float, optional
        The time limit of the reduction of a finding.

    Returns
    -------
    Campaign
        With `verdicts`, the number of times that each engine got each verdict, and `findings` by cause.

    Raises
    ------
    ArgumentError
        An engine, an op or a type does not exist, or a number is out of range.

    Examples
    --------
    >>> found = hk.fuzz(2, engines=["strict"], ops=["add", "negate"], types=["f32"])
    >>> found.verdicts, found.findings
    (Counter({'strict: equal': 2}), {})
    """
    from hlokit.judge.fuzz.campaign import fuzz
    from hlokit.judge.fuzz.graph import Options

    usual = ("pred", "s8", "s32", "s64", "u8", "u32", "bf16", "f16", "f32", "f64", "c64")
    options = None
    if ops is not None or types is not None:
        options = Options(
            opcodes=None if ops is None else frozenset(ops), types=usual if types is None else tuple(types),
            weights=tuple(cast("Mapping[str, int]", ops).items()) if isinstance(ops, Mapping) else (),
            dynamic=False, layouts=False, wild=0.05, denormals=False, identities=True,
        )  # fmt: skip
    where = None if folder is None else Path(folder)
    return fuzz(
        count, engines, seed=seed, options=options, modules=modules, mutate=mutate, shardings=shardings,
        collectives=collectives, folder=where, seconds=seconds, reduce_seconds=reduce_seconds,
    )  # fmt: skip


@public
@with_stack
def conform(
    engine: str | Callable[..., Any] | Engine = "compiled",
    *,
    rules: Sequence[str] | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    folder: str | Path | None = None,
) -> Conformance:
    """Runs the conformance suite on an engine: recorded programs with the values that the rules of the language give.

    Each case names the rules that a wrong value would break. It passes if the engine's result has the recorded bits or
    differs only as rounding or a rule allows, as in `hk.compare_engines`.

    Parameters
    ----------
    engine : str, function or Engine, optional
        As for `hk.compare_engines`.
    rules : sequence of str, optional
        Labels of rules, or prefixes of labels ("REDUCE"): only the cases of these rules are run.
    seconds : float, optional
        The time limit of a case.
    memory : int, optional
        Limit, in bytes, of the address space of the engine's process; 0: no limit.
    folder : path, optional
        A folder for the results of the cases; an interrupted run continues from them if it is called again.

    Returns
    -------
    Conformance
        With `by_rule`, the results of each rule's cases; `counts(label)`; `is_conforming`; `to_html()`, `to_junit()`,
        `to_json()`.

    Raises
    ------
    ArgumentError
        An engine or a rule does not exist, the suite has no case of the rules, or the folder has results of another
        engine or of another version of the suite.

    Examples
    --------
    >>> report = hk.conform("strict", rules=["CLAMP-7"])
    >>> report.counts("CLAMP-7")["failed"]
    0
    """
    from hlokit.judge.conform.conforming import conform

    place = None if folder is None else Path(folder)
    return conform(engine, rules=rules, seconds=seconds, memory=memory, folder=place)


@public
@with_stack
def reduce_module(
    module: HloModule,
    is_bad: Callable[..., bool],
    arguments: Sequence[Any] | None = None,
    *,
    time_limit: float | None = None,
    on_step: Callable[[Step, HloModule, list[Any] | None], None] | None = None,
) -> Reduction:
    """Searches for the smallest program that still shows a fault.

    Removes results, replaces values by parameters or constants, bypasses instructions, inlines calls, branches and
    iterations of loops, shrinks dimensions and drops attributes, until no further change keeps the fault. Every program
    is verified before it is tried. The module is not changed.

    Parameters
    ----------
    module : HloModule
        A program that shows the fault.
    is_bad : callable
        Returns whether a program shows the fault. It is called with a module, and with its arguments if any are given.
        An exception ends the reduction.
    arguments : sequence of array_like, optional
        The arguments with which the fault occurs; a parameter that replaces a value is given that value.
    time_limit : float, optional
        Seconds after which the smallest program so far is returned.
    on_step : callable, optional
        Called after each edit that kept the fault, with the edit, the module, and the arguments.

    Returns
    -------
    Reduction
        With `module`, `arguments`, `steps`, `tries`, and `is_complete`.

    Raises
    ------
    ArgumentError
        The module does not show the fault, or the time limit is not greater than 0.

    Examples
    --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[64])
        >>> module = b.build(hk.exp(hk.log(hk.abs(x) + 1.0)) * 2.0)
        >>> found = hk.reduce_module(module, lambda m: any(i.opcode == "log" for i in m.instructions()))
        >>> [i.opcode for i in found.module.entry.instructions]
        ['parameter', 'log']
    """
    from hlokit.judge.reduce.search import reduce_module

    check_is_module(module)
    return reduce_module(module, is_bad, arguments, time_limit, on_step)


@public
@with_stack
def to_stablehlo(module: HloModule) -> str:
    """`module` as StableHLO text that jaxlib reads.

    Parameters
    ----------
    module : HloModule
        The program.

    Returns
    -------
    str
        The text of an MLIR module.

    Raises
    ------
    UnsupportedError
        StableHLO cannot express an instruction, which the message names.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> print(hk.to_stablehlo(module).strip())
    module @m attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
      func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {
        %0 = stablehlo.negate %x : tensor<2xf32>
        return %0 : tensor<2xf32>
      }
    }
    """
    from hlokit.passes.op_expander import OpExpander
    from hlokit.stablehlo.printer.mapping import RULES
    from hlokit.stablehlo.printer.module import stablehlo_text

    check_is_module(module)
    if any(i.op.form == "expand" and i.opcode not in RULES for i in module.instructions()):
        module = module.clone()
        OpExpander(keep=frozenset(RULES)).run(module)
    return stablehlo_text(module)


@public
@with_stack
@named
def to_stablehlo_artifact(program: HloModule | str, version: str = "1.17.0") -> bytes:
    """A program as a portable artifact of StableHLO: VHLO in MLIR bytecode.

    Text may leave sizes open (`?`). Only its syntax is checked, and not the rules that `parse` checks; names of values
    are lost.

    Parameters
    ----------
    program : HloModule or str
        A module, or StableHLO text.
    version : str, optional
        The version of StableHLO, "0.9.0" to "1.22.0". Readers of it and of later versions read the artifact; jaxlib
        0.10.2 reads "1.17.0".

    Returns
    -------
    bytes
        The artifact.

    Raises
    ------
    UnsupportedError
        StableHLO, or this version of it, cannot express an instruction.
    ParseError
        The text is not StableHLO.
    ArgumentError
        The version is not one.

    Examples
    --------
        >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        >>> hk.parse(hk.to_stablehlo_artifact(module)).name == module.name
        True

    Raises UnsupportedError, naming the operation, type or attribute, for what StableHLO cannot say, and for what
    `version` cannot, with the first version that can; ArgumentError for an unknown version; ParseError for other text.
    """
    from hlokit.stablehlo.artifact.writer import write_artifact

    return write_artifact(program if isinstance(program, str) else to_stablehlo(program), version)


@public
def explain(label: str) -> Rule:
    """The rule of the language with this label, as named in errors and docstrings.

    Parameters
    ----------
    label : str
        The rule's label, as "BCAST-3".

    Returns
    -------
    Rule
        The rule; `print` shows its text, kind and sources.

    Raises
    ------
    ArgumentError
        There is no such rule; the message lists rules with similar labels.

    Examples
    --------
        >>> print(hk.explain("BCAST-3"))
        BCAST-3 (Broadcasting; constraint)
        Different ranks, neither operand a scalar, and empty `broadcast_dimensions`: rejected.

    Raises ArgumentError for a label that the rule book does not have.
    """
    book = rules()
    if label.upper() not in book:
        from difflib import get_close_matches

        close = get_close_matches(label.upper(), book, 3)
        raise ArgumentError(f"no rule {label!r}" + (f"; did you mean {', '.join(close)}?" if close else ""))
    return book[label.upper()]


@public
@with_stack
def verify(module: HloModule) -> None:
    """Checks every rule of the language on a module.

    Parameters
    ----------
    module : HloModule
        The module.

    Raises
    ------
    VerifyError
        Rules are broken; `findings` has all of them.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> hk.verify(module)
    """
    from hlokit.hlo.verifier import verify

    check_is_module(module)
    verify(module)


@public
@unforked
@with_stack
@named
def partition(
    module: HloModule,
    mesh: Mesh | str | None = None,
    *,
    in_shardings: Sequence[Sharding | str | None] | None = None,
    out_shardings: Sequence[Sharding | str | None] | None = None,
) -> Partitioned:
    """Divides a program on whole values into one that each device of a mesh runs on its parts.

    Values are placed according to their shardings; values without one are placed like their operands. Collectives are
    inserted where necessary, each with its reason; an op that cannot run on parts runs on whole values.

    Parameters
    ----------
    module : HloModule
        A program of one replica, without collectives except in manual regions (StableHLO with such regions is read with
        `hk.parse(text, keeps_regions=True)`).
    mesh : Mesh or str, optional
        A `Mesh`, or its axes as "a=2,b=4"; by default the mesh that the module's shardings name, or a mesh with as many
        devices as their lists of devices, or with `num_partitions` devices.
    in_shardings : sequence of Sharding, str or None, optional
        For each parameter a sharding or None; these replace the shardings in the module.
    out_shardings : sequence of Sharding, str or None, optional
        For each array of the result.

    Returns
    -------
    Partitioned
        With `module` for a device, with `num_partitions` set, `reasons`, `in_shardings`, `out_shardings`, and the
        methods `split(*arguments)` and `join(results)`.

    Raises
    ------
    ShapeError
        The mesh does not match (PART-1), a list of devices does not follow its axes (PART-2), a sharding has another
        rank (PART-3), or an axis breaks a HMESH rule.
    UnsupportedError
        The program has collectives, manual axes, side effects, dynamic shapes or several replicas.
    ArgumentError
        The number of shardings is wrong, or neither `mesh` nor the module gives the devices.

    Examples
    --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[4, 2])
        >>> p = hk.partition(b.build(x * 2.0), "a=2", in_shardings=["{devices=[2,1]<=[2]}"])
        >>> p.module.entry.root.shape, p.reasons
        (f32[2,2], ())
        >>> p.join(hk.evaluate(p.module, *p.split(np.ones((4, 2), np.float32)))).shape
        (4, 2)
    """
    from hlokit.passes.partitioner import partition

    return partition(module, mesh, in_shardings, out_shardings)


@overload
def compile(  # pyright: ignore[reportOverlappingOverload]  # 1 is one of the ints of the others
    module: HloModule,
    backend: str = "cpu",
    *,
    threads: int | None = None,
    strict: bool = False,
    donate: Sequence[int] | None = None,
    target: str | Target | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    shadow: bool | str | Path = False,
    replicas: Literal[1] | None = None,
    partitions: Literal[1] | None = None,
) -> Executable: ...
@overload
def compile(
    module: HloModule,
    backend: str = "cpu",
    *,
    threads: int | None = None,
    strict: bool = False,
    donate: Sequence[int] | None = None,
    target: str | Target | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    shadow: bool | str | Path = False,
    replicas: int,
    partitions: int | None = None,
) -> DeviceExecutable: ...
@overload
def compile(
    module: HloModule,
    backend: str = "cpu",
    *,
    threads: int | None = None,
    strict: bool = False,
    donate: Sequence[int] | None = None,
    target: str | Target | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    shadow: bool | str | Path = False,
    replicas: int | None = None,
    partitions: int,
) -> DeviceExecutable: ...
@public
@unforked
@with_stack
@named
def compile(
    module: HloModule,
    backend: str = "cpu",
    *,
    threads: int | None = None,
    strict: bool = False,
    donate: Sequence[int] | None = None,
    target: str | Target | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    shadow: bool | str | Path = False,
    replicas: int | None = None,
    partitions: int | None = None,
) -> Executable | DeviceExecutable:
    """`module` as machine code, which is called with the arguments of `evaluate`.

    Parameters
    ----------
    module : HloModule
        The program.
    backend : str, optional
        "cpu".
    threads : int, optional
        The number of threads of a call; by default HLOKIT_THREADS, or else one for each core. Results do not depend on
        it.
    strict : bool, optional
        Whether to keep the interpreter's order of operations, bit for bit.
    donate : sequence of int, optional
        Numbers of parameters whose arrays calls may overwrite with results; by default those in the module's header.
    target : str or Target, optional
        The machine that the code is for, as for `export_object`; by default this one. Calls work only there.
    time_limit : float, optional
        Time limit of code generation in seconds; when it is exceeded, simpler code is generated and a warning is
        logged.
    memory_limit : int, optional
        Limit, in bytes, of the memory of a call, its arguments and results included; by default HLOKIT_MEMORY_LIMIT,
        or else the machine's memory, or less if `ulimit -v` or a control group limits it. A program that needs more
        computes values again where they are needed, instead of keeping them; results do not depend on it.
    shadow : bool or path, optional
        Whether calls compare every kernel's result with the interpreter's on the same operands, and raise
        ShadowMismatch at the first difference. The reproducer is written to the given folder, or to a temporary one for
        True.
    replicas, partitions : int, optional
        The numbers of replicas and partitions that run the program; by default those in its header.

    Returns
    -------
    Executable or DeviceExecutable
        The program, ready to be called; for several devices a DeviceExecutable, which takes a list of arguments for
        each device.

    Raises
    ------
    VerifyError
        The module, read with `verify=False`, breaks rules; or a pass of hlokit broke one, which `after` names.
    UnsupportedError
        The backend or the target is unknown, or this machine cannot run machine code. A custom call whose target is
        not registered compiles: the call of the result raises UnknownTargetError.
    ArgumentError
        An option is out of range, or `module` is not a module (a text, a function, a Builder).
    OutOfMemoryError
        The program needs more memory than the limit, even if values are computed again; or its compilation does.
    DeadlockError
        The devices would wait for each other forever.

    Examples
    --------
    >>> b = hk.Builder()
    >>> exe = hk.compile(b.build(b.parameter(0, hk.f32[3]) * 2.0))
    >>> exe(np.float32([1.0, 2.0, 3.0]))
    array([2., 4., 6.], dtype=float32)
    """
    if backend != "cpu":
        raise UnsupportedError(f"compile(backend={backend!r}): the only backend is 'cpu'")
    from hlokit.cpu.target import parse as parse_target
    from hlokit.runtime.compile import compile_for_devices, compile_module

    options: dict[str, Any] = {
        "threads": threads,
        "strict": strict,
        "donate": donate,
        "target": parse_target(target) if isinstance(target, str) else target,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
    }
    counts = device_counts(module, replicas, partitions)
    if counts != (1, 1):
        if shadow:
            raise UnsupportedError("compile(shadow=...): for one device only")
        return compile_for_devices(module, counts, **options)
    executable = compile_module(module, grid=counts, **options)
    if not shadow:
        return executable
    from hlokit.runtime.shadow import shadowed

    return shadowed(executable, None if shadow is True else shadow)


@public
@unforked
@with_stack
@named
def export_object(
    module: HloModule, target: str | Target = "host", path: str | Path | None = None, *, strict: bool = False
) -> tuple[Path, Path]:
    """Writes `module` as an object file and a C header, NAME.o and NAME.h.

    Parameters
    ----------
    module : HloModule
        The program.
    target : str or Target, optional
        The machine that the code is for: "host", "x86-64-avx2", "aarch64", ...
    path : str or Path, optional
        The path without its suffix; by default the module's name in the current folder.
    strict : bool, optional
        Whether to keep the interpreter's order of operations, bit for bit.

    Returns
    -------
    tuple of Path
        The object file and the header.

    Raises
    ------
    UnsupportedError
        The target is unknown, or the program needs Python while it runs.

    Examples
    --------
    >>> import tempfile
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = hk.export_object(module, "aarch64", f"{folder}/negate.o")
    ...     sorted(path.suffix for path in files)
    ['.h', '.o']
    """
    from hlokit.runtime.export import export_object

    check_is_module(module)
    return export_object(module, target, path, strict=strict)


@public
def mpi_world(comm: Any = None) -> World:
    """The processes of an MPI job as devices. All processes must call this.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        The processes; by default all.

    Returns
    -------
    World
        The devices, for `evaluate` and calls of compiled programs.

    Raises
    ------
    UnsupportedError
        mpi4py or an MPI library is missing.

    Examples
    --------
    >>> world = hk.mpi_world()  # doctest: +SKIP
    >>> hk.evaluate(module, mine, replicas=world.size, world=world)  # doctest: +SKIP
    """
    from hlokit.devices.processes.engines import no_mpi

    try:
        from hlokit.devices.processes.mpi import MpiEngine
    except (ImportError, RuntimeError) as error:
        raise no_mpi(error) from None
    from hlokit.devices.processes.world import World

    return World(MpiEngine(comm))


@public
def process_world(collectives: str | None = None) -> World:
    """The processes of a job as devices. All processes must call this.

    Parameters
    ----------
    collectives : str, optional
        The library that carries values between them: "mpi", or "gloo", for processes that are described by the
        environment variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun and `python -m
        hlokit.launch` set. The default is the value of HLOKIT_COLLECTIVES; otherwise gloo if these variables are set
        and MPI did not start the processes, and MPI in all other cases.

    Returns
    -------
    World
        The devices, for `evaluate` and calls of compiled programs.

    Raises
    ------
    UnsupportedError
        There is no such engine, or its library (mpi4py and an MPI, or PyTorch) or the variables are missing.

    Examples
    --------
    >>> with hk.process_world("gloo") as world:  # doctest: +SKIP
    ...     hk.evaluate(module, mine, replicas=world.size, world=world)
    """
    from hlokit.devices.processes.engines import engine_name, engine_of_job
    from hlokit.devices.processes.world import World

    return World(engine_of_job(engine_name(collectives, "collectives")))


@public
def register_ffi_target(name: str, handler: Any, *, replace: bool = False) -> None:
    """Registers a handler of XLA's FFI, `XLA_FFI_Error* f(XLA_FFI_CallFrame*)`, as the target `name` of custom-calls.

    The instructions have api_version=API_VERSION_TYPED_FFI, and their attributes in backend_config in MLIR's syntax of
    a dictionary: `{scale = 2.0 : f32, axes = array<i64: 0, 1>}`. Handlers run without the interpreter lock.

    Parameters
    ----------
    name : str
        The name under which instructions call it.
    handler : int, ctypes function, PyCapsule or mapping
        Its address; or a mapping of addresses by stage, "execute" and perhaps "instantiate", "prepare", "initialize".
    replace : bool, optional
        Whether a target of this name may exist already.

    Raises
    ------
    BuildError
        Another function has the name (CCALL-2), the handler is not an address, a mapping lacks "execute" or has other
        keys, or the handler was compiled for a version of the interface that is not supported.

    Examples
    --------
    >>> library = ctypes.CDLL("./handlers.so")  # doctest: +SKIP
    >>> hk.register_ffi_target("scale", library.Scale)  # doctest: +SKIP
    >>> b = hk.Builder("call")
    >>> y = hk.custom_call(
    ...     b, "scale", [b.parameter(0, hk.f32[3])], hk.f32[3], "{factor = 2.0 : f32}",
    ...     api_version="API_VERSION_TYPED_FFI",
    ... )
    >>> y.shape
    f32[3]
    """
    from hlokit.runtime.ffi import handlers

    handlers.register_ffi_target(name, handler, replace=replace)


@public
def register_ffi_type(name: str, type_id: Any, type_info: Any = None) -> None:
    """Registers a type of the states of FFI handlers.

    Parameters
    ----------
    name : str
        The name of the type.
    type_id : int, ctypes pointer or PyCapsule
        The address of an XLA_FFI_TypeId, which is given a number unless it has one.
    type_info : int, ctypes pointer or PyCapsule, optional
        The address of an XLA_FFI_TypeInfo, which describes how objects of the type are destroyed. None: they are not
        destroyed.

    Raises
    ------
    HandlerError
        The name, or the number that the id already has, belongs to another type.
    BuildError
        An argument is not an address.

    Examples
    --------
    >>> import ctypes
    >>> number = ctypes.c_int64(0)
    >>> hk.register_ffi_type("example_state", ctypes.addressof(number))
    >>> number.value > 0
    True
    """
    from hlokit.runtime.ffi import handlers

    handlers.register_ffi_type(name, type_id, type_info)


def _with_arrays_checked(function: Callable[[], Any]) -> Any:
    from hlokit.cpu.jit.arrays import with_arrays_checked

    return with_arrays_checked(function)


check_arrays_by(_with_arrays_checked)
