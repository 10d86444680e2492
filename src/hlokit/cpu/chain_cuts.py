"""Where chains of instructions that are too long for one kernel are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from hlokit.cpu.leaf import Leaf
from hlokit.hlo.instruction import Instruction

_SHALLOW = 5
"""Instructions in a row that are computed on both sides of a cut sooner than stored: broadcasts, iotas, tests."""


def smallest_frontier(
    order: Sequence[Instruction],
    last: int,
    depths: Mapping[Instruction, int],
    operands: Callable[[Instruction], Sequence[Leaf]],
) -> tuple[int, list[Leaf]]:
    """Cuts the chain to `order[last]` where the fewest bytes are alive: the place before the cut, and what to store.

    order     instructions, operands first
    depths    how many instructions in a row each ends, of those up to `last`
    operands  what of an instruction's operands is computed and not stored
    """
    places = {instruction: k for k, instruction in enumerate(order[: last + 1])}
    used: dict[Leaf, int] = {}  # where each leaf that the chain is made of is needed last
    least, most = last, depths[order[last]]
    waiting, seen = [order[last]], {order[last]}
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
    changes = [0] * (last + 2)
    counts = [0] * (last + 2)
    alive = {leaf: place for leaf, place in used.items() if depths[leaf.instruction] >= _SHALLOW}
    for leaf, place in alive.items():
        for totals, size in ((changes, leaf.shape.nbytes), (counts, 1)):
            totals[places[leaf.instruction]] += size
            totals[place] -= size
    costs = zip(accumulate(changes), accumulate(counts), strict=True)
    possible = [(cost, -k) for k, (cost, count) in enumerate(costs) if least <= k < last and count]
    if not possible:
        return last, []
    k = -min(possible)[1]
    return k, [leaf for leaf, place in alive.items() if places[leaf.instruction] <= k < place]
