"""The functions of the facade that take or make whole modules, and what registers machine code for them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from hlokit.devices.evaluate import evaluate
from hlokit.devices.mpmd import evaluate_mpmd
from hlokit.errors import ArgumentError, HlokitError, ParseError, UnsupportedError
from hlokit.files.reading import module_of_bytes, module_of_text, snapshot_of_bytes
from hlokit.forks import unforked
from hlokit.hlo.module import HloModule, check_is_module
from hlokit.interpreter.checks import device_counts
from hlokit.memory import named
from hlokit.passes.pipeline import optimize
from hlokit.rules import Rule, rules
from hlokit.stack import with_stack
from hlokit.tracebacks import public
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.cpu.target import Target
    from hlokit.devices.mpi.world import World
    from hlokit.proto.snapshot import Snapshot
    from hlokit.runtime.devices import DeviceExecutable
    from hlokit.runtime.executable import Executable

__all__ = [
    "compile",
    "evaluate",
    "evaluate_mpmd",
    "explain",
    "export_object",
    "load",
    "load_snapshot",
    "mpi_world",
    "optimize",
    "parse",
    "parse_shape",
    "register_ffi_target",
    "register_ffi_type",
    "to_stablehlo",
    "to_stablehlo_artifact",
    "verify",
]


@public
@unforked
@with_stack
@named
def parse(text: str | bytes, *, arguments: Sequence[Shape] | None = None, verify: bool = True) -> HloModule:
    """The module in HLO text, in StableHLO text, or in the bytes of a file of any kind that `load` reads.

    Every rule of the language is checked while reading.

    arguments   the shapes of the entry's arguments, for StableHLO that leaves sizes open (`?`)
    verify      False: HLO is read as it stands, whatever it says of operands and shapes, and prints back so.
                `hk.verify` then tells all that is wrong with the module; what runs or changes modules asks it first

    Raises ParseError with line, column, caret and the rule's label (with the number of a byte for an artifact);
    UnsupportedError for StableHLO that HLO or hlokit lacks; ArgumentError for `arguments` that do not fit, and for what
    is not text.

        >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        >>> hk.evaluate(module, [1.0, -2.0])
        array([-1.,  2.], dtype=float32)
    """
    if isinstance(text, bytes):
        return module_of_bytes(text, arguments, verify=verify)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"parse: found {type(text).__name__}, expected str or bytes: hlokit.load reads files")
    return module_of_text(text, arguments, verify)


@public
@unforked
@with_stack
@named
def load(path: str | Path, *, arguments: Sequence[Shape] | None = None, verify: bool = True) -> HloModule:
    """The module in a file. Kinds of files are told apart by content; each may be compressed by gzip:

    - HLO text, StableHLO text
    - a StableHLO artifact (MLIR bytecode), a program that JAX exported (`Exported.serialize`)
    - HloModuleProto, HloProto (XLA's dumps, `.hlo.pb`); HloSnapshot and HloUnoptimizedSnapshot, of which
      `load_snapshot` gives the arguments too

    `arguments`, `verify`: as `parse` takes them.

    Raises OSError if the file cannot be read, ParseError if it is none of them, with what it is if that is known (all
    else that XLA dumps is), UnsupportedError as `parse` does. Errors begin with the file's name.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "negate.hlo")
        ...     size = path.write_text("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        ...     hk.load(path)
        <HloModule m: (f32[2]) -> f32[2], 1 computation>
    """
    with _of_file(path):
        return module_of_bytes(Path(path).read_bytes(), arguments, Path(path).name, verify)


@public
@unforked
@with_stack
@named
def load_snapshot(path: str | Path) -> Snapshot:
    """A program with the arguments that it was called with, which XLA dumps with `--xla_dump_hlo_snapshots` (a
    HloSnapshot, which has the result too) or `--xla_dump_hlo_unoptimized_snapshots`.

    Raises OSError if the file cannot be read, ParseError if it is none of them.

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
    """The shape written as HLO text writes it, e.g. "(f32[2,<=3]{0,1}, token[])". Raises ParseError.

        >>> hk.parse_shape("(f32[2,<=3], token[])").elements
        (f32[2,<=3], token[])
    """
    from hlokit.text.shapes import parse_shape

    return parse_shape(text)


@public
@with_stack
def to_stablehlo(module: HloModule) -> str:
    """`module` as StableHLO text that jaxlib reads: see docs/stablehlo.md.

    Raises UnsupportedError, naming the instruction and its opcode, for what StableHLO cannot say.

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
    """A module, or StableHLO text, as a portable artifact of StableHLO: vhlo in MLIR bytecode.

    version     of StableHLO, "0.9.0" to "1.20.0": readers of it and of later ones read the artifact (1.17.0: those of
                jaxlib 0.10.2)

    Text may leave sizes open (`?`). It is not checked beyond its form, as `parse` checks it; names of values are lost.

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
    """The rule of the language that errors and docstrings name by this label.

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
    """Checks every rule of the language on `module`. Raises one VerifyError with all findings.

        >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        >>> hk.verify(module)
    """
    from hlokit.hlo.verifier import verify

    check_is_module(module)
    verify(module)


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
    """`module` as machine code: a hlokit.runtime.executable.Executable, to be called as `evaluate` is.

    threads       that take part in a call; by default HLOKIT_THREADS, else one a core. No matter to the results
    strict        the interpreter's order of operations, bit for bit
    donate        numbers of parameters whose arrays calls may overwrite with results; by default those that the
                  module's header names
    target        the machine that the code is for: as `export_object`'s; by default this one, where alone calls work
    time_limit    seconds for code generation; beyond it simpler code is made, which the log says
    memory_limit  bytes that a call may need; by default the machine's memory, or what `ulimit -v` and control groups
                  leave of it
    shadow        calls compare every kernel's result with the interpreter's on the same operands, and raise
                  ShadowMismatch at the first that differs, with a reproducer in the folder of this name, or in a
                  temporary one for True
    replicas, partitions
                  how many devices are to run it; by default as many as its header says. For several it is a
                  hlokit.runtime.devices.DeviceExecutable, to be called with a list of arguments for each

    Raises UnsupportedError for another backend or target, ArgumentError for options out of range, OutOfMemoryError
    for a program that needs more memory than the limit, DeadlockError for one whose devices would wait for each other
    for ever.

        >>> b = hk.Builder()
        >>> exe = hk.compile(b.build(b.parameter(0, hk.f32[3]) * 2.0))
        >>> exe(np.float32([1.0, 2.0, 3.0]))
        array([2., 4., 6.], dtype=float32)
    """
    if backend != "cpu":
        raise UnsupportedError(f"compile(backend={backend!r}): the one backend is 'cpu'")
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
    """Writes `module` as an object file and a C header, NAME.o and NAME.h: see hlokit.runtime.export.

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
    """The processes of an MPI job (of mpi4py's communicator `comm`, by default all) as devices: see World.

    All of them call this together. Raises UnsupportedError without mpi4py or an MPI library.

        >>> world = hk.mpi_world()  # doctest: +SKIP
        >>> hk.evaluate(module, mine, replicas=world.size, world=world)  # doctest: +SKIP
    """
    try:
        from hlokit.devices.mpi.world import World
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(f"MPI: {error}. `pip install mpi4py mpich` gives both") from None
    return World(comm)


@public
def register_ffi_target(name: str, handler: Any, *, replace: bool = False) -> None:
    """Makes a handler of XLA's FFI, `XLA_FFI_Error* f(XLA_FFI_CallFrame*)`, the target `name` of custom-calls.

    handler   its address, a ctypes function or a PyCapsule; or a mapping of these by stage, "execute" and perhaps
              "instantiate", "prepare", "initialize"
    replace   a target of this name may exist already

    The instructions have api_version=API_VERSION_TYPED_FFI, and their attributes in backend_config as MLIR writes a
    dictionary: `{scale = 2.0 : f32, axes = array<i64: 0, 1>}`. Handlers run without the interpreter lock.

    Raises BuildError for a name that something else has (CCALL-2), for what is not an address, for a mapping without
    "execute" or with other keys, and for a handler that was compiled for a version of the interface that is not
    supported.

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
    """Registers a type of handlers' states.

    type_id     where an XLA_FFI_TypeId is, which gets a number unless it has one: an address, a ctypes pointer or a
                PyCapsule
    type_info   where an XLA_FFI_TypeInfo is, which says how objects of the type are destroyed; None: they are not

    Raises HandlerError if the name, or the number that the id has already, is another type's; BuildError for what is
    not an address.

        >>> import ctypes
        >>> number = ctypes.c_int64(0)
        >>> hk.register_ffi_type("example_state", ctypes.addressof(number))
        >>> number.value > 0
        True
    """
    from hlokit.runtime.ffi import handlers

    handlers.register_ffi_type(name, type_id, type_info)
