"""An executable's twin whose code is instrumented."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from hlokit.cpu.emit.traced import Traced
from hlokit.cpu.jit.cache import compiled_objects
from hlokit.cpu.kernels.linalg.lapack import lapack_names
from hlokit.runtime import plan as plans
from hlokit.runtime.host_steps import HostSteps

if TYPE_CHECKING:
    from hlokit.runtime.executable import Executable


def twin(executable: Executable, traced: Traced, extra: tuple[int, ...], held: object) -> Executable:
    """A copy that runs the traced program; `extra`: the pointers that its text asks for, into what `held` holds."""
    made = copy.copy(executable)
    made.extra, made.held = extra, held
    objects = compiled_objects(traced.module, executable.target, name=executable.source.name)
    called = traced.module.external
    lapack, runtime = tuple(lapack_names(called)), plans.called(called)
    made.use(
        replace(executable.plan, objects=tuple(objects), lapack=lapack, runtime=runtime, parallel=True, work=1e9),
        HostSteps([step.instructions[0] for step in traced.hosts]) if traced.hosts else None,
    )
    return made
