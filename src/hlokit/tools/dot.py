"""A module as a Graphviz graph: a box per computation, a node per instruction."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule


def dot_text(module: HloModule) -> str:
    """Edges run from operand to user; dashed ones from a called computation's root to the caller."""
    lines = [f'digraph "{_escaped(module.name)}" {{', "  node [shape=box, fontname=monospace];"]
    computations = module.computations()
    ids = {c: number for number, c in enumerate(computations)}
    for computation in computations:
        lines += _cluster(computation, ids)
    for computation in computations:
        lines += _edges(computation, ids)
    return "\n".join([*lines, "}", ""])


def _cluster(computation: Computation, ids: dict[Computation, int]) -> list[str]:
    number = ids[computation]
    nodes = [
        f'    {_node(number, i)} [label="{_label(i)}"{", style=bold" if i.is_root else ""}];'
        for i in computation.post_order()
    ]
    return [f"  subgraph cluster_{number} {{", f'    label="{_escaped(computation.name)}";', *nodes, "  }"]


def _edges(computation: Computation, ids: dict[Computation, int]) -> list[str]:
    number = ids[computation]
    lines: list[str] = []
    for instruction in computation.post_order():
        target = _node(number, instruction)
        many = len(instruction.operands) > 1
        for position, operand in enumerate(instruction.operands):
            lines.append(f"  {_node(number, operand)} -> {target}{f' [label={position}]' if many else ''};")
        for predecessor in instruction.control_predecessors:
            lines.append(f"  {_node(number, predecessor)} -> {target} [style=dotted];")
        for callee in instruction.called:
            lines.append(f"  {_node(ids[callee], callee.root)} -> {target} [style=dashed];")
    return lines


def _node(computation: int, instruction: Instruction) -> str:
    return f"n{computation}_{instruction.id}"


def _label(instruction: Instruction) -> str:
    return _escaped(f"{instruction.name}\n{instruction.opcode}\n{instruction.shape}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
