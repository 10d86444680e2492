"""Compares the stages of a module in a dump: each runs on the reference, with the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlokit.errors import ArgumentError, HlokitError, UnsupportedError
from hlokit.files.reading import module_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.judge.compare.comparing import Comparison, compare_engines
from hlokit.judge.diff.folders import Stage
from hlokit.judge.engines.engine import Engine, engine_of
from hlokit.judge.engines.outcome import Outcome


class StageEngine(Engine):
    """Gives the results of a later stage of the module that it is asked to run."""

    def __init__(self, stage: Stage, runner: Engine) -> None:
        super().__init__(stage.title, runner.seconds, runner.memory)
        self.stage, self.runner = stage, runner

    def run(self, module: HloModule, arguments: Sequence[Any]) -> Outcome:
        try:
            later = module_of_bytes(self.stage.path.read_bytes(), name=self.stage.path.name)
        except UnsupportedError as error:
            return Outcome("unsupported", (), str(error))
        except HlokitError as error:
            return Outcome("error", (), f"it cannot be read: {error}")
        wanted, found = ([p.shape.logical for p in m.entry.parameters] for m in (module, later))
        if wanted != found:
            return Outcome("unsupported", (), "it takes other arguments than the first stage")
        return self.runner.run(later, arguments)


def compare_stages(
    module: HloModule, arguments: Sequence[Any], stages: Sequence[Stage], seconds: float = 60.0, memory: int = 0
) -> Comparison:
    """The comparison of later stages with the module that was the first one: a judgement of each, in order. Of those
    with wrong results the first has the name of its stage, and so of the pass.

    Raises ArgumentError if there are none.
    """
    if not stages:
        raise ArgumentError(f"{module.name}: the dump has one stage; --xla_dump_hlo_pass_re=.* makes XLA write all")
    with engine_of("reference", seconds, memory) as runner:
        engines = [StageEngine(stage, runner) for stage in stages]
        try:
            found = compare_engines(module, arguments, engines, bisect=False)
        finally:
            for engine in engines:
                engine.close()
    judgements = list(found.judgements)
    for number, judgement in enumerate(judgements):
        if judgement.verdict == "undecided":  # no engine rounds here: what a pass made is compared
            is_first = not any(j.guilty for j in judgements)
            name = stages[number].name if is_first else ""
            judgements[number] = replace(judgement, verdict="wrong", guilty=name)
    return replace(found, judgements=tuple(judgements))
