"""Listing: a program's steps and the loops of its kernels as readable text.

    kernel %fusion: reads x, y; writes r
      for i in 128 [parallel, 16 at a time: 8 chunks]
        f0 = fold add over k in 64 [16 lanes]: mul(x[i*64 + k], y[k])
        for j in 64 [16 lanes x 4]
          r[i*64 + j] = add(x[i*64 + j], f0)

Folds stand where their value is first known, expressions that are used more than once, or are long, have names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlokit.cpu.loops.expr import Buffer, Fold, LoopAxis, Node, RuntimeInt, children, reachable
from hlokit.cpu.loops.nest import Loops, Store, places_of
from hlokit.cpu.lower.portion import portions
from hlokit.cpu.lower.steps import (
    CallStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    PackStep,
    RoutineStep,
    Step,
    StepBlock,
    WhileStep,
)
from hlokit.forms.affine import Affine
from hlokit.text.printer import PrintOptions, instruction_text

if TYPE_CHECKING:
    from hlokit.cpu.compiler import Program

_OPTIONS = PrintOptions(print_metadata=False, print_operand_shape=True, include_layout_in_shapes=False)
_WIDTH = 24
"""Nodes of an expression from which it has a name."""


@dataclass(frozen=True)
class Line:
    """A line of the listing, and the step that it is of: None for the head."""

    text: str
    step: Step | None = None


def program_text(program: Program) -> str:
    """The listing of all steps."""
    return "\n".join(line.text for line in program_lines(program)) + "\n"


def program_lines(program: Program) -> list[Line]:
    """The listing, line by line."""
    lines = [f"program {program.module.name}"]
    for kind, buffers in (("argument", program.arguments), ("result", program.results)):
        lines += [f"  {kind} {k}: {buffer_text(buffer)}" for k, buffer in enumerate(buffers)]
    if program.constants:
        lines.append(f"  constants: {len(program.constants)}, {sum(c.shape.nbytes for c in program.constants)} bytes")
    lines.append(f"  arena: {program.assignment.nbytes} bytes")
    text = _Program(program)
    found = [*map(Line, lines), *text.block(program.block)]
    for subprogram in program.subprograms:
        assert subprogram.assignment is not None
        lines = ["", f"subprogram @{subprogram.name} of %{subprogram.computation.name}"]
        for kind, buffers in (("argument", subprogram.arguments), ("result", subprogram.results)):
            lines += [f"  {kind} {k}: {buffer_text(buffer)}" for k, buffer in enumerate(buffers)]
        lines.append(f"  arena: {subprogram.assignment.nbytes} bytes")
        found += [*map(Line, lines), *text.block(subprogram.block)]
    return found


def buffer_text(buffer: Buffer) -> str:
    """Its name, type and number of elements."""
    return f"{buffer.name} {buffer.dtype}[{buffer.size}]"


class _Program:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.fused = {step: part.fused for block, _ in program.blocks for step, part in portions(block)}

    def block(self, block: StepBlock) -> Iterator[Line]:
        for step in block.steps:
            yield Line("")
            for line in self.step(step):
                yield line if isinstance(line, Line) else Line(line, step)

    def step(self, step: Step) -> Iterator[str | Line]:
        names = ", ".join("%" + i.name for i in step.instructions)
        moved = f"reads {_names(step.reads)}; writes {_names(step.writes)}"
        if isinstance(step, RoutineStep) and step.starts:
            moved += "".join(f"; operand {n} from byte {start} on" for n, start in step.starts.items())
        if isinstance(step, KernelStep):
            (function, _), *_ = self.program.prepared[step].phases
            yield f"kernel {names} as @{function}: {moved}"
            inner = [name for name in self.fused[step] if name not in {i.name for i in step.instructions}]
            if inner:
                yield f"  with {', '.join('%' + name for name in inner)}"
            yield from _indented(loops_lines(step.loops))
        elif isinstance(step, RoutineStep):
            yield f"routine {step.routine} {names}: {moved}"
            yield f"  {instruction_text(step.instructions[0], _OPTIONS)}"
            if step.prologue is not None:
                yield f"  for each element of operand {step.prologue.number}:"
                yield from _indented(_indented(loops_lines(step.prologue.kernel.loops)))
            if step.epilogue is not None:
                yield "  for each element of its result:"
                yield from _indented(_indented(loops_lines(step.epilogue.kernel.loops)))
            for function, chunks in self.program.prepared[step].phases:
                yield f"  @{function}" + (f", {chunks} chunks" if chunks > 1 else "")
            if step.scratch is not None:
                yield f"  scratch: {step.scratch.nbytes} bytes"
        elif isinstance(step, PackStep):
            yield f"operand of {names}, packed: {moved}"
        elif isinstance(step, CopyStep):
            place = ", one place: nothing to do" if step.vanished else ""
            yield f"copy {names}: {step.reads[0]} to {step.writes[0]}{place}"
            if not step.vanished:
                yield f"  why: {step.reason}"
        elif isinstance(step, HostStep):
            yield f"reference {names}: {moved}"
            yield f"  why: {step.reason}"
        elif isinstance(step, WhileStep):
            swapped = ", ".join(f"{a} <-> {b}" for a, b in step.carries)
            yield f"while {names}: until {step.predicate} is false" + (f"; after a pass {swapped}" if swapped else "")
            yield "  condition:"
            yield from _inner(self.block(step.condition))
            yield "  body:"
            yield from _inner(self.block(step.body))
        elif isinstance(step, ConditionalStep):
            yield f"conditional {names}: by {step.reads[0]}"
            for k, branch in enumerate(step.branches):
                yield f"  branch {k}:"
                yield from _inner(self.block(branch))
        elif isinstance(step, CallStep):
            yield f"call of @{step.subprogram.name} for {names}: {moved}"
            if step.scratch is not None:
                yield f"  scratch: {step.scratch.nbytes} bytes"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return ("  " + line if line else "" for line in lines)


def _inner(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines of a block inside a step."""
    return (Line("    " + line.text if line.text else "", line.step) for line in lines)


def _names(buffers: Sequence[Buffer]) -> str:
    return ", ".join(map(str, buffers)) or "nothing"


# -- one kernel


def loops_lines(loops: Loops) -> list[str]:
    """A kernel's loops, line by line."""
    return _Kernel(loops).lines()


class _Kernel:
    """The text of one kernel. `named`: nodes that have a name, each with the place where it is computed."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.places = places_of(loops)
        roots = [r for s in loops.stores for r in (s.node, *s.guards)]
        self.nodes = reachable(roots + [n for s in loops.stores for n in _run_time(s.place)])
        self.named: dict[Node, str] = {}
        self.sizes: dict[Node, int] = {}
        self.printed: set[Node] = set()
        self.axes = _axis_names(self.nodes, loops.order)
        self._name()

    def _name(self) -> None:
        uses = Counter(child for node in self.nodes for child in children(node))
        uses.update(r for s in self.loops.stores for r in (s.node, *s.guards))
        for node in self.nodes:
            size = 1 + sum(1 if c in self.named else self.sizes[c] for c in node.args)
            self.sizes[node] = size
            leaf = node.op in ("const", "number", "range", "hole") or (node.op in ("load", "current") and not node.args)
            if node.op == "fold":
                self.named[node] = f"f{sum(n.op == 'fold' for n in self.named)}"
            elif node.op not in ("part",) and not leaf and (uses[node] > 1 or size > _WIDTH):
                self.named[node] = f"v{sum(n.op != 'fold' for n in self.named)}"

    def lines(self) -> list[str]:
        loops = self.loops
        head: list[str] = []
        if loops.streamed:
            head.append("stores go past the caches")
        if loops.serial:
            axes = ", ".join(self.axes[a] for a in loops.order if a.bit & loops.serial)
            head.append(f"in order along {axes}")
        if loops.chunks > 1 and not loops.parallel:
            head.append(f"{loops.chunks} chunks, each for a part of the result")
        if loops.spills:
            head.append("kept in memory between loops: " + ", ".join(self._shown(n) for n in loops.spills))
        return head + list(self._level(0))

    def _level(self, level: int) -> Iterator[str]:
        loops = self.loops
        around = tuple(loops.order[:level])
        stores = [s for s in loops.stores if self._depth(s) == level]
        deeper = [s for s in loops.stores if self._depth(s) > level]
        wanted = [r for s in (*stores, *deeper) for r in (s.node, *s.guards, *_run_time(s.place))]
        yield from self._values(around, wanted)
        for store in stores:
            guards = f" where {', '.join(map(self._text, store.guards))}" if store.guards else ""
            yield f"{store.buffer}[{self._affine(store.place)}] = {self._text(store.node)}{guards}"
        if deeper and level < len(loops.order):
            axis = loops.order[level]
            yield f"for {self.axes[axis]} in {axis.extent}{self._how(axis, level)}"
            yield from _indented(self._level(level + 1))

    def _depth(self, store: Store) -> int:
        return max((k + 1 for k, axis in enumerate(self.loops.order) if axis.bit & store.deps), default=0)

    def _how(self, axis: LoopAxis, level: int) -> str:
        loops, notes = self.loops, list[str]()
        if level < loops.parallel:
            chunk = f", {loops.chunk} steps each" if level == loops.parallel - 1 else ""
            notes.append(f"parallel: {loops.chunks} chunks{chunk}")
        if axis is loops.vector:
            notes.append(f"{loops.lanes} lanes" + (f" x {loops.unroll}" if loops.unroll > 1 else ""))
        if axis is loops.tile:
            notes.append(f"tile: {loops.rows} rows at a time, transposed in registers")
        if axis.bit & loops.serial:
            notes.append("in order")
        return f" [{'; '.join(notes)}]" if notes else ""

    def _values(self, around: tuple[LoopAxis, ...], wanted: Sequence[Node]) -> Iterator[str]:
        """Named values that are computed inside exactly these loops."""
        for node in reachable(wanted):
            place = self.places.get(node)
            if node not in self.named or node in self.printed or place is None or place.loops != around:
                continue
            self.printed.add(node)
            if node.op == "fold":
                yield from self._fold(node, around)
            else:
                yield f"{self.named[node]} = {self._expression(node)}"

    def _fold(self, node: Node, around: tuple[LoopAxis, ...]) -> Iterator[str]:
        fold: Fold = node.data
        name = ", ".join(dict.fromkeys(fold.operations)) or None
        over = f"along {self.axes[fold.scan]}" if fold.scan is not None else "over " + ", ".join(
            f"{self.axes[a]} in {a.extent}" for a in fold.bound
        )  # fmt: skip
        vector = self.loops.folds.get(node)
        notes = [f"vectors along {self.axes[vector]}"] if vector is not None else []
        notes += ["in order"] if fold.ordered else []
        how = f" [{'; '.join(notes)}]" if notes else ""
        start = ", ".join(map(self._text, fold.inits))
        kind = "prefix fold" if fold.scan is not None else "fold"
        yield f"{self.named[node]} = {kind} {name or 'combiner'} {over} from {start}{how}:"
        inside = [*fold.bodies, *((fold.valid,) if fold.valid is not None else ())]
        within = self._values((*around, *fold.bound), inside) if fold.bound else iter(())
        yield from _indented(within)
        yield (
            "  "
            + ", ".join(map(self._text, fold.bodies))
            + (f" where {self._text(fold.valid)}" if fold.valid is not None else "")
        )
        if name is None:
            yield "  combined: " + ", ".join(map(self._combined, fold.combined))

    def _combined(self, node: Node) -> str:
        if node.op == "hole":
            return f"${node.data[0]}"
        return self._expression(node, self._combined)

    def _shown(self, node: Node) -> str:
        return self.named.get(node) or self._text(node)

    def _text(self, node: Node) -> str:
        return self.named.get(node) or self._expression(node)

    def _expression(self, node: Node, text: Any = None) -> str:
        text = text or self._text
        if node.op == "const":
            return f"{node.data}"
        if node.op == "number":
            return f"({self._affine(node.data)})"
        if node.op == "range":
            affine, low, high = node.data
            return f"{low} <= {self._affine(affine)} < {high}"
        if node.op in ("load", "current"):
            guard = f" if {', '.join(map(text, node.args))}" if node.args else ""
            return f"{node.data[0]}[{self._affine(node.data[1])}]{guard}"
        if node.op == "part":
            return f"{text(node.args[0])}.{node.data}"
        if node.op == "hole":
            return f"${node.data[0]}"
        arguments = ", ".join(map(text, node.args))
        kind = f".{node.dtype}" if node.op in ("convert", "bitcast") else ""
        data = f", {node.data}" if node.data is not None and node.op != "fold" else ""
        return f"{node.op}{kind}({arguments}{data})"

    def _affine(self, affine: Affine) -> str:
        parts: list[str] = []
        for key, c in affine.terms:
            if isinstance(key, RuntimeInt):
                name = self._text(key.node)
            else:
                name = self.axes[key] if isinstance(key, LoopAxis) else key.name
            parts.append(name if c == 1 else f"{name}*{c}")
        if affine.constant or not parts:
            parts.append(str(affine.constant))
        return " + ".join(parts).replace("+ -", "- ")


def _run_time(affine: Affine) -> list[Node]:
    return [key.node for key, _ in affine.terms if isinstance(key, RuntimeInt)]


def _axis_names(nodes: Sequence[Node], order: Sequence[LoopAxis]) -> dict[LoopAxis, str]:
    """i, j, k, ... in the order of the nest, then of the folds' own axes."""
    axes = list(order)
    for node in nodes:
        if node.op == "fold":
            axes += [axis for axis in node.data.bound if axis not in axes]
            if node.data.scan is not None and node.data.scan not in axes:
                axes.append(node.data.scan)
    letters = "ijklmnopq"
    return {axis: letters[k] if k < len(letters) else f"i{k}" for k, axis in enumerate(axes)}
