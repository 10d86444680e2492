"""A process that runs programs on hlokit, for whoever started it: a line of JSON in, a line out, for each.

python -m hlokit.judge.engines.worker ENGINE MEMORY: the engine's name, and the bytes of address space that it may take
(0: any). The first line out says that it is ready. A job whose last word is "blame" asks for what makes the result
wrong: the message is then a JSON list of the fields of Blame, or null; the place is a folder, whose file `pass` has the
pass that runs.
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
from hlokit.files.arrays import arguments_from_arrays, arrays_in, npz_of
from hlokit.files.reading import module_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.judge.engines.blame import Blame, blame
from hlokit.passes.pipeline import optimize


def _after_passes(module: HloModule, *arguments: Any) -> Any:
    return evaluate(optimize(module), *arguments)


def _compiled(module: HloModule, *arguments: Any, **options: Any) -> Any:
    from hlokit.runtime.compile import compile_module

    return compile_module(module, **options)(*arguments)


RUNNERS: dict[str, Callable[..., Any]] = {
    "reference": evaluate,
    "passes": _after_passes,
    "compiled": _compiled,
    "compiled-1": partial(_compiled, threads=1),
    "strict": partial(_compiled, strict=True),
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
        program, arguments, target, task = json.loads(line)
        try:
            module = module_of_bytes(Path(program).read_bytes())
            given = arguments_from_arrays(module, arrays_in(Path(arguments).read_bytes()))
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
