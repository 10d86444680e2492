"""Scatter: a kernel that combines each update with its target element, in order, and kernels that fill the target."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hlokit.cpu.loops import scattering
from hlokit.cpu.loops.arithmetic import parts_of
from hlokit.cpu.loops.build import Build
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.loops.expr import Buffer, Node, Pair, affine_deps, runtime_nodes
from hlokit.cpu.loops.nest import Store
from hlokit.cpu.lower.drafts import Attempt, Draft, retried
from hlokit.cpu.lower.kernels import check_apart, element_draft, stores_of
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.retries import Materialise, NoKernel
from hlokit.cpu.lower.traits import leaf_count
from hlokit.forms.affine import Affine, Index, row_major
from hlokit.forms.scatter import Scattering
from hlokit.hlo.instruction import Instruction


def scatter_kernel(leaves: Leaves, instruction: Instruction, roots: list[Leaf]) -> Draft:
    """The kernel of a scatter, with those that fill its results first."""
    kernel = retried(leaves, [instruction], lambda attempt: _scatter(attempt, instruction, roots))
    kernel.fills = _fills(leaves, instruction)
    return kernel


def result_buffers(leaves: Leaves, instruction: Instruction) -> list[Buffer]:
    """The buffers of a scatter's results."""
    return [leaves.stored[Leaf(instruction, k)] for k in range(leaf_count(instruction.shape))]


def _fills(leaves: Leaves, instruction: Instruction) -> dict[int, Draft]:
    """Kernels that put a scatter's operands straight into its results."""
    found: dict[int, Draft] = {}
    for k, buffer in enumerate(result_buffers(leaves, instruction)):
        source = leaves.leaf(instruction.operands[k])
        if source in leaves.stored:
            continue
        leaves.stored[source] = buffer
        with suppress(NoKernel):
            found[k] = element_draft(leaves, [[source]])
        del leaves.stored[source]
        if k not in found:
            leaves.store(source, f"{instruction.name} starts from it")
    return found


def _scatter(attempt: Attempt, instruction: Instruction, roots: list[Leaf]) -> Draft:
    leaves, op = attempt.leaves, instruction.op
    build = attempt.start([])
    emit = build.arithmetic
    readers = build.readers(instruction)
    spec = op.scatter([r.shape for r in readers])
    operands, updates = readers[: spec.count], readers[spec.count + 1 :]
    sizes = updates[0].shape.dimensions
    index = build.space.index(sizes)
    axes = build.space.axes
    target = op.target(emit, index, *readers)
    guards = _guards(build, target.guards)
    place = row_major(target.index, operands[0].shape.dimensions)
    every_step = sum(axis.bit for axis in axes)
    results = [Leaf(instruction, k) for k in range(spec.count)]
    for leaf in results:
        leaves.store(leaf, "scatter writes it")
    current = [_current(build, leaf, leaves.stored[leaf], place, guards, every_step) for leaf in results]
    new = emit.under(guards, lambda: [update(index) for update in updates])
    made = [(spec.count, (*guards, *runtime_nodes(place)))]
    made += [(spec.count + 1 + k, parts_of([value])) for k, value in enumerate(new)]
    for number, nodes in made:
        leaf = leaves.leaf(instruction.operands[number])
        if leaf not in leaves.stored and scattering.goes_one_by_one(spec, sizes):
            if scattering.is_work_for_vectors(nodes):
                raise Materialise(leaf, f"{instruction.name} goes one by one")
        check_apart(leaves, instruction, number, nodes)
    combiner = CalledFunction(emit, dict(instruction.called_by_role())[spec.combiner])
    combined = combiner.results(*current, *new)
    stores: list[Store] = []
    for leaf in results:
        stores += stores_of(leaves.stored[leaf], place, combined[leaf.number], guards)
    apart = [axis for axis in axes if scattering.keeps_apart(axis, place)]
    serial = _serial(spec, index, sizes)
    for axis in apart:
        serial &= ~axis.bit
    return Draft(roots, build, stores, [*apart, *(axis for axis in axes if axis not in apart)], serial)


def _guards(build: Build, conditions: Any) -> tuple[Node, ...]:
    """The conditions under which an update takes part, as nodes."""
    unknown = scattering.joined(build.arithmetic, [c for c in conditions if not isinstance(c, bool)])
    if any(c is False for c in conditions):
        return (build.expressions.flag(False),)
    return tuple(guard for guard in unknown if guard.op != "const" or not guard.data)


def _serial(spec: Scattering, index: Index, sizes: tuple[int, ...]) -> int:
    """The axes along which updates may meet at a target: these go in order."""
    moving = {u for u, _ in spec.window}
    last = max((u for u in range(len(index)) if u not in moving and sizes[u] > 1), default=-1)
    serial = 0
    for affine in index[: last + 1]:  # windows overlap: an axis of theirs outside such a loop is no other
        serial |= affine_deps(affine)
    return serial


def _current(build: Build, leaf: Leaf, buffer: Buffer, place: Affine, guards: tuple[Node, ...], deps: int) -> Any:
    """The target's value now: read again for every update."""

    def read(affine: Affine) -> Node:
        return build.expressions.node("current", buffer.dtype, guards, (buffer, affine, deps))

    if leaf.shape.dtype.is_complex:
        return Pair(leaf.shape.dtype, read(place * 2), read(place * 2 + 1))
    return read(place)
