"""The driver: computations whose values have dynamic dimensions are rewritten with static shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hlokit.errors import ShapeError, UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import Alias, HloModule
from hlokit.ops.control_flow import Call, Conditional, Fusion, While
from hlokit.ops.dynamic import SetDimensionSize
from hlokit.ops.structure import Constant, Parameter, Tuple
from hlokit.passes.dce import DeadCode
from hlokit.passes.dynamic_padder.rules import RULES
from hlokit.passes.dynamic_padder.signature import DynamicDimension, DynamicSignature, dynamic_dimensions
from hlokit.passes.dynamic_padder.sized import Sized, SizedWriter, Value, encoding, fixed, sizes_in
from hlokit.passes.effects import unscheduled
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


def padded(module: HloModule) -> tuple[HloModule, DynamicSignature]:
    """A module with the same meaning without dynamic dimensions, and how to call it; the given one stays."""
    copy = module.clone()
    unscheduled(copy)
    signature = pad(copy)
    if signature is None:
        program = copy.program_shape
        signature = DynamicSignature(program.parameters, program.result, (), ())
    else:
        copy.settle()
    return copy, signature


def pad(module: HloModule) -> DynamicSignature | None:
    """Rewrites the module; None if nothing in it is dynamic."""
    padder = _Padder(module)
    if padder.is_static(module.entry):
        return None
    entry, signature = padder.entry()
    if module.program_shape.result.is_dynamic and not signature.result_shape.is_tuple:
        module.input_output_alias = [
            Alias((0, *a.output_index), a.parameter, a.parameter_index, a.kind) for a in module.input_output_alias
        ]
    module.parameter_layouts = module.result_layout = None
    module.add_computation(entry, entry=True)
    DeadCode().run(module)
    return signature


_Key: TypeAlias = tuple[Computation, tuple[Shape, ...], Shape]


class _Padder:
    """The computations of one module, each rewritten once for each way it is called."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._static: dict[Computation, bool] = {}
        self._made: dict[_Key, Computation] = {}

    def is_static(self, computation: Computation) -> bool:
        """No dynamic dimension in it nor in what it calls."""
        if not self._static:
            for one in self.module.computations():
                self._static[one] = not any(
                    i.shape.is_dynamic or any(not self._static[c] for c in i.called) for i in one.instructions
                )
        return self._static[computation]

    def entry(self) -> tuple[Computation, DynamicSignature]:
        """The entry with its sizes behind the parameters and behind the results."""
        old = self.module.entry
        write = SizedWriter(Computation(old.name, self.module))
        shapes = [p.shape for p in old.parameters]
        nodes = [write.add(Parameter(i, fixed(shape))) for i, shape in enumerate(shapes)]
        for node, parameter in zip(nodes, old.parameters, strict=True):
            node.name, node.extra = parameter.name, parameter.extra
        sizes_at = [(i, *at) for i, shape in enumerate(shapes) for at in dynamic_dimensions(shape)]
        sizes_given = tuple(DynamicDimension((i, *path), d, len(nodes) + n) for n, (i, path, d) in enumerate(sizes_at))
        sizes: list[Instruction] = []
        for i, path, d in sizes_at:
            size = write.add(Parameter(len(nodes) + len(sizes), dtypes.s32[()]))
            sizes.append(write.within(size, shapes[i].at(path).dimensions[d]))
        arguments = [write.with_sizes(node, shape, sizes) for node, shape in zip(nodes, shapes, strict=True)]
        shape = old.root.shape
        result = write.declared(_Body(self, old, write, arguments).root(), shape)
        found = sizes_in(result)
        count = len(shape.elements) if shape.is_tuple else 1
        sizes_taken = tuple(
            DynamicDimension(path, d, count + n) for n, (path, d) in enumerate(dynamic_dimensions(shape))
        )
        if found:
            leading = [write.joined(part) for part in write.parts(result)] if shape.is_tuple else [write.joined(result)]
            write.into.set_root(write.add(Tuple(), *leading, *found))
        else:
            write.into.set_root(write.joined(result))
        return write.into, DynamicSignature(tuple(shapes), shape, sizes_given, sizes_taken)

    def computation(self, old: Computation, shapes: Sequence[Shape], result: Shape) -> Computation:
        """`old` for arguments and a result that are encoded as these shapes say (sized.encoding)."""
        if self.is_static(old) and not result.is_dynamic and not any(shape.is_dynamic for shape in shapes):
            return old
        key = (old, tuple(shapes), result)
        if key not in self._made:
            write = SizedWriter(Computation(old.name, self.module))
            nodes = [write.add(Parameter(i, encoding(shape))) for i, shape in enumerate(shapes)]
            arguments = [write.decoded(node, shape) for node, shape in zip(nodes, shapes, strict=True)]
            write.into.set_root(write.encoded(_Body(self, old, write, arguments).root(), result))
            self.module.add_computation(write.into)
            self._made[key] = write.into
        return self._made[key]


class _Body:
    """Rewrites the instructions of one computation."""

    def __init__(self, padder: _Padder, old: Computation, write: SizedWriter, arguments: Sequence[Value]) -> None:
        self.padder, self.old, self.write = padder, old, write
        self.arguments = arguments
        self.values: dict[Instruction, Value] = {}

    def root(self) -> Value:
        for instruction in self.old.post_order():
            self.write.extra = instruction.extra
            try:
                self.values[instruction] = self._value(instruction)
            except ShapeError as error:
                raise UnsupportedError(f"dynamic-padder: {instruction.name}: {error}") from error
        self.write.extra = None
        return self.values[self.old.root]

    def _value(self, instruction: Instruction) -> Value:
        op = instruction.op
        if isinstance(op, Parameter):
            return self.write.declared(self.arguments[op.number], instruction.shape)
        if instruction.extra is not None and instruction.control_predecessors:
            raise UnsupportedError(f"dynamic-padder: {instruction.name}: control dependencies in a dynamic program")
        operands = [self.values[o] for o in instruction.operands]
        if isinstance(op, (Call, Fusion)):
            return self._call(instruction, operands)
        if isinstance(op, While):
            return self._while(instruction, operands[0])
        if isinstance(op, Conditional):
            return self._conditional(instruction, operands)
        if op.opcode == "tuple":
            return tuple(operands) if instruction.shape.is_dynamic else self._same(instruction, operands)
        if op.opcode == "get-tuple-element":
            if isinstance(operands[0], tuple):
                return operands[0][op.index]  # type: ignore[attr-defined]
            return self._same(instruction, operands)
        is_dynamic = instruction.shape.is_dynamic or any(o.shape.is_dynamic for o in instruction.operands)
        if not is_dynamic:
            return self._same(instruction, operands)
        if instruction.shape.is_unbounded or any(o.shape.is_unbounded for o in instruction.operands):
            raise UnsupportedError(f"dynamic-padder: {instruction.name}: unbounded dynamic dimensions")
        if isinstance(op, Constant):
            return self._constant(op)
        rule = RULES.get(op.opcode)
        if rule is None and not op.elementwise:
            raise UnsupportedError(f"dynamic-padder: {instruction.name}: {op.opcode} on dynamic dimensions")
        rule = rule or RULES["add"]
        shape = instruction.shape
        if isinstance(op, SetDimensionSize):  # the other dimensions keep their sizes, whatever its shape says (SDS-10)
            kept = [flag and d != op.dimension for d, flag in enumerate(instruction.operands[0].shape.dynamic)]
            shape = shape.with_dynamic([a or b for a, b in zip(shape.dynamic, kept, strict=True)])
        value = self.write.declared(rule(self.write, instruction, operands), shape)
        return self.write.laid_out(value, instruction.shape)

    def _same(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """A static instruction on static operands."""
        nodes = [self.write.joined(operand) for operand in operands]
        copy = self.write.into.add_unchecked(instruction.op, nodes, instruction.called, instruction.shape)
        copy.name, copy.extra = instruction.name, instruction.extra
        return Sized(copy)

    def _constant(self, op: Constant) -> Value:
        shape = op.literal.shape
        node = self.write.add(Constant(Literal(shape.static, op.literal.to_python())))
        return self.write.declared(Sized(node), shape)

    def _call(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        (callee,) = instruction.called
        shapes = [p.shape for p in callee.parameters]
        made = self.padder.computation(callee, shapes, callee.root.shape)
        if made is callee:
            return self._same(instruction, [self.write.declared(o, s) for o, s in zip(operands, shapes, strict=True)])
        op = instruction.op
        if isinstance(op, Fusion):
            op = Fusion(op.kind, ())
        nodes = [self.write.encoded(o, s) for o, s in zip(operands, shapes, strict=True)]
        return self.write.decoded(self.write.add(op, *nodes, called=[made]), callee.root.shape)

    def _while(self, instruction: Instruction, init: Value) -> Value:
        condition, body = instruction.called
        state = instruction.shape
        for shape in (condition.parameters[0].shape, body.parameters[0].shape, body.root.shape):
            state = either(state, shape)
        called = [self.padder.computation(condition, [state], condition.root.shape)]
        called.append(self.padder.computation(body, [state], state))
        loop = self.write.add(instruction.op, self.write.encoded(init, state), called=called)
        return self.write.declared(self.write.decoded(loop, state), instruction.shape)

    def _conditional(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        called: list[Computation] = []
        nodes = [self.write.joined(operands[0])]
        for operand, branch in zip(operands[1:], instruction.called, strict=True):
            shape = branch.parameters[0].shape
            called.append(self.padder.computation(branch, [shape], instruction.shape))
            nodes.append(self.write.encoded(operand, shape))
        made = self.write.add(instruction.op, *nodes, called=called)
        return self.write.decoded(made, instruction.shape)


def either(a: Shape, b: Shape) -> Shape:
    """Dynamic where `a` or `b` is, shapes of the same sizes."""
    if a.is_tuple:
        return Shape.tuple(map(either, a.elements, b.elements))
    return a.with_dynamic([x or y for x, y in zip(a.dynamic, b.dynamic, strict=True)]) if b.is_dynamic else a
