"""Where chains of instructions that are too long for one kernel are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from hlokit.cpu.leaf import Leaf
from hlokit.hlo.instruction import Instruction

_SHALLOW = 5
"""Instructions in a row that are computed on both sides of a cut sooner than stored: broadcasts, iotas, tests."""


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
