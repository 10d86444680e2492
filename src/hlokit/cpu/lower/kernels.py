"""Kernels over elements: loops that store all elements of leaves, or those of a small update in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.cpu.loops.arithmetic import parts_of
from hlokit.cpu.loops.expr import Buffer, Node, Pair, reachable, with_combiner
from hlokit.cpu.loops.nest import Store
from hlokit.cpu.lower.drafts import Attempt, Built, Draft, Likeness, retried
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.patterns import pattern
from hlokit.cpu.lower.retries import Materialise, NoKernel
from hlokit.cpu.lower.traits import is_small_update
from hlokit.forms.affine import Affine, row_major
from hlokit.hlo.instruction import Instruction
from hlokit.ops.slicing import DynamicUpdateSlice


def element_kernel(leaves: Leaves, instruction: Instruction, roots: list[Leaf]) -> Draft:
    """The kernel of an instruction's leaves of equal dimensions; of a small update in place it writes that alone."""
    if isinstance(instruction.op, DynamicUpdateSlice) and leaves.leaf(instruction.operands[0]) in leaves.stored:
        if is_small_update(instruction):
            return retried(leaves, [instruction], lambda attempt: update(attempt, instruction))
    return element_draft(leaves, [roots])


def element_draft(leaves: Leaves, groups: Sequence[Sequence[Leaf]], *, cuts: bool = True) -> Draft:
    """The kernel that stores these leaves (see `elements`), built unless one of the same pattern was before.

    Without `cuts` nothing new is stored. Raises NoKernel where there is none.
    """
    known = leaves.context.built
    found = pattern(leaves, groups)
    roots = [leaf for group in groups for leaf in group]
    if found is not None and found.form in known:
        built = known[found.form]
        if built is not None:
            return Likeness(roots, built, found)
        if not cuts:
            raise NoKernel("none was found for others of its pattern", ())
    count = len(leaves.stored)
    try:
        made = [leaf.instruction for leaf in roots]
        draft = retried(leaves, made, lambda attempt: elements(attempt, groups), cuts=cuts)
    except NoKernel:
        if found is not None and not cuts:
            known[found.form] = None
        raise
    if len(leaves.stored) != count:
        found = pattern(leaves, groups)
    if found is not None:
        known[found.form] = Built(draft, found)
    return draft


def elements(attempt: Attempt, groups: Sequence[Sequence[Leaf]]) -> Draft:
    """Leaves of equal dimensions, or of the leading ones of the first, each element stored where it belongs."""
    roots = [leaf for group in groups for leaf in group]
    build = attempt.start(roots, in_order=False)
    index = build.space.index(roots[0].shape.dimensions)
    axes = build.space.around = build.space.axes
    stores: list[Store] = []
    for leaf in roots:
        sizes = leaf.shape.dimensions
        value = build.element(leaf, index[: len(sizes)])
        stores += stores_of(attempt.leaves.stored[leaf], row_major(index[: len(sizes)], sizes), value)
    return Draft(roots, build, stores, axes)


def update(attempt: Attempt, instruction: Instruction) -> Draft:
    """dynamic-update-slice in place: only the update's elements are written."""
    leaves, root = attempt.leaves, Leaf(instruction, 0)
    build = attempt.start([root])
    array, new, *starts = build.readers(instruction)
    index = build.space.index(new.shape.dimensions)
    axes = build.space.axes
    place: list[Affine] = []
    for start, i, bound, size in zip(starts, index, array.shape.dimensions, new.shape.dimensions, strict=True):
        place.append(build.arithmetic.as_index(start(()), 0, bound - size + 1) + i)
    value = new(index)
    check_apart(leaves, instruction, 1, parts_of([value]))
    stores = stores_of(leaves.stored[root], row_major(tuple(place), array.shape.dimensions), value)
    return Draft([root], build, stores, axes, source=leaves.stored[leaves.leaf(instruction.operands[0])])


def check_apart(leaves: Leaves, instruction: Instruction, number: int, nodes: Sequence[Node]) -> None:
    """An operand that is computed from the array of which a small part is updated is stored before: the array is
    then read no more, and need not be copied."""
    array, leaf = leaves.leaf(instruction.operands[0]), leaves.leaf(instruction.operands[number])
    source = leaves.stored.get(array)
    if source is None or leaf in leaves.stored or leaf.shape.size * 4 > array.shape.size:
        return
    if any(node.op == "load" and node.data[0] is source for node in reachable(nodes, with_combiner)):
        raise Materialise(leaf, f"it is computed from what {instruction.name} updates")


def stores_of(buffer: Buffer, place: Affine, value: Any, guards: tuple[Node, ...] = ()) -> list[Store]:
    """The stores of a real value, or of both components of a complex one."""
    if isinstance(value, Pair):
        parts = (value.real, value.imag)
        return [Store(buffer, place * 2 + k, part, guards) for k, part in enumerate(parts)]
    return [Store(buffer, place, value, guards)]
