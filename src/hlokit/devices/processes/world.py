"""World: the processes of a job, which have the devices of a run."""

from __future__ import annotations

import atexit
import contextvars
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakKeyDictionary

import numpy as np

from hlokit.devices.flight_recorder import Entry, FlightRecorder
from hlokit.devices.grid import Halt, begun, placed
from hlokit.devices.processes.collective import Collective, group_of, leaves, positions_of, shapes_of, tree
from hlokit.devices.processes.engine import Engine, Group, cut
from hlokit.devices.processes.hub import Hub
from hlokit.devices.processes.line import Line, Message, error_from, error_message, version
from hlokit.devices.processes.packing import (
    Staging,
    arrays_of,
    buffer,
    described,
    pack,
    packed_size,
    rebuilt,
    unpacked,
)
from hlokit.errors import EvaluationError, HlokitError
from hlokit.hlo.sources import source_lines
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import Cancelled
from hlokit.ops.collectives import combines_elements

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction
    from hlokit.interpreter.process import Process

_START_SECONDS = 300.0
"""For all ranks to come together at first."""
_GRACE_SECONDS = 2.0
"""For a call of the engine that waits for a process that is gone to come back, and for this rank to raise the loss
before a thread prints it."""
_LAST_WORDS_SECONDS = 1.0
"""For other ranks to say what is wrong: mpiexec may end them as soon as one has ended."""


class World:
    """A transport between operating-system processes, the ranks of `engine`, of which each has devices. All ranks make
    it together.

    Given to `evaluate`, `evaluate_mpmd` or a compiled program as `world`: each rank gives its own devices' arguments
    and gets their results; all ranks make the same calls in the same order. A device that fails stops the others with
    its error. A process that ends without leaving makes the others raise EvaluationError, in the run that they are in
    or in their next; the engine cannot go on then, so these end with status 1. One that is in no run, as it compiles,
    or that cannot leave it, prints the error on standard error in the meantime.

    Values travel by the engine. Who waits for whom is known to a thread of rank 0 (hlokit.devices.processes.hub), to
    which each rank has a TCP connection; programs whose devices are known to come to the same collectives in the same
    order tell it only that they begin and end.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rank, self.size = engine.rank, engine.size
        self.stopped = False
        self.shares_memory = False
        self.lost: HlokitError | None = None
        self.is_broken = False
        """A process is gone that has not left."""
        self._is_said = False
        """This rank has raised or printed the loss."""
        self._is_direct = False
        """Devices need not ask before they meet."""
        self._generation = 0
        self._using = threading.Lock()
        self._lock = threading.Lock()
        self._is_blocked = False
        self._own: dict[int, _Own] = {}
        """The devices of this rank in the run, or in the last one."""
        self._homes: tuple[int, ...] = ()
        self._waits_for = ""
        """The program that this rank has begun, and others have not yet."""
        self._is_ending = False
        """This rank is through with its program, and others may not be."""
        self._told_loss: Message = {}
        """The loss of a process, as the hub told it."""
        self._unplaced: Message | None = None
        """That loss, if it came between runs."""
        self._grace: threading.Timer | None = None
        """Runs `_give_up` some time after a process is gone."""
        self._numbers: dict[Instruction, int] = {}
        self._collectives: WeakKeyDictionary[Instruction, dict[Hashable, Collective | None]] = WeakKeyDictionary()
        self._staging = Staging()
        self._parties: dict[tuple[int, ...], _Party] = {}
        engine.watch(self._check, self._blocked)
        self._hub: Hub | None = None
        end = self._connected()
        self.recorder = FlightRecorder(self._secret, self.rank, self.size)
        self._line = Line(end, self._noticed)
        atexit.register(self._exited)
        self._come_together()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Leaves. Ranks that begin a run after that raise an error that says so; if `error` ended this rank's work, all
        raise that one."""
        atexit.unregister(self._exited)
        self.recorder.close()
        if isinstance(error, SystemExit) and not error.code:
            error = None
        left = EvaluationError(f"rank {self.rank} has left") if error is None else error
        message = error_message(left, f"rank {self.rank}")
        self._line.tell(do="leave", error=message, failed=error is not None)
        self._line.close()
        if self._grace is not None and self._grace is not threading.current_thread():
            self._grace.cancel()
            self._grace.join(_GRACE_SECONDS)
        if self._hub is not None:
            self._hub.join(_GRACE_SECONDS)
        self._engine.close()

    def _exited(self) -> None:
        """The process ends, perhaps by an exception that nobody has caught."""
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        self.close(error)

    # -- a run

    def run(
        self,
        names: Sequence[str],
        homes: Sequence[int],
        program: str,
        instructions: Sequence[Instruction],
        bodies: Mapping[int, Callable[[], Any]],
        halt: Halt | None = None,
        title: str = "",
        order: str = "",
    ) -> list[Any]:
        """Runs the bodies, of this rank's devices; gives their results once all devices are through; else the first
        error of any device.

        names           of all devices; `homes`: the rank that has each
        program         what all ranks must agree on; `title`: its name, for errors
        instructions    those that may communicate, in an order that is the same on all ranks
        bodies          by device
        halt            stops native code on threads, as Grid's
        order           names the order in which every device comes to the same collectives; empty if it is not known
        """
        with self._using:
            self._numbers = {instruction: k for k, instruction in enumerate(instructions)}
            self._parties, self._homes = {}, tuple(homes)
            self._own = {device: _Own(device, names[device], halt) for device in bodies}
            if self._hub is not None:
                self._hub.prepared = names, homes, instructions
            interrupt: BaseException | None = None
            self.recorder.begin(program, title, homes, self._numbers)
            self._line.open(bodies)
            try:
                try:
                    self._begun(program, title, order)
                    self.recorder.progress("running")
                    self._run_bodies(bodies)
                    self._is_ending = True
                    self.recorder.progress("ending")
                except BaseException as raised:
                    interrupt = raised
                    self._interrupted(raised)
                self._over(interrupt)
                self.recorder.progress("over")
            except BaseException as raised:
                if not isinstance(raised, Exception):  # an interrupt on the way
                    self._interrupted(raised)
                if raised is self.lost and not raised.__notes__:
                    for place in self.recorder.places():
                        raised.add_note(f"rank {self.rank} {place}")
                self.recorder.fail(error_message(raised, f"rank {self.rank}")["text"])
                raise
            return [self._own[device].result for device in bodies]

    def _begun(self, program: str, title: str, order: str) -> None:
        """Waits for all ranks to begin."""
        self.stopped, self._is_ending = self.lost is not None, False
        self._waits_for = title
        if self._unplaced is not None:
            self._lose(self._unplaced)
        self._line.tell(do="begin", program=program, name=title, order=order)
        begun = self._await("begun")
        self._waits_for = ""
        self._is_direct = begun["direct"]
        if begun["generation"] != self._generation:  # a run has failed
            self._generation = begun["generation"]
            self._engine.renew(self._generation)

    def _run_bodies(self, bodies: Mapping[int, Callable[[], Any]]) -> None:
        """One device runs on this thread, several on threads of their own."""
        if len(bodies) == 1:
            for device, body in bodies.items():
                self._run_device(self._own[device], body)
            return
        context = contextvars.copy_context()
        through = threading.Semaphore(0)
        workers: list[threading.Lock] = []

        def work(own: _Own, body: Callable[[], Any]) -> None:
            try:
                self._run_device(own, body)
            except BaseException as error:  # none of hlokit's: a function that the program calls wants to exit
                own.error = error
                self._tell_end(own)
            finally:
                through.release()

        try:
            for device, body in bodies.items():
                task = partial(work, self._own[device], body)
                workers.append(begun(self._own[device].name, partial(context.copy().run, task)))
            for _ in bodies:
                while not through.acquire(timeout=0.5):  # with a limit, so that an interrupt is noticed everywhere
                    pass
        except BaseException as error:
            self._interrupted(error)  # else the threads would go on
            raise
        finally:
            for busy in workers:
                with busy:
                    pass

    def _run_device(self, own: _Own, body: Callable[[], Any]) -> None:
        """Runs a device's body and tells how it ended. Interrupts pass."""
        own.enter()
        try:
            if self.stopped:
                raise Cancelled
            own.result = body()
        except Cancelled:
            pass
        except Exception as error:
            if self.lost is None:  # else that is the run's error, and no device's
                own.error = placed(own.name, error)
        finally:
            own.leave()
        self._tell_end(own)

    def _tell_end(self, own: _Own) -> None:
        if self.lost is not None or own.told:
            return
        own.told = True
        if own.error is None:
            self._line.tell(do="end", device=own.number)
        else:
            self._tell_failure(own, own.error)

    def _interrupted(self, error: BaseException) -> None:
        """Stops this rank's devices, and tells the others. With several devices no exchange was interrupted: they have
        threads of their own."""
        self._stop()
        untold = [own for own in self._own.values() if not own.told]
        for own in untold[:1]:
            own.told = True
            own.is_bound &= len(self._own) == 1
            self._tell_failure(own, error)
        for own in untold:
            self._tell_end(own)
            own.halt()
        self._line.stop()

    def _over(self, interrupt: BaseException | None) -> None:
        """Waits for all ranks to end; raises this rank's interrupt, else the run's first error."""
        try:
            self._end(interrupt)
        except HlokitError:
            if interrupt is not None:
                raise interrupt from None
            raise

    def _end(self, interrupt: BaseException | None) -> None:
        message = self._await("over", at_once=self.lost is not None)  # a rank that has heard it may have left since
        with self._lock:
            self._is_ending = False
            is_after = self.lost is not None and self._unplaced is None and not self._is_said
            if is_after:  # all have ended this run without it
                self._unplaced = self._told_loss
                self.lost = error_from(self._told_loss)
        if is_after:
            self._announce()
        sizes = [(source, v["tag"], packed_size(arrays_of(v["header"]))) for source, v in message["left"]]
        self._engine.finish_sending(sizes)
        failure = message["failure"]
        if interrupt is not None:
            raise interrupt
        errors = {own.number: own.error for own in self._own.values() if own.error is not None}
        try:
            for device, error in errors.items():
                if failure is None or failure["by"] == device:
                    raise error
        finally:
            for own in self._own.values():
                own.error = None  # else the traceback and this object keep each other alive
            errors.clear()
        if failure is not None:
            raise error_from(failure["error"])

    def _tell_failure(self, own: _Own, error: BaseException) -> None:
        """Others that wait for this rank's part in an exchange cannot go on; else they only stop."""
        do = "break" if own.is_bound else "fail"
        self._line.tell(do=do, device=own.number, error=self._message(own, error))

    def _message(self, own: _Own, error: BaseException) -> Message:
        """This rank's error for the others; of an interrupt, which is about nothing, where it came."""
        if isinstance(error, Exception):
            return error_message(error, own.name)
        lost = EvaluationError(f"rank {self.rank}: {type(error).__name__}: {own.where}")
        return error_message(lost, "")

    def gather_text(self, text: str) -> list[str]:
        """Every rank's text, by rank."""
        everyone = range(self.size)
        group = Group(tuple(everyone))

        def gathered() -> list[str]:
            self._engine.prepare(group, 0)
            return self._texts(group, text)

        bodies = {self.rank: lambda: self._moved(self._own[self.rank], gathered)}
        return self.run([f"rank {rank}" for rank in everyone], everyone, "text", (), bodies)[0]

    def _texts(self, group: Group, text: str) -> list[str]:
        data, count = np.frombuffer(text.encode(), np.uint8), len(group.ranks)
        lengths = np.empty(count, np.int64)
        self._engine.gather(group, np.array([data.nbytes]).view(np.uint8), lengths.view(np.uint8), [8] * count)
        sizes = [int(length) for length in lengths]
        whole = buffer(sum(sizes))
        self._engine.gather(group, data, whole, sizes)
        return [part.tobytes().decode() for part in cut(whole, sizes)]

    # -- the transport

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        """Everyone's value for everyone."""
        if list(members) == [device]:
            return [value]
        homes = [self._homes[member] for member in members]
        group = group_of(members, homes, self._is_all(members))
        positions = positions_of(group, homes)
        arrays: list[Any] = []
        header = described(value, arrays)

        def gathered(given: Mapping[int, Any]) -> list[Any]:
            own = [given[members[i]] for i in positions[group.ranks.index(self.rank)]]
            headers = [json.loads(text) for text in self._texts(group, json.dumps([header for header, _ in own]))]
            kinds = [[kind for header in row for kind in arrays_of(header)] for row in headers]
            sizes = [packed_size(kind) for kind in kinds]
            data = buffer(sizes[group.ranks.index(self.rank)])
            pack([array for _, arrays in own for array in arrays], data)
            found: list[Any] = [None] * len(members)
            whole = buffer(sum(sizes))
            self._engine.gather(group, data, whole, sizes)
            for row, row_headers, kind, part in zip(positions, headers, kinds, cut(whole, sizes), strict=True):
                leaves = unpacked(part, kind)
                for i, header in zip(row, row_headers, strict=True):
                    found[i] = rebuilt(header, leaves)
            return found

        nbytes = sum(array.nbytes for array in arrays)
        return self._met(device, instruction, members, group, nbytes, (header, arrays), gathered)

    def offer(self, device: int, route: Route) -> None:
        if self.stopped:
            raise Cancelled
        self._line.tell(do="offer", device=device, route=route)

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        own = self._at(device, instruction)
        arrays: list[Any] = []
        header = described(value, arrays)
        with self.recorder.transfer(device, instruction, route, sum(array.nbytes for array in arrays)) as entry:
            tag = self._gone_on(own, do="send", at=self._numbers[instruction], route=route, value=header)["value"]
            entry.met()
            data = buffer(packed_size(arrays_of(header)))
            pack(arrays, data)
            if route.target is not None:
                self._engine.send(self._homes[route.target], tag, data)
        own.go_on()

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        own = self._at(device, instruction)
        with self.recorder.transfer(device, instruction, route, instruction.shape.nbytes) as entry:
            found = self._gone_on(own, do="receive", at=self._numbers[instruction], route=route)["value"]
            entry.met()
            kinds = arrays_of(found["header"])
            source = self.rank if route.source is None else self._homes[route.source]
            data = self._moved(own, lambda: self._engine.receive(source, found["tag"], packed_size(kinds)))
        own.go_on()
        return rebuilt(found["header"], unpacked(data, kinds))

    def collective(
        self, process: Process, instruction: Instruction, operands: Sequence[Any], into: Sequence[Any] | None = None
    ) -> Any:
        """The instruction's value, where its op says who needs what of whom; else NotImplemented."""
        device = process.device
        plan = self._planned(process, instruction)
        if plan is None:
            return NotImplemented
        arrays = [np.asarray(array, order="C") for array in leaves(operands)]
        results = [np.empty(s.dimensions, s.dtype.numpy) for s in plan.results] if into is None else into
        function = process.callee(instruction.called[0]) if instruction.called else None

        def moved(given: Mapping[int, tuple[list[Any], Sequence[Any]]]) -> None:
            places = {other: plan.members.index(other) for other in given}
            operands_of = {places[other]: operands for other, (operands, _) in given.items()}
            results_of = {places[other]: results for other, (_, results) in given.items()}
            plan.run(self._engine, self._staging, operands_of, results_of, function)

        if len(plan.members) == 1:
            moved({device: (arrays, results)})
        else:
            nbytes = sum(array.nbytes for array in arrays)
            self._met(device, instruction, plan.members, plan.group, nbytes, (arrays, results), moved)
        made = (arrays[number] if result is None else result for number, result in enumerate(results))
        return tree(instruction.shape, made)

    def _planned(self, process: Process, instruction: Instruction) -> Collective | None:
        """Made once for each place in a program, which may be changed between runs."""
        known = self._collectives.setdefault(instruction, {})
        shapes = tuple(operand.shape for operand in instruction.operands)
        counts = process.replica_count, process.partition_count
        key = process.device, counts, self._homes, instruction.op, instruction.shape, shapes
        if key not in known:
            known[key] = self._plan(process, instruction)
        return known[key]

    def _plan(self, process: Process, instruction: Instruction) -> Collective | None:
        operands = shapes_of(instruction)
        results = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
        if any(shape.is_dynamic for shape in (*operands, *results)) or not combines_elements(instruction):
            return None
        transfer = instruction.op.transfer(operands, results, process)
        if transfer is None:
            return None
        devices = [replica * process.partition_count + partition for replica, partition in transfer.members]
        homes = [self._homes[device] for device in devices]
        return Collective(transfer, devices, homes, self.rank, operands, results, self._is_all(devices))

    def _is_all(self, members: Sequence[int]) -> bool:
        return len(members) == len(self._homes)

    def _met(
        self,
        device: int,
        instruction: Instruction,
        members: Sequence[int],
        group: Group,
        nbytes: int,
        given: Any,
        move: Callable[[Mapping[int, Any]], Any],
    ) -> Any:
        """The result of `move`, which one device of each rank calls with what the devices of its rank gave: once all
        members have come, or where the run is direct, are known to come."""
        with self.recorder.collective(device, instruction, members, nbytes) as entry:
            return self._met_at(entry, device, instruction, members, group, given, move)

    def _met_at(
        self,
        entry: Entry,
        device: int,
        instruction: Instruction,
        members: Sequence[int],
        group: Group,
        given: Any,
        move: Callable[[Mapping[int, Any]], Any],
    ) -> Any:
        own = self._at(device, instruction)
        self._engine.room_for(group)
        is_direct = self._is_direct and self._engine.is_ready(group)
        own.is_inside = is_direct
        party, is_last = self._joined(tuple(members), device, given)
        number = 0
        if not is_direct:
            named = None if self._is_all(members) else list(members)
            number = self._gone_on(own, do="meet", at=self._numbers[instruction], members=named)["number"]
            entry.met()

        def moved() -> Any:
            self._engine.prepare(group, number)
            return move(party.given)

        if is_last:
            try:
                party.result, party.failed = self._moved(own, moved), False
            finally:
                party.done.set()
        party.done.wait()
        if party.failed:
            raise Cancelled
        if is_direct:
            entry.met()
        own.go_on()
        return party.result

    def _joined(self, members: tuple[int, ...], device: int, given: Any) -> tuple[_Party, bool]:
        """The devices of this rank that meet, and whether this one is the last of them."""
        with self._lock:
            if self.stopped:
                raise Cancelled
            party = self._parties.setdefault(members, _Party())
            party.given[device] = given
            is_last = len(party.given) == sum(self._homes[member] == self.rank for member in members)
            if is_last:
                del self._parties[members]
            return party, is_last

    def _at(self, device: int, instruction: Instruction) -> _Own:
        own = self._own[device]
        own.instruction = instruction
        return own

    def _gone_on(self, own: _Own, **message: Any) -> Message:
        """Waits; gives what the hub says when it lets this device go on."""
        own.is_inside = own.is_bound = True
        answer = self._line.ask(own.number, **message)
        own.is_inside = own.is_bound = answer["is"] == "go"
        if answer["is"] == "refused":
            error = error_from(answer["error"])
            if isinstance(error, EvaluationError):
                error.located = False
            raise error
        if answer["is"] != "go":
            raise Cancelled
        return answer

    def _moved(self, own: _Own, move: Callable[[], Any]) -> Any:
        """Runs `move`. Others take part in it: where it breaks, they cannot go on, unless the run is direct."""
        try:
            return move()
        except self._engine.failures as error:
            end = time.monotonic() + _GRACE_SECONDS / 2
            while self.lost is None and time.monotonic() < end:  # the hub may say what it stumbled over
                time.sleep(0.01)
            self._check()
            failure = EvaluationError(f"{self._engine.name}: {error}")
            self._break(own, failure)
            raise failure from error
        except BaseException as error:
            if own.is_bound or not self._is_direct:
                self._break(own, error)
            raise

    # -- what goes wrong

    def _break(self, own: _Own, error: BaseException) -> None:
        if self.lost is None:
            self._line.tell(do="break", device=own.number, error=self._message(own, error))
            own.go_on()

    def _noticed(self, message: Message) -> None:
        """On the listening thread: another device failed, or its process is gone."""
        self.recorder.note(message["error"]["text"])  # first: as soon as the devices know, they leave what they are at
        if message["is"] == "stop":
            self.recorder.fail(message["error"]["text"])
        if message["is"] == "lost" and self.lost is None:
            self.is_broken = not message["left"]
            self._lose(message["error"])
            self._announce()
            if message["failed"] and self._unplaced:
                self.recorder.dump(message["error"]["text"])
            self._grace = threading.Timer(_GRACE_SECONDS, self._give_up, [message["failed"]])
            self._grace.daemon = True
            self._grace.start()
        self._stop()
        for own in tuple(self._own.values()):
            own.halt()

    def _stop(self) -> None:
        """Devices that wait for others of this rank leave; those that wait in the engine ask (`_check`)."""
        with self._lock:
            self.stopped = True
            for party in self._parties.values():
                party.done.set()

    def _lose(self, told: Message) -> None:
        with self._lock:
            places = self._places()
            self._told_loss = told
            self._unplaced = None if places else told
            self.lost = error_from({**told, "text": "; ".join([told["text"], *places])})

    def _announce(self) -> None:
        """Prints at once a loss that no program of this rank meets: without its coordinator JAX ends this process."""
        if self.is_broken and self._unplaced:
            self._print_lost()

    def _places(self) -> list[str]:
        """Where this rank's devices are."""
        if self._waits_for:
            first = next((i for i in self._numbers if i.op.form == "communicate"), None)
            then = f", whose first instruction for all is {_named(first)}" if first is not None else ""
            return [f"rank {self.rank} waits for all to begin {self._waits_for}{then}"]
        met = [own for own in tuple(self._own.values()) if own.instruction is not None]
        return [own.where for own in met if not own.told] or [own.where for own in met if self._is_ending]

    def _check(self) -> None:
        if self.lost is not None:
            self._raise_lost()
        if self._is_direct and self.stopped:
            raise Cancelled

    def check(self, doing: str) -> None:
        """Raises EvaluationError if another process is gone; `doing`: what this rank does for a run with it."""
        if self.lost is None:
            return
        if self._unplaced is not None:
            self.lost = error_from({**self._unplaced, "text": f"{self._unplaced['text']}; rank {self.rank} {doing}"})
        self._raise_lost()

    def _raise_lost(self) -> NoReturn:
        """The engine's own end would wait for a process that is gone: this one is then to end without it."""
        assert self.lost is not None
        self._is_said = True
        atexit.unregister(_end_at_once)
        if self.is_broken:
            atexit.register(_end_at_once)
        raise self.lost

    def _blocked(self, is_blocked: bool) -> None:
        self._is_blocked = is_blocked

    def _give_up(self, has_failed: bool) -> None:
        """Prints the loss if this rank has not raised it yet. If the engine waits for the process that is gone, it does
        not come back: then this rank ends."""
        self.recorder.fail(str(self.lost))
        if self._is_blocked:
            print(f"error: {self.lost}", file=sys.stderr)
            _end_at_once()
        if has_failed and not self._is_said:
            self._print_lost()

    def _print_lost(self) -> None:
        self._is_said = True
        then = f"rank {self.rank} raises this error when it runs the next program with it"
        print("; ".join([f"error: {self.lost}", *([then] if self._unplaced else [])]), file=sys.stderr, flush=True)

    def _await(self, what: str, *, at_once: bool = False) -> Message:
        """The next message of this kind, which is there already if it is wanted `at_once`. Others are answers that an
        interrupt has kept this rank from taking."""
        while True:
            message = self._line.answer(0.0 if at_once else None)
            if message is None or message["is"] == "lost":
                self._raise_lost()
            if message["is"] == what:
                return message

    def _expect(self, what: str, message: Message) -> None:
        if message["is"] == "lost":
            self._raise_lost()
        assert message["is"] == what, message

    # -- coming together

    def _connected(self) -> socket.socket:
        """A connection to the hub, of which rank 0 tells the others by the engine."""
        secret, address = secrets.token_hex(16), b""
        interface = self._engine.host()
        if self.rank == 0:
            self._hub = Hub(self.size, secret, interface)
            hosts = [interface] if interface else _addresses()
            address = json.dumps([secret, self._hub.port, socket.gethostname(), hosts]).encode()
        secret, port, host, hosts = json.loads(self._engine.share(address))
        if socket.gethostname() == host and not interface:
            hosts = ["127.0.0.1"]
        errors: list[str] = []
        for candidate in hosts:
            try:
                end = socket.create_connection((candidate, port), timeout=10)
            except OSError as error:
                errors.append(f"{candidate}: {error}")
                continue
            end.settimeout(None)
            self._secret = secret
            return end
        raise EvaluationError(f"rank {self.rank} cannot reach rank 0: {'; '.join(errors)}")

    def _come_together(self) -> None:
        self._line.tell(rank=self.rank, secret=self._secret, version=version())
        message = self._line.answer(_START_SECONDS)
        if message is None:
            raise EvaluationError(f"not all of {self.size} ranks connected within {_START_SECONDS:.0f} seconds")
        self._expect("welcome", message)


class _Own:
    """A device of this rank in a run.

    instruction   that it communicates at, or did last; `is_inside`: it is not through with that
    is_bound      others count on its part in that, and cannot leave
    told          whether the hub knows that it has ended
    """

    def __init__(self, number: int, name: str, halt: Halt | None) -> None:
        self.number, self.name = number, name
        self.result: Any = None
        self.error: BaseException | None = None
        self.instruction: Instruction | None = None
        self.is_inside = self.is_bound = self.told = False
        self._halt = halt
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._resumes: list[Callable[[], None]] = []

    @property
    def where(self) -> str:
        """Which instruction it waits at, or is through with."""
        if self.instruction is None:
            return f"{self.name} has not met another yet"
        return f"{self.name} {'waits at' if self.is_inside else 'is through'} {_named(self.instruction)}"

    def go_on(self) -> None:
        """It is through with its instruction."""
        self.is_inside = self.is_bound = False

    def enter(self) -> None:
        """This thread runs the device."""
        with self._lock:
            self._thread = threading.get_ident()

    def halt(self) -> None:
        """Stops its native code."""
        with self._lock:
            if self._thread is not None and self._halt is not None and not self._resumes:
                self._resumes.append(self._halt([self._thread]))

    def leave(self) -> None:
        """This thread does not run it any more."""
        with self._lock:
            self._thread = None
            while self._resumes:
                self._resumes.pop()()


class _Party:
    """The devices of a rank at one rendezvous. `given`: what each brought."""

    def __init__(self) -> None:
        self.given: dict[int, Any] = {}
        self.result: Any = None
        self.failed = True
        self.done = threading.Event()


@dataclass(frozen=True)
class Placement:
    """A world, and the rank that has each device of a run."""

    world: World
    homes: Sequence[int]

    @property
    def own(self) -> list[int]:
        """This rank's devices."""
        return [device for device, home in enumerate(self.homes) if home == self.world.rank]


def _named(instruction: Instruction) -> str:
    """Its name and opcode, and the line of the user's program."""
    lines = source_lines(instruction)
    return f"{instruction.name} ({instruction.opcode})" + (f", {lines[0]}" if lines else "")


def _addresses() -> list[str]:
    """Where other machines may reach this one."""
    found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found if not str(entry[4][0]).startswith("127.")))


def _end_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_LAST_WORDS_SECONDS)
    os._exit(1)
