"""A process that runs programs on hlokit, for whoever started it: a line of JSON in, a line out, for each.

python -m hlokit.judge.engines.worker ENGINE MEMORY: the engine's name, and the bytes of address space that it may take
(0: any). The first line out says that it is ready. A job whose last word is "blame" asks for what makes the result
wrong: the message is then a JSON list of the fields of Blame, or null; the place is a folder, whose file `pass` has the
pass that runs. One whose last word is "read" asks for the text of the program in a file of HLO text. After the word
come the numbers of replicas and partitions of a program for several devices.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hlokit.devices.evaluate import evaluate
from hlokit.errors import UnsupportedError
from hlokit.files.arrays import arrays_in, npz_of
from hlokit.files.reading import module_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.judge.devices import arguments_in
from hlokit.judge.engines.blame import Blame, blame
from hlokit.passes.pipeline import optimize
from hlokit.text.parser import parse_hlo


def _after_passes(module: HloModule, *arguments: Any) -> Any:
    return evaluate(optimize(module), *arguments)


def _compiled(module: HloModule, *arguments: Any, **options: Any) -> Any:
    from hlokit.runtime.compile import compile_for_devices, compile_module

    counts = module.replica_count, module.num_partitions
    if counts != (1, 1):
        return compile_for_devices(module, counts, **options)(*arguments)
    return compile_module(module, **options)(*arguments)


def _partitioned(run: Callable[..., Any], module: HloModule, *arguments: Any) -> Any:
    """The result of the parts that the shardings divide a program into, put together."""
    from hlokit.passes.partitioner import partition

    if not any(i.extra is not None and i.extra.sharding is not None for i in module.instructions()):
        raise UnsupportedError(f"partitioned: {module.name} has no shardings")
    found = partition(module)
    return found.join(run(found.module, *found.split(*arguments)))


RUNNERS: dict[str, Callable[..., Any]] = {
    "reference": evaluate,
    "passes": _after_passes,
    "compiled": _compiled,
    "compiled-1": partial(_compiled, threads=1),
    "strict": partial(_compiled, strict=True),
    "partitioned": partial(_partitioned, evaluate),
    "partitioned-compiled": partial(_partitioned, _compiled),
}
"""hlokit's engines by name."""


def _blame(engine: str, module: HloModule, arguments: list[Any], folder: Path) -> Blame | None:
    return blame(engine, module, arguments, folder, partial((folder / "pass").write_text, encoding="utf-8"))


def main() -> None:
    """Answers ["ok" | "error" | "unsupported", message] for each [program, arguments, place of the result, task]."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints is no answer
    run, memory = RUNNERS[sys.argv[1]], int(sys.argv[2])
    if memory and sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    print(json.dumps(["ok", ""]), file=answers, flush=True)
    for line in sys.stdin:
        program, arguments, target, task, *counts = json.loads(line)
        try:
            if task == "read":
                printed = str(parse_hlo(Path(program).read_text(encoding="utf-8")))
                Path(target).write_text(printed, encoding="utf-8")
                print(json.dumps(["ok", ""]), file=answers, flush=True)
                continue
            module = module_of_bytes(Path(program).read_bytes())
            if counts:
                module.replica_count, module.num_partitions = counts
            given = arguments_in(module, arrays_in(Path(arguments).read_bytes()))
            answer = ["ok", ""]
            if task == "run":
                Path(target).write_bytes(npz_of(run(module, *given)))
            else:
                answer[1] = json.dumps(_blame(sys.argv[1], module, given, Path(target)))
        except UnsupportedError as error:
            answer = ["unsupported", str(error)]
        except Exception as error:  # whatever an engine raises is its answer
            answer = ["error", f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
