"""StableHLO's constraints on the quantised types of an operation's operands and results."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.stablehlo.products import convolution_numbers, dot_dimensions
from hlokit.stablehlo.site import Site
from hlokit.stablehlo.tree import Quantized

_PER_AXIS = frozenset(
    [
        "add",
        "bitcast_convert",
        "broadcast",
        "broadcast_in_dim",
        "case",
        "composite",
        "constant",
        "convolution",
        "custom_call",
        "dot",
        "dot_general",
        "dynamic_broadcast_in_dim",
        "dynamic_reshape",
        "get_dimension_size",
        "get_tuple_element",
        "if",
        "infeed",
        "outfeed",
        "recv",
        "reshape",
        "send",
        "transpose",
        "tuple",
        "uniform_dequantize",
        "uniform_quantize",
        "while",
    ]
)
"""The operations that take or give values with a scale for each index of a dimension."""


def check(site: Site, given: Sequence[Quantized | None], made: Sequence[Quantized | None]) -> None:
    """Refuses what StableHLO's verifier refuses; `given` and `made` are the quantised types of operands and results."""
    dialect, _, name = site.name.partition(".")
    if dialect not in ("stablehlo", "mhlo"):
        return
    axes = [e.axis for e in (*given, *made) if e is not None and e.axis is not None]
    if axes and name not in _PER_AXIS:
        raise site.error(f"{site.name} takes one scale for all elements, found one for each of dimension {axes[0]}")
    if name == "add" and len(given) == 2 and len(made) == 1:
        _check_sum(site, given, made[0])
    elif name in ("convolution", "dynamic_conv", "dot_general") and len(given) >= 2 and len(made) == 1:
        _check_product(site, given[0], given[1], made[0])


def _check_sum(site: Site, given: Sequence[Quantized | None], made: Quantized | None) -> None:
    """C2 to C7 of add."""
    if made is None or None in given:
        raise site.error(f"{site.name}: operands and result are all quantised, or none is")
    operands = [e for e in given if e is not None]
    if any((e.storage, e.expressed) != (made.storage, made.expressed) for e in operands):
        raise site.error(f"{site.name}: storage or expressed types of operands and result differ")
    if made.axis is None and any(e.axis is not None for e in operands):
        raise site.error(f"{site.name}: an operand has a scale for each index, the result has one for all")
    if any(e.axis is not None and e.axis != made.axis for e in operands):
        raise site.error(f"{site.name}: an operand has scales for another dimension than the result")


def _check_product(site: Site, lhs: Quantized | None, rhs: Quantized | None, made: Quantized | None) -> None:
    """C28 to C34 of convolution, C14 to C20 of dot_general."""
    if rhs is None or (lhs is None) != (made is None):
        raise site.error(f"{site.name}: of quantised types rhs has one, and lhs and result either both or neither")
    if site.name.endswith("dot_general"):
        if any(rhs.zero_points):
            raise site.error(f"{site.name}: the zero points of rhs are 0, found {list(rhs.zero_points)}")
        if rhs.axis in dot_dimensions(site)[3]:
            raise site.error(f"{site.name}: rhs has scales for the contracting dimension {rhs.axis}")
    else:
        numbers = convolution_numbers(site)
        if rhs.axis not in (None, numbers.kernel_output_feature_dimension):
            raise site.error(f"{site.name}: rhs has scales for another dimension than its output features")
        if made is not None and made.axis not in (None, numbers.output_feature_dimension):
            raise site.error(f"{site.name}: the result has scales for another dimension than its features")
    if lhs is None or made is None:
        others = [site.operand(0).dtype, site.result().dtype]
    else:
        others = [lhs.expressed, made.expressed]
        if lhs.storage is not rhs.storage:
            raise site.error(f"{site.name}: storage types of lhs and rhs differ: {lhs.storage} and {rhs.storage}")
        if rhs.axis is None and made.axis is not None:
            raise site.error(f"{site.name}: rhs has one scale for all elements, the result one for each index")
    if any(other is not rhs.expressed for other in others):
        raise site.error(f"{site.name}: rhs stands for {rhs.expressed}, lhs and result for {others[0]} and {others[1]}")

