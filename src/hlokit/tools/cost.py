"""hlokit cost: operations and bytes of each instruction."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Literal

from hlokit.analysis.cost import cost_of_module, costs_of_instructions
from hlokit.api import verify
from hlokit.errors import ArgumentError
from hlokit.forms.cost import Cost
from hlokit.hlo.instruction import Instruction
from hlokit.tools.files import loaded

Order = Literal["flops", "bytes", "program"]


def cost(file: Path, *, sort: Order = "flops", top: int = 20, json: bool = False) -> None:
    """Lists the cost of each instruction: operations, transcendental functions, and bytes read and written.

    The cost is computed from shapes. An instruction that calls computations has their cost, and a loop the cost of one
    iteration; dynamic dimensions are counted at their bounds.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    sort:
        by flops, by bytes, or in the order of the program.
    top:
        number of lines to show; 0 shows all.
    json:
        print all instructions as JSON.
    """
    if top < 0:
        raise ArgumentError(f"cost --top {top}, expected a number of lines of at least 0")
    module = loaded(file)
    verify(module)
    costs = costs_of_instructions(module)
    order = [i for i in module.instructions() if costs[i] != Cost()]
    if sort != "program":
        order.sort(key=lambda i: -_by(costs[i], sort))
    total = cost_of_module(module)
    if json:
        rows = [{"computation": _place(i), "instruction": i.name, "opcode": i.opcode, **_row(costs[i])} for i in order]
        print(json_module.dumps({"module": module.name, **_row(total), "instructions": rows}, indent=2))
        return
    shown = order[:top] if top else order
    print(f"{'flops':>16} {'functions':>14} {'bytes':>16}  instruction")
    for i in shown:
        print(_line(costs[i], f"%{i.name} = {i.shape.brief()} {i.opcode} in %{_place(i)}"))
    if len(shown) < len(order):
        print(f"... and {len(order) - len(shown):,} more (--top 0 shows them)")
    print(_line(total, f"{module.name}: one run of the entry"))


def _by(cost: Cost, sort: Order) -> float:
    return cost.bytes_accessed if sort == "bytes" else cost.flops + cost.transcendentals


def _row(cost: Cost) -> dict[str, float]:
    return {"flops": cost.flops, "transcendentals": cost.transcendentals, "bytes": cost.bytes_accessed}


def _line(cost: Cost, what: str) -> str:
    return f"{cost.flops:16,.0f} {cost.transcendentals:14,.0f} {cost.bytes_accessed:16,.0f}  {what}"


def _place(instruction: Instruction) -> str:
    return instruction.parent.name if instruction.parent is not None else ""
