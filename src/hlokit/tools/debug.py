"""hlokit debug: a program step by step, forwards and backwards."""

from __future__ import annotations

import sys
from pathlib import Path

from hlokit.debugger.commands import Session
from hlokit.debugger.compiled import debug_compiled
from hlokit.debugger.debugger import Debugger
from hlokit.debugger.describe import place_text
from hlokit.debugger.saved import is_session, restored
from hlokit.errors import HlokitError, UnsupportedError
from hlokit.interpreter.checks import device_counts
from hlokit.runtime.compile import compile_module
from hlokit.tools.files import content_of, loaded, snapshot_in
from hlokit.tools.inputs import Inputs, arguments_for
from hlokit.tools.status import BAD, DONE, message_of


def debug(
    file: Path,
    *,
    input: Inputs = (),
    random: int | None = None,
    seed: int = 0,
    replicas: int | None = None,
    partitions: int | None = None,
    memory: int | None = None,
    command: list[str] | None = None,
    plain: bool = False,
    compiled: bool = False,
    serve: bool = False,
    port: int = 0,
    allow_host: list[str] | None = None,
) -> int:
    """Runs a program step by step on the interpreter, forwards and backwards, and shows its values.

    In a terminal, shows the program, the values and a command line on the full screen; otherwise, and with --plain,
    reads commands from standard input, one per line. `help` lists the commands.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads, or a session written by the command `save`.
    input:
        the arguments: an .npz with an array for each parameter, by the parameters' names or as in0, in1, ... or arr_0,
        arr_1, ...; or values, one --input for each parameter: f32[4,8]=1, 's32[3]={1, 2, 3}'; for several
        devices {device} in the file's name is the number of each.
    random:
        the seed of random arguments.
    seed:
        the seed of the program's own random numbers.
    replicas:
        the number of replicas; by default the number in the program.
    partitions:
        the number of partitions; by default the number in the program.
    memory:
        limit of the memory of saved states, in MB; by default a quarter of the machine's memory.
    command:
        a command to run first; may be given several times. An error in one of these ends the session with status 2.
    plain:
        use lines instead of the full screen.
    compiled:
        compile the program, compare each kernel with the interpreter, and start at the instruction whose machine code
        is wrong.
    serve:
        serve a page for a browser on this machine, at the address that is printed; Ctrl-C ends it.
    port:
        the port of the page; by default any free one.
    allow_host:
        a host name under which a proxy requests the page; may be given several times.
    """
    session = _session(file, input, random, seed, replicas, partitions, memory, compiled)
    lines = command or []
    if serve:
        return _serve(session, lines, port, allow_host or [])
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _plain(session, lines)
    try:
        from hlokit.debugger.terminal import Screen
    except ImportError:
        print("for the full screen: pip install 'hlokit[view]'", file=sys.stderr)
        return _plain(session, lines)
    Screen(session, lines).run()
    return DONE


def _serve(session: Session, lines: list[str], port: int, hosts: list[str]) -> int:
    for line in lines:
        print(session.execute(line))
    with session.debugger.serve(port, hosts=hosts) as served:
        print(served.url, flush=True)
        served.wait()
    return DONE


def _session(
    file: Path,
    input: Inputs,
    random: int | None,
    seed: int,
    replicas: int | None,
    partitions: int | None,
    memory: int | None,
    compiled: bool,
) -> Session:
    content = content_of(file)
    if is_session(content):
        try:
            debugger, watched = restored(content)
        except HlokitError as error:
            error.file = str(file)
            raise
        session = Session(debugger)
        session.watched = watched
        return session
    snapshot = snapshot_in(file)
    module = snapshot.module if snapshot is not None else loaded(file)
    counts = device_counts(module, replicas, partitions)
    count = counts[0] * counts[1]
    given = (
        snapshot.arguments
        if snapshot is not None
        else [arguments_for(module, input, random, d) for d in range(count)]
    )
    limit = None if memory is None else memory << 20
    if compiled:
        if count > 1:
            raise UnsupportedError("debug --compiled: a program of several devices")
        debugger = debug_compiled(compile_module(module), given[0], seed=seed, memory_limit=limit)
        print(debugger.parting or f"{module.name}: the machine code of every kernel agrees with the interpreter")
        return Session(debugger)
    arguments = given if count > 1 else given[0]
    return Session(Debugger(module, arguments, seed=seed, replicas=counts[0], partitions=counts[1], memory_limit=limit))


def _plain(session: Session, lines: list[str]) -> int:
    """Commands, one per line: first those given, then standard input; an error in a given one ends the session."""
    interactive = sys.stdin.isatty()
    print(place_text(session.debugger))
    for line in lines:
        text = session.execute(line)
        print(*([text] if text else []), sep="\n", end="\n" if text else "")
        if session.is_over:
            return DONE
    failed = False
    while not session.is_over:
        if interactive:
            print("(hlokit) ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            break
        try:
            text = session.execute(line)
        except HlokitError as error:
            failed = True
            text = f"error: {message_of(error)}"
        if text:
            print(text)
    return BAD if failed and not interactive else DONE
