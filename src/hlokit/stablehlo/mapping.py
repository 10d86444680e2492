"""The operations that are read: name to the rule that lowers it."""

from __future__ import annotations

from hlokit.stablehlo import checks, chlo, collectives, control, elementwise, movement, products, quantized, reductions
from hlokit.stablehlo.site import Rule

STABLEHLO: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **products.RULES,
    **reductions.RULES,
    **control.RULES,
    **collectives.RULES,
    **quantized.RULES,
}
"""stablehlo.NAME; mhlo.NAME means the same."""

MHLO: dict[str, Rule] = {**elementwise.MHLO_RULES, **products.MHLO_RULES}
"""mhlo.NAME, before what stablehlo.NAME and chlo.NAME mean."""

CHLO = chlo.RULES
OTHERS: dict[str, Rule] = {**control.OTHER_RULES, **checks.RULES}

STABLEHLO_DIALECTS = frozenset({"stablehlo", "chlo", "mhlo"})
DIALECTS = STABLEHLO_DIALECTS | {"builtin", "func"} | {name.partition(".")[0] for name in OTHERS}
"""Dialects of which some operations are read."""

_OTHER_NAMES = {"topk": "top_k"}


def rule_of(name: str) -> Rule | None:
    """The rule for an operation's full name."""
    dialect, _, short = name.partition(".")
    if dialect == "chlo":
        return CHLO.get(short)
    if dialect == "stablehlo":
        return STABLEHLO.get(short)
    if dialect == "mhlo":
        return MHLO.get(short) or STABLEHLO.get(short) or CHLO.get(_OTHER_NAMES.get(short, short))
    return OTHERS.get(name)
