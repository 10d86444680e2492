"""World: the processes of an MPI job as the devices of a run, one a rank."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from mpi4py import MPI

from hlokit.devices.grid import Halt, placed
from hlokit.devices.mpi.collective import Collective, has_nan, leaves, shapes_of
from hlokit.devices.mpi.hub import Hub
from hlokit.devices.mpi.line import Line, Message, error_from, error_message
from hlokit.devices.mpi.mover import Mover
from hlokit.devices.mpi.packing import arrays_of, buffer, described, pack, packed_size, rebuilt, unpacked
from hlokit.errors import EvaluationError, HlokitError
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import Cancelled
from hlokit.ops.collectives import combines_elements

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction
    from hlokit.interpreter.process import Process

_START_SECONDS = 300.0
"""For all ranks to come together at first."""
_GRACE_SECONDS = 2.0
"""For a call of MPI that waits for a process that is gone to come back."""
_LAST_WORDS_SECONDS = 1.0
"""For other ranks to say what is wrong: mpiexec may end them as soon as one has ended."""


class World:
    """A transport between operating-system processes: rank i of `comm` is device i. All ranks make it together.

    comm    an mpi4py communicator; by default COMM_WORLD

    Given to `evaluate`, `evaluate_mpmd` or a compiled program as `world`: each rank gives its own device's arguments
    and gets its result; all ranks make the same calls in the same order. A device that fails stops the others with its
    error. A process that ends in the midst of a run makes the others raise EvaluationError; MPI cannot go on then, so
    these end with status 1.

    Values travel by MPI. Who waits for whom is known to a thread of rank 0 (hlokit.devices.mpi.hub), to which each
    rank has a TCP connection.
    """

    def __init__(self, comm: MPI.Intracomm | None = None) -> None:
        _ignore_notice()
        self._comm = (comm or MPI.COMM_WORLD).Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self.stopped = False
        self.shares_memory = False
        self.lost: HlokitError | None = None
        self.is_broken = False
        """A process is gone in the midst of a run."""
        self._using = threading.Lock()
        self._in_mpi = False
        self._failing: Callable[[], None] = _nothing
        self._where = ""
        """In which exchange this rank is, or was last."""
        self._inside = False
        """Whether others count on this rank's part in that exchange."""
        self._told = False
        """Whether the others know that this rank has ended the run."""
        self._numbers: dict[Instruction, int] = {}
        self._collectives: dict[Instruction, Collective | None] = {}
        self._mover = Mover(self._comm, self._check, self._blocked)
        self._hub: Hub | None = None
        self._line = Line(self._connected(), self._noticed)
        atexit.register(self.close)
        self._come_together()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Leaves; ranks that begin a run after that raise `error`, or one that says that this rank has left."""
        atexit.unregister(self.close)
        left = EvaluationError(f"rank {self.rank} has left") if error is None else error
        self._line.tell(do="leave", error=error_message(left, f"rank {self.rank}"))
        self._line.close()
        if self._hub is not None:
            self._hub.join(_GRACE_SECONDS)

    # -- a run

    def run(
        self,
        names: Sequence[str],
        program: str,
        instructions: Sequence[Instruction],
        body: Callable[[], Any],
        halt: Halt | None = None,
    ) -> Any:
        """Runs `body`; gives its result once all ranks are through with theirs; else the first error of any rank.

        names           of the devices
        program         what all ranks must agree on
        instructions    those that may communicate, in an order that is the same on all ranks
        halt            stops native code on threads, as Grid's
        """
        with self._using:
            self._numbers = {instruction: k for k, instruction in enumerate(instructions)}
            self._collectives = {}
            if self._hub is not None:
                self._hub.prepared = names, instructions
            self._where, self._inside, self._told = "", False, False
            error: BaseException | None = None
            result = None
            try:
                try:
                    resume = self._begun(program, halt)
                    try:
                        result = body()
                    finally:
                        resume()
                except Cancelled:
                    pass
                except BaseException as raised:
                    error = raised
                self._ended(names[self.rank], error)
            except BaseException as raised:
                if not self._told and not isinstance(raised, Exception):  # an interrupt on the way
                    self._tell_failure(names[self.rank], raised)
                raise
            return result

    def _begun(self, program: str, halt: Halt | None) -> Callable[[], None]:
        """Waits for all ranks to begin. Gives what ends the halting of native code."""
        self.stopped = self.lost is not None
        threads = [threading.get_ident()]
        lock = threading.Lock()
        resumes: list[Callable[[], None]] = []

        def failing() -> None:
            with lock:
                if halt is not None and self._failing is failing:
                    resumes.append(halt(threads))

        def resume() -> None:
            with lock:
                self._failing = _nothing
                while resumes:
                    resumes.pop()()

        self._failing = failing
        try:
            self._line.tell(do="begin", program=program)
            self._await("begun")
        except BaseException:
            resume()
            raise
        return resume

    def _ended(self, name: str, error: BaseException | None) -> None:
        """Waits for all ranks to end; raises this rank's interrupt, else the run's first error."""
        try:
            self._end(name, error)
        except HlokitError:
            if error is not None and not isinstance(error, Exception):
                raise error from None
            raise

    def _end(self, name: str, error: BaseException | None) -> None:
        if self.lost is not None:
            self._raise_lost()
        self._told = True
        if error is None:
            self._line.tell(do="end")
        else:
            error = placed(name, error)
            self._tell_failure(name, error)
        message = self._await("over")
        sizes = [(source, v["tag"], packed_size(arrays_of(v["header"]))) for source, v in message["left"]]
        self._mover.finish_sending(sizes)
        failure = message["failure"]
        if error is not None and (failure is None or failure["rank"] == self.rank):
            raise error
        if failure is not None:
            raise error_from(failure["error"])

    def _tell_failure(self, name: str, error: BaseException) -> None:
        """Others that wait for this rank's part in an exchange cannot go on; else they only stop."""
        self._line.tell(do="break" if self._inside else "fail", error=self._message(error, name))

    def _message(self, error: BaseException, name: str) -> Message:
        """This rank's error for the others; of an interrupt, which is about nothing, where it came."""
        if isinstance(error, Exception):
            return error_message(error, name)
        lost = EvaluationError(f"rank {self.rank}: {type(error).__name__}{self._where}")
        return error_message(lost, "")

    def gather_text(self, text: str) -> list[str]:
        """Every rank's text, by rank."""
        everyone = list(range(self.size))

        def gathered() -> list[str]:
            data = np.frombuffer(text.encode(), np.uint8)
            sizes = self._mover.gather(everyone, np.array([data.nbytes]).view(np.uint8), [8] * self.size)
            parts = self._mover.gather(everyone, data, [int(size.view(np.int64)[0]) for size in sizes])
            return [part.tobytes().decode() for part in parts]

        return self.run([f"rank {rank}" for rank in everyone], "text", (), lambda: self._moved(gathered))

    # -- the transport

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        """Everyone's value for everyone."""
        if list(members) == [device]:
            return [value]
        self._where = f" at {instruction.name} ({instruction.opcode})"
        arrays: list[Any] = []
        headers = self._met(instruction, members, described(value, arrays))
        kinds = [arrays_of(header) for header in headers]
        sizes = [packed_size(kind) for kind in kinds]
        data = buffer(sizes[list(members).index(device)])
        pack(arrays, data)
        parts = self._moved(lambda: self._mover.gather(members, data, sizes))
        self._inside = False
        return [rebuilt(h, unpacked(part, kind)) for h, part, kind in zip(headers, parts, kinds, strict=True)]

    def offer(self, device: int, route: Route) -> None:
        if self.stopped:
            raise Cancelled
        self._line.tell(do="offer", route=route)

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        self._where = f" at {instruction.name} ({instruction.opcode})"
        arrays: list[Any] = []
        header = described(value, arrays)
        tag = self._gone_on(do="send", at=self._numbers[instruction], route=route, value=header)
        data = buffer(packed_size(arrays_of(header)))
        pack(arrays, data)
        if route.target is not None:
            self._mover.send(route.target, tag, data)
        self._inside = False

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        self._where = f" at {instruction.name} ({instruction.opcode})"
        found = self._gone_on(do="receive", at=self._numbers[instruction], route=route)
        kinds = arrays_of(found["header"])
        source = self.rank if route.source is None else route.source
        data = self._moved(lambda: self._mover.receive(source, found["tag"], packed_size(kinds)))
        self._inside = False
        return rebuilt(found["header"], unpacked(data, kinds))

    def collective(self, process: Process, instruction: Instruction, operands: Sequence[Any]) -> Any:
        """The instruction's value, where its op says who needs what of whom; else NotImplemented."""
        self._where = f" at {instruction.name} ({instruction.opcode})"
        if instruction not in self._collectives:
            self._collectives[instruction] = self._planned(process, instruction)
        plan = self._collectives[instruction]
        if plan is None:
            return NotImplemented
        arrays = list(leaves(operands))
        function = process.callee(instruction.called[0]) if instruction.called else None
        any_nan = plan.is_reduction and has_nan(arrays)
        if len(plan.members) > 1:
            any_nan = any(self._met(instruction, plan.members, any_nan))
        if plan.is_reduction:
            assert function is not None
            result = self._moved(lambda: plan.reduced(self._mover, arrays, function, any_nan))
        else:
            result = self._moved(lambda: plan.moved(self._mover, arrays, function))
        self._inside = False
        return result

    def _planned(self, process: Process, instruction: Instruction) -> Collective | None:
        operands = shapes_of(instruction)
        results = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
        if any(shape.is_dynamic for shape in (*operands, *results)) or not combines_elements(instruction):
            return None
        transfer = instruction.op.transfer(operands, results, process)
        if transfer is None:
            return None
        own = transfer.members.index((process.replica_id, process.partition_id))
        devices = [replica * process.partition_count + partition for replica, partition in transfer.members]
        return Collective(transfer, own, devices, operands, instruction.shape)

    def _met(self, instruction: Instruction, members: Sequence[int], header: Any) -> list[Any]:
        """Every member's header, once all have come."""
        self._mover.room_for(members)
        return self._gone_on(do="meet", at=self._numbers[instruction], members=list(members), value=header)

    def _gone_on(self, **message: Any) -> Any:
        """Waits; gives what the hub says when it lets this device go on."""
        self._inside = True
        answer = self._line.ask(**message)
        self._inside = answer["is"] == "go"
        if answer["is"] == "refused":
            error = error_from(answer["error"])
            if isinstance(error, EvaluationError):
                error.located = False
            raise error
        if answer["is"] != "go":
            raise Cancelled
        return answer["value"]

    def _moved(self, move: Callable[[], Any]) -> Any:
        """Runs `move`. Others take part in it: where it breaks, they cannot go on."""
        try:
            return move()
        except BaseException as error:
            if self.lost is None:
                self._line.tell(do="break", error=self._message(error, f"rank {self.rank}"))
                self._inside = False
            if isinstance(error, MPI.Exception):
                time.sleep(_GRACE_SECONDS / 2)  # what it stumbled over may be known by then
                self._check()
                raise EvaluationError(f"MPI: {error}") from error
            raise

    # -- what goes wrong

    def _noticed(self, message: Message) -> None:
        """On the listening thread: another device failed, or its process is gone."""
        if message["is"] == "lost" and self.lost is None:
            self.lost, self.is_broken = error_from(message["error"]), not message["left"]
            timer = threading.Timer(_GRACE_SECONDS, self._give_up)
            timer.daemon = True
            timer.start()
        self.stopped = True
        self._failing()

    def _check(self) -> None:
        if self.lost is not None:
            self._raise_lost()

    def _raise_lost(self) -> NoReturn:
        """MPI's own end would wait for a process that is gone: this one is then to end without it."""
        assert self.lost is not None
        atexit.unregister(_end_without_mpi)
        if self.is_broken:
            atexit.register(_end_without_mpi)
        raise self.lost

    def _blocked(self, in_mpi: bool) -> None:
        self._in_mpi = in_mpi

    def _give_up(self) -> None:
        """MPI waits for a process that is gone, and does not come back."""
        if self._in_mpi:
            print(f"error: {self.lost}", file=sys.stderr)
            _end_without_mpi()

    def _await(self, what: str) -> Message:
        """The next message of this kind. Others are answers that an interrupt has kept this rank from taking."""
        while True:
            message = self._line.answer()
            if message is not None and message["is"] == "lost":
                self._raise_lost()
            if message is not None and message["is"] == what:
                return message

    def _expect(self, what: str, message: Message) -> None:
        if message["is"] == "lost":
            self._raise_lost()
        assert message["is"] == what, message

    # -- coming together

    def _connected(self) -> socket.socket:
        """A connection to the hub, of which rank 0 tells the others by MPI."""
        secret, address = secrets.token_hex(16), b""
        if self.rank == 0:
            near = self._is_one_machine()
            self._hub = Hub(self.size, secret, "127.0.0.1" if near else "")
            hosts = ["127.0.0.1"] if near else _addresses()
            address = json.dumps([secret, self._hub.port, socket.gethostname(), hosts]).encode()
        else:
            self._is_one_machine()
        length = np.array([len(address)])
        self._comm.Bcast(length)
        text = np.frombuffer(address, np.uint8).copy() if address else np.empty(int(length[0]), np.uint8)
        self._comm.Bcast(text)
        secret, port, host, hosts = json.loads(text.tobytes())
        errors: list[str] = []
        for candidate in ["127.0.0.1"] if socket.gethostname() == host else hosts:
            try:
                end = socket.create_connection((candidate, port), timeout=10)
            except OSError as error:
                errors.append(f"{candidate}: {error}")
                continue
            end.settimeout(None)
            self._secret = secret
            return end
        raise EvaluationError(f"rank {self.rank} cannot reach rank 0: {'; '.join(errors)}")

    def _is_one_machine(self) -> bool:
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        found = local.size == self.size
        local.Free()
        return found

    def _come_together(self) -> None:
        self._line.tell(rank=self.rank, secret=self._secret)
        message = self._line.answer(_START_SECONDS)
        if message is None:
            raise EvaluationError(f"not all of {self.size} ranks came within {_START_SECONDS:.0f} seconds")
        self._expect("welcome", message)


def position() -> tuple[int, int]:
    """(rank, size) of this process among those that were started together."""
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def among(ranks: Sequence[int]) -> World:
    """The world of these of all ranks, which all of them make together: the first is its rank 0."""
    everyone = MPI.COMM_WORLD.Get_group()
    chosen = everyone.Incl(list(ranks))
    comm = MPI.COMM_WORLD.Create_group(chosen)
    chosen.Free()
    everyone.Free()
    return World(comm)


def _addresses() -> list[str]:
    """Where other machines may reach this one."""
    found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found if not str(entry[4][0]).startswith("127.")))


def _nothing() -> None:
    pass


def _ignore_notice() -> None:
    """MPICH's mpiexec -disable-auto-cleanup tells by SIGUSR1 that a process is gone, which would end this one."""
    if sys.platform == "win32":
        return
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and "PMI_RANK" in os.environ and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _end_without_mpi() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_LAST_WORDS_SECONDS)
    os._exit(1)
