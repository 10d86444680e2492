"""Computation: a graph of instructions with one root. All edits go through its methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from hlokit.errors import MisuseError, ShapeError
from hlokit.hlo.instruction import Instruction, by_role
from hlokit.hlo.lineage import active, came_from
from hlokit.hlo.op import OPS, Op, infer_shape, same_result
from hlokit.tracebacks import public
from hlokit.types.shape import ProgramShape, Shape

if TYPE_CHECKING:
    from hlokit.hlo.module import HloModule

MAIN_THREAD = "main"


class Computation:
    """Instructions in the order in which they were added, and the one whose value is the result.

    `instructions` may contain dead ones (HCOMP-11). The order of execution is `post_order()` unless the module is
    scheduled, when it is the order of `instructions`.

    Parameters
    ----------
    name : str
        The name.
    module : HloModule, optional
        The module that it is put in.

    Attributes
    ----------
    execution_thread : str
        The thread that runs it; "main" unless an asynchronous operation calls it.
    backend_config : str
        The text of `backend_config`.
    root_or_none : Instruction or None
        The root, if one was set; None: the last instruction is the root.
    version : int
        A number that every change increases.

    Examples
    --------
    >>> b = hk.Builder("double")
    >>> double = b.build_computation(b.parameter(0, hk.f32) * 2.0)
    >>> double
    <Computation double: (f32[]) -> f32[], 3 instructions>
    >>> [instruction.opcode for instruction in double.instructions]
    ['parameter', 'constant', 'multiply']
    """

    __slots__ = (
        "_instructions", "_next_id", "_order", "_order_version", "_parameters", "_signature", "_signature_version",
        "backend_config", "execution_thread", "module", "name", "root_or_none", "version",
    )  # fmt: skip

    def __init__(self, name: str, module: HloModule | None = None) -> None:
        self.name = name
        self.module = module
        self.execution_thread = MAIN_THREAD
        self.backend_config = ""
        self.root_or_none: Instruction | None = None
        self.version = 0
        self._instructions: dict[Instruction, None] = {}
        self._parameters: dict[int, Instruction] = {}
        self._next_id = 0
        self._order: list[Instruction] = []
        self._order_version = -1
        self._signature: ProgramShape | None = None
        self._signature_version = -1

    if not TYPE_CHECKING:  # a type checker refuses the call

        @public
        def __call__(self, *args: object, **kwargs: object) -> NoReturn:
            raise MisuseError(
                f"{self!r} is a computation, not a function: write hk.call(b, computation, [x, ...]) in a program; "
                "Builder.build makes a module, which hk.evaluate and hk.compile take"
            )

    # -- reading

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions in the order in which they were added, or in which they run if the module is scheduled."""
        return list(self._instructions)

    def __len__(self) -> int:
        return len(self._instructions)

    @property
    def next_id(self) -> int:
        """The id of the instruction that is added next; ids ascend in the order of addition."""
        return self._next_id

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the result: the one set, else the last one (HCOMP-4)."""
        if self.root_or_none is not None:
            return self.root_or_none
        if not self._instructions:
            raise ShapeError("HCOMP-5", f"computation {self.name}", "no instruction", "at least one")
        return next(reversed(self._instructions))

    @property
    def parameters(self) -> list[Instruction]:
        """Parameter instructions by number."""
        return [self._parameters[number] for number in sorted(self._parameters)]

    @property
    def single_op(self) -> Op | None:
        """The op of a computation that applies it to its two scalar parameters; None for others.

        The parameters come in their order, or in either order if the op is commutative.
        """
        if not self._instructions:
            return None
        root, parameters = self.root, self.parameters
        if len(parameters) != 2 or len(root.operands) != 2 or root.called or not root.shape.is_scalar:
            return None
        if list(root.operands) == parameters:
            return root.op
        return root.op if root.op.commutative and list(root.operands) == parameters[::-1] else None

    def has_parameter(self, number: int) -> bool:
        """Whether there is a parameter of this number.

        Parameters
        ----------
        number : int
            The number, from 0.

        Returns
        -------
        bool
            Whether there is one.
        """
        return number in self._parameters

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of the parameters and of the result."""
        parameters = self.parameters
        return ProgramShape([p.shape for p in parameters], self.root.shape, [p.name for p in parameters])

    def signature(self) -> ProgramShape:
        """The program shape without the parameters' names, which a call must match. Cached until the graph changes.

        Returns
        -------
        ProgramShape
            The shapes of the parameters and of the result.
        """
        if self._signature is None or self._signature_version != self.version:
            self._signature = ProgramShape([p.shape for p in self.parameters], self.root.shape)
            self._signature_version = self.version
        return self._signature

    def post_order(self) -> list[Instruction]:
        """Operands and control predecessors before their users (HPRINT-2). Cached until the graph changes.

        XLA's order: starts from each instruction without users in the order of `instructions`; before an
        instruction come its control predecessors, last first, then its operands, left to right.
        A cycle (only edits that bypass this class can make one) raises ShapeError.

        Returns
        -------
        list of Instruction
            The instructions.
        """
        if self._order_version != self.version:
            self._order = _post_order(self)
            self._order_version = self.version
        return self._order

    # -- editing

    def add(
        self,
        op: Op,
        operands: Sequence[Instruction] = (),
        called: Sequence[Computation] = (),
        *,
        shape: Shape | None = None,
        name: str | None = None,
    ) -> Instruction:
        """Appends an instruction. Its shape is inferred, which checks the op's rules.

        Parameters
        ----------
        op : Op
            The op with its attributes.
        operands : sequence of Instruction, optional
            The operands, of this computation.
        called : sequence of Computation, optional
            The computations that the op calls, in the order of its roles.
        shape : Shape, optional
            The result's shape, if the op does not determine it.
        name : str, optional
            The instruction's name; by default one is made up.

        Returns
        -------
        Instruction
            The instruction.

        Raises
        ------
        ShapeError
            A rule of the op is broken.
        """
        roles = by_role(op, tuple(c.signature() for c in called)) if called else ()
        inferred = infer_shape(op, [o.shape for o in operands], roles)
        if shape is None:
            shape = inferred
        elif not same_result(op, shape, inferred):
            error = ShapeError("HINST-2", "result shape", shape, inferred)
            error.op, error.operands = op.opcode, [o.shape for o in operands]
            raise error
        return self.add_unchecked(op, operands, called, shape, name)

    def add_unchecked(
        self,
        op: Op,
        operands: Sequence[Instruction],
        called: Sequence[Computation],
        shape: Shape,
        name: str | None = None,
    ) -> Instruction:
        """Appends an instruction of a known shape; the verifier checks it later.

        Parameters
        ----------
        op : Op
            The op with its attributes.
        operands : sequence of Instruction
            The operands, of this computation.
        called : sequence of Computation
            The computations that the op calls, in the order of its roles.
        shape : Shape
            The result's shape.
        name : str, optional
            The instruction's name; by default one is made up.

        Returns
        -------
        Instruction
            The instruction.
        """
        number = self._next_id
        self._next_id = number + 1
        instruction = Instruction(
            number, name or f"{op.opcode}.{number}", op, shape, tuple(operands), tuple(called), self
        )
        for place, operand in enumerate(instruction.operands):
            operand.users[instruction] = None if instruction in operand.users else place
        self._instructions[instruction] = None
        if op.opcode == "parameter":
            self._parameters[op.number] = instruction  # type: ignore[attr-defined]
        self.version += 1
        return instruction

    def set_root(self, instruction: Instruction) -> None:
        """Makes an instruction the root.

        Parameters
        ----------
        instruction : Instruction
            An instruction of this computation.
        """
        self._own(instruction)
        old, recorder = self.root_or_none, active()
        if recorder is not None and old is not None and old.shape.static is instruction.shape.static:
            recorder.replaced(old, instruction)
        self.root_or_none = instruction
        self.version += 1

    def replace(self, old: Instruction, new: Instruction) -> None:
        """Replaces `old` by `new` in all its users (except `new` itself) and as the root. `old` remains, unused.

        The shapes must be equal except for the layout: a user that depends on the layout is given a copy in the layout
        of `old`. Control dependencies remain with `old`. `new`, and instructions under it that were added after `old`,
        take over the metadata of `old` if they have none.

        Parameters
        ----------
        old : Instruction
            The instruction to replace.
        new : Instruction
            The replacement, of the same shape.
        """
        self._own(old)
        self._own(new)
        if old.shape.static is not new.shape.static:
            raise ShapeError("HINST-3", f"replacement of {old.name}", new.shape, old.shape)
        if (recorder := active()) is not None:
            recorder.replaced(old, new)
        _take_over_metadata(old, new)
        for user, place in list(old.users.items()):
            if user is new:
                continue
            value = self._laid_out(new, old.shape) if user.op.reads_layout else new
            if place is None:
                user.operands = tuple(value if o is old else o for o in user.operands)
            else:  # of thousands, as a large tuple has, only one is looked at
                user.operands = user.operands[:place] + (value,) + user.operands[place + 1 :]
            value.users[user] = None if user in value.users else place
            del old.users[user]
        if self.root is old:
            self.root_or_none = new
        self.version += 1

    def replace_all(self, new: Mapping[Instruction, Instruction]) -> None:
        """Replaces many instructions at once; no replacement is itself replaced. Shapes and layouts stay the same.

        Each user is changed once, however many of its operands are replaced.

        Parameters
        ----------
        new : mapping of Instruction to Instruction
            The replacement of each instruction.
        """
        root = self.root
        users = {user: None for old in new for user in old.users}
        for old, value in new.items():
            self._own(old)
            if old.shape is not value.shape:
                raise ShapeError("HINST-3", f"replacement of {old.name}", value.shape, old.shape)
        if (recorder := active()) is not None:
            for old, value in new.items():
                recorder.replaced(old, value)
        for old, value in new.items():
            _take_over_metadata(old, value)
        for user in users:
            for operand in user.operands:
                operand.users.pop(user, None)
            user.operands = tuple(new.get(o, o) for o in user.operands)
            for place, operand in enumerate(user.operands):
                operand.users[user] = None if user in operand.users else place
        self.root_or_none = new.get(root, root)
        self.version += 1

    def run_after(self, instruction: Instruction, before: Instruction) -> None:
        """Adds a control dependency: `instruction` waits for `before` (HCATTR-4).

        Parameters
        ----------
        instruction : Instruction
            The instruction that waits.
        before : Instruction
            The instruction that it waits for.
        """
        self._own(instruction)
        self._own(before)
        instruction.ensure_extra().control_predecessors.append(before)
        self.version += 1

    def remove_dead(self) -> int:
        """Removes instructions that neither the root nor a side effect needs, except parameters. Returns their number.

        Returns
        -------
        int
            The number of instructions that were removed.
        """
        live: set[int] = set()
        effects: dict[Computation, bool] = {}

        def keep(stack: list[Instruction]) -> None:
            while stack:
                instruction = stack.pop()
                if instruction.id not in live:
                    live.add(instruction.id)
                    stack += _before(instruction)

        keep([self.root, *self._parameters.values()])
        for instruction in self._instructions:  # what is live anyway need not be looked into
            if instruction.id not in live and has_side_effect(instruction, effects):
                keep([instruction])
        dead = [i for i in self._instructions if i.id not in live]
        self.root_or_none = self.root
        for instruction in dead:
            del self._instructions[instruction]
            for operand in instruction.operands:
                operand.users.pop(instruction, None)
            instruction.parent = None
        if dead:
            self.version += 1
        return len(dead)

    def remove(self, instruction: Instruction) -> None:
        """Removes an instruction that nothing uses or waits for. Another one must have taken over its side effect.

        Parameters
        ----------
        instruction : Instruction
            The instruction.
        """
        self._own(instruction)
        self.root_or_none = self.root
        if instruction.users or self.root_or_none is instruction:
            raise ShapeError("HCOMP-7", f"removal of {instruction.name}", "an instruction in use", "one without users")
        del self._instructions[instruction]
        for operand in instruction.operands:
            operand.users.pop(instruction, None)
        instruction.parent = None
        self.version += 1

    def inline(self, call: Instruction) -> Instruction:
        """Replaces a call, for which nothing may wait, by copies of the called computation's instructions.

        Returns the new result. The copies keep their names, which may then occur twice until `HloModule.settle`:
        looking here for free ones would make inlining many calls quadratic. Copies whose metadata name no source line
        take over the call's.

        Parameters
        ----------
        call : Instruction
            A call of this computation.

        Returns
        -------
        Instruction
            The copy of the called computation's root.
        """
        self._own(call)
        (callee,) = call.called
        values: dict[Instruction, Instruction] = {}
        for parameter, value in zip(callee.parameters, call.operands, strict=True):
            is_read = any(user.op.reads_layout for user in parameter.users)
            values[parameter] = self._laid_out(value, parameter.shape) if is_read else value
        for instruction in callee.post_order():
            if instruction not in values:
                values[instruction] = copy = self._copy(instruction, values)
                _take_over_line(call, copy)
        result = values[callee.root]
        self.replace(call, result)
        self.remove(call)
        return result

    def clone(self, name: str, module: HloModule | None = None) -> Computation:
        """A copy with the same called computations, under another name.

        Parameters
        ----------
        name : str
            The copy's name.
        module : HloModule, optional
            The module that it is put in.

        Returns
        -------
        Computation
            The copy.
        """
        copy = Computation(name, module if module is not None else self.module)
        copy.execution_thread = self.execution_thread
        copy.backend_config = self.backend_config
        values: dict[Instruction, Instruction] = {}
        for instruction in self.post_order():  # an edit may have put an operand behind its user
            values[instruction] = copy._copy(instruction, values)
        copy.root_or_none = values[self.root]
        copy.reorder(values[instruction] for instruction in self._instructions)
        return copy

    def part(self, root: Instruction, name: str, module: HloModule | None = None) -> Computation:
        """A copy of only `root` and the instructions on which it depends, with the same called computations.

        Parameters
        ----------
        root : Instruction
            The result of the part.
        name : str
            The copy's name.
        module : HloModule, optional
            The module that it is put in.

        Returns
        -------
        Computation
            The copy.
        """
        copy = Computation(name, module)
        values: dict[Instruction, Instruction] = {}
        stack = [root]
        while stack:
            instruction = stack[-1]
            before = (*instruction.operands, *instruction.control_predecessors)
            missing = [i for i in before if i not in values]
            stack += missing
            if not missing:
                stack.pop()
                if instruction not in values:
                    values[instruction] = copy._copy(instruction, values)
        copy.root_or_none = values[root]
        return copy

    def reorder(self, order: Iterable[Instruction]) -> None:
        """Sets the order of `instructions`, a permutation of them: a schedule.

        Parameters
        ----------
        order : iterable of Instruction
            All instructions of this computation, each once.
        """
        wanted = list(order)
        if wanted == [*self._instructions]:
            return
        if len(wanted) != len(self._instructions) or any(i not in self._instructions for i in wanted):
            raise ShapeError(
                "HMOD-2", f"order of {self.name}", f"{len(wanted)} instructions", "a permutation of its own"
            )
        is_post_order = wanted == self._order and self._order_version == self.version
        self.root_or_none = self.root
        self._instructions = dict.fromkeys(wanted)
        self.version += 1
        if is_post_order:  # it depends on the order of what has no users alone, which is as it was
            self._order_version = self.version

    def _copy(self, instruction: Instruction, values: dict[Instruction, Instruction]) -> Instruction:
        operands = [values[o] for o in instruction.operands]
        copy = self.add_unchecked(instruction.op, operands, instruction.called, instruction.shape, instruction.name)
        came_from(copy, instruction)
        if instruction.extra is not None:
            copy.extra = instruction.extra.copied([values[p] for p in instruction.extra.control_predecessors])
        return copy

    def _laid_out(self, value: Instruction, shape: Shape) -> Instruction:
        """The value in the layout of `shape`, an array's."""
        if value.shape.layout_or_default.minor_to_major == shape.layout_or_default.minor_to_major:
            return value
        copy = self.add_unchecked(OPS["copy"](), [value], (), value.shape.with_layout(shape.layout))
        came_from(copy, value)
        return copy

    def _own(self, instruction: Instruction) -> None:
        if instruction.parent is not self:
            raise ShapeError(
                "BUILDER-16", f"instruction {instruction.name}", "of another computation", f"one of {self.name}"
            )

    def __str__(self) -> str:
        from hlokit.text.printer import computation_text

        return computation_text(self)

    def __repr__(self) -> str:
        return f"<Computation {self.name}: {self.brief()}, {counted(len(self._instructions), 'instruction')}>"

    def brief(self) -> str:
        """Its parameters and result on one line: "(f32[2,3], s32[]) -> f32[3]"; their number if that is long.

        Returns
        -------
        str
            The text.
        """
        taken = [p.shape.brief() for p in self.parameters]
        parameters = ", ".join(taken)
        if len(parameters) > 60:
            parameters = counted(len(taken), "parameter")
        return f"({parameters}) -> {self.root.shape.brief() if self._instructions else 'nothing'}"


def counted(count: int, what: str, several: str = "") -> str:
    """ "1 instruction", "2 instructions"; `several`: the plural, if it is not formed with an s."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def has_side_effect(instruction: Instruction, known: dict[Computation, bool] | None = None) -> bool:
    """The op has one, or a computation that it calls contains one.

    `known` remembers the computations over many questions: each is then looked through once.
    """
    if instruction.op.has_side_effect():
        return True
    if not instruction.called:
        return False
    known = {} if known is None else known
    return any(contains(callee, _has_effect, known) for callee in instruction.called)


def contains(computation: Computation, wanted: Callable[[Instruction], bool], known: dict[Computation, bool]) -> bool:
    """Whether the computation, or one that it calls, has a wanted instruction. `known`: as `has_side_effect` has it."""
    pending, opened = [computation], set[Computation]()
    while computation not in known:
        here = pending[-1]
        called = dict.fromkeys(c for i in here.instructions for c in i.called)
        unknown = [c for c in called if c not in known and c not in opened]
        opened.add(here)
        if unknown and here not in known:
            pending += unknown
            continue
        pending.pop()
        known[here] = any(known.get(c) for c in called) or any(map(wanted, here.instructions))
    return known[computation]


def _has_effect(instruction: Instruction) -> bool:
    return instruction.op.has_side_effect()


def _take_over_line(call: Instruction, copy: Instruction) -> None:
    """JAX's own functions, such as `jnp.sort`, are calls of functions without source lines."""
    given = call.extra.metadata if call.extra is not None else None
    if given is None or not (given.source_file or given.stack_frame_id):
        return
    extra = copy.ensure_extra()
    own = extra.metadata
    if own is None:
        extra.metadata = given
    elif not (own.source_file or own.stack_frame_id):
        extra.metadata = found = given.copied()
        found.op_type, found.op_name = own.op_type, own.op_name


def _take_over_metadata(old: Instruction, new: Instruction) -> None:
    """For all that was added to replace `old`, not for what was there before."""
    metadata = old.extra.metadata if old.extra is not None else None
    stack = [new] if metadata is not None else []
    while stack:
        instruction = stack.pop()
        has_own = instruction.extra is not None and instruction.extra.metadata is not None
        if instruction.id > old.id and not has_own:
            instruction.ensure_extra().metadata = metadata
            stack += instruction.operands


def _post_order(computation: Computation) -> list[Instruction]:
    is_done: dict[int, bool] = {}  # by id; False: some of what comes before it is not yet in the order
    order: list[Instruction] = []
    for start in [i for i in computation.instructions if not i.users]:
        stack = [start]
        while stack:
            instruction = stack[-1]
            if instruction.id in is_done:
                stack.pop()
                if not is_done[instruction.id]:
                    is_done[instruction.id] = True
                    order.append(instruction)
                continue
            is_done[instruction.id] = False
            for previous in reversed(_before(instruction)):
                done = is_done.get(previous.id)
                if done is None:
                    stack.append(previous)
                elif not done:
                    raise _cycle(computation, f"a cycle through {previous.name}")
    if len(order) != len(computation):
        raise _cycle(computation, "a cycle")
    return order


def _cycle(computation: Computation, found: str) -> ShapeError:
    return ShapeError("HCOMP-7", f"computation {computation.name}", found, "an acyclic graph")


def _before(instruction: Instruction) -> Sequence[Instruction]:
    """The control predecessors, last first, then the operands."""
    extra = instruction.extra
    if extra is None or not extra.control_predecessors:
        return instruction.operands
    return (*reversed(extra.control_predecessors), *instruction.operands)
