"""Cuts chains of instructions that are too long for one kernel, by storing the values that are live at the cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.traits import leaf_count
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import Op

MAX_FOLDS = 6
"""Folds in a kernel that need each other: each goes through what is between it and memory again."""
_SHALLOW = 5
"""Instructions in a row that are computed on both sides of a cut sooner than stored: broadcasts, iotas, tests."""
_NESTED: tuple[tuple[Callable[[Op], bool], int, str], ...] = (
    (lambda op: op.form == "fold", MAX_FOLDS, "too many folds need each other"),
    (lambda op: op.spreads(), 1, "its elements are spread twice"),
    (lambda op: op.thins(), 3, "its elements are thinned out too often"),
)
"""A limit of how often values may need each other in one kernel, and its reason.

Each fold goes through all before it again. What is spread twice has an index that is divided twice: no vector goes
along it. What is thinned out three times is read at eight places.
"""


def store_deep(leaves: Leaves, live: Collection[Instruction], deep: int) -> None:
    """Long chains are cut at the same places, whatever reads them: else what each reader cuts is the others' work.

    Those too in which too much of one kind needs each other (see _NESTED).
    """
    order = [i for i in leaves.order if i in live and i.operands and leaves.is_kernel(i)]
    places = {instruction: k for k, instruction in enumerate(order)}
    depths: dict[Instruction, int] = {}
    nested: dict[Instruction, list[int]] = {}

    def inside(instruction: Instruction) -> list[Leaf]:
        operands = leaves.operands(instruction)
        return [leaf for leaf in operands if leaf.instruction in depths and leaf not in leaves.stored]

    k = 0
    while k < len(order):
        instruction = order[k]
        own = [is_one(instruction.op) for is_one, _, _ in _NESTED]
        read = inside(instruction)
        for kind, (_, most, reason) in enumerate(_NESTED):
            if own[kind] and any(nested[leaf.instruction][kind] >= most for leaf in read):
                for leaf in read:
                    leaves.store(leaf, reason)
                read = inside(instruction)
        before = [leaf.instruction for leaf in read]
        depths[instruction] = 1 + max((depths[i] for i in before), default=0)
        nested[instruction] = [
            is_one + max((nested[i][kind] for i in before), default=0) for kind, is_one in enumerate(own)
        ]
        if depths[instruction] >= deep:
            k, cut = smallest_frontier(instruction, places, depths, inside)
            for leaf in cut or [Leaf(instruction, n) for n in range(leaf_count(instruction.shape))]:
                leaves.store(leaf, "the chain of instructions is too long for one kernel")
        k += 1


def smallest_frontier(
    end: Instruction,
    places: Mapping[Instruction, int],
    depths: Mapping[Instruction, int],
    operands: Callable[[Instruction], Sequence[Leaf]],
) -> tuple[int, list[Leaf]]:
    """Cuts the chain to `end` where the fewest bytes are alive: the place before the cut, and what to store.

    places    of instructions in their order, operands first
    depths    how many instructions in a row each ends, of those up to `end`
    operands  what of an instruction's operands is computed and not stored
    """
    used: dict[Leaf, int] = {}  # where each leaf that the chain is made of is needed last
    last = least = places[end]
    most = depths[end]
    waiting, seen = [end], {end}
    while waiting:
        user = waiting.pop()
        for leaf in operands(user):
            made = leaf.instruction
            used[leaf] = max(used.get(leaf, 0), places[user])
            if 3 * depths[made] >= most:
                least = min(least, places[made])
            if made not in seen:
                seen.add(made)
                waiting.append(made)
    alive = {leaf: place for leaf, place in used.items() if depths[leaf.instruction] >= _SHALLOW}
    first = min((places[leaf.instruction] for leaf in alive), default=last)
    changes = [0] * (last + 1 - first)
    counts = [0] * (last + 1 - first)
    for leaf, place in alive.items():
        for totals, size in ((changes, leaf.shape.nbytes), (counts, 1)):
            totals[places[leaf.instruction] - first] += size
            totals[place - first] -= size
    costs = zip(accumulate(changes), accumulate(counts), strict=True)
    possible = [(cost, -k) for k, (cost, count) in enumerate(costs, first) if least <= k < last and count]
    if not possible:
        return last, []
    k = -min(possible)[1]
    return k, [leaf for leaf, place in alive.items() if places[leaf.instruction] <= k < place]
