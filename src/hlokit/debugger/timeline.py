"""Timeline: a machine that can go to any time of its run, by running again from saved states."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from time import perf_counter
from typing import Any

from hlokit.debugger.machine import Machine, State
from hlokit.hlo.instruction import Instruction

_APART = 0.02
"""Seconds of running from one saved state to the next: what a step back may cost, besides restoring."""


class Timeline:
    """The times of a machine.

    A state is saved every 20 ms of running, and after an instruction that takes as long. Where the arrays that the
    states keep alive exceed `memory_limit`, states are dropped, the more the further back.

    changes  values that the user has put in, by time: frame, instruction, value
    """

    def __init__(self, machine: Machine, memory_limit: int) -> None:
        self.machine = machine
        self.changes: dict[int, list[tuple[int, Instruction, Any]]] = {}
        self._limit = memory_limit
        self._states: list[State] = []
        self._arrays: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        self._spent = 0.0
        self._save()

    @property
    def time(self) -> int:
        return self.machine.time

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that the saved states keep alive."""
        return sum(self._sizes.values())

    def advance(self) -> None:
        """Makes the next event. Raises as `Machine.advance` does."""
        begin = perf_counter()
        self._event()
        self._spent += perf_counter() - begin
        if self._spent > _APART:
            self._save()

    def _event(self) -> None:
        position = self.machine.transport.position
        try:
            self.machine.advance()
        except BaseException:
            self.machine.transport.position = position
            raise
        self._apply()

    def _apply(self) -> None:
        for change in self.changes.get(self.machine.time, ()):
            self.machine.change(*change)

    def go(self, time: int) -> None:
        """Goes to a time that the machine has been at."""
        number = bisect_right(self._states, time, key=_time) - 1
        state = self._states[number]
        if not state.time <= self.machine.time <= time:
            self.machine.restore(state)
            self._spent = 0.0
        while self.machine.time < time:
            self.advance()

    def saved_before(self, time: int) -> int:
        """The latest time before `time` of which the state is saved; 0 before any."""
        number = bisect_right(self._states, time - 1, key=_time) - 1
        return self._states[max(number, 0)].time

    def change(self, depth: int, instruction: Instruction, value: Any) -> None:
        """Gives an instruction of a frame another value from now on; what was after is forgotten."""
        now = self.machine.time
        self.changes = {t: c for t, c in self.changes.items() if t <= now}
        self.changes.setdefault(now, []).append((depth, instruction, value))
        self.machine.change(depth, instruction, value)
        self._drop_from(now)
        self._save()

    def restart(self) -> None:
        """Goes to the beginning and forgets all later states; changes stay."""
        self.go(0)
        self._apply()
        self._drop_from(0)
        self._save()

    # -- saved states

    def _save(self) -> None:
        self._spent = 0.0
        number = bisect_right(self._states, self.machine.time, key=_time)
        if number and self._states[number - 1].time == self.machine.time:
            return
        state = self.machine.state()
        insort(self._states, state, key=_time)
        for array in state.arrays():
            self._arrays[id(array)] += 1
            self._sizes[id(array)] = array.nbytes
        while len(self._states) > 2 and self.nbytes > self._limit:
            self._drop(self._least_wanted())

    def _least_wanted(self) -> int:
        """The saved state, not the first, between the nearest neighbours for how far back it lies."""
        times = [s.time for s in self._states]
        ahead = [*times[1:], max(times[-1], self.machine.time) + 1]
        gaps = [(ahead[k] - times[k - 1]) / (ahead[-1] - times[k]) for k in range(1, len(times))]
        return 1 + gaps.index(min(gaps))

    def _drop_from(self, time: int) -> None:
        while len(self._states) > 1 and self._states[-1].time >= time:
            self._drop(len(self._states) - 1)
        if time == 0:
            self._drop(0)

    def _drop(self, number: int) -> None:
        for array in self._states.pop(number).arrays():
            self._arrays[id(array)] -= 1
            if not self._arrays[id(array)]:
                del self._arrays[id(array)], self._sizes[id(array)]


def _time(state: State) -> int:
    return state.time
