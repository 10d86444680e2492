"""Grid: the devices of a run as threads of this process."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hlokit.errors import EvaluationError
from hlokit.forks import lock
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import Cancelled, Exchange
from hlokit.stack import with_stack

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction


Halt: TypeAlias = Callable[[Sequence[int]], Callable[[], None]]
"""Stops native code on threads, given by their ids; gives a function that calls it off again."""


class Grid:
    """A transport between threads, one for each device. It runs once.

    At most `parallel` devices run at a time; the others wait for their turn. With one at a time, each runs until it has
    to wait and then the one that has been ready for longest goes on: the same order every time. When none runs and none
    is ready, they are in a deadlock, which is so found out at once. `halt` stops native code when a device has failed.
    """

    def __init__(self, names: Sequence[str], parallel: int = 1, halt: Halt | None = None) -> None:
        self.names = names
        self.exchange = Exchange(names)
        self.stopped = False
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._turns = [_locked() for _ in names]
        self._ready = deque(range(len(names)))
        self._running: set[int] = set()
        self._parallel = parallel
        self.shares_memory = parallel >= len(names)
        self._halt = halt
        self._resumes: dict[int, Callable[[], None]] = {}
        self._threads: list[tuple[_Worker, threading.Lock]] = []
        self._over = threading.Event()
        self._results: list[Any] = [None] * len(names)

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs each device's function; gives what they return. The first error stops all others and is raised."""
        try:
            for device, body in enumerate(bodies):
                self._threads.append(self._begun(device, body))
            with self._lock:
                self._dispatch()
            while not self._over.wait(0.5):  # with a limit, so that an interrupt is noticed everywhere
                pass
        except BaseException as error:  # an interrupt, or no more threads to be had
            with self._lock:
                self._stop(error)
            raise
        finally:
            for _, busy in self._threads:
                with busy:
                    pass
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # else the traceback and this object keep each other alive
        return self._results

    # -- the transport

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        return self._exchanged(device, lambda: self.exchange.meet(device, instruction, members, value))

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        self._exchanged(device, lambda: self.exchange.send(device, instruction, route, value))

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        return self._exchanged(device, lambda: self.exchange.receive(device, instruction, route))

    def offer(self, device: int, route: Route) -> None:
        with self._lock:
            self._free(device, self.exchange.offer(route))

    # -- turns

    def _exchanged(self, device: int, exchange: Callable[[], list[int]]) -> Any:
        with self._lock:
            if self.stopped:
                raise Cancelled
            freed = exchange()
            self._free(device, freed)
            if device in freed:
                return self.exchange.results.pop(device)
            self._running.discard(device)
            self._dispatch()
        self._turns[device].acquire()
        with self._lock:
            if device not in self.exchange.results:
                raise Cancelled
            return self.exchange.results.pop(device)

    def _free(self, device: int, freed: Iterable[int]) -> None:
        self._ready.extend(d for d in freed if d != device)
        self._dispatch()

    def _dispatch(self) -> None:
        """Gives turns to those that are ready. The lock is held."""
        while self._ready and len(self._running) < self._parallel:
            device = self._ready.popleft()
            self._running.add(device)
            self._turns[device].release()
        if not self._running:
            if len(self.exchange.finished) == len(self.names):
                self._over.set()
            elif not self.stopped:
                self._stop(self.exchange.deadlock())

    def _stop(self, error: BaseException) -> None:
        """Lets every device know that it is over; those that wait get their last turn. The lock is held."""
        if self.stopped:
            return
        self.stopped = True
        self._failure = error
        self._ready.clear()
        for device, (thread, _) in enumerate(self._threads):
            if self._halt is not None and device not in self.exchange.finished:
                self._resumes[device] = self._halt([thread.runs_on])
        for device in range(len(self.names)):
            if device not in self._running and device not in self.exchange.finished:
                self._running.add(device)
                self._turns[device].release()

    def _begun(self, device: int, body: Callable[[], Any]) -> tuple[_Worker, threading.Lock]:
        context = contextvars.copy_context()
        return _Worker.begun(self.names[device], lambda: context.run(self._device, device, body))

    def _device(self, device: int, body: Callable[[], Any]) -> None:
        """A thread's whole life."""
        self._turns[device].acquire()
        error: BaseException | None = None
        try:
            if not self.stopped:
                self._results[device] = body()
        except Cancelled:
            pass
        except BaseException as raised:
            error = raised
        with self._lock:
            if error is not None:
                self._stop(placed(self.names[device], error))
            self._resumes.pop(device, _nothing)()  # now, since another run may have the thread next
            self._running.discard(device)
            self.exchange.finished.add(device)
            self._dispatch()


def _nothing() -> None:
    pass


def placed(device: str, error: BaseException) -> BaseException:
    """The error, saying on which device."""
    if isinstance(error, EvaluationError):
        error.args = (f"{device}: {error}", *error.args[1:])
    else:
        error.add_note(f"on {device}")
    return error


# -- threads


_IDLE = "hlokit idle device"
_PATIENCE = 10.0
"""Seconds that a thread waits for work before it ends."""
_idle: list[_Worker] = []
_idle_lock = lock()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Worker(threading.Thread):
    """A thread that devices have in turn: to start one takes longer than a small program.

    runs_on  the thread that does the work: itself, or one with a larger stack; 0 before it runs
    """

    def __init__(self) -> None:
        super().__init__(name=_IDLE, daemon=True)
        self._work: tuple[Callable[[], object], threading.Lock] | None = None
        self._go = _locked()
        self.runs_on = 0

    @staticmethod
    def begun(name: str, work: Callable[[], object]) -> tuple[_Worker, threading.Lock]:
        """A thread of this name that does the work, which must not raise; the lock is held until that is done.

        EvaluationError if there are no more threads to be had.
        """
        with _idle_lock:
            worker = _idle.pop() if _idle else None
        if worker is None:
            worker = _Worker()
            try:
                worker.start()
            except RuntimeError as error:
                raise EvaluationError(f"no thread for {name}: {error}") from None
        worker.name = name
        busy = _locked()
        worker._work = work, busy
        worker._go.release()
        return worker, busy

    def run(self) -> None:
        self._serve()

    @with_stack
    def _serve(self) -> None:
        self.runs_on = threading.get_ident()
        while True:
            while not self._go.acquire(timeout=_PATIENCE):
                with _idle_lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
            assert self._work is not None
            (work, busy), self._work = self._work, None
            try:
                work()
            finally:
                del work  # what it holds is not to wait for the next
                self.name = _IDLE
                with _idle_lock:
                    _idle.append(self)
                busy.release()


def begun(name: str, work: Callable[[], object]) -> threading.Lock:
    """A thread of this name does the work, which must not raise; the lock is held until that is done."""
    return _Worker.begun(name, work)[1]


def is_device(thread: threading.Thread) -> bool:
    """Whether it is a thread that runs a device's program, or waits for one."""
    return isinstance(thread, _Worker)


def _forget() -> None:
    """For the child of a fork, which has none of the threads."""
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
