"""Called computations of scalars as LLVM functions, for routines that call them (sort's comparator)."""

from __future__ import annotations

from typing import Any

from hlokit.cpu.emit.elements import Elements
from hlokit.cpu.emit.scope import BufferTable, Emission
from hlokit.cpu.llvm import Function, Module, scalar_type
from hlokit.cpu.loops.arithmetic import NodeEmitter
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.loops.expr import HOLE, Node, Pair
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.leaf import Source
from hlokit.errors import UnsupportedError
from hlokit.hlo.computation import Computation


def scalar_function(computation: Computation, module: Module, context: Context) -> str:
    """Writes the computation into the module; gives the function's name, empty where it has no code.

    Parameters and results are in register types; complex numbers are two, several results a literal struct.
    """
    emit = NodeEmitter(Source(), strict=context.strict)
    arguments: list[Any] = []
    parameters: list[tuple[str, str]] = []
    names: dict[Node, str] = {}
    for parameter in computation.parameters:
        if not parameter.shape.is_scalar:
            return ""
        dtype = parameter.shape.dtype
        parts: list[Node] = []
        for _ in range(2 if dtype.is_complex else 1):
            name = f"x{len(parameters)}"
            node = emit.expressions.node("hole", dtype.real, (), (len(parameters), 0))
            parameters.append((scalar_type(dtype.real), name))
            names[node] = name
            parts.append(node)
        arguments.append(Pair(dtype, *parts) if dtype.is_complex else parts[0])
    try:
        results = CalledFunction(emit, computation).results(*arguments)
    except UnsupportedError:
        return ""
    nodes = [part for r in results for part in ((r.real, r.imag) if isinstance(r, Pair) else (r,))]
    types = [scalar_type(node.dtype) for node in nodes]
    result = types[0] if len(types) == 1 else "{ " + ", ".join(types) + " }"
    name = f"scalar{len(module.functions)}"
    fn = Function(name, parameters, result, "alwaysinline", target=context.target)
    emission = Emission.of(fn, Loops([], [], strict=context.strict), HOLE)
    emission.root.memo.update({node: fn.argument(name) for node, name in names.items()})
    values = Elements(emission, BufferTable(fn)).values
    fn.returns_struct([values.value(node, emission.root) for node in nodes])
    module.add(fn)
    return name
