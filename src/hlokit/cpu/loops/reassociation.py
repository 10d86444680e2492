"""Reassociation: which folds may be taken in lanes and in chunks."""

from __future__ import annotations

from hlokit.cpu.loops.expr import Fold, Node


def reassociates(fold: Fold) -> bool:
    """Whether the steps of a fold may be taken in any grouping and order (REDUCE-9).

    True where each accumulator takes its element in by one op that is associative and commutative, and of selections,
    each of whose results is one of the two: not always the same one, which would be the first or the last of all.
    Selections of several values at once (argmax) ask of equals, and of NaN, which came first: one value must tell
    (`counter`). The parts of a complex number are one value.
    """
    if fold.ordered:
        return False
    if fold.operations:
        return True
    values = {place for place, _ in fold.slots[: len(fold.inits)]}
    if len(values) > 1 and fold.scan is None and counter(fold) is None:
        return False
    return all(node.op == "select" and _selects(node) for node in fold.combined)


def counter(fold: Fold) -> int | None:
    """Which of the elements' values counts the steps upwards: of two elements the one with the lesser came first."""
    for k, body in enumerate(fold.bodies):
        if body.op == "number" and body.data.low >= 0 and body.data.high < 2 ** (body.dtype.bits - 1):
            passed, rises = 0, True  # by what the axes within raise it together
            for axis in reversed(fold.bound):
                step = body.data.coefficient(axis)
                rises &= step > passed
                passed += step * (axis.extent - 1)
            if rises:
                return k
    return None


def _selects(node: Node) -> bool:
    if node.op == "hole":
        return True
    return node.op == "select" and all(_selects(a) for a in node.args[1:])
