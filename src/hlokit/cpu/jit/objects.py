"""Compilation of LLVM modules to object code, and loading of the code into memory."""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, cached_property, partial
from typing import Any

from hlokit.cpu.jit.legal import legal
from hlokit.cpu.llvm import COLD, Module
from hlokit.cpu.target import Target, available_threads, drop_llvm_pages, llvm_library, require_system
from hlokit.forks import lock, unforked
from hlokit.memory import require
from hlokit.stack import run_all, with_stack

LOOP = "hlokit_loop"
"""Functions whose names begin so are small loops: LLVM's passes over IR run on them."""
_BYTES_A_SECOND = 50_000
"""Text that any machine surely compiles in a second: less than that for the time there is needs no watch."""


class ObjectCode(bytes):
    """An object file's bytes. `opt`: the level it was made at; `note`: why not at the one asked for, else empty."""

    opt: int = 2
    note: str = ""


@with_stack
def compile_object(code: Module | str, target: Target, opt: int = 2, time_limit: float | None = None) -> ObjectCode:
    """A module, or LLVM text as the target can have it -> object file for `target`. Threads may compile at once, each
    call in an LLVM context of its own.

    opt         code generation's level, 0..3. Of LLVM's passes over IR only always-inline and the removal of dead
                functions run: on our text instcombine, sroa, simplifycfg and gvn cost as much as they save
    time_limit  seconds: a level that takes longer is given up and the next lower one tried; the last may take its time

    Raises ValueError for text that LLVM cannot read or that its verifier refuses.
    """
    text = _text(code, target)
    if time_limit is None or len(text) < time_limit * _BYTES_A_SECOND:
        return made_at(_emit(text, target, opt, True), opt)
    given_up: list[int] = []
    for level in range(opt, 0, -1):
        data = _emit_within(text, target, level, time_limit)
        if data is not None:
            return made_at(data, level, _note(given_up, time_limit))
        given_up.append(level)
    return made_at(_emit(text, target, 0, True), 0, _note(given_up, time_limit))


def compile_objects(
    module: Module,
    target: Target,
    opt: int = 2,
    time_limit: float | None = None,
    threads: int | None = None,
    make_shared: Callable[[str, Target, int], ObjectCode] = compile_object,
) -> list[ObjectCode]:
    """As `compile_object`, for a `Library`: a module that is worth it is made into several objects, by as many threads,
    and cold functions into one of their own, at level 0. `make_shared` is asked for the objects of functions that
    programs share, if this process has not made them before."""
    count = threads if threads is not None else available_threads()
    shared, texts, cold = split(legal(module, target), count)
    jobs: list[Callable[[], ObjectCode]] = [partial(compile_object, text, target, opt, time_limit) for text in texts]
    jobs += [partial(_shared, text, target, opt, make_shared) for text in shared]
    sizes = [len(each) for each in (*texts, *shared)]
    if cold:
        jobs.append(lambda: made_at(_emit(cold, target, 0, True), opt))
        sizes.append(int(_COLD_SHARE * len(cold)))
    made: dict[int, ObjectCode] = {}
    errors: list[BaseException] = []
    waiting = deque(sorted(range(len(jobs)), key=lambda number: -sizes[number]))

    def work() -> None:
        with suppress(IndexError):
            while not errors:
                number = waiting.popleft()
                try:
                    made[number] = jobs[number]()
                except BaseException as error:
                    errors.append(error)

    start = time.monotonic()
    run_all([work] * min(count, len(jobs)))
    if time.monotonic() - start > _LONG:
        drop_llvm_pages()
    if errors:
        raise errors[0]
    return [made[number] for number in range(len(jobs))]


_LONG = 0.2
"""Seconds of code generation next to which it is nothing to read LLVM's pages again, 6 ms."""
_made_before: dict[tuple[str, Target, int], ObjectCode] = {}
_MOST_MADE = 256


def _shared(text: str, target: Target, opt: int, make: Callable[[str, Target, int], ObjectCode]) -> ObjectCode:
    """The object of functions that programs share: the same text is made once a process."""
    key = (text, target.with_threads(1), opt)
    code = _made_before.get(key)
    if code is None:
        code = make(text, target, opt)
        if len(_made_before) >= _MOST_MADE:
            _made_before.clear()
        _made_before[key] = code
    return code


def forget() -> None:
    """Functions that programs share are made again: for measurements of a process's first compile."""
    _made_before.clear()


def split(module: Module, count: int) -> tuple[list[str], list[str], str]:
    """The texts of functions that programs share, by the value of SHARED; at most `count` of about equal length; and
    one of the cold functions, which may be empty. Their objects link to what the module's one object is.

    Functions that are always inlined go where they are called; the others into one, and are declared where they are
    called, as are constants. A module with variables of its own is not split.
    """
    if not all(symbol.is_own for symbol in module.globals.values()):
        return [], [module.text()], ""
    apart = [d for d in module.functions.values() if not d.is_inlined]
    # in the order of names: the same whatever the program calls first
    homes = sorted({d.shared for d in apart if d.shared})
    shared = [module.part(sorted(d.name for d in apart if d.shared == home)) for home in homes]
    own = [d for d in apart if not d.shared]
    cold, usual = [d for d in own if d.is_cold], [d for d in own if not d.is_cold]
    if shared and not usual:
        return shared, [], module.part(d.name for d in cold) if cold else ""
    cold_size, spelled = sum(len(d.body) for d in cold), COLD
    count = min(count, 1 + sum(len(d.body) for d in own) // _WORTH_A_THREAD)
    if cold and (cold_size < _WORTH_A_MODULE or not usual):
        cold, cold_size, usual, spelled = [], 0, own, _COLD_WITH_OTHERS
    count = min(count, len(usual))
    if count < 2 and not cold and not shared:
        return [], [module.text(spelled)], ""
    places: list[dict[str, None]] = [{} for _ in range(count)]
    sizes = [0] * (count - 1) + [int(_COLD_SHARE * cold_size)]  # who is ready first makes these too
    for definition in sorted(usual, key=lambda d: len(d.body), reverse=True):
        lightest = sizes.index(min(sizes))
        places[lightest][definition.name] = None
        sizes[lightest] += len(definition.body)
    texts = [module.part((d.name for d in usual if d.name in names), spelled) for names in places]
    return shared, texts, module.part(d.name for d in cold) if cold else ""


SECONDS_A_BYTE = 0.8e-6
"""Processor time of code generation for a byte of text, roughly."""
_WORTH_A_THREAD = 10_000
"""Bytes of text that take some 8 ms; a module takes 1.6 more."""
_COLD_SHARE = 0.4
"""Time of level 0, as a share of the usual level's."""
_WORTH_A_MODULE = 2000
"""Bytes of cold functions that take longer at the usual level than at level 0 in a module of their own."""
_COLD_WITH_OTHERS = "noinline optnone"
"""Attributes of cold functions in a module of the usual level: they go through it with few passes."""


@unforked
def assembly(code: Module | str, target: Target, opt: int = 2) -> str:
    """The machine code as assembly text: of a module as `compile_objects` makes it with one thread."""
    shared, texts, cold = ([], [code], "") if isinstance(code, str) else split(legal(code, target), 1)
    parts = [*((text, opt) for text in (*shared, *texts)), *([(cold, 0)] if cold else [])]
    return "".join(_emit(part, target, level, False).decode() for part, level in parts)


@unforked
def optimised_llvm(code: Module | str, target: Target) -> str:
    """The LLVM text of a module, or such text, as code generation gets it."""
    with _machine(target, 2) as machine:
        return str(_prepared(_text(code, target), machine))


def _text(code: Module | str, target: Target) -> str:
    """A module as text that the target can have."""
    return code if isinstance(code, str) else legal(code, target).text()


def made_at(data: bytes, opt: int, note: str = "") -> ObjectCode:
    """Bytes as the object code that they are."""
    code = ObjectCode(data)
    code.opt, code.note = opt, note
    return code


def _note(given_up: Sequence[int], limit: float) -> str:
    levels = " and ".join(map(str, given_up))
    return f"code generation at level {levels} took more than {limit:g} s" if given_up else ""


# -- compiling


@cache
def _llvm() -> Any:
    """llvmlite, ready for this machine."""
    llvm = llvm_library()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _description(triple: str) -> Any:
    """LLVM's description of a target. Other machines' are made ready when the first is asked for: all take 12 MB."""
    llvm = _llvm()
    if triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple)


def _unlocked(name: str) -> Any:
    """The C function of llvmlite without llvmlite's lock, where this version's wrapper lets one at it.

    The lock is for LLVM's global context, which nothing here uses: every compile has its own context and machine.
    """
    wrapped = getattr(_llvm().ffi.lib, name)
    return getattr(wrapped, "_cfn", wrapped)


class _Machine:
    """LLVM's code generator for a target and the passes before it, which one thread may use at a time.

    To make one takes 1.5 ms. llvmlite frees neither a pass builder whole nor what a run of passes leaves in it, 7 KB:
    kept, it does not grow.
    """

    def __init__(self, target: Target, opt: int) -> None:
        llvm = _llvm()
        self.generator = _description(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="small"
        )
        self.layout = str(self.generator.target_data)
        self._builder = llvm.create_pass_builder(self.generator, llvm.create_pipeline_tuning_options())
        self._passes = llvm.create_new_module_pass_manager()
        self._passes.add_always_inliner_pass()
        self._passes.add_global_dead_code_eliminate_pass()

    def inline(self, module: Any) -> None:
        """Always-inline, and the removal of dead functions."""
        _unlocked("LLVMPY_RunNewModulePassManager")(self._passes, module, self._builder)

    def simplify(self, function: Any) -> None:
        """LLVM's passes over one function."""
        self._simplification.run(function, self._builder)

    @cached_property
    def _simplification(self) -> Any:
        return self._builder.getFunctionPassManager()


_idle: dict[tuple[Target, int], list[_Machine]] = {}


@contextmanager
def _machine(target: Target, opt: int) -> Generator[_Machine]:
    """One that is free."""
    idle = _idle.setdefault((target, opt), [])
    try:
        machine = idle.pop()
    except IndexError:
        machine = _Machine(target, opt)
    try:
        yield machine
    finally:
        idle.append(machine)


_contexts: set[Any] = set()
"""The contexts of modules that are alive. After an interrupt modules may be left to Python's collector of cycles, which
finalizes in any order, and a module must not outlive its context."""


def _prepared(text: str, machine: _Machine) -> Any:
    """The parsed module, verified, with always-inline done."""
    llvm = _llvm()
    context = llvm.create_context()
    _contexts.add(context)
    with llvm.ffi.OutputString() as message:
        pointer = _unlocked("LLVMPY_ParseAssembly")(context, text.encode(), message)
        if message:
            _contexts.discard(context)
            raise ValueError(f"LLVM cannot read the text:\n{message}")
        module = llvm.ModuleRef(pointer, context)
    weakref.finalize(module, _contexts.discard, context).atexit = False
    module.triple = machine.generator.triple
    module.data_layout = machine.layout
    with llvm.ffi.OutputString() as message:
        if _unlocked("LLVMPY_VerifyModule")(module, message):
            raise ValueError(f"LLVM refuses the text:\n{message}")
    machine.inline(module)
    for function in module.functions:
        if function.name.startswith(LOOP):
            machine.simplify(function)
    return module


_LLVM_BYTES, _BYTES_A_CHARACTER = 1 << 25, 512
"""Memory that code generation takes at most, and for each character: LLVM ends the process where it has no more."""
_SWITCHES = ("-disable-lsr",)
"""LLVM's options for our code. Loop strength reduction takes a third of code generation's time, and our loops count as
they should. Level 0 has none."""
_emitting = 0
_switching = lock()


@contextmanager
def _switched() -> Generator[None]:
    """Our switches, which are the process's, are on while any thread makes our code: others have LLVM as it was."""
    _switch(1, "true")
    try:
        yield
    finally:
        _switch(-1, "false")


def _switch(change: int, state: str) -> None:
    global _emitting
    with _switching:
        _emitting += change
        if _emitting == max(change, 0):  # the first one in, the last one out
            for name in _SWITCHES:
                _llvm().set_option("hlokit", f"{name}={state}")


def _emit(text: str, target: Target, opt: int, as_object: bool) -> bytes:
    import ctypes

    llvm = _llvm()
    require(_LLVM_BYTES + _BYTES_A_CHARACTER * len(text), "code generation by LLVM")
    with _machine(target, opt) as machine, llvm.ffi.OutputString() as message:
        module = _prepared(text, machine)
        with _switched() if opt else nullcontext():
            buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine.generator, module, int(as_object), message)
        if not buffer:
            raise ValueError(f"LLVM cannot make code:\n{message}")
    lib = llvm.ffi.lib
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _emit_within(text: str, target: Target, opt: int, limit: float) -> bytes | None:
    """`_emit` in a process of its own, since nothing stops LLVM once it runs; None if the time was not enough."""
    import subprocess

    fields = [target.triple, target.cpu, target.features, target.vector_bytes, opt]
    command = [sys.executable, "-P", "-c", "from hlokit.cpu.jit.objects import child; child()", json.dumps(fields)]
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)  # -P: the folder it starts in only if it is ours too
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:  # no interpreter to start: an embedded one
        return _emit(text, target, opt, True)
    return done.stdout if done.returncode == 0 else _emit(text, target, opt, True)


def child() -> None:
    """The other side of `_emit_within`: text on stdin, the object on stdout."""
    triple, cpu, features, vector_bytes, opt = json.loads(sys.argv[1])
    target = Target(triple, cpu, features, vector_bytes)
    sys.stdout.buffer.write(_emit(sys.stdin.buffer.read().decode(), target, opt, True))


# -- loading


class Library:
    """Objects linked together and loaded. Their code stays as long as the library does.

    symbols   addresses of what they call that is neither in them nor in the process; the process's own symbols
              (memcpy, memset, libm's) are found by themselves

    Whoever runs its code holds the library. At the interpreter's exit nothing is freed: threads may still be running.
    Raises ValueError for an object that cannot be linked or is another machine's, UnsupportedError on a system where no
    code has ever been run.
    """

    @unforked
    def __init__(self, objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> None:
        require_system()
        require(_LLVM_BYTES, "linking")
        self._linker = _linker()
        builder = _llvm().JITLibraryBuilder().add_current_process()
        for data in objects:
            _check_machine(data)
            builder.add_object_img(data)
        for name, address in (symbols or {}).items():
            builder.import_symbol(name, address)
        self._name = f"hlokit{next(_numbers)}"
        self._addresses: dict[str, int] = {}
        self._lock = lock()
        self._trackers: list[Any] = []
        try:
            self._keep(builder.link(self._linker.jit, self._name))
        except RuntimeError as error:
            raise ValueError(f"cannot link: {error}") from None
        weakref.finalize(self, _free, self._trackers, self._linker).atexit = False

    @unforked
    def address(self, name: str) -> int:
        """Where the function or global is. ValueError: there is none, or something it calls is missing."""
        with self._lock:
            if name not in self._addresses:
                try:
                    tracker = self._linker.jit.lookup(self._name, name)
                except RuntimeError as error:
                    raise ValueError(f"{name}: {error}") from None
                self._keep(tracker)
                self._addresses[name] = tracker[name]
            return self._addresses[name]

    def _keep(self, tracker: Any) -> None:
        tracker._owned = True  # llvmlite would free it at the interpreter's exit, below running threads
        self._trackers.append(tracker)


_ELF_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}


def _check_machine(data: bytes) -> None:
    """JITLink links the code of any machine."""
    expected = _ELF_MACHINES.get(platform.machine().lower())
    found = int.from_bytes(data[18:20], "little")
    if expected and data[:4] == b"\x7fELF" and found != expected:
        raise ValueError(f"cannot link: the object is for ELF machine {found}, and this is {expected}")


_numbers = itertools.count()
_LIBRARIES = 8
"""Libraries that a linker is made for: to make one takes 0.25 ms."""
_linking = lock()
_latest: list[_Linker] = []


class _Linker:
    """Links some libraries. LLVM frees a library's code alone and keeps 10 KB of tables, until its linker goes: with
    the last library of its own. JITLink puts an object's sections side by side: 32-bit offsets always reach."""

    def __init__(self) -> None:
        llvm = _llvm()
        machine = _description(llvm.get_process_triple()).create_target_machine(jit=True)
        self.jit = llvm.create_lljit_compiler(machine, use_jit_link=os.name != "nt", suppress_errors=True)
        self.jit._owned = True  # llvmlite would free it at the interpreter's exit, below running threads
        self.left = _LIBRARIES
        weakref.finalize(self, _freed, self.jit).atexit = False


def _linker() -> _Linker:
    """The linker for one more library."""
    with _linking:
        if not _latest:
            _latest.append(_Linker())
        linker = _latest[0]
        linker.left -= 1
        if not linker.left:
            _latest.clear()
        return linker


def _free(trackers: list[Any], linker: _Linker) -> None:
    """`linker`: kept until here, since its end is theirs."""
    for tracker in reversed(trackers):
        _freed(tracker)


def _freed(owned: Any) -> None:
    owned._dispose()
    owned.detach()
