"""Job: the devices that a command runs on: threads of this process, or the processes of an MPI job."""

from __future__ import annotations

import math
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hlokit.api import process_world
from hlokit.devices.processes.guard import guarded, job_size
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.interpreter.checks import device_counts, grid_text
from hlokit.interpreter.routes import Place
from hlokit.tools.status import status_of

if TYPE_CHECKING:
    from hlokit.devices.processes.world import World


class Job:
    """`world`: None for threads."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world

    @property
    def rank(self) -> int:
        return 0 if self.world is None else self.world.rank

    def places(self, module: HloModule, replicas: int | None, partitions: int | None) -> list[Place]:
        """Devices: as many as are asked for, else as the module says; in a world of another size, a replica each."""
        counts = device_counts(module, replicas, partitions)
        if self.world is not None and replicas is None and math.prod(counts) != self.world.size:
            counts = max(1, self.world.size // counts[1]), counts[1]
        if self.world is not None and math.prod(counts) != self.world.size:
            text = f"{grid_text(*counts)} on {counted(self.world.size, 'process', 'processes')}"
            raise ArgumentError(f"{module.name}: {text} [EXEC-2]")
        return Place.grid(*counts)

    def own(self, places: list[Place]) -> list[Place]:
        """Those that this process has to see to."""
        return places if self.world is None else places[self.rank : self.rank + 1]

    def call(self, function: Any, arguments: list[list[Any]], places: list[Place], **options: Any) -> list[Any]:
        """The result on each of its own devices, of a function that is called as `evaluate` is."""
        if self.world is not None:
            return [function(*arguments[0], world=self.world, **options)]
        if len(places) == 1:
            return [function(*arguments[0], **options)]
        return function(*arguments, **options)

    def say(self, texts: list[str]) -> None:
        """Prints what there is to say of each device, in their order."""
        if self.world is not None:
            texts = self.world.gather_text(texts[0])
        for text in texts if self.rank == 0 else ():
            print(text)


@contextmanager
def job() -> Generator[Job, None, None]:
    """The MPI job that this process was started in, if there is one of several; of its errors rank 0 tells."""
    if job_size() == 1:
        yield Job()
        return
    guarded()
    with process_world() as world:
        try:
            yield Job(world)
        except (HlokitError, OSError) as error:
            if world.rank == 0 or world.is_broken:
                raise
            world.close(error)
            sys.exit(status_of(error))
