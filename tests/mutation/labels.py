"""Which rules the mutants break: labels drawn at random from the reference."""

from __future__ import annotations

from random import Random

from tests.rules.test_labels import reference_labels

SEED = 20261120
COUNT = 50

LEFT_OUT = frozenset(
    {"TYPE-11", "LAYOUT-6", "GRP-8", "WHILE-7", "HASYNC-8", "HLAY-8", "HSHARD-8", "HSHARD-9", "DYN-BCAST-4", "SDS-10"}
    | {f"HMESH-{number}" for number in range(1, 5)}
    | {"BEY-81", "BEY-82", "BEY-83", "HMOD-19", "HMOD-20", "HCOMP-12", "TYPE-13"}
    | {f"CCALL-{number}" for number in range(11, 15)}
    | {f"PART-{number}" for number in range(1, 8)}
    | {"EXP-2", "SQRT-2", "SORT-15"}
)
"""What tests/rules/untestable.py had on the day of the draw, and the rules made since: so the draw stays what it was."""

NOT_BREAKABLE = {
    "SAS-16": "binds the program (select must be transitive) and leaves the result of others open: no code violates it",
}
"""Drawn labels that no change of the code can break; the next label of the same draw takes their place."""


def drawn() -> list[str]:
    """The labels that mutants must exist for, in the order of the draw."""
    labels = sorted(label for label, kind in reference_labels().items() if kind != "A" and label not in LEFT_OUT)
    # a longer sample of a large population begins with the shorter one
    sample = Random(SEED).sample(labels, COUNT + len(NOT_BREAKABLE))
    return [label for label in sample if label not in NOT_BREAKABLE]
