"""Pages of modules and executables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Mark
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import optimize
from hlokit.stack import with_stack
from hlokit.view.data import PageData
from hlokit.view.page import View, page

if TYPE_CHECKING:
    from hlokit.passes.partitioner import Partitioned
    from hlokit.runtime.executable import Executable
    from hlokit.runtime.profile import Profile

LARGE = 20_000
"""Instructions from which a module's page has no stages of passes."""


@with_stack
def view_module(module: HloModule, *, passes: bool = True) -> View:
    """A module's page, with what the default passes make of it."""
    data = PageData(module.name)
    lineage = None
    if passes and sum(map(len, module.all_computations)) < LARGE:
        lineage = optimize(module, lineage="stages").lineage
    if lineage is not None:
        data.passes(lineage)
    else:
        data.stage("input", module)
    return page(data.json())


@with_stack
def view_partitioned(partitioned: Partitioned) -> View:
    """The page of a divided program: the program on whole values with all shardings, then that of a device."""
    data = PageData(partitioned.module.name)
    whole = partitioned.propagation.module.clone()
    partitioned.propagation.annotate(whole)
    data.stage("whole values", whole)
    ops = {i.name: i for i in whole.instructions()}
    asked: dict[str, Instruction] = {r.collective: ops[r.op] for r in partitioned.reasons if r.op in ops}
    parts = partitioned.module.instructions()
    origins = {i: {asked[i.name]: Mark.MADE} if i.name in asked else {} for i in parts}
    data.stage("partition", partitioned.module, origins, {i: "b" if i.name in asked else "same" for i in parts})
    data.communication(partitioned.reasons)
    return page(data.json())


@with_stack
def view_executable(executable: Executable, profile: Profile | None = None) -> View:
    """The page of a compiled program."""
    data = PageData(executable.source.name)
    data.code(executable)
    if profile is not None:
        data.profile(profile)
    return page(data.json())
