"""An HloModule as StableHLO text: the header, the entry as @main, called computations as private functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.names import Names
from hlokit.stablehlo.lowering import GLOBAL_VALUES, MEMORY_KINDS, OTHER_LAYOUT
from hlokit.stablehlo.printer.function import FunctionWriter, Symbols, check_type, private_function, returned_text
from hlokit.stablehlo.printer.site import Value, marks_of
from hlokit.stablehlo.printer.spelling import dictionary_text, string_text, symbol_text, type_text, value_text
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_SAID_ELSEWHERE = (MEMORY_KINDS, OTHER_LAYOUT, *GLOBAL_VALUES)
"""Frontend attributes of modules that the reader makes of what the program says in other ways."""


def stablehlo_text(module: HloModule) -> str:
    """The module as StableHLO. Tuples of parameters and results become their leaves.

    Raises UnsupportedError, naming the instruction and its opcode, for what StableHLO cannot say.
    """
    symbols = Symbols(module)
    lines = _main(module, symbols)
    while symbols.pending:
        pending, symbols.pending = symbols.pending, []
        for computation in pending:
            lines += private_function(symbols, computation)
    attributes = {
        "mhlo.num_partitions": f"{module.num_partitions} : i32",
        "mhlo.num_replicas": f"{module.replica_count} : i32",
    }
    given = {k: string_text(v) for k, v in sorted(module.frontend_attributes.items()) if k not in _SAID_ELSEWHERE}
    if given:
        attributes["mhlo.frontend_attributes"] = dictionary_text(given)
    head = f"module {symbol_text(module.name)} attributes {dictionary_text(attributes)} {{"
    return "\n".join([head, *lines, "}\n"])


def _main(module: HloModule, symbols: Symbols) -> list[str]:
    """The entry. Arguments have the parameters' names."""
    entry = module.entry
    writer = FunctionWriter(symbols, indent=2)
    names, donated = Names(), _donated(module)
    arguments: list[Value] = []
    listed: list[str] = []
    for number, parameter in enumerate(entry.parameters):
        check_type(parameter)
        for i, leaf in enumerate(parameter.shape.leaves()):
            name = parameter.name if parameter.shape is leaf else f"{parameter.name}.{i}"
            value = Value(f"%{names.unique(value_text(name))}", leaf.logical)
            marks = {**_argument_marks(parameter, i), **donated.get((number, i), {}), **_layout_mode(leaf)}
            text = f"{value.name}: {type_text(leaf)}{' ' + dictionary_text(marks) if marks else ''}"
            listed.append(text + writer.location(parameter))
            arguments.append(value)
    writer.reserve(value.name[1:] for value in arguments)
    results = writer.body(entry, arguments)
    types = [
        f"{type_text(r.shape)}{' ' + dictionary_text(marks) if marks else ''}"
        for r, marks in zip(results, _result_marks(module), strict=True)
    ]
    head = f"  func.func public @main({', '.join(listed)}) -> ({', '.join(types)}) {{"
    writer.line(returned_text("return", results))
    return [head, *writer.lines, "  }"]


def _result_marks(module: HloModule) -> list[dict[str, str]]:
    """The sharding, the layout, and the memory that the program asks for, of each result."""
    root = module.entry.root
    leaves = list((module.result_layout or root.shape).leaves())
    shardings = _shardings(root.extra.sharding if root.extra is not None else None, root.shape)
    kinds = module.frontend_attributes.get(MEMORY_KINDS, "").split(",")
    found: list[dict[str, str]] = []
    for i, (leaf, sharding) in enumerate(zip(leaves, shardings, strict=True)):
        marks = _layout_mode(leaf)
        if sharding is not None:
            marks["mhlo.sharding"] = string_text(str(sharding))
        if len(kinds) == len(leaves) and kinds[i] not in ("", "device"):
            marks["mhlo.memory_kind"] = string_text(kinds[i])
        found.append(marks)
    return found


def _layout_mode(leaf: Shape) -> dict[str, str]:
    """The order of an array's dimensions in memory, where it is not row-major."""
    if leaf.layout is None or leaf.layout.is_default:
        return {}
    return {"mhlo.layout_mode": string_text("{" + ",".join(map(str, leaf.layout.minor_to_major)) + "}")}


def _argument_marks(parameter: Instruction, leaf: int) -> dict[str, str]:
    marks = marks_of(parameter)
    sharding = parameter.extra.sharding if parameter.extra is not None else None
    own = _shardings(sharding, parameter.shape)[leaf]
    marks.pop("mhlo.sharding", None)
    return {**marks, **({"mhlo.sharding": string_text(str(own))} if own is not None else {})}


def _shardings(sharding: Sharding | None, shape: Shape) -> Sequence[Sharding | None]:
    """The sharding of each leaf, an argument or a result of the program.

    A value whose devices have terms of a sum is one that each of them has to itself: the program says where they are
    summed, and readers of `unreduced` would sum them once more.
    """
    leaves = list(shape.leaves())
    sharding = _of_terms(sharding) if sharding is not None else None
    if sharding is not None and sharding.kind == "tuple":
        return sharding.elements if len(sharding.elements) == len(leaves) else [None] * len(leaves)
    return [sharding] * len(leaves)


def _of_terms(sharding: Sharding) -> Sharding:
    """The sharding with replicated axes in the place of unreduced ones."""
    named = replace(sharding.named, unreduced=()) if sharding.named is not None else None
    kinds = tuple("replicated" if kind == "unreduced" else kind for kind in sharding.last_tile_dims)
    kind = "replicated" if sharding.kind == "unreduced" else sharding.kind
    elements = tuple(map(_of_terms, sharding.elements))
    if kinds == sharding.last_tile_dims and kind == sharding.kind and named == sharding.named:
        return replace(sharding, elements=elements)
    return replace(sharding, kind=kind, named=named, elements=elements, last_tile_dims=kinds).normal()


def _donated(module: HloModule) -> dict[tuple[int, int], dict[str, str]]:
    """The result that a parameter's leaf shares a buffer with, or that it is given away, by parameter and leaf."""
    parameters, result = [p.shape for p in module.entry.parameters], module.entry.root.shape
    found: dict[tuple[int, int], dict[str, str]] = {}
    for number, index in module.buffer_donor:
        for leaf in _leaves_at(parameters[number], index):
            found[number, leaf] = {"jax.buffer_donor": "true"}
    for alias in module.input_output_alias:
        inputs = _leaves_at(parameters[alias.parameter], alias.parameter_index)
        outputs = _leaves_at(result, alias.output_index)
        for given, taken in zip(inputs, outputs, strict=False):
            found[alias.parameter, given] = {"tf.aliasing_output": f"{taken} : i32"}
    return found


def _leaves_at(shape: Shape, index: Sequence[int]) -> range:
    """The numbers of the leaves of the part of a shape at this index."""
    first = 0
    for i in index:
        first += sum(len(list(e.leaves())) for e in shape.elements[:i])
        shape = shape.elements[i]
    return range(first, first + len(list(shape.leaves())))
